//! Rows of a result on stdout: a table for people, CSV, JSON, a Parquet file.

mod csv;
mod json;
mod parquet;
mod table;
mod value;

use std::io::IsTerminal;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use clap::ValueEnum;
use futures::{Stream, StreamExt};
use lake::{Error, ErrorKind, Result};

pub use self::csv::Csv;
pub use self::json::Json;
use self::parquet::Parquet;
pub use self::table::Table;
use crate::{Failure, Printer};

/// A table is held in memory to line its columns up, so it has a limit when none is given.
const TABLE_ROWS_MAX: usize = 1_000;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowOutput {
    /// For people
    Table,
    /// RFC 4180 with a header; null is bare, an empty text is ""
    Csv,
    /// An array of objects, one a line; decimals, dates and times as text
    Json,
    /// One Parquet file
    Parquet,
}

/// Turns a stream of batches into text, piece by piece.
pub trait Text {
    /// What comes before the rows.
    fn begin(&mut self, schema: &Schema) -> String;
    /// Some rows.
    ///
    /// # Errors
    /// [`ErrorKind::Query`] when a value has no text.
    fn rows(&mut self, batch: &RecordBatch) -> Result<String>;
    /// What comes after the rows.
    fn end(&mut self) -> String;
}

impl RowOutput {
    /// How many rows are printed at most when `asked` were asked for: 0 is no limit, and nothing is 1000 for a table.
    pub fn limit(self, asked: Option<usize>) -> Option<usize> {
        match (asked, self) {
            (Some(0), _) | (None, Self::Csv | Self::Json | Self::Parquet) => None,
            (Some(limit), _) => Some(limit),
            (None, Self::Table) => Some(TABLE_ROWS_MAX),
        }
    }

    /// Prints rows as they come, `limit` of them at most. True when there were more.
    ///
    /// # Errors
    /// What the rows fail with; [`Failure::Closed`] when nobody reads them.
    pub async fn print(
        self,
        schema: &Schema,
        rows: impl Stream<Item = Result<RecordBatch>>,
        limit: Option<usize>,
        printer: Printer,
    ) -> Result<bool, Failure> {
        let mut out = Sink::new(self, schema)?;
        printer.bytes(&out.begin(schema))?;
        let (mut left, mut more) = (limit.unwrap_or(usize::MAX), false);
        let mut rows = std::pin::pin!(rows);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            more = batch.num_rows() > left;
            let shown = batch.slice(0, batch.num_rows().min(left));
            left -= shown.num_rows();
            printer.bytes(&out.rows(&shown)?)?;
            if more {
                break;
            }
        }
        printer.bytes(&out.end()?)?;
        Ok(more)
    }

    /// Tells that a limit which nobody asked for has left rows out.
    pub fn note_limit(self, printer: Printer) {
        printer.note(&format!("only the first {TABLE_ROWS_MAX} rows; `--limit 0` shows all\n"));
    }
}

enum Sink {
    Text(Box<dyn Text + Send>),
    Parquet(Box<Parquet>),
}

impl Sink {
    fn new(output: RowOutput, schema: &Schema) -> Result<Self> {
        Ok(match output {
            RowOutput::Table => Self::Text(Box::new(Table::default())),
            RowOutput::Csv => Self::Text(Box::new(Csv)),
            RowOutput::Json => Self::Text(Box::new(Json::default())),
            RowOutput::Parquet if std::io::stdout().is_terminal() => {
                let error = Error::new(ErrorKind::Spec, "a Parquet file is nothing for a terminal");
                return Err(error.hint("send it to a file: `… --output parquet > rows.parquet`"));
            }
            RowOutput::Parquet => Self::Parquet(Box::new(Parquet::new(schema)?)),
        })
    }

    fn begin(&mut self, schema: &Schema) -> Vec<u8> {
        match self {
            Self::Text(text) => text.begin(schema).into_bytes(),
            Self::Parquet(_) => Vec::new(),
        }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.rows(batch)?.into_bytes()),
            Self::Parquet(file) => file.rows(batch),
        }
    }

    fn end(self) -> Result<Vec<u8>> {
        match self {
            Self::Text(mut text) => Ok(text.end().into_bytes()),
            Self::Parquet(file) => file.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch() -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2_000), None]));
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None, Some("a, \"b\"\nc")]));
        RecordBatch::try_from_iter([("id", ids), ("name", names)]).expect("a batch")
    }

    fn text(mut sink: impl Text, batches: &[RecordBatch]) -> String {
        let mut out = sink.begin(&batch().schema());
        for batch in batches {
            out.push_str(&sink.rows(batch).expect("text"));
        }
        out + &sink.end()
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(text(Csv, &[batch()]), "id,name\n1,\"\"\n2000,\n,\"a, \"\"b\"\"\nc\"\n");
    }

    #[test]
    fn json_is_one_array_with_a_row_a_line() {
        let out = text(Json::default(), &[batch(), batch().slice(0, 1)]);
        assert_eq!(
            out,
            "[\n{\"id\":1,\"name\":\"\"},\n{\"id\":2000,\"name\":null},\n{\"id\":null,\"name\":\"a, \\\"b\\\"\\nc\"},\n\
             {\"id\":1,\"name\":\"\"}\n]\n"
        );
        assert_eq!(text(Json::default(), &[]), "[]\n");
    }

    #[test]
    fn a_plan_is_shown_as_it_is() {
        let column = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let batch = RecordBatch::try_from_iter([("plan_type", column("logical_plan")), ("plan", column("A\n  B\n"))]);
        let batch = batch.expect("a batch");
        let mut table = Table::default();
        let begin = table.begin(&batch.schema());
        assert_eq!(begin + &table.rows(&batch).expect("text") + &table.end(), "logical plan:\n  A\n    B\n");
    }

    #[test]
    fn a_table_lines_up_and_keeps_its_lines() {
        assert_eq!(
            text(Table::default(), &[batch()]),
            "  id  name\n----  ---------\n   1\n2000  NULL\nNULL  a, \"b\"\\nc\n\n3 rows\n"
        );
    }

    #[test]
    fn a_parquet_file_holds_the_rows() {
        let mut file = Parquet::new(&batch().schema()).expect("a file");
        let mut bytes = file.rows(&batch()).expect("bytes");
        bytes.extend(file.end().expect("bytes"));
        let reader = ::parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(bytes), 10);
        let held: Vec<RecordBatch> = reader.expect("a file").map(|batch| batch.expect("rows")).collect();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].columns(), batch().columns());
        let twice = Schema::new([batch().schema().field(0).clone(), batch().schema().field(0).clone()].to_vec());
        let error = Parquet::new(&twice).map(drop).expect_err("a name twice");
        assert!(error.to_string().contains("two columns `id`"), "{error}");
    }
}
