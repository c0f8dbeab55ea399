//! The ledger's table into memory.

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use lake::{Error, ErrorKind, Result};

use super::write::App;
use super::{Entry, Ledger, Marks, Status};
use crate::discover::FoundFile;

impl Ledger {
    /// Reads the open version of the table.
    pub(super) async fn read(&mut self) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        let mut marks = Marks::default();
        for app in App::ALL {
            *marks.of(app) = table.txn_version(&app.name(&self.name.name)).await?.unwrap_or(0);
        }
        let batches = table.all_rows().await?;
        self.take(&batches).ok_or_else(|| {
            Error::new(ErrorKind::Table, format!("the ledger {} does not have the columns of a ledger", self.name))
        })?;
        self.marks = marks;
        Ok(())
    }

    /// Takes over all rows of the table, in any order; `None` when they are not those of a ledger.
    pub(super) fn take(&mut self, batches: &[RecordBatch]) -> Option<()> {
        let mut entries = Vec::new();
        batches.iter().try_for_each(|batch| add(&mut entries, batch))?;
        // Files of a table are read in any order; batches and files inside them have the order of their planning.
        entries.sort_by_key(|entry: &Entry| entry.batch);
        self.entries.clear();
        self.by_path.clear();
        self.planned_us.clear();
        entries.into_iter().for_each(|entry| self.put(entry));
        Some(())
    }
}

fn add(entries: &mut Vec<Entry>, batch: &RecordBatch) -> Option<()> {
    let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let number = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
    let time = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<TimestampMicrosecondType>();
    let (batches, sizes) = (number(lake::columns::BATCH_ID)?, number("size")?);
    let (modified, recorded) = (time("modification_time")?, time("recorded_at")?);
    let (paths, etags, statuses, reasons) = (text("path")?, text("etag")?, text("status")?, text("reason")?);
    let some = |column: &StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
    entries.reserve(batch.num_rows());
    for row in 0..batch.num_rows() {
        entries.push(Entry {
            batch: batches.is_valid(row).then(|| batches.value(row)),
            file: FoundFile {
                path: paths.value(row).to_owned(),
                size: u64::try_from(sizes.value(row)).unwrap_or(0),
                modified_us: modified.value(row),
                etag: some(etags, row),
                unreadable: None,
            },
            status: Status::ALL.into_iter().find(|status| status.as_str() == statuses.value(row))?,
            reason: some(reasons, row),
            recorded_us: recorded.value(row),
        });
    }
    Some(())
}
