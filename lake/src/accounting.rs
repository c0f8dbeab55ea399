//! Figures that must add up before anything is committed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::names::TableName;

/// What became of the rows of one task. Counted where each thing happens, never derived from the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Figures {
    /// Files read.
    pub files: u64,
    /// Rows that came in: records of files for bronze, changes for silver, rows computed for gold.
    pub read: u64,
    /// Records appended to bronze.
    pub appended: u64,
    /// Changes applied to silver: inserted, updated or deleted.
    pub applied: u64,
    /// Changes overtaken by a later one of their key in the same run.
    pub superseded: u64,
    /// Changes not newer than what the table, or the key's tombstone, holds.
    pub stale: u64,
    /// Rows put into quarantine.
    pub quarantined: u64,
    /// Rows dropped because the spec says so.
    pub dropped: u64,
    /// Changes that the spec says to ignore.
    pub ignored: u64,
    /// Blank lines and null records.
    pub skipped: u64,
    /// Rows of a gold table written.
    pub written: u64,
}

impl Figures {
    /// These and more, as one.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            files: self.files + more.files,
            read: self.read + more.read,
            appended: self.appended + more.appended,
            applied: self.applied + more.applied,
            superseded: self.superseded + more.superseded,
            stale: self.stale + more.stale,
            quarantined: self.quarantined + more.quarantined,
            dropped: self.dropped + more.dropped,
            ignored: self.ignored + more.ignored,
            skipped: self.skipped + more.skipped,
            written: self.written + more.written,
        }
    }

    /// Checks `read = appended + quarantined + dropped + skipped`, the equation of bronze.
    ///
    /// # Errors
    /// [`ErrorKind::Accounting`] with every figure when it does not hold.
    pub fn check_bronze(&self, table: &TableName) -> Result<()> {
        let parts = [
            ("appended", self.appended),
            ("quarantined", self.quarantined),
            ("dropped", self.dropped),
            ("skipped", self.skipped),
        ];
        check(table, self.read, &parts)
    }

    /// Checks `read = applied + superseded + stale + quarantined + dropped + ignored`, the equation of silver.
    ///
    /// # Errors
    /// [`ErrorKind::Accounting`] with every figure when it does not hold.
    pub fn check_silver(&self, table: &TableName) -> Result<()> {
        let parts = [
            ("applied", self.applied),
            ("superseded", self.superseded),
            ("stale", self.stale),
            ("quarantined", self.quarantined),
            ("dropped", self.dropped),
            ("ignored", self.ignored),
        ];
        check(table, self.read, &parts)
    }
}

fn check(table: &TableName, read: u64, parts: &[(&str, u64)]) -> Result<()> {
    let sum: u64 = parts.iter().map(|(_, count)| count).sum();
    if sum == read {
        return Ok(());
    }
    let list = parts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(" + ");
    Err(Error::new(
        ErrorKind::Accounting,
        format!("the rows of {table} do not add up: read {read}, but {list} = {sum}"),
    )
    .hint("nothing was committed; this is a fault of the program, please report it with the run's log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_must_be_somewhere() {
        let figures = Figures { read: 5, applied: 2, superseded: 1, stale: 1, quarantined: 1, ..Figures::default() };
        figures.check_silver(&TableName::silver("t")).expect("they add up");
        let lost = Figures { read: 6, ..figures };
        let error = lost.check_silver(&TableName::silver("t")).expect_err("one is lost");
        assert_eq!(error.kind(), ErrorKind::Accounting);
        assert!(error.to_string().contains("read 6"), "{error}");
    }

    #[test]
    fn the_equation_of_bronze_counts_skipped_lines() {
        let figures = Figures { read: 3, appended: 1, quarantined: 1, skipped: 1, ..Figures::default() };
        figures.check_bronze(&TableName::bronze("t")).expect("they add up");
    }
}
