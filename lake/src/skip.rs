//! Which data files of a table may hold values of a column, by what the log knows of them.

use arrow::array::ArrayRef;

use crate::error::Result;
use crate::table::Table;
use crate::upsert::prune::Pruning;

/// What is looked for in a column, in the column's type.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// These values, null among them when it is wanted.
    Values(ArrayRef),
    /// What lies between ends: ranges in ascending order that lie apart.
    Ranges {
        /// The least value of each.
        from: ArrayRef,
        /// The greatest value of each.
        to: ArrayRef,
        /// Whether null is wanted as well.
        with_null: bool,
    },
}

/// Data files of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Their paths.
    pub paths: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
}

impl Table {
    /// The data files that may hold a row with wanted values in all of these columns. What is not known of a file
    /// leaves it in.
    ///
    /// # Errors
    /// [`ErrorKind::Table`](crate::ErrorKind::Table) when the table is not loaded.
    pub fn files_with(&self, wanted: &[(String, Wanted)]) -> Result<Selection> {
        let log = self.delta().snapshot()?.log_data();
        let partition_by = self.partition_columns()?;
        let mut may = vec![true; log.num_files()];
        for (column, wanted) in wanted {
            let pruning = match wanted {
                Wanted::Values(values) => {
                    Pruning::new(std::slice::from_ref(column), std::slice::from_ref(values), &partition_by)?
                }
                Wanted::Ranges { from, to, with_null } => {
                    let ends = [ArrayRef::clone(from), ArrayRef::clone(to)];
                    Pruning::ranges(column, ends, *with_null, partition_by.contains(column))?
                }
            };
            may.iter_mut().zip(pruning.files(&log)?).for_each(|(may, holds)| *may &= holds);
        }
        let mut selection = Selection::default();
        for (file, _) in log.iter().zip(may).filter(|(_, may)| *may) {
            selection.paths.push(file.path().into_owned());
            selection.bytes += u64::try_from(file.size()).unwrap_or(0);
        }
        Ok(selection)
    }
}
