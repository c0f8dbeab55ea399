//! From the options of a gold table to a plan with resolved names; every problem at once.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::spec::{Duration, Entry, Problem, Problems, SpecPath, properties};
use lake::{Layer, TableName};

pub use self::checks::{ChecksPlan, ExpectationPlan, Rule, RulePlan};
use crate::sources::{Wrong, sources, table_named, unstable_in};
use crate::spec::{Checks, HardDeletes, Refresh, Strategy, Table};

/// A validated gold table.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// The result of a query.
    Model(ModelPlan),
    /// The state of another table, day by day.
    Snapshot(SnapshotPlan),
}

/// What a table says beside its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// What it is, in the user's words.
    pub description: Option<String>,
    /// What its columns hold, in the user's words.
    pub column_descriptions: Vec<(String, String)>,
    /// Properties of the Delta table, by name and value.
    pub properties: Vec<(String, String)>,
}

/// A table that is the result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPlan {
    /// The table.
    pub table: TableName,
    /// The query, without surrounding space.
    pub query: String,
    /// The tables that the query names.
    pub sources: BTreeSet<TableName>,
    /// The columns that identify a row of a source, where they are known.
    pub source_keys: BTreeMap<TableName, Vec<String>>,
    /// Functions of the query, and of what leaves rows out, whose answer differs from run to run: the result is never up to
    /// date.
    pub unstable: BTreeSet<String>,
    /// How it follows its sources.
    pub refresh: Refresh,
    /// The partition columns.
    pub partition_by: Vec<String>,
    /// The columns that upkeep clusters the table by.
    pub zorder_by: Vec<String>,
    /// The columns that identify a row, where the user names them.
    pub keys: Vec<String>,
    /// Whether all rows may be replaced where a refresh of groups will not do.
    pub reset_allowed: bool,
    /// What must hold before it is committed.
    pub checks: ChecksPlan,
    /// What it says beside its rows.
    pub about: About,
    /// Whether it is asked to be computed as a whole, whether something has changed or not.
    pub rebuild: bool,
}

impl ModelPlan {
    /// The options that name columns of the result.
    pub(crate) fn named_columns(&self) -> [(&'static str, &[String]); 3] {
        [("partition_by", &self.partition_by), ("zorder_by", &self.zorder_by), ("keys", &self.keys)]
    }
}

/// A table that keeps the state of another one for each day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// The table.
    pub table: TableName,
    /// The table whose state is kept.
    pub source: TableName,
    /// What is kept of a day.
    pub strategy: Strategy,
    /// The columns to keep; empty for all but the technical ones.
    pub columns: Vec<String>,
    /// The columns that make a row differ; empty for all kept ones.
    pub compare_columns: Vec<String>,
    /// The columns that identify a row; empty where the strategy needs none.
    pub keys: Vec<String>,
    /// The columns that identify a row of the source, whether the strategy needs them or not; empty when nobody knows.
    pub source_keys: Vec<String>,
    /// What becomes of a row that is gone.
    pub hard_deletes: HardDeletes,
    /// Days that are older by more than this go.
    pub retention_days: Option<u64>,
    /// What it says beside its rows.
    pub about: About,
}

impl SnapshotPlan {
    /// True when what a `changed_only` day records tells all of the source's state: each column makes a row differ, and
    /// rows that are gone are recorded.
    pub(crate) fn tells_all(&self) -> bool {
        self.compare_columns.is_empty() && self.hard_deletes == HardDeletes::Record
    }
}

impl Plan {
    /// The table that the plan makes.
    pub fn table(&self) -> &TableName {
        match self {
            Self::Model(plan) => &plan.table,
            Self::Snapshot(plan) => &plan.table,
        }
    }

    /// The tables that it reads.
    pub fn sources(&self) -> BTreeSet<TableName> {
        match self {
            Self::Model(plan) => plan.sources.iter().chain(plan.checks.tables()).cloned().collect(),
            Self::Snapshot(plan) => BTreeSet::from([plan.source.clone()]),
        }
    }

    /// The plan of a model.
    pub fn model(&self) -> Option<&ModelPlan> {
        match self {
            Self::Model(plan) => Some(plan),
            Self::Snapshot(_) => None,
        }
    }

    /// The key of the spec that names what it reads.
    pub fn source_key(&self) -> &'static str {
        match self {
            Self::Model(_) => "query",
            Self::Snapshot(_) => "snapshot_of",
        }
    }
}

/// The columns that tell apart what a silver table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Its keys.
    pub entity: Vec<String>,
    /// Whether it has one row of each.
    pub is_row: bool,
}

