//! Whether the log of a table and its files agree: every file is there with the size that the log says, can be read, has as
//! many rows as the log counts, and what the log says of its values is so; vectors of deleted rows can be read and name rows
//! that there are.
//!
//! Wrong statistics make queries leave rows out, in any engine, and nobody sees it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, Scalar};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::datatypes::{DataType, UInt64Type};
use arrow::util::display::array_value_to_string;
use datafusion::common::Column;
use datafusion::common::pruning::PruningStatistics;
use deltalake::kernel::LogicalFileView;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;

use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::table::Table;
use crate::upsert::file::{Files, OpenFile};
use crate::upsert::prune::{has_order, widened};

/// Rows that are read at a time.
const BATCH_ROWS: usize = 8192;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Data files that were looked at.
    pub files: u64,
    /// Rows that are not deleted in those that could be read.
    pub rows: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What could not be asked, in words.
    pub unasked: Vec<String>,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's path below the table's folder.
    pub path: String,
    /// What is wrong, in words.
    pub what: String,
    /// Whether rows are lost; else the file has them, and the log misleads who reads it.
    pub is_loss: bool,
}

/// What the log says of a column in each of the files.
struct Bounds {
    name: String,
    least: ArrayRef,
    greatest: ArrayRef,
    nulls: Option<ArrayRef>,
}

/// Looks at every file of the open version. With `values`, what the log says of values is held against all of them;
/// else files are opened and not read.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when the store fails otherwise than by not having a file.
pub async fn verify(lake: &Lake, table: &Table, values: bool) -> Result<Found> {
    let mut found = Found::default();
    let files = match Files::of(table) {
        Ok(files) => Some(files),
        Err(error) => {
            found.unasked.push(format!("its files were not opened: {error}"));
            found.rows = table.row_count()?.unwrap_or(0);
            None
        }
    };
    let bounds = Arc::new(if values && files.is_some() { bounds(table)? } else { Vec::new() });
    let log = table.delta().snapshot()?.log_data();
    let all: Vec<(usize, LogicalFileView)> = log.iter().enumerate().collect();
    found.files = all.len() as u64;
    let store = table.delta().object_store();
    let looks = all.into_iter().map(|(place, file)| {
        let (store, files, bounds) = (Arc::clone(&store), files.clone(), Arc::clone(&bounds));
        async move {
            let look = Look { file, place, bounds };
            let looked = tokio::spawn(async move { look.at(store.as_ref(), files.as_ref()).await });
            looked.await.map_err(|error| Error::internal("a look at a file ended early").with_source(error))?
        }
    });
    let mut looks = stream::iter(looks).buffered(lake.engine().threads());
    while let Some((rows, problems)) = looks.try_next().await? {
        found.rows += rows;
        found.problems.extend(problems);
    }
    Ok(found)
}

fn bounds(table: &Table) -> Result<Vec<Bounds>> {
    let (schema, partition_by) = (table.schema(), table.partition_columns()?);
    let log = table.delta().snapshot()?.log_data();
    let mut all = Vec::new();
    for field in schema.fields().iter().filter(|field| !partition_by.contains(field.name())) {
        let kind = field.data_type();
        if !has_order(kind) && !matches!(kind, DataType::Decimal128(..)) {
            continue;
        }
        let column = Column::from_name(field.name());
        let (Some(least), Some(greatest)) = (log.min_values(&column), log.max_values(&column)) else { continue };
        let (Ok(least), Ok(greatest)) = (cast(&least, kind), cast(&greatest, kind)) else { continue };
        let nulls = log.null_counts(&column).filter(|nulls| *nulls.data_type() == DataType::UInt64);
        all.push(Bounds { name: field.name().clone(), least, greatest: widened(&greatest)?, nulls });
    }
    Ok(all)
}

/// One file that is looked at.
struct Look {
    file: LogicalFileView,
    /// Its place in the log.
    place: usize,
    bounds: Arc<Vec<Bounds>>,
}

