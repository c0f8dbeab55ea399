//! Which records of a quarantine are meant.

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use globset::{GlobBuilder, GlobMatcher};

use super::{FIRST_SEEN, REASON_KIND, REFUSED_BY, STATUS, Status};
use crate::columns::FILE_PATH;
use crate::error::{Error, Result};
use crate::names::TableName;

/// Which records of a quarantine are meant: those that meet every condition that is given.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Refused by this table.
    pub refused_by: Option<TableName>,
    /// With a reason of this kind.
    pub reason_kind: Option<String>,
    /// From such files.
    pub file: Option<FileGlob>,
    /// First seen at this moment or later, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// In one of these states; in any, when there is none.
    pub status: Vec<Status>,
}

/// A glob of file paths below the landing root; without a slash it is one of file names.
#[derive(Debug, Clone)]
pub struct FileGlob {
    matcher: GlobMatcher,
    is_path: bool,
}

impl FileGlob {
    /// Reads a glob.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](crate::ErrorKind::Spec) when it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let trimmed = text.strip_prefix("./").unwrap_or(text);
        let glob = GlobBuilder::new(trimmed).literal_separator(true).build();
        let glob = glob.map_err(|error| Error::spec(format!("`{text}` is not a glob: {}", error.kind())))?;
        Ok(Self { matcher: glob.compile_matcher(), is_path: text.contains('/') })
    }

    /// True for a path that is meant.
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.matcher.is_match(if self.is_path { path } else { name })
    }
}

impl Filter {
    /// The columns that [`mask`](Self::mask) asks.
    pub(super) const COLUMNS: [&'static str; 5] = [FILE_PATH, REASON_KIND, FIRST_SEEN, REFUSED_BY, STATUS];

    /// True when records of a partition can be meant.
    pub(super) fn takes(&self, refused_by: &str, status: Status) -> bool {
        let table = self.refused_by.as_ref().is_none_or(|table| table.to_string() == refused_by);
        table && (self.status.is_empty() || self.status.contains(&status))
    }

    /// Which rows of a batch of such a partition are meant.
    pub(super) fn mask(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let (files, kinds) = (text(rows, FILE_PATH)?, text(rows, REASON_KIND)?);
        let seen = column(rows, FIRST_SEEN)?;
        let seen = seen.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(|| missing(FIRST_SEEN))?;
        let meant = |row: usize| {
            self.reason_kind.as_deref().is_none_or(|kind| kinds.value(row) == kind)
                && self.file.as_ref().is_none_or(|glob| glob.matches(files.value(row)))
                && self.since_us.is_none_or(|since| seen.value(row) >= since)
        };
        Ok((0..rows.num_rows()).map(|row| Some(meant(row))).collect())
    }
}

/// A column of text, whatever its encoding.
pub(super) fn text(rows: &RecordBatch, name: &str) -> Result<arrow::array::StringArray> {
    Ok(cast(column(rows, name)?, &DataType::Utf8)?.as_string::<i32>().clone())
}

pub(super) fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a arrow::array::ArrayRef> {
    rows.column_by_name(name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::new(crate::ErrorKind::Table, format!("a quarantine table has no column `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_is_one_of_names_unless_it_has_a_slash() {
        let matches = |glob: &str, path: &str| FileGlob::parse(glob).expect("a glob").matches(path);
        assert!(matches("*_am.csv", "orders/2024/a_am.csv"));
        assert!(matches("orders/**/*.csv", "orders/2024/a.csv") && !matches("orders/*.csv", "orders/2024/a.csv"));
        assert!(FileGlob::parse("a[").expect_err("no glob").to_string().starts_with("`a[` is not a glob"));
    }

    #[test]
    fn partitions_are_left_out_unread() {
        let filter =
            Filter { refused_by: Some(TableName::silver("t")), status: vec![Status::Open], ..Filter::default() };
        assert!(filter.takes("silver.t", Status::Open));
        assert!(!filter.takes("silver.u", Status::Open) && !filter.takes("silver.t", Status::Replayed));
        assert!(Filter::default().takes("bronze.s", Status::Discarded));
    }
}
