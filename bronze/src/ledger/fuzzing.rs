//! A run that wrote to a ledger and one that reads it later must know the same of every file.

use std::path::Path;

use arrow::array::RecordBatch;
use lake::session::Engine;
use lake::{Clock, Lake, Root, RunId};

use super::write::{App, rows};
use super::{Entry, Ledger, Status};
use crate::discover::FoundFile;

/// Four bytes make an entry: the path, the content, what is said of it, the batch.
pub fn ledger(data: &[u8]) {
    let entries: Vec<Entry> = data.chunks_exact(4).enumerate().map(|(at, bytes)| entry(at, bytes)).collect();
    let Ok(root) = Root::open(".", Path::new(".")) else { return };
    let lake = Lake::new(root, Clock::system(), Engine::default());
    let mut written = Ledger::empty(&lake, "s");
    for entry in &entries {
        written.add(vec![entry.clone()], App::Planned, entry.batch.unwrap_or(0));
    }
    // Each entry in a file of its own, the last file first.
    let run = RunId::new(&Clock::system());
    let batches: lake::Result<Vec<RecordBatch>> =
        entries.iter().rev().map(|entry| rows(std::slice::from_ref(entry), &run)).collect();
    let batches = batches.unwrap_or_default();
    assert_eq!(batches.len(), entries.len(), "entries become rows");
    let mut read = Ledger::empty(&lake, "s");
    assert!(read.take(&batches).is_some(), "rows become entries");
    for path in 0..4 {
        for content in 0..3 {
            let file = file(path, content);
            assert_eq!(answers(&written, &file), answers(&read, &file), "{file:?} in {entries:#?}");
        }
    }
    for batch in 0..4 {
        assert_eq!(of_batch(&written, batch), of_batch(&read, batch), "batch {batch} of {entries:#?}");
    }
}

fn file(path: u8, content: u8) -> FoundFile {
    let modified_us = i64::from(content);
    FoundFile { path: format!("f {path}"), size: 1, modified_us, etag: None, unreadable: None }
}

fn entry(at: usize, bytes: &[u8]) -> Entry {
    let status = Status::ALL[usize::from(bytes[2]) % Status::ALL.len()];
    let in_batch = matches!(status, Status::Planned | Status::Gone | Status::Taken | Status::Again);
    let batch = (in_batch || bytes[3] & 4 == 4).then_some(i64::from(bytes[3] % 4));
    let recorded_us = i64::try_from(at).unwrap_or(i64::MAX);
    Entry { recorded_us, ..Entry::new(batch, &file(bytes[0] % 4, bytes[1] % 3), status, "a reason") }
}

/// Everything that the ledger says of a file.
fn answers(ledger: &Ledger, file: &FoundFile) -> (bool, bool, Option<(i64, i64)>, bool, bool, bool) {
    (
        ledger.knows(file),
        ledger.failure(file).is_some(),
        ledger.taken(file),
        ledger.left_out(file).is_some(),
        ledger.is_wanted_again(file),
        ledger.is_overwritten_by(file),
    )
}

fn of_batch(ledger: &Ledger, batch: i64) -> (Vec<String>, usize, bool) {
    let mut paths: Vec<String> = ledger.batch(batch).into_iter().map(|file| format!("{file:?}")).collect();
    paths.sort();
    (paths, ledger.failures(batch).count(), ledger.planned_at_us(batch).is_some())
}
