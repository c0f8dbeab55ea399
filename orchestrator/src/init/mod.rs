//! The first spec of a project: an example that runs at once, or guesses about files that are there.

mod changes;
mod envelope;
mod example;
mod groups;
mod guess;
mod records;
mod values;
mod write;

use std::path::{Path, PathBuf};

use chrono_tz::Tz;
use lake::Result;

pub(crate) use example::{FILES as EXAMPLE_FILES, SPEC as EXAMPLE_SPEC};

/// The first line of a spec, by which editors find the schema beside it.
pub(crate) const SCHEMA_LINE: &str = "# yaml-language-server: $schema=./pipelines.schema.json";

/// A spec about sample files.
#[derive(Debug)]
pub(crate) struct Guessed {
    /// Its text.
    pub(crate) spec: String,
    /// What it is about, in a few words.
    pub(crate) summary: String,
    /// What could not be looked at.
    pub(crate) notes: Vec<String>,
}

/// A spec for the files at these paths; `folder` is that of the spec.
///
/// # Errors
/// [`lake::ErrorKind::Spec`] when a path is not there, or has no data files.
pub(crate) fn from_files(paths: &[PathBuf], folder: &Path) -> Result<Guessed> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let (landing, files) = groups::files(paths, &folder)?;
    let mut notes = Vec::new();
    let groups = groups::groups(files, &mut notes);
    let guesses: Vec<guess::Guess> = groups.into_iter().map(|group| guess::guess(group, Tz::UTC)).collect();
    let from: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let landing = match landing.strip_prefix(&folder) {
        Ok(below) => format!("./{}", below.display()),
        Err(_) => landing.display().to_string(),
    };
    let landing = landing.trim_end_matches('/').to_owned();
    let spec = write::spec(&project_name(&folder), &landing, &shown(&from), &guesses);
    Ok(Guessed { spec, summary: write::summary(&guesses), notes })
}

/// The example under the name of its folder.
pub(crate) fn example_spec(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    format!("{SCHEMA_LINE}\n{}", EXAMPLE_SPEC.replace("name: shop", &format!("name: {}", project_name(&folder))))
}

fn shown(paths: &[String]) -> String {
    match paths {
        [one] => one.clone(),
        [first, .., last] => format!("{first} … {last}"),
        [] => String::new(),
    }
}

/// A name for the pipeline after its folder.
fn project_name(folder: &Path) -> String {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let name = name.trim_matches('_').to_owned();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { "pipeline".to_owned() }
}
