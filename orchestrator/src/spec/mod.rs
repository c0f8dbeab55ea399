//! The spec as a whole: loaded, checked across its layers, and turned into tasks with resolved names.

mod cross;
mod layers;
mod overrides;
pub(crate) mod schema;
mod selection;

#[cfg(test)]
mod quality_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use cli::Failure;
use lake::spec::{ByteSize, Document, Header, Problems, TableMaintenance};
use lake::{Clock, Result, TableName};

use crate::graph::Graph;
use crate::run::{Policy, RunIf};
use overrides::Overrides;

pub(crate) use layers::Job;
pub(crate) use selection::Selection;

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
    /// Which ends of the tasks that it depends on let it run.
    pub(crate) run_if: RunIf,
    /// What its queries may hold together, where the spec says so.
    pub(crate) memory: Option<ByteSize>,
    /// The threads that it takes, where the spec says so.
    pub(crate) threads: Option<u16>,
    /// What the spec says of its upkeep.
    pub(crate) maintenance: Option<TableMaintenance>,
}

impl Project {
    /// A project without a spec, for tables that are named by their paths.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Internal`], never.
    pub(crate) fn none() -> Result<Self> {
        let graph = Graph::new(&[]).map_err(|_| lake::Error::internal("no task runs in circles"))?;
        let (file, folder) = (PathBuf::new(), PathBuf::from("."));
        Ok(Self { file, folder, header: Header::default(), tasks: Vec::new(), graph })
    }

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
        let mut upkeep = BTreeMap::new();
        let jobs = layers::compile(document, &header, existing, &mut upkeep, &mut problems);
        let names = cross::task_names(document);
        let overrides = overrides::compile(document, &names, &header.engine, &mut problems);
        let graph = cross::graph(document, &jobs, &overrides, &mut problems);
        let tasks = jobs.into_iter().map(|(name, job)| {
            let Overrides { policy, disabled, run_if, memory, threads, .. } =
                overrides.get(&name).cloned().unwrap_or_default();
            let maintenance = upkeep.remove(&name);
            Task { name, job, policy, disabled, run_if, memory, threads, maintenance }
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
}
