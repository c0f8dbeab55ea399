//! Cleans a file of this machine.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind as IoKind};
use std::path::{Path, PathBuf};

use lake::{Context, Error, Result, fault};

use super::{Gone, names};
use crate::discover::{FoundFile, modified_us};

pub(super) async fn clean(root: &Path, file: &FoundFile, to: Option<String>) -> Result<Gone> {
    let (root, file) = (root.to_owned(), file.clone());
    let work = tokio::task::spawn_blocking(move || match to {
        None => delete(&root.join(&file.path), &file),
        Some(to) => move_away(&root, &file, &to),
    });
    work.await.map_err(|error| Error::internal("the cleaning of a file ended early").with_source(error))?
}

fn delete(path: &Path, file: &FoundFile) -> Result<Gone> {
    if !is_as_taken(path, file)? {
        return Ok(Gone::NotOurs);
    }
    fault::cross("file_cleaning")?;
    remove(path)?;
    Ok(Gone::Deleted)
}

/// Gives the content a second name at its destination, then takes the first one away. A crash between the two leaves
/// both, and the next time the second is found to be the same.
fn move_away(root: &Path, file: &FoundFile, to: &str) -> Result<Gone> {
    let path = root.join(&file.path);
    if !is_as_taken(&path, file)? {
        return Ok(Gone::NotOurs);
    }
    let parent = root.join(to).parent().map(Path::to_owned).unwrap_or_default();
    fs::create_dir_all(&parent).context(|| format!("making the folder `{}`", parent.display()))?;
    // By a link or another spelling: its own name would be taken for what a crash left.
    if path.parent().map_or(Ok(false), |from| is_one(from, &parent))? {
        return Err(Error::new(lake::ErrorKind::File, format!("`{to}` leads to the folder where the file is")));
    }
    for name in names(to) {
        let target = root.join(&name);
        match fs::hard_link(&path, &target) {
            Ok(()) => {}
            Err(error)
                if error.kind() == IoKind::AlreadyExists && is_as_taken(&target, file)? && same(&path, &target)? => {}
            Err(error) if error.kind() == IoKind::AlreadyExists => continue,
            Err(error) if error.kind() == IoKind::NotFound && !path.exists() => return Ok(Gone::NotOurs),
            // Another file system, or one without second names.
            Err(_) => match copy(&path, file, &target)? {
                true => {}
                false => continue,
            },
        }
        fault::cross("file_cleaning")?;
        if !is_as_taken(&path, file)? {
            return Ok(Gone::NotOurs);
        }
        remove(&path)?;
        return Ok(Gone::Moved(name));
    }
    Err(Error::new(lake::ErrorKind::File, format!("every name like `{to}` is taken at the destination")))
}

