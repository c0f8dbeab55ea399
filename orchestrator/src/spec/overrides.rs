//! The section `tasks:`: what a spec says about a task beside its table.

use std::collections::{BTreeMap, BTreeSet};

use lake::TableName;
use lake::spec::{ByteSize, Document, Duration, Engine, Entry, Problem, Problems, SpecPath};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::run::{Policy, RunIf};

/// Overrides of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// How it is retried.
    pub(crate) policy: Policy,
    /// True when it is not run unless it is selected by name.
    pub(crate) disabled: bool,
    /// Tasks that must end before it, beside those whose tables it reads.
    pub(crate) depends_on: BTreeSet<TableName>,
    /// Which ends of these it asks for.
    pub(crate) run_if: RunIf,
    /// What its queries may hold.
    pub(crate) memory: Option<ByteSize>,
    /// The threads of its queries, and so many of the engine's that it takes.
    pub(crate) threads: Option<u16>,
}

/// The same as written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    /// Tasks that must end before this one, beside those whose tables it reads.
    depends_on: Vec<String>,
    /// Which ends of the tasks that it depends on let it run, once all have ended.
    run_if: RunIf,
    /// Attempts after the first one. Default 2.
    #[schemars(range(max = 100))]
    max_retries: Option<u32>,
    /// The wait before the second attempt; it doubles with each further one. Default 5s.
    min_retry_interval: Option<Duration>,
    /// The longest that an attempt may take. Default: no limit.
    timeout: Option<Duration>,
    /// Try again after an attempt that took too long.
    retry_on_timeout: bool,
    /// What the sorts, joins and aggregates of the task may hold together before they spill, as much as `engine.memory` at
    /// most. Default: `engine.memory` by the number of tasks that may run side by side.
    memory: Option<ByteSize>,
    /// Threads of a query of the task, and so many of `engine.threads` it takes while it runs. Default: queries take all,
    /// and the task counts as one.
    #[schemars(range(min = 1, max = 1024))]
    threads: Option<u16>,
    /// True: the task is not run unless it is selected by name, and what reads its table takes it as it is.
    disabled: bool,
}

/// Reads the section. Its keys and `depends_on` must name tasks.
pub(super) fn compile(
    document: &Document,
    tasks: &[TableName],
    engine: &Engine,
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
            retry_on_timeout: entry.raw.retry_on_timeout,
        };
        if policy.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let hint = "leave it out for no limit";
            problems.add(Problem::at(&entry.path.key("timeout"), "a task needs some time").hint(hint));
        }
        check_share(&entry, engine, problems);
        let Raw { disabled, run_if, memory, threads, .. } = entry.raw;
        if let Some(task) = task {
            overrides.insert(task, Overrides { policy, disabled, depends_on, run_if, memory, threads });
        }
    }
    overrides
}

/// A task cannot ask for more than there is.
fn check_share(entry: &Entry<Raw>, engine: &Engine, problems: &mut Problems) {
    let mut refuse = |key: &str, asked: String, there: String| {
        let message = format!("{asked} is more than the whole engine has, {there}");
        let hint = format!("ask for less, or raise `engine.{key}`");
        problems.add(Problem::at(&entry.path.key(key), message).hint(hint));
    };
    if let (Some(asked), Some(there)) = (entry.raw.memory, engine.memory)
        && asked > there
    {
        refuse("memory", asked.to_string(), there.to_string());
    }
    if let (Some(asked), Some(there)) = (entry.raw.threads, engine.threads)
        && asked > there
    {
        refuse("threads", asked.to_string(), there.to_string());
    }
    if entry.raw.memory.is_some_and(|memory| memory.as_bytes() == 0) {
        problems.add(
            Problem::at(&entry.path.key("memory"), "a task needs some memory").hint("leave it out for its usual share"),
        );
    }
}
