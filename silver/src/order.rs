//! The total order of the changes of one key: by sequence, then by arrival. The largest wins.

use datafusion::logical_expr::{SortExpr, ident};
use lake::columns;

use crate::change::{CHANGE_NUMBER, FILE_RANK, FILE_TIME, OP_RANK, RANK_IN_FILE};

/// The columns of the order, the first part first: the parts of the sequence as typed values with nulls smallest, then
/// what the changes do (where the producer says so), then the batch, then the file (files of the first load before
/// files of changes, then in the order in which the source takes them), then what the changes of a file do (where the
/// producer says no more), then the record in the file and the change in the record.
pub fn names(sequence: &[String]) -> Vec<String> {
    let file = [OP_RANK, columns::BATCH_ID, FILE_RANK, FILE_TIME, columns::FILE_PATH];
    let record = [RANK_IN_FILE, columns::ROW_NUMBER, CHANGE_NUMBER];
    sequence.iter().cloned().chain(file.map(str::to_owned)).chain(record.map(str::to_owned)).collect()
}

/// The order as a sort, the largest first.
pub fn newest_first(sequence: &[String]) -> Vec<SortExpr> {
    names(sequence).into_iter().map(|name| ident(name).sort(false, false)).collect()
}

/// The order as a sort, the smallest first.
pub fn oldest_first(sequence: &[String]) -> Vec<SortExpr> {
    names(sequence).into_iter().map(|name| ident(name).sort(true, true)).collect()
}