impl Look {
    /// The rows of the file, and what is wrong with it.
    async fn at(&self, store: &dyn object_store::ObjectStore, files: Option<&Files>) -> Result<(u64, Vec<Problem>)> {
        let mut problems = Vec::new();
        let held = match store.head(&self.file.object_store_path()).await {
            Ok(held) => held,
            Err(object_store::Error::NotFound { .. }) => return Ok((0, vec![self.lost("is gone")])),
            Err(error) => return Err(error.into()),
        };
        let size = u64::try_from(self.file.size()).unwrap_or(0);
        if held.size != size {
            return Ok((0, vec![self.lost(format!("has {} bytes, and the log says {size}", held.size))]));
        }
        let Some(files) = files else { return Ok((0, problems)) };
        let open = match files.open(&self.file).await {
            Ok(open) => open,
            Err(error) => return Ok((0, vec![self.lost(format!("cannot be read: {}", told(&error)))])),
        };
        let rows: u64 =
            open.metadata().row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum();
        if let Some(counted) = self.file.num_records().filter(|counted| *counted as u64 != rows) {
            problems.push(self.misled(format!("has {rows} rows, and the log counts {counted}")));
        }
        let deleted = match files.deleted(&self.file).await {
            Ok(deleted) => deleted,
            Err(error) => {
                problems.push(self.lost(format!("has deleted rows that cannot be told: {}", told(&error))));
                return Ok((rows, problems));
            }
        };
        if deleted.max().is_some_and(|last| last >= rows) {
            problems.push(self.lost(format!("has {rows} rows, and a vector deletes others")));
        }
        if !self.bounds.is_empty() {
            problems.extend(self.values(&open).await?);
        }
        Ok((rows.saturating_sub(deleted.len()), problems))
    }

    /// Holds what the log says of values against them.
    async fn values(&self, open: &OpenFile) -> Result<Vec<Problem>> {
        let columns: Vec<String> = self.bounds.iter().map(|bounds| bounds.name.clone()).collect();
        let groups = (0..open.metadata().num_row_groups()).collect();
        let mut batches = open.read(&columns, groups, None, BATCH_ROWS)?;
        let mut wrong: Vec<Option<String>> = vec![None; columns.len()];
        let mut nulls = vec![0_u64; columns.len()];
        loop {
            let batch = match batches.try_next().await {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Ok(vec![self.lost(format!("cannot be read: {}", told(&error)))]),
            };
            for (place, bounds) in self.bounds.iter().enumerate() {
                nulls[place] += batch.column(place).null_count() as u64;
                if wrong[place].is_none() {
                    wrong[place] = self.outside(bounds, &batch, place)?;
                }
            }
        }
        let mut problems: Vec<Problem> = wrong.into_iter().flatten().map(|what| self.misled(what)).collect();
        for (bounds, nulls) in self.bounds.iter().zip(nulls) {
            let Some(counts) = &bounds.nulls else { continue };
            let counts = counts.as_primitive::<UInt64Type>();
            if counts.is_valid(self.place) && counts.value(self.place) != nulls {
                let told = counts.value(self.place);
                problems
                    .push(self.misled(format!("has {nulls} nulls in `{}`, and the log counts {told}", bounds.name)));
            }
        }
        Ok(problems)
    }

    /// The first value of a column that lies outside of what the log says, in words.
    fn outside(&self, bounds: &Bounds, batch: &RecordBatch, place: usize) -> Result<Option<String>> {
        let values = batch.column(place);
        let (least, greatest) = (bounds.least.slice(self.place, 1), bounds.greatest.slice(self.place, 1));
        for (bound, word, is_outside) in [
            (least, "least", lt as fn(&dyn arrow::array::Datum, &dyn arrow::array::Datum) -> _),
            (greatest, "greatest", gt),
        ] {
            if bound.is_null(0) {
                continue;
            }
            let outside = is_outside(values, &Scalar::new(ArrayRef::clone(&bound)))?;
            let first = (0..outside.len()).find(|row| outside.is_valid(*row) && outside.value(*row));
            if let Some(row) = first {
                let value = array_value_to_string(values, row)?;
                let bound = array_value_to_string(&bound, 0)?;
                return Ok(Some(format!(
                    "holds {value} in `{}`, and the log says that the {word} is {bound}",
                    bounds.name
                )));
            }
        }
        Ok(None)
    }

    fn lost(&self, what: impl Into<String>) -> Problem {
        Problem { path: self.file.path().into_owned(), what: what.into(), is_loss: true }
    }

    fn misled(&self, what: impl Into<String>) -> Problem {
        Problem { path: self.file.path().into_owned(), what: what.into(), is_loss: false }
    }
}

/// An error with its innermost cause.
fn told(error: &Error) -> String {
    error.causes().pop().unwrap_or_else(|| error.to_string())
}
