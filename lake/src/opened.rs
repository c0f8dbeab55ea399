//! Tables as they were opened last, so that opening one again reads only what has come since.
//!
//! What opening costs follows the log: a listing, the last checkpoint and each entry after it, read once for the schema
//! and once for the files. The tasks of one run open the same tables several times, and those of a watch do so in each of
//! its runs; between two openings most tables have no commit, or few. Three questions for single files tell what has changed: a
//! state is as good as a new one when the entry of its version is the same file and no newer checkpoint stands beside it
//! (entries before a checkpoint may be cleaned away, and it may be the state of a table that was removed and made anew).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use deltalake::DeltaTable;
use deltalake::logstore::ObjectStoreRef;
use futures::try_join;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::error::{Context, Result};
use crate::log;
use crate::names::TableName;

/// Data files that all kept states may have together: for each its path and its statistics are in memory.
const FILES_MAX: usize = 50_000;

/// The states of tables that were opened.
#[derive(Debug)]
pub(crate) struct Opened {
    states: Mutex<States>,
    files_max: usize,
}

#[derive(Debug, Default)]
struct States {
    kept: HashMap<TableName, Kept>,
    turns: HashMap<TableName, Turn>,
    /// Counts the uses, to tell which state was used last.
    uses: u64,
}

/// Held while a table is read from nothing, so that several who ask for it have it read once. It has what was read where
/// that is too large to be kept and somebody waits for it.
type Turn = Arc<tokio::sync::Mutex<Option<Kept>>>;

/// A state of a table.
#[derive(Debug, Clone)]
struct Kept {
    delta: DeltaTable,
    marks: Marks,
    files: usize,
    used: u64,
}

/// The files of a log that tell whether a state can still be used, as they were when it was read.
#[derive(Debug, Clone, PartialEq)]
struct Marks {
    entry: Mark,
    checkpoint: Option<Mark>,
}

/// A file, and which content of it.
#[derive(Debug, Clone, PartialEq)]
struct Mark(ObjectMeta);

/// What of a log can be asked for by name, below the folder of its table.
struct Log(ObjectStoreRef);

impl Default for Opened {
    fn default() -> Self {
        Self { states: Mutex::default(), files_max: FILES_MAX }
    }
}

impl Opened {
    /// The newest version of a table, read from `unloaded` on when nothing is known of it; `None` when there is no table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) or [`ErrorKind::Table`](crate::ErrorKind::Table) when the log cannot be read.
    pub(crate) async fn newest(&self, name: &TableName, unloaded: DeltaTable) -> Result<Option<DeltaTable>> {
        self.open(name, unloaded, false).await.context(|| format!("opening table {name}"))
    }

