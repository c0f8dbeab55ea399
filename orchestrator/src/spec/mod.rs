//! The spec as a whole: loaded, checked across its layers, and turned into tasks with resolved names.

mod cross;
mod layers;
mod overrides;

#[cfg(test)]
mod quality_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use cli::Failure;
use lake::spec::{Document, Header, Problems, did_you_mean};
use lake::{Clock, Error, Result, TableName};

use crate::graph::Graph;
use crate::run::Policy;

pub(crate) use layers::Job;

/// A spec without problems.
#[derive(Debug)]
pub(crate) struct Project {
    /// The spec file as the user named it.
    pub(crate) file: PathBuf,
    /// The folder of the spec; relative paths start there.
    pub(crate) folder: PathBuf,
    /// Its top.
    pub(crate) header: Header,
    /// Its tasks in the order of the spec.
    pub(crate) tasks: Vec<Task>,
    /// How the tasks need one another.
    pub(crate) graph: Graph,
}

/// One task: the table that it writes and how.
#[derive(Debug)]
pub(crate) struct Task {
    /// The table.
    pub(crate) name: TableName,
    /// What it does.
    pub(crate) job: Job,
    /// How it is retried.
    pub(crate) policy: Policy,
    /// True when the spec says not to run it.
    pub(crate) disabled: bool,
}

impl Project {
    /// Loads a spec and checks all of it.
    ///
    /// # Errors
    /// When the file cannot be read, or all that is wrong with it.
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        Ok(Self::compile(&Document::load(path)?, &BTreeMap::new())?)
    }

    /// The same, which also holds the queries of models against the tables that there are, where the spec does not tell
    /// their columns.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) async fn load_with_tables(path: &Path) -> Result<Self, Failure> {
        let document = Document::load(path)?;
        let project = Self::compile(&document, &BTreeMap::new())?;
        let existing = project.existing().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the tables that there are could not be looked at");
            BTreeMap::new()
        });
        if existing.is_empty() { Ok(project) } else { Ok(Self::compile(&document, &existing)?) }
    }

    /// The columns of tables that models read and the spec does not tell.
    async fn existing(&self) -> Result<BTreeMap<TableName, SchemaRef>> {
        let told = |name: &TableName| match self.task(name).map(|task| &task.job) {
            Some(Job::Silver(plan)) => plan.known_columns().is_some(),
            Some(Job::Gold(plan)) => plan.model().is_some(),
            _ => false,
        };
        let models = self.tasks.iter().filter_map(|task| match &task.job {
            Job::Gold(plan) => plan.model(),
            _ => None,
        });
        let read: BTreeSet<TableName> = models.flat_map(|model| model.sources.clone()).collect();
        let mut existing = BTreeMap::new();
        let untold: Vec<TableName> = read.into_iter().filter(|name| !told(name)).collect();
        if untold.is_empty() {
            return Ok(existing);
        }
        let lake = self.header.lake(&self.folder, Clock::system())?;
        for name in untold {
            if let Some(table) = lake.table(&name).await? {
                existing.insert(name, table.schema());
            }
        }
        Ok(existing)
    }

    fn compile(document: &Document, existing: &BTreeMap<TableName, SchemaRef>) -> Result<Self, Problems> {
        let mut problems = document.problems();
        let header = document.header(&mut problems);
        for section in ["bronze", "silver", "gold"] {
            document.check_names(section, &mut problems);
        }
        let jobs = layers::compile(document, &header, existing, &mut problems);
        let names = cross::task_names(document);
        let overrides = overrides::compile(document, &names, &mut problems);
        let graph = cross::graph(document, &jobs, &overrides, &mut problems);
        let tasks = jobs.into_iter().map(|(name, job)| {
            let chosen = overrides.get(&name).cloned().unwrap_or_default();
            Task { name, job, policy: chosen.policy, disabled: chosen.disabled }
        });
        let (file, folder) = (document.file().to_owned(), document.folder().to_owned());
        let tasks = tasks.collect();
        match graph {
            Some(graph) => problems.finish(Self { file, folder, header, tasks, graph }),
            None => Err(problems),
        }
    }

    /// The task that writes a table.
    pub(crate) fn task(&self, name: &TableName) -> Option<&Task> {
        self.tasks.iter().find(|task| &task.name == name)
    }

    /// The names that `--select` gives, or all tasks that are not disabled.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Spec`] for a name that is no task, with the nearest one.
    pub(crate) fn select(&self, names: &[String]) -> Result<BTreeSet<TableName>> {
        if names.is_empty() {
            return Ok(self.tasks.iter().filter(|task| !task.disabled).map(|task| task.name.clone()).collect());
        }
        names.iter().map(|name| self.find(name)).collect()
    }

    fn find(&self, name: &str) -> Result<TableName> {
        let known: Vec<String> = self.tasks.iter().map(|task| task.name.to_string()).collect();
        if let Some(position) = known.iter().position(|known| known == name) {
            return Ok(self.tasks[position].name.clone());
        }
        let error = Error::spec(format!("there is no task `{name}`"));
        let same: Vec<&str> = known
            .iter()
            .map(String::as_str)
            .filter(|known| known.split_once('.').is_some_and(|(_, n)| n == name))
            .collect();
        Err(match same[..] {
            [] => match did_you_mean(name, known.iter().map(String::as_str)) {
                Some(hint) => error.hint(hint),
                None => error.hint("the spec has no tasks"),
            },
            _ => error.hint(format!(
                "did you mean {}?",
                same.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" or ")
            )),
        })
    }
}
