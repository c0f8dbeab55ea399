//! How the rows of a file are replaced: by writing the file anew, or by marking them as deleted.

use deltalake::kernel::LogicalFileView;

use super::probe::Touched;
use crate::error::{Error, ErrorKind, Result};
use crate::table::Table;

/// Of a file of which more than one row in so many is deleted, the others are written anew when it is touched.
const PURGE_ONE_IN: u64 = 4;
/// A file of so few bytes is written anew as fast as its rows are marked.
const REWRITTEN_BYTES: i64 = 256 * 1024;

/// How rows are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// File by file, by what costs less; never with vectors where the table does not allow them.
    #[default]
    Auto,
    /// Files with rows that are replaced are written anew.
    CopyOnWrite,
    /// Rows that are replaced are marked as deleted; a file that has lost much is written anew all the same.
    MergeOnRead,
}

/// Of each touched file, whether it is written anew.
pub(super) fn rewritten(mode: WriteMode, table: &Table, touched: &[Touched]) -> Result<Vec<bool>> {
    let vectors = table.allows_deletion_vectors()?;
    if mode == WriteMode::MergeOnRead && !vectors {
        let message = format!("{} does not allow deletion vectors and is to be merged on read", table.name());
        return Err(Error::new(ErrorKind::Table, message).hint("set `deletion_vectors: true` as well"));
    }
    let anew = |file: &Touched| {
        let gone = file.deleted.len() + file.hits.len() as u64;
        // All gone: the file is removed, which writes nothing.
        let purged = gone < file.rows && is_purged(gone, file.rows);
        !vectors
            || !is_counted(&file.file)
            || match mode {
                WriteMode::CopyOnWrite => true,
                WriteMode::MergeOnRead => purged,
                WriteMode::Auto => purged || file.file.size() <= REWRITTEN_BYTES,
            }
    };
    Ok(touched.iter().map(anew).collect())
}

/// True for a file of which `gone` of `rows` rows are deleted, and which costs less to write anew than to mark.
pub(super) fn is_better_rewritten(file: &LogicalFileView, gone: u64, rows: u64) -> bool {
    !is_counted(file) || is_purged(gone, rows) || file.size() <= REWRITTEN_BYTES
}

fn is_purged(gone: u64, rows: u64) -> bool {
    gone * PURGE_ONE_IN > rows
}

/// A vector needs the number of rows in the statistics.
fn is_counted(file: &LogicalFileView) -> bool {
    file.num_records().is_some()
}
