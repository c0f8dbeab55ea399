//! What changed in a table between two versions, as the files that its log names: read without a look at the rest.
//!
//! Where a commit brings a change data feed, that says it. Where it does not, files that came are new rows and files
//! that went are old ones, each without what their deletion vectors leave out, and of a file whose vector alone changed
//! it is the rows by which the vectors differ. A file that was written anew without a feed so tells rows that did not
//! change at all: once as old, once as new. Who asks what a change touches gets too much then, never too little.

mod feed;
mod log;
mod own;
mod read;

use std::collections::HashMap;

use deltalake::kernel::DeletionVectorDescriptor;

use crate::table::Table;

pub use self::feed::{Feed, feed};
pub use self::log::{before, between, is_touched_since, last_foreign, lost_rows};
pub(crate) use self::own::{feed_files, own_feed};
pub use self::read::Located;

/// The boolean column of a changed row that says whether it is as the newer version has it, or as the older one had it.
pub const IS_NEW: &str = "__is_new";

/// An answer that the log may not be able to give any more.
#[derive(Debug)]
pub enum Told<T> {
    /// The answer.
    Known(T),
    /// Why there is none, in words: `version 7 of silver.orders is gone`.
    Broken(String),
}

/// What changed in a table.
#[derive(Debug)]
pub struct Changes {
    table: Table,
    files: Vec<Changed>,
}

/// A file with changed rows.
#[derive(Debug, Clone)]
struct Changed {
    path: String,
    size: u64,
    /// Rows in the file, where the log says it.
    records: Option<u64>,
    partition: HashMap<String, Option<String>>,
    rows: Rows,
}

/// Which rows of a file changed, and how.
#[derive(Debug, Clone)]
enum Rows {
    /// All; a column says how.
    Feed,
    /// Those that `left` does not delete and, where it is given, `only` does.
    These { is_new: bool, left: Option<DeletionVectorDescriptor>, only: Option<DeletionVectorDescriptor> },
}

impl Changes {
    /// True when no row changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
