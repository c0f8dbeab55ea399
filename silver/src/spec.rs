//! The options of a silver table, as the spec writes them.

use lake::spec::{Duration, Map, TableMaintenance};
use schemars::JsonSchema;
use serde::Deserialize;

/// A silver table: the current state of an entity, from the changes of one bronze source.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend(
    "required" = ["source", "keys"],
    "x-aliases" = {"unique_key": "keys"}
))]
pub struct Table {
    /// The bronze source whose records are changes of this table.
    pub source: String,
    /// A preset of the options below.
    pub cdc: Preset,
    /// The path of the new values in the record, `after` or `data.new`: a column with an object as JSON text.
    pub row: Option<String>,
    /// The path of the old values: an update that changes the key deletes the old one.
    pub before: Option<String>,
    /// The path of the values of a delete. Default: `before`, else `row`.
    pub delete_row: Option<String>,
    /// The column that says what a change does, and its values.
    pub op: Option<Op>,
    /// What becomes of a change whose operation is none of the listed values.
    pub on_unknown_op: OnBad,
    /// A column that marks a deleted row.
    pub delete_flag: Option<DeleteFlag>,
    /// SQL over the record that is true for a delete, instead of `op` or `delete_flag`.
    pub apply_as_deletes: Option<String>,
    /// SQL over the record that is true for a truncate, beside what says what a delete is.
    pub apply_as_truncates: Option<String>,
    /// What becomes of a truncate: it removes every row that is older, or stops the run.
    pub truncates: OnTruncate,
    /// A column that an update does not have keeps its value; one that it has with null becomes null. Default: that of
    /// the preset, else false.
    pub partial_updates: Option<bool>,
    /// A null in an update keeps the value as well.
    pub ignore_null_updates: bool,
    /// The text that stands for a value that was not sent because it did not change: the value is kept. `""` for none.
    /// Default: that of the preset.
    pub unchanged_placeholder: Option<String>,
    /// The columns that identify a row; null meets null in a part of a composite key.
    pub keys: Vec<String>,
    /// What becomes of a change whose whole key is null.
    pub on_null_key: OnNullKey,
    /// What decides which of two changes of a key is newer: `column` or `column type`, the first part first; then
    /// arrival decides. `[]`: arrival alone. Default: that of the preset.
    pub sequence_by: Option<Vec<String>>,
    /// Whether each file is a full extract: what it does not have is deleted.
    pub from_snapshot: bool,
    /// With `from_snapshot`: whether a file without records deletes every row. Default: it is refused.
    pub allow_empty_snapshot: bool,
    /// The table's columns in this order, `name: type [not null]`.
    pub columns: Map<String>,
    /// The format of a column's dates or timestamps as text, where it is not ISO 8601: `%d-%b-%y %I.%M.%S%.f %p`.
    pub formats: Map<String>,
    /// The zone of a column's timestamps as text without an offset. Default: `timezone`.
    pub zones: Map<String>,
    /// `silver name: source name or path`, where they differ; an exact name wins over a path with dots.
    pub column_names: Map<String>,
    /// Without `columns`: the source columns to take, typed as the source types them (text for CSV and JSON).
    pub column_list: Vec<String>,
    /// Derived or cleaned columns, `name: SQL` over the record as it was read (text, or the types of a typed source); the
    /// result is cast to the declared type.
    pub select: Map<String>,
    /// Columns to leave out of the table.
    pub except_column_list: Vec<String>,
    /// What becomes of source columns that `columns` does not name.
    pub undeclared_columns: Option<Undeclared>,
    /// What becomes of a change with a value that does not fit its column.
    pub on_cast_error: OnBadValue,
    /// Named SQL conditions that every row must meet.
    pub expectations: Map<Expectation>,
    /// CHECK constraints of the Delta table, `name: SQL` over its columns; a row meets one when it is true (null is not).
    pub constraints: Map<String>,
    /// Generated columns of the Delta table, `column: SQL` over its other columns; the column's type is declared.
    pub generated: Map<String>,
    /// What the table keeps of each key: 1, its current row; 2, every version of it. Default 1.
    #[schemars(range(min = 1, max = 2))]
    pub stored_as_scd_type: Option<u8>,
    /// With `stored_as_scd_type: 2`: the columns whose changes make a new version. Default: all.
    pub track_history_column_list: Vec<String>,
    /// With `stored_as_scd_type: 2`: all columns but these.
    pub track_history_except_column_list: Vec<String>,
    /// What a delete does to the row.
    pub delete_mode: DeleteMode,
    /// How long a delete is remembered, so that a late older change cannot bring the row back. Default 30 days.
    pub tombstone_retention: Option<Duration>,
    /// Columns whose values become folders of the table. An empty text there becomes null.
    pub partition_by: Vec<String>,
    /// Columns that queries filter by: `orchestrator table optimize` puts rows that are near each other in them near each
    /// other in files.
    pub zorder_by: Vec<String>,
    /// Whether the table records its changes as Delta's change data feed. Default true.
    pub change_data_feed: Option<bool>,
    /// Properties of the Delta table, `key: value`: `delta.logRetentionDuration: interval 60 days`, or keys of your own.
    pub properties: Map<String>,
    /// How rows are replaced that a change meets.
    pub write_mode: WriteMode,
    /// Whether rows may be marked as deleted in files that stay, which makes small changes of large files cheap. Readers
    /// must know Delta's deletion vectors: delta-rs, Polars, DuckDB and Sail were seen to read such tables rightly, and Spark
    /// (Delta 2.4), Databricks, Fabric and Trino say that they do. In the change data feed an update may then be a delete
    /// and an insert.
    pub deletion_vectors: bool,
    /// When the upkeep of the table is due, where that differs from `maintenance` at the top.
    pub maintenance: Option<TableMaintenance>,
}

