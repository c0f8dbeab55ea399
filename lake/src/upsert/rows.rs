//! The changes again, by what they do: as rows of the table, as rows of the feed, as a query.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;

use super::{Probed, Verdict};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::stage::Staged;
use crate::table::Table;
use crate::write::conform;

/// The changes among a range of their numbers that are wanted, as rows of the table.
pub(super) fn of_table<F: Fn(usize) -> bool + Send>(
    changes: &Staged,
    rows: Range<usize>,
    is_wanted: F,
    table: &Table,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<F>> {
    let (held, schema, name) = (changes.schema(), table.schema(), table.name().clone());
    let is_of_table = |name: &str| schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name));
    let places: Vec<usize> = (0..held.fields().len()).filter(|place| is_of_table(held.field(*place).name())).collect();
    let batches = wanted(changes, &places, rows, is_wanted)?;
    Ok(batches.map(move |batch| conform(&batch?, &schema, &name)))
}

/// The wanted changes among a range of their numbers.
fn wanted<F: Fn(usize) -> bool + Send>(
    changes: &Staged,
    places: &[usize],
    rows: Range<usize>,
    is_wanted: F,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<F>> {
    let mut first = rows.start;
    let batches = changes.batches(places, rows)?;
    Ok(batches.map(move |batch| {
        let batch = batch?;
        let mask: BooleanArray = (first..first + batch.num_rows()).map(|change| Some(is_wanted(change))).collect();
        first += batch.num_rows();
        Ok(filter_record_batch(&batch, &mask)?)
    }))
}

/// The changes with these verdicts as a query over all their columns.
pub(super) fn frame(probed: &Probed, session: &Session, verdicts: &[Verdict]) -> Result<DataFrame> {
    let is_chosen = probed.verdicts.iter().map(|verdict| verdicts.contains(verdict)).collect();
    let chosen = Chosen { changes: probed.changes.clone(), is_chosen, schema: probed.changes.schema() };
    let table: Arc<dyn TableProvider> =
        Arc::new(StreamingTable::try_new(chosen.changes.schema(), vec![Arc::new(chosen)])?);
    Ok(session.context().read_table(table)?)
}

/// Some of the changes, for a query.
#[derive(Debug)]
struct Chosen {
    changes: Staged,
    is_chosen: Arc<[bool]>,
    schema: SchemaRef,
}

impl PartitionStream for Chosen {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let places: Vec<usize> = (0..self.schema.fields().len()).collect();
        let is_chosen = Arc::clone(&self.is_chosen);
        let rows = 0..is_chosen.len();
        let (batches, failed) = match wanted(&self.changes, &places, rows, move |change| is_chosen[change]) {
            Ok(batches) => (Some(batches), None),
            Err(error) => (None, Some(Err(error))),
        };
        let batches = failed.into_iter().chain(batches.into_iter().flatten());
        let batches = batches.map(|batch: Result<RecordBatch, Error>| batch.map_err(DataFusionError::from));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::iter(batches)))
    }
}
