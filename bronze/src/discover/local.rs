//! Lists a folder of this machine.
//!
//! The local object store cannot be asked: one name with a control character ends its listing, and it hides names that
//! end in `#` and digits. Nothing that landed may be passed over in silence, so the folder is read here, files are
//! opened by the names that they have here, and one whose name is no text is listed with that reason.

use std::fs::{DirEntry, Metadata, read_dir};
use std::io::{self, ErrorKind as IoKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use lake::{Error, ErrorKind, Result};

use super::{FoundFile, Listing, Missed, Request, below};

/// Folders inside folders, at most.
const DEPTH_MAX: usize = 128;

pub(super) async fn list(root: PathBuf, request: Request) -> Result<Listing> {
    let listed = tokio::task::spawn_blocking(move || {
        let mut walk = Walk { request: &request, files: Vec::new(), missed: Missed::default(), above: Vec::new() };
        let folder = root.join(&request.folder);
        let prefix = if request.folder.is_empty() { String::new() } else { format!("{}/", request.folder) };
        match std::fs::metadata(&folder) {
            Err(error) if error.kind() == IoKind::NotFound => {
                return Ok(Listing { missing: true, ..Listing::default() });
            }
            Err(error) => return Err(failed(&folder, error)),
            Ok(metadata) if !metadata.is_dir() => {
                return Err(Error::spec(format!("the path `{}` of the source is not a folder", request.folder))
                    .hint("name its folder in `path` and the file in `include`"));
            }
            Ok(_) => {}
        }
        walk.folder(&folder, &prefix).map_err(|error| failed(&folder, error))?;
        Ok(Listing { files: walk.files, missing: false, missed: walk.missed })
    });
    listed.await.map_err(|error| Error::internal("the listing ended early").with_source(error))?
}

struct Walk<'a> {
    request: &'a Request,
    files: Vec<FoundFile>,
    missed: Missed,
    /// The real paths of the folders above, to stop at links that lead back.
    above: Vec<PathBuf>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let real = folder.canonicalize()?;
        if self.above.contains(&real) || self.above.len() == DEPTH_MAX {
            return Ok(());
        }
        self.above.push(real);
        for entry in read_dir(folder)? {
            self.entry(&entry?, prefix)?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, prefix: &str) -> io::Result<()> {
        let name = entry.file_name();
        let path = format!("{prefix}{}", name.to_string_lossy());
        // Links are followed, as the store follows them; an entry that is gone by now was never there.
        let kind = entry.file_type()?;
        let metadata = match if kind.is_dir() { Ok(None) } else { gone(std::fs::metadata(entry.path())) } {
            // A link that cannot be followed is one unreadable file among others.
            Err(error) if kind.is_symlink() => {
                if self.request.takes(&path) {
                    self.unreadable(path, format!("the link cannot be followed: {error}"));
                }
                return Ok(());
            }
            metadata => metadata?,
        };
        let is_folder = kind.is_dir() || metadata.as_ref().is_some_and(Metadata::is_dir);
        if is_folder {
            let below = below(&self.request.folder, &path).unwrap_or(&path);
            if self.request.recursive && self.request.filter.enters(below) && !self.request.skips(&path) {
                let depth = self.above.len();
                let listed = self.folder(&entry.path(), &format!("{path}/"));
                self.above.truncate(depth);
                match listed {
                    Err(error) if error.kind() == IoKind::PermissionDenied => {
                        // Reported like a file that cannot be read.
                        self.unreadable(format!("{path}/"), format!("the folder cannot be listed: {error}"));
                    }
                    Err(error) if error.kind() == IoKind::NotFound => {}
                    other => other?,
                }
            }
        } else if let Some(metadata) = metadata.filter(Metadata::is_file) {
            match self.request.takes(&path) {
                true => self.files.push(found(path, &entry.path(), &metadata)),
                false => self.missed.add(&path, self.request.miss(&path)),
            }
        }
        Ok(())
    }

    fn unreadable(&mut self, path: String, reason: String) {
        self.files.push(FoundFile { path, size: 0, modified_us: 0, etag: None, unreadable: Some(reason) });
    }
}

fn found(path: String, real: &Path, metadata: &Metadata) -> FoundFile {
    let unreadable = real.to_str().is_none().then(|| "its name is not UTF-8: rename the file".to_owned());
    // The store's version of a local file holds its inode, which a copy or another mount of the folder changes
    // without changing the content: size and time are the identity.
    FoundFile { path, size: metadata.len(), modified_us: modified_us(metadata), etag: None, unreadable }
}

/// The time of the last change in microseconds since the epoch.
pub(crate) fn modified_us(metadata: &Metadata) -> i64 {
    let Ok(modified) = metadata.modified() else { return 0 };
    let micros = match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_micros()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos().div_ceil(1000)).unwrap_or(i128::MAX),
    };
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn gone(metadata: io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == IoKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn failed(folder: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Store, format!("listing the folder `{}`: {error}", folder.display())).with_source(error)
}