/// How rows are replaced that a change meets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// File by file, by what costs less; always by writing files anew where `deletion_vectors` is false.
    #[default]
    Auto,
    /// Files with such rows are written anew.
    CopyOnWrite,
    /// Such rows are marked as deleted, and the new ones go to new files. It needs `deletion_vectors`. A file that has
    /// lost more than a quarter of its rows is written anew when it is touched.
    MergeOnRead,
}

/// Producers of changes that the program knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Records are rows; every option as given.
    #[default]
    Plain,
    /// Debezium's envelope of `before`, `after`, `source` and `op`, with and without `schema` and `payload`.
    Debezium,
    /// Debezium's rows as `ExtractNewRecordState` writes them, with `__op` or `__deleted`.
    DebeziumFlattened,
    /// Debezium's envelope of MongoDB, whose documents are texts of extended JSON.
    DebeziumMongodb,
    /// AWS DMS to S3: column `Op` with I, U, D; load files come before change files.
    Dms,
    /// Oracle GoldenGate's JSON and Avro of operations: `op_type`, `pos`, `before` and `after`; updates may leave out
    /// columns.
    Goldengate,
    /// Maxwell: `type`, `data` and `old`.
    Maxwell,
    /// Alibaba Canal's flat messages: several rows in `data` and `old`.
    Canal,
    /// Google Datastream: `payload`, `source_metadata` and `sort_keys`.
    Datastream,
    /// Airbyte: rows in `_airbyte_data` or flattened; a delete has `_ab_cdc_deleted_at`.
    Airbyte,
    /// The change data feed of a Delta table, as files.
    DeltaCdf,
    /// Qlik Replicate: `header__change_oper` and `header__change_seq`.
    Qlik,
    /// The change tables of SQL Server: `__$operation`, `__$start_lsn`, `__$seqval`.
    Sqlserver,
    /// The rows of a Snowflake stream: `METADATA$ACTION`, an update being a delete and an insert.
    Snowflake,
    /// Fivetran: `_fivetran_deleted` and `_fivetran_synced`.
    Fivetran,
}

/// What becomes of source columns that `columns` does not name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Undeclared {
    /// They stay in bronze.
    #[default]
    Ignore,
    /// They join the table, as text or in the type of a typed source.
    Add,
}

/// What a delete does to the row of its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeleteMode {
    /// The row is removed.
    #[default]
    Hard,
    /// The row stays with its last values and is marked.
    Soft,
}

/// Which column holds the operation, and which values mean what. A null or missing operation is an upsert.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["column"]))]
pub struct Op {
    /// The column.
    pub column: String,
    /// Values of an insert; inserts and updates are both upserts.
    pub insert: Vec<String>,
    /// Values of an update.
    pub update: Vec<String>,
    /// Values of a delete.
    pub delete: Vec<String>,
    /// Values of a truncate: every row that is older goes.
    pub truncate: Vec<String>,
    /// Values of the row before an update, as a record of its own: it goes unless the update has the same key.
    pub preimage: Vec<String>,
    /// Values of records that are no change.
    pub ignore: Vec<String>,
}

/// A column that marks deleted rows, by its values or by being there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["column"]))]
pub struct DeleteFlag {
    /// The column.
    pub column: String,
    /// The values, as text, of a deleted row; where one of them is a word for true, so are the others (`true`, `T`, `yes`,
    /// `1`).
    pub values: Vec<String>,
    /// Instead of values: a deleted row has any value but an empty text.
    pub when: Option<FlagWhen>,
}

/// How a delete flag without values marks a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlagWhen {
    /// By not being null.
    NotNull,
}

/// What becomes of a record that cannot be a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBad {
    /// It goes to quarantine.
    #[default]
    Quarantine,
    /// The task fails and nothing is committed.
    Fail,
    /// It is counted and left out.
    Ignore,
}

/// What becomes of a truncate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTruncate {
    /// Every row that is older than its position goes, whatever arrives when.
    #[default]
    Apply,
    /// The task fails and nothing is committed.
    Fail,
}

/// What becomes of a change without a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnNullKey {
    /// It goes to quarantine.
    #[default]
    Quarantine,
    /// The task fails and nothing is committed.
    Fail,
}

/// What becomes of a value that does not fit its column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBadValue {
    /// The row goes to quarantine.
    #[default]
    Quarantine,
    /// The task fails and nothing is committed.
    Fail,
    /// The value becomes null, unless it is of a key, the sequence or a `not null` column. Write `"null"`.
    Null,
}

/// A condition on the rows of a table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["check"]))]
pub struct Expectation {
    /// SQL over the typed columns; a row meets it when it is true (null is not).
    pub check: String,
    /// What becomes of a row that does not.
    pub action: Action,
    /// The task fails before it commits anything when more than this part of a run's rows (0 to 1) does not.
    pub max_fraction: Option<f64>,
}

/// What becomes of a row that does not meet an expectation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is kept and counted.
    #[default]
    Warn,
    /// It is left out and counted.
    Drop,
    /// It goes to quarantine.
    Quarantine,
    /// The task fails and nothing is committed.
    Fail,
}
