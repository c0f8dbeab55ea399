//! Which files came as a whole, as the ledger and the quarantine of the source say it.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::logical_expr::{ident, lit};
use lake::quarantine::REFUSED_BY;
use lake::session::Session;
use lake::taken_out::TakenOut;
use lake::{Error, ErrorKind, Result, Table, TableName, columns};

use crate::read::{Range, Tally};
use crate::refine::Refinement;

/// A batch and a file of it.
pub(super) type File = (i64, String);

/// The files of some batches.
pub(super) struct Files {
    /// Those that were read, and their modification times in microseconds.
    pub(super) read: BTreeMap<File, i64>,
    /// Those of them that records were kept out of.
    pub(super) incomplete: BTreeSet<File>,
}

impl Files {
    /// The files of the batches in `range`. Records that are sent through again by bronze are no file, and neither is one
    /// that was taken out of bronze since it was read.
    pub(super) async fn of(
        refinement: &Refinement<'_>,
        (bronze, range): (&Table, Range),
        tally: &Tally,
        session: &Session,
    ) -> Result<Self> {
        let source = &refinement.plan.source;
        let ledger = rows(refinement, &TableName::files(source), range, session).await?;
        let (mut read, mut gone) = (BTreeMap::new(), BTreeSet::new());
        for batch in &ledger {
            each(batch, |file, status, modified| match status {
                "planned" => {
                    read.insert(file, modified);
                }
                "failed" | "gone" => {
                    gone.insert(file);
                }
                "taken" => {
                    gone.remove(&file);
                }
                _ => {}
            })
            .ok_or_else(|| Error::new(ErrorKind::Table, format!("the ledger of {source} is none")))?;
        }
        let out = TakenOut::of(bronze)?;
        read.retain(|file, _| !gone.contains(file) && !out.has(file.0, &file.1));
        let mut incomplete = tally.incomplete.clone();
        let mine = TableName::bronze(source).to_string();
        for batch in rows(refinement, &TableName::quarantine(source), range, session).await? {
            let by = batch
                .column_by_name(REFUSED_BY)
                .map(|column| arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8));
            let by = by.transpose()?.ok_or_else(|| Error::internal("a quarantine does not say who refused"))?;
            let by = by.as_string::<i32>();
            for (row, file) in places(&batch)?.into_iter().enumerate() {
                if by.value(row) == mine {
                    incomplete.insert(file);
                }
            }
        }
        Ok(Self { read, incomplete })
    }
}

async fn rows(
    refinement: &Refinement<'_>,
    name: &TableName,
    range: Range,
    session: &Session,
) -> Result<Vec<RecordBatch>> {
    let Some(table) = refinement.lake.table(name).await? else { return Ok(Vec::new()) };
    let rows = session.context().read_table(session.provider(&table).await?)?;
    let batch = ident(columns::BATCH_ID);
    Ok(rows.filter(batch.clone().gt(lit(range.after)).and(batch.lt_eq(lit(range.upto))))?.collect().await?)
}

/// The entries of a ledger; `None` when they are none.
fn each(batch: &RecordBatch, mut tell: impl FnMut(File, &str, i64)) -> Option<()> {
    let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let batches = batch.column_by_name(columns::BATCH_ID)?.as_primitive_opt::<Int64Type>()?;
    let times = batch.column_by_name("modification_time")?.as_primitive_opt::<TimestampMicrosecondType>()?;
    let (paths, statuses) = (text("path")?, text("status")?);
    for row in 0..batch.num_rows() {
        tell((batches.value(row), paths.value(row).to_owned()), statuses.value(row), times.value(row));
    }
    Some(())
}

fn places(batch: &RecordBatch) -> Result<Vec<File>> {
    let missing = || Error::internal("a quarantine does not say where its records come from");
    let batches = batch.column_by_name(columns::BATCH_ID).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let paths = batch.column_by_name(columns::FILE_PATH).and_then(|column| column.as_string_opt::<i32>());
    let (batches, paths) = (batches.ok_or_else(missing)?, paths.ok_or_else(missing)?);
    Ok((0..batch.num_rows()).map(|row| (batches.value(row), paths.value(row).to_owned())).collect())
}
