//! How new the newest extract is that was applied, where a sequence orders extracts.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use lake::commit::Txn;
use lake::session::Session;
use lake::{Layer, Result, RunId, Table, columns};

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
    pub(super) async fn open(
        refinement: &'a Refinement<'_>,
        decoder: &Decoder,
        table: &Table,
        side: &'a str,
    ) -> Result<Self> {
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
            layer: Layer::Extracts,
            about: "the newest full extracts of",
            app: side,
            columns: fields,
            point: "extracts_committed",
        };
        Ok(Self { opened: facts.open(table).await?, schema, parts: parts.len(), newest: None, lake })
    }

    /// The place of the newest extract.
    pub(super) async fn newest(&self, session: &Session) -> Result<Option<Vec<ScalarValue>>> {
        let Some(rows) = self.opened.rows(session).await? else { return Ok(None) };
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

    /// Remembers it. The commit of the rows must carry the transaction.
    pub(crate) async fn remember(self, run: &RunId) -> Result<Option<Txn>> {
        let Some(newest) = self.newest else { return Ok(None) };
        let session = self.lake.session()?;
        let rows = session.context().read_batch(newest)?;
        self.opened.add(rows, None, run).await.map(Some)
    }
}
