//! Records of files that are taken, or refused, as a whole.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use datafusion::common::ScalarValue;
use lake::columns::FileOrder;
use lake::quarantine::Rejected;
use lake::{Result, columns};

use super::rescue::Restored;
use super::{Decoder, Reason};
use crate::plan::TablePlan;

impl Decoder {
    /// The plan of the table.
    pub(crate) fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// Whether files are full extracts.
    pub(crate) fn takes_extracts(&self) -> bool {
        self.plan.snapshot.is_some()
    }

    /// The columns of the row that come from the source.
    pub(crate) fn own(&self) -> impl Iterator<Item = &str> {
        self.resolved.columns().iter().map(|column| column.name.as_str())
    }

    /// What orders a file before its path does.
    pub(crate) fn file_time(&self, modified_us: i64) -> i64 {
        match self.file_order {
            FileOrder::Path => 0,
            FileOrder::ModificationTime => modified_us,
        }
    }

    /// All records of a batch as refused for one reason.
    pub(crate) fn refuse_all(&self, batch: &RecordBatch, kind: &'static str, text: &str) -> Result<Vec<Rejected>> {
        let reason = Reason { kind, text: text.to_owned(), column: None, value: None };
        (0..batch.num_rows()).map(|row| self.rejected(batch, row, &reason)).collect()
    }

    /// The place in the sequence of a file without records, as far as its name and its time say it; a part that they
    /// do not say is null.
    pub(crate) fn position_of_file(&self, path: &str, modified_us: i64) -> Result<Vec<ScalarValue>> {
        let fields = self.bronze.fields().iter();
        let columns = fields.map(|field| -> ArrayRef {
            match field.name().as_str() {
                columns::FILE_PATH => Arc::new(StringArray::from(vec![path])),
                columns::BATCH_ID | columns::ROW_NUMBER | columns::FILE_SIZE => Arc::new(Int64Array::from(vec![0])),
                columns::FILE_MODIFICATION_TIME | columns::INGESTED_AT => {
                    Arc::new(TimestampMicrosecondArray::from(vec![modified_us]).with_timezone("UTC"))
                }
                _ => new_null_array(field.data_type(), 1),
            }
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.bronze), columns.collect())?;
        let restored = Restored::of(&batch)?;
        let texts = self.view.texts(&restored.batch)?;
        let viewed = self.view.of(&texts, 1);
        let mut records = restored.batch.columns().to_vec();
        records.extend(viewed.record_columns().columns);
        records.extend(viewed.row_columns(|_| false).columns);
        records.extend(self.derived.values(&records, 1)?.into_iter().map(|made| made.array));
        let parts = self.resolved.sequence().iter();
        parts.map(|part| Ok(ScalarValue::try_from_array(&part.cast(&part.column.of(&records, 1)).array, 0)?)).collect()
    }
}
