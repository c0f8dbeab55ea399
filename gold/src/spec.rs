//! The options of a gold table, as the spec writes them.

use lake::spec::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gold table: either a model (`query`) or a daily snapshot of another table (`snapshot_of`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend(
    "x-aliases" = {"unique_key": "keys"},
    "x-not-yet" = ["expectations", "zorder_by", "properties", "description"]
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
