//! Records that could not go on: one Delta table per bronze source, every record with its reason and where it came from.
//!
//! A record is *open* until somebody decides about it. A decision moves records from one partition to another: their
//! files are removed and written again in one commit, which carries `decisions` at the number of the decision. It is
//! compare-and-set, so that decisions follow one another; runs that only add records are not in their way.
//!
//! A **replay** sends open records through the present spec, once. Its steps are commits in this order:
//!
//! 1. *claim*: the records are `replaying` under the number of the decision (this is the intent, it names every record);
//! 2. *reopen*: those that are refused again are open again, with their new reason;
//! 3. the table that refused them takes the others, with the transaction [`Claim::txn`] in the same commit;
//! 4. *finish*: what is still claimed is `replayed`.
//!
//! Whoever claimed a number, and nobody else, may take step 3 under it. Another run that finds claimed records asks the
//! table: it has the transaction, so only step 4 is missing; or it has not, and then [`Claim::fence`] there
//! makes sure that it never will, and the records are claimed again under a new number.

mod filter;
mod places;
mod read;
mod replay;
mod standing;
mod write;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub use self::filter::{FileGlob, Filter};
pub use self::places::Places;
pub use self::read::Record;
pub use self::replay::Claim;
pub use self::standing::Quarantine;
pub use self::write::{Again, Before, QuarantineWriter};
use crate::columns;
use crate::names::TableName;
use crate::table::Definition;

/// The column that names the table that refused a record; the tables are partitioned by it.
pub const REFUSED_BY: &str = "refused_by";
/// The column of the [`Status`]; the tables are partitioned by it.
pub const STATUS: &str = "status";
/// The column of the kind of reason.
pub const REASON_KIND: &str = "reason_kind";
/// The column of the time when a record was first refused.
pub const FIRST_SEEN: &str = "first_seen";
/// The column of the number under which a record is, or was last, replayed.
const REPLAY: &str = "replay";
const STATUS_AT: &str = "status_at";
const STATUS_BY: &str = "status_by";

/// What has been decided about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Nothing yet.
    Open,
    /// It is on its way through the present spec; only while a replay is at work, or when one was killed.
    Replaying,
    /// It went through the spec as it was later.
    Replayed,
    /// It is to stay out.
    Discarded,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Replaying, Self::Replayed, Self::Discarded];

    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replaying => "replaying",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// Reads the word of [`as_str`](Self::as_str).
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One record that could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The bronze batch it arrived in.
    pub batch_id: i64,
    /// The file it came from, relative to the landing root.
    pub file_path: String,
    /// Its 1-based record number in the file.
    pub row_number: i64,
    /// The table that refused it: `bronze.orders_cdc`, `silver.orders`.
    pub refused_by: TableName,
    /// A short word for the kind of reason: `malformed`, `cut`, `cast`, `null_key`, `expectation`, `unknown_op`.
    pub reason_kind: &'static str,
    /// The reason as a sentence.
    pub reason: String,
    /// The column at fault, where one is; the first of several.
    pub column: Option<String>,
    /// Its value as it came.
    pub value: Option<String>,
    /// The whole record as it came: its text in the file, or a JSON object of the columns.
    pub record: Option<String>,
    /// A JSON array of the columns of its file by position, where the record's text does not name them.
    pub header: Option<Arc<str>>,
}

/// The columns of a quarantine table.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(columns::BATCH_ID, DataType::Int64, false),
        Field::new(columns::FILE_PATH, DataType::Utf8, false),
        Field::new(columns::ROW_NUMBER, DataType::Int64, false),
        Field::new(REFUSED_BY, DataType::Utf8, false),
        Field::new(REASON_KIND, DataType::Utf8, false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("column", DataType::Utf8, true),
        Field::new("value", DataType::Utf8, true),
        Field::new("record", DataType::Utf8, true),
        Field::new("header", DataType::Utf8, true),
        Field::new(FIRST_SEEN, columns::timestamp_type(), false),
        Field::new("run_id", DataType::Utf8, false),
        Field::new(STATUS, DataType::Utf8, false),
        Field::new(STATUS_AT, columns::timestamp_type(), true),
        Field::new(STATUS_BY, DataType::Utf8, true),
        Field::new(REPLAY, DataType::Int64, true),
    ]))
}

fn definition() -> Definition {
    Definition {
        // What one table refused can be taken back as a whole when that table is made anew, and a look at the log
        // tells whether a replay is unfinished.
        partition_by: vec![REFUSED_BY.to_owned(), STATUS.to_owned()],
        description: Some("records that could not go on, with the reason and what was decided about them".into()),
        ..Definition::new(schema())
    }
}
