//! Writing sample files: whole files appear at once under their name, so that a watcher never sees half of one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lake::{Context, Error, Result};

/// A file that is being written; [`Output::finish`] gives it its name.
pub(super) struct Output {
    writer: BufWriter<File>,
    hidden: PathBuf,
    path: PathBuf,
    bytes: u64,
}

impl Output {
    /// Starts `folder/name`.
    pub(super) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let hidden = folder.join(format!(".{name}.tmp"));
        let file = File::create(&hidden).context(|| format!("creating `{}`", hidden.display()))?;
        Ok(Self { writer: BufWriter::with_capacity(1 << 16, file), hidden, path, bytes: 0 })
    }

    /// Adds one line and its line break.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        self.bytes += text.len() as u64 + 1;
        self.writer
            .write_all(text.as_bytes())
            .and_then(|()| self.writer.write_all(b"\n"))
            .context(|| format!("writing `{}`", self.path.display()))
    }

    /// Gives the file its name and says how many bytes it has.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.writer.flush().context(|| format!("writing `{}`", self.path.display()))?;
        fs::rename(&self.hidden, &self.path).context(|| format!("creating `{}`", self.path.display()))?;
        Ok(self.bytes)
    }
}

/// Makes a folder for sample files.
///
/// # Errors
/// When it already holds something: sample data is never mixed with what is there.
pub(super) fn empty_folder(root: &Path, name: &str) -> Result<PathBuf> {
    let folder = root.join(name);
    fs::create_dir_all(&folder).context(|| format!("creating `{}`", folder.display()))?;
    let mut entries = fs::read_dir(&folder).context(|| format!("listing `{}`", folder.display()))?;
    if entries.next().is_some() {
        let message = format!("`{}` is not empty; sample data is not mixed with other files", folder.display());
        return Err(Error::spec(message).hint("name a new folder, or remove this one first"));
    }
    Ok(folder)
}
