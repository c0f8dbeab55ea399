//! The section `tasks:`: what a spec says about a task beside its table.

use std::collections::{BTreeMap, BTreeSet};

use lake::TableName;
use lake::spec::{Document, Duration, Problem, Problems, SpecPath};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::run::Policy;

/// Overrides of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// How it is retried.
    pub(crate) policy: Policy,
    /// True when it is not run unless it is selected by name.
    pub(crate) disabled: bool,
    /// Tasks that must end before it, beside those whose tables it reads.
    pub(crate) depends_on: BTreeSet<TableName>,
}

/// The same as written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-not-yet" = ["run_if", "retry_on_timeout", "memory", "threads"]))]
pub(super) struct Raw {
    /// Tasks that must end before this one, beside those whose tables it reads.
    depends_on: Vec<String>,
    /// Attempts after the first one. Default 2.
    #[schemars(range(max = 100))]
    max_retries: Option<u32>,
    /// The wait before the second attempt; it doubles with each further one. Default 5s.
    min_retry_interval: Option<Duration>,
    /// The longest that an attempt may take. Default: no limit.
    timeout: Option<Duration>,
    /// True: the task is not run unless it is selected by name, and what reads its table takes it as it is.
    disabled: bool,
}

/// Reads the section. Its keys and `depends_on` must name tasks.
pub(super) fn compile(
    document: &Document,
    tasks: &[TableName],
    problems: &mut Problems,
) -> BTreeMap<TableName, Overrides> {
    let known: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    let find = |name: &str, path: &SpecPath, problems: &mut Problems| {
        let found = known.iter().position(|known| known == name).map(|position| tasks[position].clone());
        if found.is_none() {
            let problem = Problem::at(path, format!("there is no task `{name}`"));
            problems.add(problem.did_you_mean(name, known.iter().map(String::as_str)));
        }
        found
    };
    let mut overrides = BTreeMap::new();
    for entry in document.section::<Raw>("tasks", problems) {
        let task = find(&entry.name, &entry.path, problems);
        let mut depends_on = BTreeSet::new();
        for (index, need) in entry.raw.depends_on.iter().enumerate() {
            depends_on.extend(find(need, &entry.path.key("depends_on").index(index), problems));
        }
        let usual = Policy::default();
        let policy = Policy {
            max_retries: entry.raw.max_retries.unwrap_or(usual.max_retries),
            min_retry_interval: entry.raw.min_retry_interval.map_or(usual.min_retry_interval, Duration::as_std),
            timeout: entry.raw.timeout.map(Duration::as_std),
        };
        if policy.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let hint = "leave it out for no limit";
            problems.add(Problem::at(&entry.path.key("timeout"), "a task needs some time").hint(hint));
        }
        if let Some(task) = task {
            overrides.insert(task, Overrides { policy, disabled: entry.raw.disabled, depends_on });
        }
    }
    overrides
}
