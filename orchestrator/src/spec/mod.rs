//! The spec as a whole: loaded, checked across its layers, and turned into tasks with resolved names.

mod cross;
mod layers;
mod overrides;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cli::Failure;
use lake::spec::{Document, Header, Problems, did_you_mean};
use lake::{Error, Result, TableName};

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
        Ok(Self::compile(&Document::load(path)?)?)
    }

    fn compile(document: &Document) -> Result<Self, Problems> {
        let mut problems = document.problems();
        let header = document.header(&mut problems);
        for section in ["bronze", "silver", "gold"] {
            document.check_names(section, &mut problems);
        }
        let jobs = layers::compile(document, &header, &mut problems);
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
