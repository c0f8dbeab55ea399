//! What a silver table that is taken back to an earlier version says about its source and about what is remembered beside
//! it, in the same commit.
//!
//! The rows are what they were, so the batches of bronze that they hold are those of then: the next run applies the later
//! ones again. What was remembered with those is undone (`facts::undo`). What the table refused of them, the next run
//! replaces in quarantine, as after a crash.

use lake::restore::{Along, Moved, Way};
use lake::{Error, ErrorKind, Result};

use crate::facts::{rebuilt, undo};

/// Stands for a transaction that the table had not seen yet: batches and columns are counted from 0.
const NEVER: i64 = -1;

/// What the commit says that takes a table back. With `keep_offset` the batches that came since count as applied.
///
/// # Errors
/// [`ErrorKind::Table`] when the table was made anew since, or took records from quarantine that would be lost.
pub fn along(way: &Way, moved: &[Moved], keep_offset: bool) -> Result<Along> {
    let (name, version) = (way.now.name(), way.then.version());
    if rebuilt(&way.now)? != rebuilt(&way.then)? {
        let message = format!("{name} was made anew since version {version}, with all that is remembered beside it");
        return Err(Error::new(ErrorKind::Table, message)
            .hint(format!("`silver rebuild {} --as-of …` makes it as it was at an earlier batch", name.name)));
    }
    let quarantine = format!("{name}:quarantine.");
    if let Some(taken) = moved.iter().find(|moved| moved.app.starts_with(&quarantine) && moved.took_records()) {
        let source = taken.app.trim_start_matches(&quarantine);
        let message =
            format!("since version {version} {name} took records from quarantine.{source}, which would be lost");
        return Err(Error::new(ErrorKind::Table, message).hint(format!(
            "go back to a version after the replay (`orchestrator table history {name}`), or make the table anew with \
             `silver rebuild {}`",
            name.name
        )));
    }
    let mut along = undo(way, moved)?;
    let (source, columns) = (format!("{name}:bronze."), format!("{name}:columns"));
    along.txns.extend(moved.iter().filter_map(|moved| {
        let then = moved.then.unwrap_or(NEVER);
        let version = match moved.app.starts_with(&source) {
            // What is kept of later batches has been applied, whichever of the two versions has more.
            true if keep_offset => then.max(moved.now.unwrap_or(NEVER)),
            true => then,
            false if moved.app == columns => then,
            false => return None,
        };
        Some((moved.app.clone(), version))
    }));
    Ok(along)
}
