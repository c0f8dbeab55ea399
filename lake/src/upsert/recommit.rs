//! A commit that comes second: the same files on top of the newer version, when only upkeep came first, and nothing that
//! the changes meet has moved.

use std::collections::HashSet;

use deltalake::kernel::{Action, LogicalFileView};

use super::{Probed, Upsert, probe};
use crate::commit::{Commit, Outcome, actions_of};
use crate::error::{ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::table::{FileId, Table, file_id as id};

/// How often the same files are committed before the work is done again.
const ATTEMPTS_MAX: u32 = 5;

pub(super) async fn commit(
    upsert: &Upsert,
    lake: &Lake,
    table: &mut Table,
    probed: &Probed,
    commit: Commit,
) -> Result<Outcome> {
    let before = table.clone();
    for _ in 0..ATTEMPTS_MAX {
        match table.commit(commit.clone()).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                if probed.is_bound || !fits(upsert, lake, &before, table, probed).await? {
                    return Err(error);
                }
                tracing::debug!(table = %table.name(), "the files of an upsert are committed to a newer version");
            }
            answer => return answer,
        }
    }
    table.commit(commit).await
}

/// True when the changes would meet in the newer version what they met in the version that was probed.
async fn fits(upsert: &Upsert, lake: &Lake, before: &Table, now: &Table, probed: &Probed) -> Result<bool> {
    let (old, new) = (before.delta().snapshot()?, now.delta().snapshot()?);
    if old.metadata() != new.metadata() || old.protocol() != new.protocol() {
        return Ok(false);
    }
    // Another's work may have left what no file tells: the delete of a key that the table does not hold, remembered
    // beside it. Only upkeep carries no transaction.
    for number in before.version() + 1..=now.version() {
        if actions_of(now, number).await?.iter().any(|action| matches!(action, Action::Txn(_))) {
            return Ok(false);
        }
    }
    let held: HashSet<FileId> = old.log_data().iter().map(|file| id(&file)).collect();
    let live: HashSet<FileId> = new.log_data().iter().map(|file| id(&file)).collect();
    if !probed.touched.iter().all(|touched| live.contains(&id(&touched.file))) {
        return Ok(false);
    }
    // The row that made a change stale may be gone with a file.
    if probed.figures.stale > 0 && !held.is_subset(&live) {
        return Ok(false);
    }
    let is_new = |file: &LogicalFileView| !held.contains(&id(file));
    Ok(!probe::meets(upsert, lake, now, &probed.changes, is_new).await?)
}
