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
#[derive(Debug, Default)]
pub(crate) struct Opened(Mutex<States>);

#[derive(Debug, Default)]
struct States {
    kept: HashMap<TableName, Kept>,
    /// Held while a table is read from anew, so that several who ask for it have it read once.
    turns: HashMap<TableName, Arc<tokio::sync::Mutex<()>>>,
    /// Counts the uses, to tell which state was used last.
    uses: u64,
}

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

impl Opened {
    /// The newest version of a table, read from `unloaded` on when nothing is known of it; `None` when there is no table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) or [`ErrorKind::Table`](crate::ErrorKind::Table) when the log cannot be read.
    pub(crate) async fn newest(&self, name: &TableName, unloaded: DeltaTable) -> Result<Option<DeltaTable>> {
        let doing = || format!("opening table {name}");
        let log = Log(unloaded.object_store());
        if let Some(delta) = self.known(name, &log).await.context(doing)? {
            return Ok(Some(delta));
        }
        let turn = Arc::clone(self.states().turns.entry(name.clone()).or_default());
        let turn = turn.lock().await;
        if let Some(delta) = self.known(name, &log).await.context(doing)? {
            return Ok(Some(delta));
        }
        let delta = self.read(name, &log, unloaded).await.context(doing)?;
        drop(turn);
        Ok(delta)
    }

    /// True when something is kept of a table.
    pub(crate) fn has(&self, name: &TableName) -> bool {
        self.states().kept.contains_key(name)
    }

    /// The newest version, from nothing.
    async fn read(&self, name: &TableName, log: &Log, unloaded: DeltaTable) -> Result<Option<DeltaTable>> {
        let mut delta = unloaded;
        // The checkpoint is looked at before the log is read: one that comes in between makes the next opening read it again.
        let checkpoint = log.checkpoint().await?;
        let is_there = log.entry(0).await?.is_some();
        if !is_there && !delta.verify_deltatable_existence().await? {
            self.states().kept.remove(name);
            return Ok(None);
        }
        delta.load().await?;
        self.keep(name, log, &delta, checkpoint).await?;
        Ok(Some(delta))
    }

    /// The newest version, when what is kept leads to it.
    async fn known(&self, name: &TableName, log: &Log) -> Result<Option<DeltaTable>> {
        let Some(Kept { mut delta, marks, .. }) = self.used(name) else { return Ok(None) };
        let version = delta.version().unwrap_or_default();
        let (entry, next, checkpoint) =
            try_join!(log.entry(version), log.entry(version.saturating_add(1)), log.checkpoint())?;
        if entry.as_ref() != Some(&marks.entry) || checkpoint != marks.checkpoint {
            return Ok(None);
        }
        if next.is_some() {
            // Whatever is wrong with it is told by the reading from anew.
            if delta.update_state().await.is_err() {
                return Ok(None);
            }
            // A table that was made anew meanwhile has other entries.
            if log.entry(version).await?.as_ref() != Some(&marks.entry) {
                return Ok(None);
            }
            self.keep(name, log, &delta, checkpoint).await?;
        }
        Ok(Some(delta))
    }

    fn used(&self, name: &TableName) -> Option<Kept> {
        let mut states = self.states();
        states.uses += 1;
        let used = states.uses;
        states.kept.get_mut(name).map(|kept| {
            kept.used = used;
            kept.clone()
        })
    }

    /// Keeps a state, and gives up those that were used longest ago when there are too many files.
    async fn keep(&self, name: &TableName, log: &Log, delta: &DeltaTable, checkpoint: Option<Mark>) -> Result<()> {
        let version = delta.version().unwrap_or_default();
        let state = delta.snapshot()?;
        let read = state.version_timestamp(version);
        let is_read = |entry: &Mark| read.is_none_or(|read| read == entry.0.last_modified.timestamp_millis());
        let entry = log.entry(version).await?.filter(is_read);
        let files = state.log_data().num_files();
        let mut states = self.states();
        states.uses += 1;
        let used = states.uses;
        match entry {
            Some(entry) if files <= FILES_MAX => {
                let marks = Marks { entry, checkpoint };
                states.kept.insert(name.clone(), Kept { delta: delta.clone(), marks, files, used });
            }
            _ => drop(states.kept.remove(name)),
        }
        while states.kept.values().map(|kept| kept.files).sum::<usize>() > FILES_MAX {
            let oldest = states.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(name, _)| name.clone());
            match oldest {
                Some(oldest) => drop(states.kept.remove(&oldest)),
                None => break,
            }
        }
        Ok(())
    }

    fn states(&self) -> std::sync::MutexGuard<'_, States> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
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
