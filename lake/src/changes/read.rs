//! The changed rows themselves, out of the files that the log names.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use roaring::RoaringTreemap;

use super::{Changed, Changes, IS_NEW, Rows, Told};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;
use crate::upsert::feed::CHANGE_TYPE;
use crate::upsert::file::Files;
use crate::vectors;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 8192;
/// Files that are looked for at the same time.
const LOOKED_AHEAD: usize = 16;
/// Of a table so much at most may have changed, in bytes, for its changes to be worth following.
const CHANGED_SHARE_MAX: f64 = 0.5;
/// Tables of so few bytes are read in no time.
const SMALL_BYTES: u64 = 1024 * 1024;
/// Rows that a reader of some of them takes up at least: those of a page.
const PAGE_ROWS: u64 = 20_000;

/// Changes whose files are all there.
#[derive(Debug)]
pub struct Located {
    table: Table,
    files: Files,
    changed: Vec<(Changed, Kept)>,
}

/// Which rows of a file changed, by their numbers.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    /// All; a column says how.
    Feed,
    /// All but these.
    Without(RoaringTreemap, bool),
    /// These.
    Only(RoaringTreemap, bool),
}

impl Changes {
    /// Looks for the files of the changes.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when that cannot be found out.
    pub async fn locate(self) -> Result<Told<Located>> {
        let files = match Files::of(&self.table) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::Table => return Ok(Told::Broken(error.to_string())),
            Err(error) => return Err(error),
        };
        if let Some(gone) = self.gone(&files).await? {
            return Ok(Told::Broken(format!("`{gone}` of {} is gone, which tells what changed", self.table.name())));
        }
        let mut changed = Vec::with_capacity(self.files.len());
        for file in self.files {
            let kept = Kept::of(&file.rows, &files).await?;
            changed.push((file, kept));
        }
        Ok(Told::Known(Located { table: self.table, files, changed }))
    }

    /// The first file that is not there any more.
    async fn gone(&self, files: &Files) -> Result<Option<String>> {
        let mut wanted = BTreeSet::new();
        for file in &self.files {
            wanted.insert(place(&file.path));
            if let Rows::These { left, only, .. } = &file.rows {
                for vector in [left, only].into_iter().flatten() {
                    wanted.extend(vectors::file_of(vector)?);
                }
            }
        }
        let looks = wanted.into_iter().map(|path| is_gone(files.clone(), path).boxed()).collect::<Vec<_>>();
        let looked: Vec<Option<String>> = stream::iter(looks).buffered(LOOKED_AHEAD).try_collect().await?;
        Ok(looked.into_iter().flatten().next())
    }
}

impl Located {
    /// True when so much has changed that who looks at the changes alone reads more than the whole table. Of a small table
    /// it does not matter.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn is_most(&self) -> Result<bool> {
        let all = self.table.files_size()?;
        Ok(all > SMALL_BYTES && self.bytes() as f64 > all as f64 * CHANGED_SHARE_MAX)
    }

    /// About how many bytes of files have to be read for the changed rows, all columns taken together.
    fn bytes(&self) -> u64 {
        let share = |(file, kept): &(Changed, Kept)| match (kept, file.records) {
            (Kept::Only(rows, _), Some(records)) if records > 0 => {
                let read = pages(rows) as f64 * PAGE_ROWS as f64 / records as f64;
                (file.size as f64 * read.min(1.0)) as u64
            }
            _ => file.size,
        };
        self.changed.iter().map(share).sum()
    }

    /// The changed rows, with these columns and [`IS_NEW`].
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a file cannot be read.
    pub async fn read(&self, lake: &Lake, columns: &[String]) -> Result<Staged> {
        let schema = self.schema(columns)?;
        let threads = lake.engine().threads().min(self.changed.len()).max(1);
        let of_thread = |thread| {
            let mine: Vec<_> = self.changed.iter().skip(thread).step_by(threads).cloned().collect();
            let reader = Reader { files: self.files.clone(), columns: columns.to_vec(), schema: Arc::clone(&schema) };
            reader.stream(mine)
        };
        let streams = (0..threads).map(of_thread).collect();
        Staged::write_streams(schema, streams).await
    }

    fn schema(&self, columns: &[String]) -> Result<SchemaRef> {
        let held = self.table.schema();
        let fields = columns.iter().map(|name| Ok(held.field_with_name(name)?.clone().with_nullable(true)));
        let mut fields = fields.collect::<Result<Vec<Field>>>()?;
        fields.push(Field::new(IS_NEW, DataType::Boolean, false));
        Ok(Arc::new(Schema::new(fields)))
    }
}

impl Kept {
    /// How its rows are told; `None` where each says it.
    pub(super) fn is_new(&self) -> Option<bool> {
        match self {
            Self::Feed => None,
            Self::Without(_, is_new) | Self::Only(_, is_new) => Some(*is_new),
        }
    }

