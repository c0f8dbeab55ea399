//! Where the extracts stand that were applied, where a sequence orders them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use lake::commit::Txn;
use lake::session::Session;
use lake::{Layer, Result, RunId, Table, columns};

use super::extracts::{Extract, value};
use crate::change::Decoder;
use crate::facts::{Facts, Keep, Opened};
use crate::refine::Refinement;

/// The places of the extracts that were applied. Where arrival alone orders them there is nothing to know: what comes is
/// newer than what was.
pub(crate) struct Applied<'a> {
    opened: Opened<'a>,
    schema: Arc<Schema>,
    parts: usize,
    taken: Vec<RecordBatch>,
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
            about: "the full extracts of",
            app: side,
            columns: fields,
            point: "extracts_committed",
        };
        Ok(Self { opened: facts.open(table).await?, schema, parts: parts.len(), taken: Vec::new(), lake })
    }

    /// The places of all, in no order.
    pub(super) async fn places(&self, session: &Session) -> Result<Vec<Vec<ScalarValue>>> {
        let Some(rows) = self.opened.rows(session).await? else { return Ok(Vec::new()) };
        let mut places = Vec::new();
        for batch in rows.collect().await? {
            for row in 0..batch.num_rows() {
                let parts = (0..self.parts).map(|part| value(&batch, &columns::sequence(part), row));
                places.push(parts.collect::<Result<Vec<_>>>()?);
            }
        }
        Ok(places)
    }

    /// The same with what is to be remembered, if anything is.
    pub(super) fn with<'e>(mut self, taken: impl Iterator<Item = &'e Extract>) -> Result<Option<Self>> {
        if self.parts == 0 {
            return Ok(None);
        }
        for extract in taken {
            let more = [ScalarValue::from(extract.file.0), ScalarValue::from(extract.file.1.as_str())];
            let arrays = extract.position.iter().cloned().chain(more).map(|part| part.to_array_of_size(1));
            let arrays = arrays.collect::<datafusion::error::Result<Vec<_>>>()?;
            self.taken.push(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?);
        }
        Ok((!self.taken.is_empty()).then_some(self))
    }

    /// Remembers them. The commit of the rows must carry the transaction.
    pub(crate) async fn remember(self, run: &RunId) -> Result<Option<Txn>> {
        let session = self.lake.session()?;
        let rows = session.context().read_batches(self.taken)?;
        self.opened.add(rows, Keep::All, run).await.map(Some)
    }
}
