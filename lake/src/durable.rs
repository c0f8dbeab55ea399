//! Files that outlast a loss of power: those that a commit names are on disk before its log entry is written, and the log
//! entry before the commit counts as done. What the disk does not confirm is told as a failure, though the commit stands:
//! the caller believed in something that a loss of power may take away.
//!
//! It is for folders of this machine; object stores do so by themselves. A file is on disk when it was synced and so was
//! every folder on the way to it, or its name may be gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use deltalake::kernel::{Action, DeletionVectorDescriptor};

use crate::error::{Context, Error, Result};
use crate::fault;
use crate::log;
use crate::vectors;

/// Syncs the files that a commit to the table in `folder` brings.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the disk fails.
pub(crate) async fn files_of(folder: &Path, actions: &[Action]) -> Result<()> {
    sync(folder.to_owned(), brought(actions)?).await
}

/// Syncs some files of the table in `folder`.
///
/// # Errors
/// As [`files_of`].
pub(crate) async fn paths(folder: &Path, paths: BTreeSet<PathBuf>) -> Result<()> {
    sync(folder.to_owned(), paths).await
}

/// Syncs the log entry of a version of the table in `folder`, and the checkpoint that came with it.
///
/// # Errors
/// As [`files_of`].
pub(crate) async fn entry(folder: &Path, version: u64) -> Result<()> {
    let mut paths = BTreeSet::from([PathBuf::from(log::entry(version))]);
    if folder.join(log::checkpoint_of(version)).exists() {
        paths.extend(checkpoint_files(version));
    }
    sync(folder.to_owned(), paths).await?;
    fault::cross("log_synced")
}

/// Syncs the checkpoint of a version of the table in `folder`: entries of the log may go when it is on disk.
///
/// # Errors
/// As [`files_of`].
pub(crate) async fn checkpoint(folder: &Path, version: u64) -> Result<()> {
    sync(folder.to_owned(), checkpoint_files(version).into()).await
}

/// The checkpoint of a version and what names it.
fn checkpoint_files(version: u64) -> [PathBuf; 2] {
    [log::checkpoint_of(version).into(), log::last_checkpoint().into()]
}

/// The files that actions bring, below the table's folder. Of a file whose vector is new only the vector may be.
fn brought(actions: &[Action]) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    let vector = |vector: &Option<DeletionVectorDescriptor>| -> Result<Option<PathBuf>> {
        let Some(vector) = vector else { return Ok(None) };
        Ok(vectors::file_of(vector)?.map(|path| PathBuf::from(path.as_ref())))
    };
    for action in actions {
        match action {
            Action::Add(file) => {
                paths.insert(PathBuf::from(&file.path));
                paths.extend(vector(&file.deletion_vector)?);
            }
            Action::Cdc(file) => drop(paths.insert(PathBuf::from(&file.path))),
            _ => {}
        }
    }
    Ok(paths)
}

/// Syncs files below a folder, and the folders on the way, with those above the folder that may be new as well: that of its
/// layer and that of the storage.
async fn sync(folder: PathBuf, paths: BTreeSet<PathBuf>) -> Result<()> {
    let done = tokio::task::spawn_blocking(move || {
        let mut folders: BTreeSet<PathBuf> = folder.ancestors().take(4).map(Path::to_owned).collect();
        for path in &paths {
            one(&folder.join(path))?;
            folders.extend(path.ancestors().skip(1).map(|above| folder.join(above)));
        }
        // The innermost first.
        folders.iter().rev().try_for_each(|folder| one(folder))
    });
    done.await.map_err(|error| Error::internal("a sync ended early").with_source(error))?
}

/// Syncs a file or folder. One that is gone was removed by somebody else: no commit of ours will name it.
fn one(path: &Path) -> Result<()> {
    match File::open(path).and_then(|file| file.sync_all()) {
        Ok(()) => Ok(()),
        // Folders above the storage may not be ours to open.
        Err(error) if matches!(error.kind(), Io::NotFound | Io::PermissionDenied) => {
            tracing::debug!(path = %path.display(), %error, "not synced");
            Ok(())
        }
        Err(error) => Err(Error::from(error)).context(|| format!("syncing `{}`", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use deltalake::kernel::{Add, AddCDCFile, StorageType};

    use super::*;

    #[test]
    fn all_that_a_commit_brings_is_synced() {
        let vector = DeletionVectorDescriptor {
            storage_type: StorageType::UuidRelativePath,
            path_or_inline_dv: "vBn[lx{q8@P<9BNH/isA".to_owned(),
            offset: Some(1),
            size_in_bytes: 1,
            cardinality: 1,
        };
        let add = Add {
            path: "day=1/a.parquet".to_owned(),
            partition_values: HashMap::new(),
            size: 1,
            modification_time: 0,
            data_change: true,
            stats: None,
            tags: None,
            deletion_vector: Some(vector),
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        };
        let feed = AddCDCFile { path: "_change_data/c.parquet".to_owned(), ..AddCDCFile::default() };
        let found = brought(&[Action::Add(add), Action::Cdc(feed), Action::Txn(Default::default())]).expect("paths");
        let vector = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin";
        let expected = ["_change_data/c.parquet", "day=1/a.parquet", vector].map(PathBuf::from);
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn what_is_there_is_synced_and_what_is_gone_is_no_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("day=1")).expect("a folder");
        std::fs::write(folder.path().join("day=1/a"), "x").expect("a file");
        let paths = ["day=1/a", "day=2/gone"].map(PathBuf::from).into();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(sync(folder.path().to_owned(), paths)).expect("synced");
    }
}
