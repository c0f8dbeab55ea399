//! How new the newest extract is that was applied, where a sequence orders extracts.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use lake::session::Session;
use lake::{Result, RunId, TableName, columns};

use super::extracts::{Extract, order, value};
use crate::change::Decoder;
use crate::facts::{Facts, Opened};
use crate::refine::Refinement;

/// The places of the newest extracts that were applied. Where arrival alone orders them there is nothing to know: what
/// comes is newer than what was.
pub(crate) struct Applied<'a> {
    opened: Opened<'a>,
    schema: Arc<Schema>,
    parts: usize,
    newest: Option<RecordBatch>,
    lake: &'a lake::Lake,
}

impl<'a> Applied<'a> {
    pub(super) async fn open(refinement: &'a Refinement<'_>, decoder: &Decoder, side: &'a str) -> Result<Self> {
        let (lake, plan) = (refinement.lake, refinement.plan);
        let target = decoder.target();
        let parts = plan.sequence_columns();
        let mut fields: Vec<Field> =
            parts.iter().filter_map(|part| target.field_with_name(part).ok()).cloned().collect();
        fields.push(Field::new(columns::BATCH_ID, DataType::Int64, false));
        fields.push(Field::new(columns::FILE_PATH, DataType::Utf8, false));
        let schema = Arc::new(Schema::new(fields.clone()));
        let facts = Facts {
            lake,
            name: TableName::extracts(&plan.table.name),
            about: "the newest full extracts of",
            of: &plan.table,
            app: side,
            columns: fields,
            point: "extracts_committed",
        };
        Ok(Self { opened: facts.open().await?, schema, parts: parts.len(), newest: None, lake })
    }

    /// The place of the newest extract up to a batch.
    pub(super) async fn newest(&self, after: i64, session: &Session) -> Result<Option<Vec<ScalarValue>>> {
        let Some(rows) = self.opened.upto(after, session).await? else { return Ok(None) };
        let mut newest: Option<Vec<ScalarValue>> = None;
        for batch in rows.collect().await? {
            for row in 0..batch.num_rows() {
                let parts = (0..self.parts).map(|part| value(&batch, &columns::sequence(part), row));
                let place = parts.collect::<Result<Vec<_>>>()?;
                if newest.as_ref().is_none_or(|newest| order(newest, &place) == Ordering::Less) {
                    newest = Some(place);
                }
            }
        }
        Ok(newest)
    }

    /// The same with what is to be remembered, if anything is.
    pub(super) fn with(mut self, newest: Option<&Extract>) -> Option<Self> {
        let newest = newest.filter(|_| self.parts > 0)?;
        let more = [ScalarValue::from(newest.file.0), ScalarValue::from(newest.file.1.as_str())];
        let arrays = newest.position.iter().cloned().chain(more).map(|part| part.to_array_of_size(1));
        let arrays = arrays.collect::<datafusion::error::Result<Vec<_>>>().ok()?;
        self.newest = RecordBatch::try_new(Arc::clone(&self.schema), arrays).ok();
        Some(self)
    }

    pub(crate) async fn remember(self, run: &RunId) -> Result<()> {
        let Some(newest) = self.newest else { return Ok(()) };
        let session = self.lake.session()?;
        let rows = session.context().read_batch(newest)?;
        self.opened.add(rows, run).await
    }
}