    pub(super) async fn of(rows: &Rows, files: &Files) -> Result<Self> {
        let Rows::These { is_new, left, only } = rows else { return Ok(Self::Feed) };
        let left = match left {
            Some(vector) => vectors::read(files.store(), vector).await?,
            None => RoaringTreemap::new(),
        };
        Ok(match only {
            Some(vector) => Self::Only(vectors::read(files.store(), vector).await? - left, *is_new),
            None => Self::Without(left, *is_new),
        })
    }
}

/// Reads changed rows.
#[derive(Debug, Clone)]
struct Reader {
    files: Files,
    columns: Vec<String>,
    schema: SchemaRef,
}

impl Reader {
    fn stream(self, mine: Vec<(Changed, Kept)>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = stream::iter(mine).then(move |(file, kept)| {
            let reader = self.clone();
            async move { reader.file(file, kept).await }
        });
        let batches = batches.try_flatten().map_err(DataFusionError::from);
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    async fn file(self, file: Changed, kept: Kept) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let (is_new, schema) = (kept.is_new(), self.schema);
        let rows = changed_rows(self.files, self.columns, file, kept).await?;
        let told = rows.map(move |batch| match is_new {
            Some(is_new) => marked(&batch?, is_new, &schema),
            None => of_feed(&batch?, &schema),
        });
        Ok(told.boxed())
    }
}

/// The rows of a file that changed, with these columns; those of a feed have how they are told after them.
pub(super) async fn changed_rows(
    mut files: Files,
    mut columns: Vec<String>,
    file: Changed,
    kept: Kept,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    match kept {
        Kept::Feed => {
            files = files.with_column(Field::new(CHANGE_TYPE, DataType::Utf8, true));
            columns.push(CHANGE_TYPE.to_owned());
        }
        Kept::Only(..) => files = files.by_page(),
        Kept::Without(..) => {}
    }
    let open = files.open_at(place(&file.path), file.size, file.partition).await?;
    let (groups, selection) = match &kept {
        Kept::Only(rows, _) => {
            let (groups, selection) = open.select(rows);
            (groups, Some(selection))
        }
        Kept::Feed | Kept::Without(..) => ((0..open.metadata().num_row_groups()).collect(), None),
    };
    let rows = open.read(&columns, groups, selection, BATCH_ROWS)?;
    let Kept::Without(left, _) = kept else { return Ok(rows.boxed()) };
    if left.is_empty() {
        return Ok(rows.boxed());
    }
    let mut first = 0_u64;
    let rows = rows.map(move |batch| {
        let batch = batch?;
        let start = first;
        first += batch.num_rows() as u64;
        Ok(filter_record_batch(&batch, &(start..first).map(|row| Some(!left.contains(row))).collect())?)
    });
    Ok(rows.boxed())
}

/// Rows that are all as one version has them.
fn marked(batch: &RecordBatch, is_new: bool, schema: &SchemaRef) -> Result<RecordBatch> {
    let is_new: ArrayRef = Arc::new(BooleanArray::from(vec![is_new; batch.num_rows()]));
    Ok(RecordBatch::try_new(Arc::clone(schema), batch.columns().iter().cloned().chain([is_new]).collect())?)
}

/// Rows of a feed, with how they are told.
fn of_feed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let kinds = batch.column(batch.num_columns() - 1).as_string::<i32>();
    let is_new: BooleanArray = kinds
        .iter()
        .map(|kind| match kind {
            Some("insert" | "update_postimage") => Ok(Some(true)),
            Some("delete" | "update_preimage") => Ok(Some(false)),
            other => Err(Error::internal(format!("a change data feed has the type `{}`", other.unwrap_or("null")))),
        })
        .collect::<Result<_>>()?;
    let columns = batch.columns()[..batch.num_columns() - 1].iter().cloned();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.chain([Arc::new(is_new) as ArrayRef]).collect())?)
}

/// Stretches of so many rows as a page has that hold some of these.
fn pages(rows: &RoaringTreemap) -> u64 {
    let (mut pages, mut last) = (0, None);
    for row in rows {
        let page = row / PAGE_ROWS;
        if last != Some(page) {
            (pages, last) = (pages + 1, Some(page));
        }
    }
    pages
}

/// The path of a file that is not there any more.
pub(super) async fn is_gone(files: Files, path: Path) -> Result<Option<String>> {
    match files.store().head(&path).await {
        Ok(_) => Ok(None),
        Err(object_store::Error::NotFound { .. }) => Ok(Some(path.to_string())),
        Err(error) => Err(Error::from(error).context(format!("looking for `{path}`"))),
    }
}

pub(super) fn place(path: &str) -> Path {
    Path::parse(path).unwrap_or_else(|_| Path::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_lie_together_are_in_few_pages() {
        let near: RoaringTreemap = (100_000..119_999).collect();
        let far: RoaringTreemap = (0..10).map(|number| number * 1_000_000).collect();
        assert_eq!((pages(&near), pages(&far), pages(&RoaringTreemap::new())), (1, 10, 0));
    }
}
