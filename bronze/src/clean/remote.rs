//! Cleans an object of a store.

use std::sync::Arc;

use lake::{Error, ErrorKind, Result, fault};
use object_store::path::Path;
use object_store::{CopyMode, CopyOptions, Error as StoreError, ObjectStore, ObjectStoreExt};

use super::{Gone, names};
use crate::discover::FoundFile;

pub(super) async fn clean(store: Arc<dyn ObjectStore>, file: &FoundFile, to: Option<String>) -> Result<Gone> {
    let path = parse(&file.path)?;
    if !is_as_taken(&store, &path, file).await? {
        return Ok(Gone::NotOurs);
    }
    let mut moved = None;
    if let Some(to) = &to {
        for name in names(to) {
            let target = parse(&name)?;
            let options = CopyOptions::new().with_mode(CopyMode::Create);
            match store.copy_opts(&path, &target, options).await {
                Ok(()) => {
                    moved = Some(name);
                    break;
                }
                // Where a crash came between copy and removal, the copy is there already.
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    if is_copy(&store, &target, file).await? {
                        moved = Some(name);
                        break;
                    }
                }
                Err(StoreError::NotFound { .. }) => return Ok(Gone::NotOurs),
                Err(error) => return Err(error.into()),
            }
        }
        if moved.is_none() {
            let message = format!("every name like `{to}` is taken at the destination");
            return Err(Error::new(ErrorKind::File, message));
        }
    }
    fault::cross("file_cleaning")?;
    if !is_as_taken(&store, &path, file).await? {
        return Ok(Gone::NotOurs);
    }
    match store.delete(&path).await {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(moved.map_or(Gone::Deleted, Gone::Moved)),
        Err(error) => Err(error.into()),
    }
}

fn parse(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|error| Error::new(ErrorKind::File, format!("the store does not take the name: {error}")))
}

/// True when an object has the version of the content that was taken.
async fn is_copy(store: &Arc<dyn ObjectStore>, target: &Path, file: &FoundFile) -> Result<bool> {
    let meta = store.head(target).await?;
    Ok(meta.size == file.size && meta.e_tag.is_some() && meta.e_tag == file.etag)
}

/// True when the store holds what was taken under this name.
async fn is_as_taken(store: &Arc<dyn ObjectStore>, path: &Path, file: &FoundFile) -> Result<bool> {
    match store.head(path).await {
        Ok(meta) => {
            let now = FoundFile {
                path: file.path.clone(),
                size: meta.size,
                modified_us: meta.last_modified.timestamp_micros(),
                etag: meta.e_tag,
                unreadable: None,
            };
            Ok(now.is_same(file))
        }
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn an_object_is_moved_beside_what_is_there_and_only_when_it_is_what_was_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let put = async |path: &str, text: &str| {
                store.put(&parse(path).expect("a path"), text.to_owned().into()).await.expect("stored");
                let meta = store.head(&parse(path).expect("a path")).await.expect("an object");
                let modified_us = meta.last_modified.timestamp_micros();
                FoundFile { path: path.into(), size: meta.size, modified_us, etag: meta.e_tag, unreadable: None }
            };
            put("out/a.csv", "other").await;
            let taken = put("in/a.csv", "1").await;
            let moved = clean(Arc::clone(&store), &taken, Some("out/a.csv".into())).await.expect("moved");
            assert_eq!(moved, Gone::Moved("out/a.csv.2".into()));
            let first = put("in/b.csv", "1").await;
            put("in/b.csv", "2").await;
            assert_eq!(clean(Arc::clone(&store), &first, None).await.expect("an answer"), Gone::NotOurs);
            let second = put("in/b.csv", "2").await;
            assert_eq!(clean(Arc::clone(&store), &second, None).await.expect("deleted"), Gone::Deleted);
            assert_eq!(clean(Arc::clone(&store), &second, None).await.expect("an answer"), Gone::NotOurs);
        });
    }
}
