//! The file system of this machine as a store in which the newest entries of a log are found without asking for every file.
//!
//! A log keeps its entries for weeks, and every opening and every commit lists it from its last checkpoint on. The store of the
//! library makes a path of each name to compare it; here names are compared as they are, and only files that are
//! listed are asked for their attributes. Everything else is left to the library.

use std::fs::read_dir;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::log;

/// A folder of this machine.
#[derive(Debug, Clone)]
pub(crate) struct LocalStore(LocalFileSystem);

impl LocalStore {
    /// The store below a folder that is there.
    ///
    /// # Errors
    /// As [`LocalFileSystem::new_with_prefix`].
    pub(crate) fn below(folder: &std::path::Path) -> Result<Self> {
        LocalFileSystem::new_with_prefix(folder).map(Self)
    }

    /// The store of all files.
    pub(crate) fn whole() -> Self {
        Self(LocalFileSystem::new())
    }

    /// The folder of a log and the name after which it is to be listed, when it is one.
    fn log_after(&self, prefix: Option<&Path>, offset: &Path) -> Option<Listing> {
        let prefix = prefix.filter(|prefix| prefix.filename() == Some(log::FOLDER))?;
        let after = offset.as_ref().strip_prefix(prefix.as_ref())?.strip_prefix('/')?;
        let folder = self.0.path_to_filesystem(prefix).ok()?;
        is_plain(after).then(|| Listing { prefix: prefix.clone(), folder, after: after.to_owned() })
    }
}

impl std::fmt::Display for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A listing of files of a log.
struct Listing {
    prefix: Path,
    folder: PathBuf,
    after: String,
}

impl Listing {
    /// The files; `None` when the folder has something else, and the library is to list it.
    fn list(&self) -> io::Result<Option<Vec<ObjectMeta>>> {
        let entries = match read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_plain(name) || is_unfinished(name)) else {
                return Ok(None);
            };
            // Some file systems do not tell the type with the name, and it would be asked for.
            if name <= self.after.as_str() || is_unfinished(name) {
                continue;
            }
            if !entry.file_type()?.is_file() {
                return Ok(None);
            }
            let about = match entry.metadata() {
                Ok(about) => about,
                // It went meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let (location, last_modified) = (self.prefix.clone().join(name), DateTime::<Utc>::from(about.modified()?));
            files.push(ObjectMeta { location, last_modified, size: about.len(), e_tag: None, version: None });
        }
        Ok(Some(files))
    }
}

/// True for a name that is the same in a path of a store.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// True for the name of a file that the library is writing: `00000000000000000007.json#1`.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#')
        .is_some_and(|(name, number)| is_plain(name) && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[async_trait]
impl ObjectStore for LocalStore {
    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let Some(listing) = self.log_after(prefix, offset) else { return self.0.list_with_offset(prefix, offset) };
        let (store, prefix, offset) = (self.0.clone(), prefix.cloned(), offset.clone());
        let failed =
            |source: io::Error| object_store::Error::Generic { store: "LocalFileSystem", source: source.into() };
        let listed = async move {
            let listed = match tokio::runtime::Handle::try_current() {
                Ok(handle) => match handle.spawn_blocking(move || listing.list()).await {
                    Ok(listed) => listed,
                    Err(error) => Err(error.into()),
                },
                Err(_) => listing.list(),
            };
            match listed {
                Ok(Some(files)) => stream::iter(files.into_iter().map(Ok)).boxed(),
                Ok(None) => store.list_with_offset(prefix.as_ref(), &offset),
                Err(error) => stream::once(async move { Err(failed(error)) }).boxed(),
            }
        };
        stream::once(listed).flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;

    async fn listed(store: &dyn ObjectStore, prefix: &str, after: &str) -> Vec<(String, u64, DateTime<Utc>)> {
        let files = store.list_with_offset(Some(&prefix.into()), &format!("{prefix}/{after}").as_str().into());
        let files: Vec<ObjectMeta> = files.try_collect().await.expect("files");
        let mut files: Vec<_> =
            files.into_iter().map(|file| (file.location.to_string(), file.size, file.last_modified)).collect();
        files.sort();
        files
    }

    #[tokio::test]
    async fn a_log_is_listed_as_the_library_lists_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, library) = (
            LocalStore::below(folder.path()).expect("a store"),
            LocalFileSystem::new_with_prefix(folder.path()).expect("a store"),
        );
        let put = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "content").expect("a file");
        };
        assert_eq!(listed(&own, "t/_delta_log", "0").await, [], "nothing is there");
        for name in ["08.json", "09.json", "09.checkpoint.parquet", "10.json", "10.json#1", "_last_checkpoint"] {
            put(&format!("t/_delta_log/{name}"));
            put(&format!("t/other/{name}"));
        }
        let same = async |prefix: &str, after: &str, count: usize| {
            let files = listed(&own, prefix, after).await;
            assert_eq!(files, listed(&library, prefix, after).await, "{prefix} after {after}");
            assert_eq!(files.len(), count, "{files:?}");
        };
        for (after, count) in [("08", 5), ("08.json", 4), ("09", 4), ("09.json", 2), ("11", 1), ("z", 0)] {
            same("t/_delta_log", after, count).await;
        }
        same("t/other", "09", 4).await;
        // Names and folders that are not of a log are listed as well.
        put("t/_delta_log/_sidecars/a.parquet");
        same("t/_delta_log", "10", 3).await;
        std::fs::remove_dir_all(folder.path().join("t/_delta_log/_sidecars")).expect("removed");
        put("t/_delta_log/10 b.json");
        same("t/_delta_log", "10", 3).await;
    }
}