/// Checks one entry of the spec. `keys_of` tells the keys of a silver table; `None` for a table that the spec does not
/// have or that has problems of its own.
pub fn compile(
    entry: &Entry<Table>,
    keys_of: &dyn Fn(&TableName) -> Option<Keys>,
    problems: &mut Problems,
) -> Option<Plan> {
    let before = problems.len();
    let mut compiler = Compiler { entry, problems };
    let plan = match (&entry.raw.query, &entry.raw.snapshot_of) {
        (Some(query), None) => compiler.model(query, keys_of).map(Plan::Model),
        (None, Some(source)) => compiler.snapshot(source, keys_of).map(Plan::Snapshot),
        (Some(_), Some(_)) => {
            compiler.add(
                "snapshot_of",
                "a table is either a model (`query`) or a snapshot (`snapshot_of`), not both",
                None,
            );
            None
        }
        (None, None) => {
            let hint = "give it `query: SELECT …`, or `snapshot_of: silver.…`";
            compiler.problems.add(Problem::at(&entry.path, "the table has no rows to hold").hint(hint));
            None
        }
    };
    plan.filter(|_| problems.len() == before)
}

struct Compiler<'a> {
    entry: &'a Entry<Table>,
    problems: &'a mut Problems,
}

impl Compiler<'_> {
    fn model(&mut self, query: &str, keys_of: &dyn Fn(&TableName) -> Option<Keys>) -> Option<ModelPlan> {
        let raw = &self.entry.raw;
        let given = [
            ("strategy", raw.strategy.is_some()),
            ("columns", !raw.columns.is_empty()),
            ("compare_columns", !raw.compare_columns.is_empty()),
            ("hard_deletes", raw.hard_deletes.is_some()),
            ("retention", raw.retention.is_some()),
        ];
        self.foreign(&given, "a snapshot (`snapshot_of`), and this is a model (`query`)");
        self.once("partition_by", &raw.partition_by);
        self.once("zorder_by", &raw.zorder_by);
        for name in raw.zorder_by.iter().filter(|name| raw.partition_by.contains(name)) {
            let hint = Some("its values lie apart already; name another one".to_owned());
            self.add("zorder_by", format!("`{name}` is a partition column"), hint);
        }
        self.once("keys", &raw.keys);
        let found = match sources(query) {
            Ok(found) => found,
            Err(wrong) => {
                for wrong in wrong {
                    self.wrong("query", wrong);
                }
                return None;
            }
        };
        let keys = |source: &TableName| Some((source.clone(), keys_of(source).filter(|keys| keys.is_row)?.entity));
        let checks = self.checks();
        let of_drops = checks.drops().iter().flat_map(|check| unstable_in(check)).collect::<Vec<_>>();
        Some(ModelPlan {
            table: TableName::gold(&self.entry.name),
            query: query.trim().to_owned(),
            source_keys: found.tables.iter().filter_map(keys).collect(),
            sources: found.tables,
            unstable: found.unstable.into_iter().chain(of_drops).collect(),
            refresh: raw.refresh.unwrap_or_default(),
            partition_by: raw.partition_by.clone(),
            zorder_by: raw.zorder_by.clone(),
            keys: raw.keys.clone(),
            reset_allowed: raw.reset_allowed.unwrap_or(true),
            checks,
            about: self.about(),
            rebuild: false,
        })
    }

    fn snapshot(&mut self, source: &str, keys_of: &dyn Fn(&TableName) -> Option<Keys>) -> Option<SnapshotPlan> {
        let raw = &self.entry.raw;
        self.foreign(
            &[
                ("zorder_by", !raw.zorder_by.is_empty()),
                ("refresh", raw.refresh.is_some()),
                ("reset_allowed", raw.reset_allowed.is_some()),
                ("expectations", !raw.expectations.is_empty()),
                ("checks", raw.checks != Checks::default()),
            ],
            "a model (`query`), and this is a snapshot (`snapshot_of`)",
        );
        if !raw.partition_by.is_empty() {
            let hint = format!("leave it out: a snapshot is partitioned by `{SNAPSHOT_DATE}`");
            self.add("partition_by", "the partitions of a snapshot are fixed", Some(hint));
        }
        let strategy = raw.strategy.unwrap_or_default();
        if strategy == Strategy::Full {
            let given = [
                ("compare_columns", !raw.compare_columns.is_empty()),
                ("keys", !raw.keys.is_empty()),
                ("hard_deletes", raw.hard_deletes.is_some()),
            ];
            self.foreign(&given, "`strategy: changed_only`, and this is a `full` snapshot");
        }
        let source = match table_named(source) {
            Ok(source) => source,
            Err(wrong) => {
                self.wrong("snapshot_of", wrong);
                return None;
            }
        };
        let keys = match strategy {
            Strategy::Full => Vec::new(),
            Strategy::ChangedOnly => self.keys(&source, keys_of),
        };
        self.columns(&keys);
        let source_keys = match keys.is_empty() {
            true => {
                keys_of(&source).map(|keys| keys.entity).filter(|keys| kept(&raw.columns, keys)).unwrap_or_default()
            }
            false => keys.clone(),
        };
        let retention_days = raw.retention.and_then(|retention| self.days(retention));
        Some(SnapshotPlan {
            table: TableName::gold(&self.entry.name),
            source,
            strategy,
            columns: raw.columns.clone(),
            compare_columns: raw.compare_columns.clone(),
            keys,
            source_keys,
            hard_deletes: raw.hard_deletes.unwrap_or_default(),
            retention_days,
            about: self.about(),
        })
    }

    fn about(&mut self) -> About {
        let place = self.place("properties");
        About {
            description: self.entry.raw.description.clone(),
            column_descriptions: self.entry.raw.column_descriptions.clone().into_iter().collect(),
            properties: properties(&self.entry.raw.properties, &place, &[], self.problems),
        }
    }

    fn keys(&mut self, source: &TableName, keys_of: &dyn Fn(&TableName) -> Option<Keys>) -> Vec<String> {
        let raw = &self.entry.raw;
        self.once("keys", &raw.keys);
        if source.layer != Layer::Silver {
            if raw.keys.is_empty() {
                let hint = format!("name the columns that identify a row of {source}: `keys: [id]`");
                self.add("keys", "`changed_only` needs `keys`", Some(hint));
            }
            return raw.keys.clone();
        }
        match keys_of(source).map(|keys| keys.entity) {
            Some(keys) if raw.keys.is_empty() || raw.keys == keys => keys,
            Some(keys) => {
                let message = format!("{source} has the keys `{}`", keys.join("`, `"));
                self.add("keys", message, Some("leave `keys` out: a silver table brings its own".to_owned()));
                keys
            }
            // The table has a problem of its own, or is reported as missing.
            None => raw.keys.clone(),
        }
    }

    fn columns(&mut self, keys: &[String]) {
        let raw = &self.entry.raw;
        for key in ["columns", "compare_columns"] {
            let list = if key == "columns" { &raw.columns } else { &raw.compare_columns };
            self.once(key, list);
            for (index, column) in list.iter().enumerate() {
                if [SNAPSHOT_DATE, CHANGE].iter().any(|ours| ours.eq_ignore_ascii_case(column)) {
                    let at = self.entry.path.key(key).index(index);
                    self.problems
                        .add(Problem::at(&at, format!("`{column}` is a column that the snapshot itself adds")));
                }
            }
        }
        if raw.columns.is_empty() {
            return;
        }
        for key in keys.iter().filter(|key| !raw.columns.contains(key)) {
            let hint = format!("add `{key}`, or leave `columns` out to keep all");
            self.add("columns", format!("the key `{key}` is not among the kept columns"), Some(hint));
        }
        for column in raw.compare_columns.iter().filter(|column| !raw.columns.contains(column)) {
            let place = self.place("compare_columns");
            let problem = Problem::at(&place, format!("`{column}` is not among the kept columns"));
            self.problems.add(problem.did_you_mean(column, raw.columns.iter().map(String::as_str)));
        }
    }

    fn days(&mut self, retention: Duration) -> Option<u64> {
        let days = retention.as_days();
        if days == 0 || Duration::from_days(days) != retention {
            let hint = Some("write for example `365 days`".to_owned());
            self.add("retention", format!("`{retention}` is not a number of whole days"), hint);
            return None;
        }
        Some(days)
    }

    /// Reports options that belong elsewhere.
    fn foreign(&mut self, given: &[(&str, bool)], belongs_to: &str) {
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            self.add(key, format!("`{key}` belongs to {belongs_to}"), None);
        }
    }

    /// Reports names that stand in a list twice.
    fn once(&mut self, key: &str, names: &[String]) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let at = self.place(key).index(index);
            if name.trim().is_empty() {
                self.problems.add(Problem::at(&at, "a column name is empty"));
            } else if seen.insert(name.to_lowercase(), index).is_some() {
                self.problems.add(Problem::at(&at, format!("`{name}` is there twice")));
            }
        }
    }

    fn wrong(&mut self, key: &str, wrong: Wrong) {
        self.add(key, wrong.message, wrong.hint);
    }

    fn add(&mut self, key: &str, message: impl Into<String>, hint: Option<String>) {
        let place = self.place(key);
        let problem = Problem::at(&place, message);
        self.problems.add(match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        });
    }

    fn place(&self, key: &str) -> SpecPath {
        self.entry.path.key(key)
    }
}

/// True when the kept columns, all of them when none are named, have the keys among them.
fn kept(columns: &[String], keys: &[String]) -> bool {
    columns.is_empty() || keys.iter().all(|key| columns.contains(key))
}

#[cfg(test)]
mod tests;
