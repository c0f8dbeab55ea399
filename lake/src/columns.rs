//! The technical columns: the names that are ours in every layer, and their types.

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use crate::error::Result;
use crate::table::Table;

/// Path of the file a record came from, relative to the landing root, exactly as named.
pub const FILE_PATH: &str = "_file_path";
/// Size of that file in bytes.
pub const FILE_SIZE: &str = "_file_size";
/// Its modification time.
pub const FILE_MODIFICATION_TIME: &str = "_file_modification_time";
/// 1-based number of the record in its file.
pub const ROW_NUMBER: &str = "_row_number";
/// The bronze batch that brought the record in; in silver, the batch of the last change applied.
pub const BATCH_ID: &str = "_batch_id";
/// When the record was read.
pub const INGESTED_AT: &str = "_ingested_at";
/// JSON text of what did not fit the schema, else null.
pub const RESCUED_DATA: &str = "_rescued_data";
/// Prefix of the columns of silver that hold the sequence of the current row: `_sequence_1`, `_sequence_2`, …
pub const SEQUENCE_PREFIX: &str = "_sequence_";
/// In a silver table that keeps deleted rows: whether the row is one.
pub const IS_DELETED: &str = "_is_deleted";
/// In such a table: the batch of the delete of a deleted row.
pub const DELETED_BATCH_ID: &str = "_deleted_batch_id";
/// In such a table: prefix of the columns that hold the sequence of that delete.
pub const DELETED_SEQUENCE_PREFIX: &str = "_deleted_sequence_";
/// In a silver table that keeps history: the sequence from which on a version holds.
pub const START_AT: &str = "__START_AT";
/// In such a table: the sequence at which it holds no more; null for the current one.
pub const END_AT: &str = "__END_AT";
/// Which changes set the columns of a silver row that the last change of the row did not set, as JSON text.
pub const SET_AT: &str = "_set_at";

/// Silver tables that keep deleted rows or versions, where updates may leave out columns: those that the change of a row
/// left out, as a JSON array of names; null when it sent all.
pub const NOT_SENT: &str = "_not_sent";
/// The day of a gold snapshot.
pub const SNAPSHOT_DATE: &str = "snapshot_date";
/// The property of a gold snapshot that says which days it has recorded: it goes with the rows.
pub const SNAPSHOT_DAYS: &str = "lakehouse.snapshotDays";
/// The property of a gold snapshot that says which days were recorded by other options than the present ones.
pub const SNAPSHOT_OPTIONS: &str = "lakehouse.snapshotOptions";
/// What a row of a changed-only snapshot records: `insert`, `update` or `delete`.
pub const CHANGE: &str = "_change";

/// In which order the files of one batch of a bronze table were taken, as the table itself says it: who reads the
/// table need not know the options of its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FileOrder {
    /// By path.
    #[default]
    Path,
    /// By modification time, then path.
    ModificationTime,
}

impl FileOrder {
    /// The property of a bronze table that says it.
    const PROPERTY: &str = "lakehouse.fileOrder";

    /// The order of the files of `table`.
    ///
    /// # Errors
    /// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
    pub fn of(table: &Table) -> Result<Self> {
        let said = table.property(Self::PROPERTY)?;
        Ok(if said.as_deref() == Some("modification_time") { Self::ModificationTime } else { Self::Path })
    }

    /// The property with its value.
    pub fn property(self) -> (String, String) {
        let value = match self {
            Self::Path => "path",
            Self::ModificationTime => "modification_time",
        };
        (Self::PROPERTY.to_owned(), value.to_owned())
    }
}

/// The name of the `index`-th (0-based) sequence column of silver.
pub fn sequence(index: usize) -> String {
    format!("{SEQUENCE_PREFIX}{}", index + 1)
}

/// The name of the `index`-th (0-based) sequence column of the delete of a deleted row of silver.
pub fn deleted_sequence(index: usize) -> String {
    format!("{DELETED_SEQUENCE_PREFIX}{}", index + 1)
}

/// The type of every timestamp in the lake: microseconds, UTC.
pub fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The technical columns of bronze that stand before the data columns, so that they have file statistics.
pub fn bronze_leading() -> Vec<Field> {
    vec![
        Field::new(BATCH_ID, DataType::Int64, false),
        Field::new(FILE_PATH, DataType::Utf8, false),
        Field::new(ROW_NUMBER, DataType::Int64, false),
        Field::new(FILE_SIZE, DataType::Int64, false),
        Field::new(FILE_MODIFICATION_TIME, timestamp_type(), false),
        Field::new(INGESTED_AT, timestamp_type(), false),
        Field::new(RESCUED_DATA, DataType::Utf8, true),
    ]
}

/// The type of a column of a bronze table whose data columns are text.
pub fn landed_type(name: &str) -> DataType {
    let own = bronze_leading().into_iter().find(|field| field.name().eq_ignore_ascii_case(name));
    own.map_or(DataType::Utf8, |field| field.data_type().clone())
}

/// True for a column name that a source may not bring.
pub fn is_technical(name: &str) -> bool {
    [FILE_PATH, FILE_SIZE, FILE_MODIFICATION_TIME, ROW_NUMBER, BATCH_ID, INGESTED_AT, RESCUED_DATA]
        .iter()
        .any(|ours| ours.eq_ignore_ascii_case(name))
}

/// True for a technical column of silver: its batch, its sequence columns, and what partial updates need.
pub fn is_silver_technical(name: &str) -> bool {
    name.eq_ignore_ascii_case(BATCH_ID)
        || name.eq_ignore_ascii_case(SET_AT)
        || name.eq_ignore_ascii_case(NOT_SENT)
        || name.to_ascii_lowercase().strip_prefix(SEQUENCE_PREFIX).is_some_and(|rest| rest.parse::<u16>().is_ok())
}

/// True for a technical column of a silver table that keeps deleted rows or history; in other tables a source may
/// bring a column of such a name.
pub fn is_silver_past(name: &str) -> bool {
    [IS_DELETED, DELETED_BATCH_ID, START_AT, END_AT].iter().any(|ours| ours.eq_ignore_ascii_case(name))
        || name
            .to_ascii_lowercase()
            .strip_prefix(DELETED_SEQUENCE_PREFIX)
            .is_some_and(|rest| rest.parse::<u16>().is_ok())
}

/// True for the columns of a silver table that keeps deleted rows or history beside the current rows.
pub fn keeps_past(schema: &Schema) -> bool {
    [DELETED_BATCH_ID, END_AT].iter().any(|ours| schema.field_with_name(ours).is_ok())
}

/// True for a name that a column of silver may not have: technical ones, and those of columns that exist only while
/// changes are on their way (they begin with `__`).
pub fn is_reserved_in_silver(name: &str) -> bool {
    is_technical(name) || is_silver_technical(name) || name.starts_with("__")
}