    /// Opens a table that is not known for somebody who will ask for it.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub(crate) async fn ahead(&self, name: &TableName, unloaded: DeltaTable) -> Result<()> {
        if self.states().kept.contains_key(name) {
            return Ok(());
        }
        self.open(name, unloaded, true).await.map(|_: Option<DeltaTable>| ())
    }

    async fn open(&self, name: &TableName, unloaded: DeltaTable, is_ahead: bool) -> Result<Option<DeltaTable>> {
        let log = Log(unloaded.object_store());
        if let Some(delta) = self.known(name, &log).await? {
            return Ok(Some(delta));
        }
        let turn = Arc::clone(self.states().turns.entry(name.clone()).or_default());
        let mut handed = turn.lock().await;
        if let Some(delta) = self.known(name, &log).await? {
            return Ok(Some(delta));
        }
        let kept = match handed.take() {
            Some(kept) => log.brought_up(kept).await?,
            None => None,
        };
        let (delta, kept) = match kept {
            Some(kept) => (kept.delta.clone(), Some(kept)),
            None => match log.read(unloaded).await? {
                Some(read) => read,
                None => {
                    self.states().kept.remove(name);
                    return Ok(None);
                }
            },
        };
        let too_large = self.keep(name, kept);
        // The states have one hold of it, and this one has another.
        if is_ahead || Arc::strong_count(&turn) > 2 {
            *handed = too_large;
        }
        Ok(Some(delta))
    }

    /// The newest version, when what is kept leads to it.
    async fn known(&self, name: &TableName, log: &Log) -> Result<Option<DeltaTable>> {
        let kept = self.states().kept.get(name).cloned();
        let Some(kept) = kept else { return Ok(None) };
        let Some(kept) = log.brought_up(kept).await? else { return Ok(None) };
        let delta = kept.delta.clone();
        self.keep(name, Some(kept));
        Ok(Some(delta))
    }

    /// Keeps a state as the one that was used last, and gives up those that were used longest ago when there are too many
    /// files. One that is too large alone is given back.
    fn keep(&self, name: &TableName, kept: Option<Kept>) -> Option<Kept> {
        let mut states = self.states();
        let (fits, too_large) = match kept {
            Some(kept) if kept.files > self.files_max => (None, Some(kept)),
            kept => (kept, None),
        };
        states.uses += 1;
        let used = states.uses;
        match fits {
            Some(kept) => drop(states.kept.insert(name.clone(), Kept { used, ..kept })),
            None => drop(states.kept.remove(name)),
        }
        while states.kept.values().map(|kept| kept.files).sum::<usize>() > self.files_max {
            let oldest = states.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(name, _)| name.clone());
            match oldest {
                Some(oldest) => drop(states.kept.remove(&oldest)),
                None => break,
            }
        }
        too_large
    }

    fn states(&self) -> std::sync::MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// The newest version, from nothing, and what to keep of it; `None` when there is no table.
    async fn read(&self, unloaded: DeltaTable) -> Result<Option<(DeltaTable, Option<Kept>)>> {
        let mut delta = unloaded;
        // The checkpoint is looked at before the log is read: one that comes in between makes the next opening read it again.
        let checkpoint = self.checkpoint().await?;
        let is_there = self.entry(0).await?.is_some();
        if !is_there && !delta.verify_deltatable_existence().await? {
            return Ok(None);
        }
        delta.load().await?;
        let kept = self.marked(&delta, checkpoint).await?;
        Ok(Some((delta, kept)))
    }

    /// The newest version, when what is kept leads to it.
    async fn brought_up(&self, kept: Kept) -> Result<Option<Kept>> {
        let version = kept.delta.version().unwrap_or_default();
        let (entry, next, checkpoint) =
            try_join!(self.entry(version), self.entry(version.saturating_add(1)), self.checkpoint())?;
        if entry.as_ref() != Some(&kept.marks.entry) || checkpoint != kept.marks.checkpoint {
            return Ok(None);
        }
        if next.is_none() {
            return Ok(Some(kept));
        }
        let mut delta = kept.delta;
        // Whatever is wrong with it is told by the reading from anew.
        if delta.update_state().await.is_err() {
            return Ok(None);
        }
        // A table that was made anew meanwhile has other entries.
        if self.entry(version).await?.as_ref() != Some(&kept.marks.entry) {
            return Ok(None);
        }
        self.marked(&delta, checkpoint).await
    }

    /// A state with the files that tell whether it can still be used; `None` where that cannot be told.
    async fn marked(&self, delta: &DeltaTable, checkpoint: Option<Mark>) -> Result<Option<Kept>> {
        let version = delta.version().unwrap_or_default();
        let state = delta.snapshot()?;
        let read = state.version_timestamp(version);
        let is_read = |entry: &Mark| read.is_none_or(|read| read == entry.0.last_modified.timestamp_millis());
        let Some(entry) = self.entry(version).await?.filter(is_read) else { return Ok(None) };
        let files = state.log_data().num_files();
        Ok(Some(Kept { delta: delta.clone(), marks: Marks { entry, checkpoint }, files, used: 0 }))
    }

    async fn entry(&self, version: u64) -> Result<Option<Mark>> {
        self.mark(log::entry(version)).await
    }

    /// The file that names the newest checkpoint.
    async fn checkpoint(&self) -> Result<Option<Mark>> {
        self.mark(log::last_checkpoint()).await
    }

    async fn mark(&self, path: String) -> Result<Option<Mark>> {
        match self.0.head(&Path::from(path)).await {
            Ok(found) => Ok(Some(Mark(found))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use deltalake::kernel::Action;
    use deltalake::protocol::{DeltaOperation, SaveMode};

    use super::*;
    use crate::commit::{Commit, Txn};
    use crate::run::RunContext;
    use crate::session::Engine;
    use crate::table::Definition;
    use crate::write::TableWriter;
    use crate::{Clock, Lake};

    /// A table of one file.
    async fn made(lake: &Lake, name: &TableName) {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let mut table = lake.create_or_open(name, &Definition::new(Arc::clone(&schema))).await.expect("a table");
        let mut writer = TableWriter::new(&table);
        let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1]))]).expect("rows");
        writer.write(&rows).await.expect("a file");
        let commit = Commit {
            point: "silver_committed",
            txns: vec![Txn::new("test", 1)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions: writer.close().await.expect("files").files.into_iter().map(Action::Add).collect(),
            blind_append: true,
            metrics: std::collections::BTreeMap::new(),
            run: RunContext::new(lake).run,
        };
        table.commit(commit).await.expect("a commit");
    }

    #[tokio::test]
    async fn what_is_too_large_to_be_kept_is_read_once_for_those_who_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let lake = Lake::open("lake", folder.path(), Clock::system(), Engine::default()).expect("a lake");
        let name = TableName::silver("t");
        made(&lake, &name).await;
        let unloaded = || lake.unloaded(&name).expect("a place");
        let first = folder.path().join("lake/silver/t/_delta_log/00000000000000000000.json");
        let entry = std::fs::read(&first).expect("an entry");
        // Who reads from nothing stumbles over this; who asks whether a state is still right does not read it.
        let spoil = || std::fs::write(&first, b"no entry").expect("written");
        let opened = Opened { files_max: 0, ..Opened::default() };

        opened.ahead(&name, unloaded()).await.expect("read");
        spoil();
        let version = |delta: Option<DeltaTable>| delta.expect("a table").version();
        assert_eq!(version(opened.newest(&name, unloaded()).await.expect("what was read ahead")), Some(1));
        opened.newest(&name, unloaded()).await.expect_err("it was for one");

        std::fs::write(&first, &entry).expect("written");
        let both = try_join!(opened.newest(&name, unloaded()), opened.newest(&name, unloaded())).expect("read");
        assert_eq!((version(both.0), version(both.1)), (Some(1), Some(1)));
        spoil();
        opened.newest(&name, unloaded()).await.expect_err("nobody else waited");

        // What fits stays.
        std::fs::write(&first, &entry).expect("written");
        let opened = Opened::default();
        opened.newest(&name, unloaded()).await.expect("read");
        spoil();
        for _ in 0..2 {
            assert_eq!(version(opened.newest(&name, unloaded()).await.expect("kept")), Some(1));
        }
    }
}
