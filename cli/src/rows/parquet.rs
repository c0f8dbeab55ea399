//! Rows as one Parquet file.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use lake::{Error, ErrorKind, Result};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

/// Bytes that are taken from the file by and by while it is written.
#[derive(Debug, Clone, Default)]
struct Taken(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Taken {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One Parquet file, compressed with Snappy.
pub(super) struct Parquet {
    writer: ArrowWriter<Taken>,
    schema: SchemaRef,
    bytes: Taken,
}

impl Parquet {
    /// A file of rows of this schema.
    ///
    /// # Errors
    /// [`ErrorKind::Query`] when two columns have the same name or a type has no place in Parquet.
    pub(super) fn new(schema: &Schema) -> Result<Self> {
        let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        if let Some(name) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])).map(|at| names[at]) {
            let error = Error::new(
                ErrorKind::Query,
                format!("there are two columns `{name}`, which Parquet cannot tell apart"),
            );
            return Err(error.hint("name them: `SELECT a.x AS one, b.x AS other`"));
        }
        // What a query says about its columns is no part of the file.
        let fields: Vec<Field> =
            schema.fields().iter().map(|field| field.as_ref().clone().with_metadata(Default::default())).collect();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let bytes = Taken::default();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let writer = ArrowWriter::try_new(bytes.clone(), Arc::clone(&schema), Some(properties))?;
        Ok(Self { writer, schema, bytes })
    }

    /// Some rows; the bytes of the file that are settled by them.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when they cannot be written.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec())?;
        self.writer.write(&batch)?;
        Ok(self.take())
    }

    /// The rest of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when it cannot be written.
    pub(super) fn end(mut self) -> Result<Vec<u8>> {
        self.writer.finish()?;
        Ok(self.take())
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
