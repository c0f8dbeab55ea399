//! The options of a gold table, as the spec writes them.

use lake::spec::{Duration, Map, TableMaintenance};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gold table: either a model (`query`) or a daily snapshot of another table (`snapshot_of`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend(
    "x-aliases" = {"unique_key": "keys"}
))]
pub struct Table {
    /// A model: the SQL query whose result is the table. It names tables as `layer.table`.
    pub query: Option<String>,
    /// A model: how it follows its sources.
    pub refresh: Option<Refresh>,
    /// A model: whether all of its rows may be replaced where a refresh of groups will not do, because the query or a
    /// source has changed; `false` has such a run fail. Default: true.
    pub reset_allowed: Option<bool>,
    /// A model: columns of the result whose values become folders of the table.
    pub partition_by: Vec<String>,
    /// A model: columns of the result that queries filter by; `orchestrator table optimize` puts rows that are near each
    /// other in them near each other in files.
    pub zorder_by: Vec<String>,
    /// A model: named SQL conditions that every row must meet, asked before the commit.
    pub expectations: Map<Expectation>,
    /// A model: what must hold of the table as a whole, asked before the commit.
    pub checks: Checks,
    /// A snapshot: the table whose state is kept for each day, `layer.table`.
    pub snapshot_of: Option<String>,
    /// A snapshot: what is kept of a day.
    pub strategy: Option<Strategy>,
    /// A snapshot: the columns to keep. Default: all but the technical ones of silver.
    pub columns: Vec<String>,
    /// A `changed_only` snapshot: the columns that make a row differ. Default: all kept columns.
    pub compare_columns: Vec<String>,
    /// The columns that identify a row. A silver table brings its own to a `changed_only` snapshot; of most models they
    /// follow from the query.
    pub keys: Vec<String>,
    /// A `changed_only` snapshot: what becomes of a row that is gone from the table.
    pub hard_deletes: Option<HardDeletes>,
    /// A snapshot: days that are older go. Default: none does.
    pub retention: Option<Duration>,
    /// When the upkeep of the table is due, where that differs from `maintenance` at the top.
    pub maintenance: Option<TableMaintenance>,
    /// What the table is, for its readers. Default: the query of a model, the source of a snapshot.
    pub description: Option<String>,
    /// What its columns hold, by column: `day: the day of the order in Lisbon`.
    pub column_descriptions: Map<String>,
    /// Properties of the Delta table, by name: `delta.logRetentionDuration: interval 60 days`.
    pub properties: Map<String>,
}

/// A condition on the rows of a model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["check"]))]
pub struct Expectation {
    /// SQL over the columns of the result; a row meets it when it is true (null is not).
    pub check: String,
    /// What becomes of a row that does not.
    pub action: OnMiss,
    /// The task fails before it commits anything when more than this part of the rows that a run computes (0 to 1) does
    /// not. With `fail`: as many are let through.
    pub max_fraction: Option<f64>,
}

/// What becomes of a row that does not meet an expectation. A computed row has no record that could be put aside, so
/// there is no quarantine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMiss {
    /// It is kept and counted.
    #[default]
    Warn,
    /// It is left out and counted.
    Drop,
    /// The task fails and nothing is committed.
    Fail,
}

/// What must hold of a model as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Checks {
    /// No two rows have the same values in these columns, all together.
    pub unique: Option<OfColumns>,
    /// These columns are never null.
    pub not_null: Option<OfColumns>,
    /// How many rows there are.
    pub row_count: Option<RowCount>,
    /// The greatest value of a column is recent.
    pub freshness: Option<Freshness>,
    /// Named columns whose values are found in another table; null needs no match.
    pub relationships: Map<Relationship>,
}

/// A check of some columns.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["columns"]))]
pub struct OfColumns {
    /// The columns.
    pub columns: Vec<String>,
    /// What happens when it is broken.
    pub severity: Severity,
}

/// A check of the number of rows.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RowCount {
    /// At least so many.
    pub min: Option<u64>,
    /// At most so many.
    pub max: Option<u64>,
    /// What happens when it is broken.
    pub severity: Severity,
}

/// A check of how old the newest row is.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Freshness {
    /// A column of moments or days; a day lasts until its end, in UTC.
    pub column: String,
    /// How old its greatest value may be when the run computes.
    pub within: Duration,
    /// What happens when it is older.
    #[serde(default)]
    pub severity: Severity,
}

/// A column whose values are found in another table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["column", "to", "field"]))]
pub struct Relationship {
    /// The column.
    pub column: String,
    /// The other table, `layer.table`.
    pub to: String,
    /// The column there.
    pub field: String,
    /// What happens when a value is not found.
    pub severity: Severity,
}

/// What happens when a check is broken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The run says so, and commits.
    Warn,
    /// The task fails and nothing is committed.
    #[default]
    Fail,
}

/// How a model follows its sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// By groups where the query allows it and that costs less, else as a whole.
    #[default]
    Auto,
    /// By groups; a query that does not allow it is refused.
    Incremental,
    /// The whole result is computed again when a source or the query changed.
    Full,
}

/// What a snapshot keeps of a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Every row.
    #[default]
    Full,
    /// The rows that differ from the last version of their key that an earlier day kept.
    ChangedOnly,
}

/// What a `changed_only` snapshot does with a row that is gone from the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HardDeletes {
    /// Keeps a row that says so, once, with the last values.
    #[default]
    Record,
    /// Nothing: the last version stands for ever.
    Ignore,
}
