//! Checks that need the whole spec: tables that tasks read must be written by tasks, and none may need itself.

use std::collections::{BTreeMap, BTreeSet};

use lake::spec::{Document, Problem, Problems, SpecPath, did_you_mean};
use lake::{Layer, TableName};

use super::layers::Job;
use super::overrides::Overrides;
use crate::graph::Graph;

/// The tasks of a spec in its order, also of entries with problems.
pub(super) fn task_names(document: &Document) -> Vec<TableName> {
    let layers = [Layer::Bronze, Layer::Silver, Layer::Gold].into_iter();
    layers
        .flat_map(|layer| document.names(layer.as_str()).into_iter().map(move |name| TableName::new(layer, name)))
        .collect()
}

/// The graph of the tasks; `None` when something in it is wrong.
pub(super) fn graph(
    document: &Document,
    jobs: &[(TableName, Job)],
    overrides: &BTreeMap<TableName, Overrides>,
    problems: &mut Problems,
) -> Option<Graph> {
    let names: BTreeSet<TableName> = task_names(document).into_iter().collect();
    let mut tasks: Vec<(TableName, BTreeSet<TableName>)> = Vec::new();
    for (name, job) in jobs {
        let reads = job.reads();
        for table in reads.iter().filter(|table| !is_written(table, &names)) {
            missing_table(name, job, table, &names, problems);
        }
        let mut needs: BTreeSet<TableName> = reads.iter().flat_map(|table| writers(table, jobs)).collect();
        needs.extend(overrides.get(name).into_iter().flat_map(|chosen| chosen.depends_on.iter().cloned()));
        tasks.push((name.clone(), needs));
    }
    match Graph::new(&tasks) {
        Ok(graph) => Some(graph),
        Err(cycles) => {
            for cycle in cycles {
                let at = cycle.0.first().map_or_else(SpecPath::root, path_of);
                let hint = "an arrow reads `needs`; take one of them away";
                problems.add(Problem::at(&at, format!("tasks need one another in a circle: {cycle}")).hint(hint));
            }
            None
        }
    }
}

/// The place of a task in the spec.
fn path_of(task: &TableName) -> SpecPath {
    SpecPath::of([task.layer.as_str(), &task.name])
}

/// True for a table that a task of the spec writes; a quarantine belongs to its bronze source.
fn is_written(table: &TableName, names: &BTreeSet<TableName>) -> bool {
    match table.layer {
        Layer::Quarantine => names.contains(&TableName::bronze(&table.name)),
        _ => names.contains(table),
    }
}

/// The tasks that write a table: rows come into a quarantine from bronze and from every silver table of the source.
fn writers(table: &TableName, jobs: &[(TableName, Job)]) -> Vec<TableName> {
    if table.layer != Layer::Quarantine {
        return vec![table.clone()];
    }
    let source = TableName::bronze(&table.name);
    let silver = jobs.iter().filter(|(name, job)| name.layer == Layer::Silver && job.reads().contains(&source));
    silver.map(|(name, _)| name.clone()).chain([source.clone()]).collect()
}

fn missing_table(task: &TableName, job: &Job, table: &TableName, names: &BTreeSet<TableName>, problems: &mut Problems) {
    // A silver table whose source is missing is told by its own layer.
    if task.layer == Layer::Silver {
        return;
    }
    let path = path_of(task).key(job.reading_key());
    let problem = Problem::at(&path, format!("there is no table `{table}`"));
    let quarantines =
        names.iter().filter(|name| name.layer == Layer::Bronze).map(|name| TableName::quarantine(&name.name));
    let known: Vec<String> = names.iter().cloned().chain(quarantines).map(|name| name.to_string()).collect();
    let other = |name: &&TableName| name.name == table.name && table.layer != Layer::Quarantine;
    let elsewhere: Vec<&str> = names.iter().filter(other).map(|name| name.layer.as_str()).collect();
    let hint = match elsewhere[..] {
        [layer] => Some(format!("did you mean `{layer}.{}`?", table.name)),
        _ => did_you_mean(&table.to_string(), known.iter().map(String::as_str)),
    };
    problems.add(Problem { hint, ..problem });
}
