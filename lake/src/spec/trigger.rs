//! What starts runs while somebody watches, beside the clock: files, tables, time that passes, or nothing but the end of
//! the run before.

use schemars::JsonSchema;
use serde::Deserialize;

use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::scalars::Duration;
use crate::names::{Layer, TableName};

/// What starts runs, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TriggerEntry {
    /// Files that arrive.
    file_arrival: Option<FileArrival>,
    /// Delta tables that others write.
    table_update: Option<TableUpdateEntry>,
    /// Time that passes.
    periodic: Option<PeriodicEntry>,
}

/// When files that arrive start a run of what reads them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileArrival {
    /// A run starts when no file has changed for so long. Default: as soon as a file is complete.
    pub wait_after_last_change: Option<Duration>,
    /// From the start of a run to that of the next at least. Default 0s.
    pub min_time_between_triggers: Duration,
}

/// When new versions of tables start a run of everything, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["table_names"]))]
struct TableUpdateEntry {
    /// The tables: `silver.orders` of this lake, or the folder or URL of any Delta table.
    table_names: Vec<String>,
    /// Whether one of them is enough. Default any_updated.
    condition: UpdateCondition,
    /// A run starts when none of them has changed for so long. Default 0s.
    wait_after_last_change: Duration,
    /// From the start of a run to that of the next at least. Default 0s.
    min_time_between_triggers: Duration,
}

/// How many of the tables must have a new version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpdateCondition {
    /// One of them.
    #[default]
    AnyUpdated,
    /// Each of them, since the last run.
    AllUpdated,
}

/// Runs of everything, so far apart, as written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["interval"]))]
struct PeriodicEntry {
    /// From the start of a run to that of the next.
    interval: Duration,
}

/// What starts runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Files that arrive, where they do.
    pub file_arrival: Option<FileArrival>,
    /// New versions of tables.
    pub table_update: Option<TableUpdate>,
    /// From the start of a run of everything to that of the next.
    pub periodic: Option<Duration>,
    /// Whether a run follows the one before at once.
    pub continuous: bool,
}

/// When new versions of tables start a run of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableUpdate {
    /// The tables.
    pub tables: Vec<WatchedTable>,
    /// How many of them must have a new version.
    pub condition: UpdateCondition,
    /// How long none of them has changed.
    pub wait_after_last_change: Duration,
    /// From the start of a run to that of the next at least.
    pub min_time_between_triggers: Duration,
}

/// A table whose versions are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedTable {
    /// One of this lake.
    OfLake(TableName),
    /// The folder, relative to that of the spec, or the URL of any other.
    Elsewhere(String),
}

impl std::fmt::Display for WatchedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OfLake(name) => write!(f, "{name}"),
            Self::Elsewhere(place) => f.write_str(place),
        }
    }
}

impl Trigger {
    /// What starts runs of a spec that has a schedule, or not. Files do where nothing else is written.
    pub(super) fn compile(
        entry: Option<TriggerEntry>,
        continuous: bool,
        has_schedule: bool,
        problems: &mut Problems,
    ) -> Self {
        if continuous {
            for (key, is_there) in [("schedule", has_schedule), ("trigger", entry.is_some())] {
                if is_there {
                    let problem = format!("`continuous` and `{key}` both say when runs begin");
                    problems.add(Problem::of_key(&SpecPath::root().key(key), problem).hint("take one of them away"));
                }
            }
            return Self { continuous, ..Self::default() };
        }
        let is_alone = entry.is_none() && !has_schedule;
        let TriggerEntry { file_arrival, table_update, periodic } = entry.clone().unwrap_or_default();
        let is_empty = entry.is_some() && table_update.is_none() && periodic.is_none();
        let file_arrival = file_arrival.or_else(|| (is_alone || is_empty).then(FileArrival::default));
        let at = SpecPath::of(["trigger"]);
        let table_update = table_update.map(|entry| entry.compile(&at.key("table_update"), problems));
        let periodic = periodic.map(|entry| {
            let at = at.key("periodic");
            if entry.interval == Duration::default() && !problems.any_below(&at) {
                problems.add(Problem::at(&at.key("interval"), "`interval` needs some time, 10m for instance"));
            }
            entry.interval
        });
        Self { file_arrival, table_update, periodic, continuous }
    }
}

impl TableUpdateEntry {
    fn compile(self, at: &SpecPath, problems: &mut Problems) -> TableUpdate {
        let at = at.key("table_names");
        if self.table_names.is_empty() && !problems.any_below(&at) {
            problems.add(Problem::at(&at, "`table_names` is empty").hint("name a table, such as `silver.orders`"));
        }
        let tables = self.table_names.iter().enumerate();
        let tables = tables.filter_map(|(index, name)| match watched(name) {
            Ok(table) => Some(table),
            Err(problem) => {
                let hint =
                    "write `silver.orders` for a table of this lake, `./other/lake/silver/orders` or a URL for others";
                problems.add(Problem::at(&at.index(index), problem).hint(hint));
                None
            }
        });
        TableUpdate {
            tables: tables.collect(),
            condition: self.condition,
            wait_after_last_change: self.wait_after_last_change,
            min_time_between_triggers: self.min_time_between_triggers,
        }
    }
}

/// The table that a text names.
fn watched(name: &str) -> Result<WatchedTable, String> {
    if name.contains('/') {
        return Ok(WatchedTable::Elsewhere(name.to_owned()));
    }
    let layers = [Layer::Bronze, Layer::Silver, Layer::Gold, Layer::Quarantine];
    match TableName::parse(name).filter(|table| layers.contains(&table.layer)) {
        Some(table) => Ok(WatchedTable::OfLake(table)),
        None => Err(format!("`{name}` names no table")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;

    fn header(text: &str) -> (Trigger, String) {
        let document = Document::parse("p.yaml", &format!("name: a\n{text}"));
        let mut problems = document.problems();
        let header = document.header(&mut problems);
        (header.trigger, problems.finish(()).map_or_else(|problems| problems.to_string(), |()| String::new()))
    }

    #[test]
    fn files_start_runs_where_nothing_else_does() {
        let on_files = |text: &str| {
            let (trigger, problems) = header(text);
            assert_eq!(problems, "", "{text}");
            trigger.file_arrival.is_some()
        };
        for text in ["", "trigger: {}", "schedule: {cron: '0 * * * *'}\ntrigger: {file_arrival: {}}"] {
            assert!(on_files(text), "{text}");
        }
        let periodic = "trigger: {periodic: {interval: 10m}}";
        for text in ["schedule: {cron: '0 * * * *'}", periodic, "continuous: true"] {
            assert!(!on_files(text), "{text}");
        }
        assert!(on_files("trigger: {periodic: {interval: 10m}, file_arrival: {min_time_between_triggers: 1m}}"));
    }

    #[test]
    fn tables_are_those_of_the_lake_or_folders() {
        let (trigger, problems) = header("trigger: {table_update: {table_names: [silver.orders, ../other/x]}}");
        assert_eq!(problems, "");
        let update = trigger.table_update.expect("tables");
        let expected =
            [WatchedTable::OfLake(TableName::silver("orders")), WatchedTable::Elsewhere("../other/x".to_owned())];
        assert_eq!(update.tables, expected);
        for wrong in ["[orders]", "[state.event_log]", "[]"] {
            let (_, problems) = header(&format!("trigger: {{table_update: {{table_names: {wrong}}}}}"));
            assert!(problems.contains("table_names"), "{problems}");
        }
    }
}
