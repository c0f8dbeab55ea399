//! The total order of the changes of one key: by sequence, then by arrival. The largest wins.

use lake::columns;

use crate::change::{FILE_RANK, FILE_TIME, OP_RANK};

/// The columns of the order, the first part first: the parts of the sequence as typed values with nulls smallest, then
/// what the changes do (where the producer says so), then the batch, then the file (files of the first load before
/// files of changes, then in the order in which the source takes them), then the record in the file.
pub fn names(sequence: &[String]) -> Vec<String> {
    let arrival = [OP_RANK, columns::BATCH_ID, FILE_RANK, FILE_TIME, columns::FILE_PATH, columns::ROW_NUMBER];
    sequence.iter().cloned().chain(arrival.map(str::to_owned)).collect()
}
