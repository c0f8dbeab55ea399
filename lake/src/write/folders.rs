//! Folders of partitions whose names no file system takes: a name ends at 255 bytes, and the value of a partition may be
//! longer. The folder is cut then. What counts is the value in the log; a folder says nothing that is read.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

/// Bytes of the name of a folder at most.
const NAME_MAX: usize = 200;

/// A store in which data files have paths of short folders: [`short`] of the paths that they are asked by.
#[derive(Debug)]
pub(super) struct ShortFolders<S>(pub(super) S);

impl<S: ObjectStore> fmt::Display for ShortFolders<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortFolders({})", self.0)
    }
}

#[async_trait::async_trait]
impl<S: ObjectStore> ObjectStore for ShortFolders<S> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(&shortened(location), payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(&shortened(location), options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(&shortened(location), options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(&shortened(location), ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(&shortened(from), &shortened(to), options).await
    }
}

fn shortened(path: &Path) -> Path {
    if path.as_ref().len() <= NAME_MAX {
        path.clone()
    } else {
        Path::parse(short(path.as_ref())).unwrap_or_else(|_| path.clone())
    }
}

/// A path with short names: of a longer one the beginning and a hash of all of it, the same every time.
pub(super) fn short(path: &str) -> String {
    path.split('/').map(short_name).collect::<Vec<_>>().join("/")
}

fn short_name(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    let hash = format!("~{:016x}", fnv(name.as_bytes()));
    let bytes = name.as_bytes();
    let mut end = NAME_MAX - hash.len();
    // Neither within an escape such as `%D0` nor between those of one letter.
    let splits = |end: usize| {
        let in_escape = bytes[end - 1] == b'%' || bytes[end - 2] == b'%';
        in_escape || (bytes[end] == b'%' && matches!(bytes[end + 1], b'8' | b'9' | b'A' | b'B' | b'a' | b'b'))
    };
    while end > 2 && (!name.is_char_boundary(end) || splits(end)) {
        end -= 1;
    }
    format!("{}{hash}", &name[..end])
}

/// The hash of Fowler, Noll and Vo (FNV-1a), which never changes from one version of a program to the next.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_stay() {
        for path in ["part-1.parquet", "day=2024-05-01/shop=%D0%90/part-1.parquet", &"x".repeat(NAME_MAX)] {
            assert_eq!(short(path), path);
        }
    }

    #[test]
    fn a_long_name_is_cut_between_letters_and_stays_apart_from_others() {
        let long = |letters: &str| format!("day=1/p={}/part-1.parquet", letters);
        for letters in ["x".repeat(300), "%D0%96".repeat(60), "%E6%BC%A2".repeat(60), "Ж".repeat(200), "%20".repeat(90)]
        {
            let path = short(&long(&letters));
            let folder = path.split('/').nth(1).expect("a folder");
            assert!(folder.len() <= NAME_MAX && folder.len() > NAME_MAX - 30, "{folder}");
            let kept = folder.strip_prefix("p=").and_then(|name| name.split_once('~')).expect("a hash").0;
            let letter =
                ["%D0%96", "%E6%BC%A2", "%20", "Ж", "x"].into_iter().find(|letter| letters.starts_with(letter));
            let letter = letter.expect("a letter");
            assert_eq!(kept, letter.repeat(kept.len() / letter.len()));
            assert!(path.starts_with("day=1/") && path.ends_with("/part-1.parquet"));
            assert_eq!(path, short(&long(&letters)));
            assert_ne!(path, short(&long(&format!("{letters}y"))));
            assert_eq!(short(&path), path, "what is short stays");
        }
    }
}