/// True when the path holds what was taken; what is not there is not it.
fn is_as_taken(path: &Path, file: &FoundFile) -> Result<bool> {
    match fs::symlink_metadata(path) {
        // What a link leads to belongs to somebody else.
        Ok(metadata) if !metadata.is_file() => Ok(false),
        Ok(metadata) => Ok(metadata.len() == file.size && modified_us(&metadata) == file.modified_us),
        Err(error) if error.kind() == IoKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True when both names hold the same bytes.
fn same(one: &Path, other: &Path) -> Result<bool> {
    use std::io::Read;
    if is_one(one, other)? {
        return Ok(true);
    }
    let (mut one, mut other) = (io::BufReader::new(File::open(one)?), io::BufReader::new(File::open(other)?));
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(other.read(&mut right[..1])? == 0);
        }
        match other.read_exact(&mut right[..read]) {
            Ok(()) if left[..read] == right[..read] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == IoKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// True when both names are of one file or folder.
fn is_one(one: &Path, other: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        Ok(of(fs::metadata(one)?) == of(fs::metadata(other)?))
    }
    #[cfg(not(unix))]
    Ok(one.canonicalize()? == other.canonicalize()?)
}

/// Copies a file to a name that is free; false when it is taken. The copy appears under its name only when it is whole.
fn copy(path: &Path, file: &FoundFile, target: &Path) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(target) {
        Ok(_) => {}
        Err(error) if error.kind() == IoKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let unfinished = unfinished(target);
    let copied = || -> io::Result<bool> {
        fs::copy(path, &unfinished)?;
        let copy = OpenOptions::new().write(true).open(&unfinished)?;
        copy.set_times(FileTimes::new().set_modified(fs::metadata(path)?.modified()?))?;
        copy.sync_all()?;
        if copy.metadata()?.len() != file.size {
            return Ok(false);
        }
        fs::rename(&unfinished, target)?;
        Ok(true)
    }();
    if !matches!(copied, Ok(true)) {
        // What was claimed and is empty goes again; what cannot be removed harms nothing.
        let _ = (fs::remove_file(&unfinished), fs::remove_file(target));
    }
    match copied? {
        true => Ok(true),
        false => Err(Error::new(lake::ErrorKind::File, "it changed while it was copied")),
    }
}

fn unfinished(target: &Path) -> PathBuf {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    target.with_file_name(format!(".{name}.part"))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != IoKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(root: &Path, path: &str) -> FoundFile {
        let metadata = fs::metadata(root.join(path)).expect("a file");
        let (size, modified_us) = (metadata.len(), modified_us(&metadata));
        FoundFile { path: path.to_owned(), size, modified_us, etag: None, unreadable: None }
    }

    fn write(root: &Path, path: &str, text: &str) -> FoundFile {
        fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("a folder");
        fs::write(root.join(path), text).expect("a file");
        found(root, path)
    }

    fn read(root: &Path, path: &str) -> Option<String> {
        fs::read_to_string(root.join(path)).ok()
    }

    #[test]
    fn only_what_was_taken_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let taken = write(root, "in/a.csv", "1");
        let other = FoundFile { size: 2, ..taken.clone() };
        assert_eq!(delete(&root.join("in/a.csv"), &other).expect("an answer"), Gone::NotOurs);
        assert_eq!(move_away(root, &other, "out/a.csv").expect("an answer"), Gone::NotOurs);
        assert_eq!((read(root, "in/a.csv").as_deref(), read(root, "out/a.csv")), (Some("1"), None));
        assert_eq!(delete(&root.join("in/a.csv"), &taken).expect("an answer"), Gone::Deleted);
        assert_eq!(delete(&root.join("in/a.csv"), &taken).expect("an answer"), Gone::NotOurs, "another was faster");
    }

    #[test]
    fn a_move_overwrites_nothing_and_ends_what_a_crash_began() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        write(root, "out/x/a.csv", "other");
        let taken = write(root, "in/x/a.csv", "1");
        let moved = move_away(root, &taken, "out/x/a.csv").expect("moved");
        assert_eq!(moved, Gone::Moved("out/x/a.csv.2".into()));
        assert_eq!(read(root, "out/x/a.csv").as_deref(), Some("other"));
        assert_eq!((read(root, "out/x/a.csv.2").as_deref(), read(root, "in/x/a.csv")), (Some("1"), None));
        // Both names are there, as after a crash between the two steps.
        let taken = write(root, "in/b.csv", "2");
        fs::hard_link(root.join("in/b.csv"), root.join("out/b.csv")).expect("a link");
        assert_eq!(move_away(root, &taken, "out/b.csv").expect("moved"), Gone::Moved("out/b.csv".into()));
        assert_eq!((read(root, "out/b.csv").as_deref(), read(root, "in/b.csv")), (Some("2"), None));
    }

    #[test]
    fn a_destination_that_is_the_same_folder_by_another_name_takes_nothing_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let taken = write(root, "in/a.csv", "1");
        std::os::unix::fs::symlink(root.join("in"), root.join("done")).expect("a link");
        move_away(root, &taken, "done/a.csv").expect_err("the same folder");
        assert_eq!(read(root, "in/a.csv").as_deref(), Some("1"));
    }

    #[test]
    fn a_copy_is_whole_and_overwrites_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let taken = write(root, "a.csv", "1");
        assert!(copy(&root.join("a.csv"), &taken, &root.join("b.csv")).expect("a copy"));
        assert!(is_as_taken(&root.join("b.csv"), &taken).expect("a file"), "with its time");
        assert!(!copy(&root.join("a.csv"), &taken, &root.join("b.csv")).expect("an answer"), "the name is taken");
        let grown = FoundFile { size: 9, ..taken };
        copy(&root.join("a.csv"), &grown, &root.join("c.csv")).expect_err("it changed");
        assert!(!root.join("c.csv").exists() && !root.join(".c.csv.part").exists());
    }

    #[test]
    fn a_link_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let taken = write(root, "real.csv", "1");
        std::os::unix::fs::symlink(root.join("real.csv"), root.join("link.csv")).expect("a link");
        let linked = FoundFile { path: "link.csv".into(), ..taken };
        assert_eq!(delete(&root.join("link.csv"), &linked).expect("an answer"), Gone::NotOurs);
        assert!(root.join("link.csv").exists() && root.join("real.csv").exists());
    }
}
