//! What was taken out of a bronze table by hand: a file of which the table has no record for that reason is no empty
//! file.
//!
//! Who reads files as full extracts must tell the two apart, or an extract that is gone would delete every row. The table
//! says it itself, in the commit that takes the records out; a version that is restored says what was so by then.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::table::Table;

/// The property of a bronze table.
const PROPERTY: &str = "lakehouse.takenOut";

/// Files that a bronze table had records of and has none of any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TakenOut {
    /// All files of batches: the first and the last batch of each run of them.
    batches: BTreeSet<(i64, i64)>,
    /// Files of other batches.
    files: BTreeMap<i64, BTreeSet<String>>,
}

impl TakenOut {
    /// What was taken out of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded, or what it says cannot be read.
    pub fn of(table: &Table) -> Result<Self> {
        let Some(text) = table.property(PROPERTY)? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|error| {
            let message = format!("the property `{PROPERTY}` of {} cannot be read", table.name());
            Error::new(ErrorKind::Table, message).with_source(error)
        })
    }

    /// True for a file that was taken out.
    pub fn has(&self, batch: i64, path: &str) -> bool {
        let is_in = |(first, last): &(i64, i64)| (*first..=*last).contains(&batch);
        self.batches.iter().any(is_in) || self.files.get(&batch).is_some_and(|files| files.contains(path))
    }

    /// This and the files of some batches, from the first to the last.
    #[must_use]
    pub fn and_batches(mut self, first: i64, last: i64) -> Self {
        self.batches.insert((first, last));
        self.files.retain(|batch, _| !(first..=last).contains(batch));
        self
    }

    /// This and some files, each with its batch.
    #[must_use]
    pub fn and_files(mut self, files: impl IntoIterator<Item = (i64, String)>) -> Self {
        for (batch, path) in files {
            if !self.has(batch, &path) {
                self.files.entry(batch).or_default().insert(path);
            }
        }
        self
    }

    /// The property with its value.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when it cannot be written.
    pub fn property(&self) -> Result<(String, String)> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::internal("what was taken out cannot be written").with_source(error))?;
        Ok((PROPERTY.to_owned(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_batches_add_up_and_are_read_as_they_are_written() {
        let out = TakenOut::default().and_files([(2, "a.csv".to_owned()), (7, "b.csv".to_owned())]);
        let out = out.and_batches(6, 8).and_files([(7, "c.csv".to_owned())]);
        assert!(out.has(2, "a.csv") && !out.has(2, "b.csv") && out.has(6, "x") && out.has(8, "x") && !out.has(9, "x"));
        let (_, text) = out.property().expect("a property");
        assert_eq!(text, r#"{"batches":[[6,8]],"files":{"2":["a.csv"]}}"#);
        assert_eq!(serde_json::from_str::<TakenOut>(&text).expect("the same"), out);
    }
}
