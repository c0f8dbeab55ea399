//! The files of bins into the table: those of a bin that another writer has touched meanwhile are left out.

use std::collections::{BTreeMap, HashSet};

use deltalake::kernel::Action;
use deltalake::protocol::DeltaOperation;

use super::{Done, Figures, Optimize};
use crate::commit::{Commit, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::names::RunId;
use crate::table::{FileId, Table, file_id as id};
use crate::write::discard;

/// How often other writers may come first.
const ATTEMPTS_MAX: u32 = 100;

/// Commits bins, as many of them as are still what they were: the files of the open version, which may be newer than the
/// one that the bins are of.
///
/// # Errors
/// As [`Table::commit`].
pub(super) async fn commit(
    asked: &Optimize,
    table: &mut Table,
    standing: &Standing,
    mut done: Vec<Done>,
    run: &RunId,
) -> Result<Figures> {
    let mut figures = Figures::default();
    for attempt in 1.. {
        let (still, touched) = still_live(table, done)?;
        give_up(table, &touched).await;
        figures.bins_skipped += touched.len() as u64;
        done = still;
        if done.is_empty() {
            break;
        }
        if *standing != Standing::of(table)? {
            give_up(table, &done).await;
            let message = format!("the columns or properties of {} have changed meanwhile", table.name());
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let sum = done.iter().fold(Figures::default(), |sum, done| sum.and(figures_of(done)));
        match table.commit(commit_of(asked, &done, sum, run)).await {
            Ok(_) => return Ok(figures.and(sum)),
            Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS_MAX => {}
            Err(error) => {
                // After other failures the files may yet be named by a commit.
                if error.kind() == ErrorKind::Conflict {
                    give_up(table, &done).await;
                }
                return Err(error);
            }
        }
    }
    Ok(figures)
}

/// The bins whose files the open version has, and the others.
fn still_live(table: &Table, done: Vec<Done>) -> Result<(Vec<Done>, Vec<Done>)> {
    let live: HashSet<FileId> = table.delta().snapshot()?.log_data().iter().map(|file| id(&file)).collect();
    Ok(done.into_iter().partition(|done| done.bin.files.iter().all(|file| live.contains(&id(file)))))
}

async fn give_up(table: &Table, done: &[Done]) {
    for one in done {
        discard(table, &one.written.files).await;
    }
}

fn commit_of(asked: &Optimize, done: &[Done], figures: Figures, run: &RunId) -> Commit {
    let mut actions = Vec::new();
    for one in done {
        actions.extend(one.bin.files.iter().map(|file| Action::Remove(file.remove_action(false))));
        let adds = one.written.files.iter().cloned();
        actions.extend(adds.map(|file| Action::Add(deltalake::kernel::Add { data_change: false, ..file })));
    }
    let predicate = asked.partitions.iter().map(|(column, value)| match value {
        Some(value) => format!("{column} = '{value}'"),
        None => format!("{column} IS NULL"),
    });
    let predicate = predicate.collect::<Vec<_>>().join(" AND ");
    Commit {
        point: "optimize_committed",
        txns: Vec::new(),
        operation: DeltaOperation::Optimize {
            predicate: (!predicate.is_empty()).then_some(predicate),
            target_size: i64::try_from(asked.file_size).unwrap_or(i64::MAX),
        },
        actions,
        blind_append: false,
        metrics: BTreeMap::from([
            ("numRemovedFiles", figures.files_removed),
            ("numRemovedBytes", figures.bytes_removed),
            ("numAddedFiles", figures.files_added),
            ("numAddedBytes", figures.bytes_added),
            ("numOutputRows", figures.rows),
            ("numBatches", done.len() as u64),
        ]),
        run: run.clone(),
    }
}

fn figures_of(done: &Done) -> Figures {
    Figures {
        files_added: done.written.files.len() as u64,
        bytes_added: done.written.bytes(),
        rows: done.written.rows,
        ..done.bin.figures()
    }
}
