//! The ledger's table into memory.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use lake::{Context, Error, ErrorKind, Result};
use object_store::path::Path;

use super::{Entry, Ledger, Status, notes_app};
use crate::discover::FoundFile;

impl Ledger {
    /// Reads the open version of the table.
    pub(super) async fn read(&mut self) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        let source = &self.name.name;
        let planned = table.txn_version(source).await?.unwrap_or(0);
        let notes = table.txn_version(&notes_app(source)).await?.unwrap_or(0);
        let session = self.lake.session()?;
        let provider = session.provider(table).await?;
        let name = || format!("reading {}", self.name);
        let batches = session.context().read_table(provider).context(name)?.collect().await.context(name)?;
        let mut entries = Vec::new();
        for batch in &batches {
            add(&mut entries, batch).ok_or_else(|| {
                Error::new(ErrorKind::Table, format!("the ledger {} does not have the columns of a ledger", self.name))
            })?;
        }
        (self.planned, self.notes) = (planned, notes);
        // Files of a table are read in any order; batches and files inside them have the order of their planning.
        entries.sort_by_key(|entry: &Entry| entry.batch);
        self.by_path.clear();
        for (index, entry) in entries.iter().enumerate() {
            self.by_path.entry(entry.file.path.clone()).or_default().push(index);
        }
        self.entries = entries;
        Ok(())
    }
}

fn add(entries: &mut Vec<Entry>, batch: &RecordBatch) -> Option<()> {
    let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let number = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
    let (batches, sizes) = (number(lake::columns::BATCH_ID)?, number("size")?);
    let times = batch.column_by_name("modification_time")?.as_primitive_opt::<TimestampMicrosecondType>()?;
    let (paths, etags, statuses, reasons) = (text("path")?, text("etag")?, text("status")?, text("reason")?);
    let some =
        |column: &arrow::array::StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
    for row in 0..batch.num_rows() {
        let path = paths.value(row).to_owned();
        let location = Path::parse(&path).map_err(|error| error.to_string());
        entries.push(Entry {
            batch: batches.is_valid(row).then(|| batches.value(row)),
            file: FoundFile {
                path,
                size: u64::try_from(sizes.value(row)).unwrap_or(0),
                modified_us: times.value(row),
                etag: some(etags, row),
                location,
            },
            status: Status::ALL.into_iter().find(|status| status.as_str() == statuses.value(row))?,
            reason: some(reasons, row),
        });
    }
    Some(())
}
