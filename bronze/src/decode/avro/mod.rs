//! Avro object container files: columns in the widest type of their kind, as Parquet's are.
//!
//! Nested values and unions of several types become text (JSON, where they hold other values). The file is read here
//! and not by a library because a reader for files that other programs are still writing must tell a cut or damaged
//! file from a whole one: see docs/decisions/004-avro.md.

mod columns;
mod container;
mod cursor;
mod schema;
mod text;

use arrow::datatypes::Field;
use lake::Result;

use self::columns::Column;
use self::container::{Block, Container};
use self::cursor::Cursor;
use self::schema::{Schema, TypeId};
use super::bytes::Bytes;
use super::names::column_names;
use super::{
    CHUNK_BYTES, CHUNK_ROWS_MAX, Chunk, Counts, Decoder, DuplicateColumns, RECORD_BYTES_MAX, Unfit, batch, refused,
    rescued_by_row,
};

/// Records that a block may hold when they take no bytes.
const EMPTY_RECORDS_MAX: u64 = 1_000_000;

/// Decodes one Avro file.
pub(super) struct AvroDecoder {
    /// `None` for a file without any byte.
    open: Option<Open>,
    counts: Counts,
}

struct Open {
    container: Container,
    schema: Schema,
    names: Vec<String>,
    columns: Vec<Column>,
    block: Block,
    /// Bytes of the block that are read.
    at: usize,
    scratch: String,
}

impl AvroDecoder {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when it is not an Avro file of records, or its columns are refused.
    pub(super) fn new(source: Bytes, duplicates: DuplicateColumns) -> Result<Self> {
        let Some((container, schema)) = Container::open(source)? else {
            return Ok(Self { open: None, counts: Counts::default() });
        };
        let schema = Schema::parse(&schema)?;
        let fields = schema.records()?;
        let names = column_names(fields.iter().map(|(name, _)| name.clone()).collect(), duplicates)?;
        let columns = fields.iter().map(|(_, id)| Column::new(&schema, *id)).collect();
        let block = Block { records: 0, data: Vec::new() };
        let open = Open { container, names, columns, schema, block, at: 0, scratch: String::new() };
        Ok(Self { open: Some(open), counts: Counts::default() })
    }
}

impl Decoder for AvroDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let (mut row_numbers, mut unfit, mut bytes) = (Vec::new(), Vec::new(), 0);
        while row_numbers.len() < CHUNK_ROWS_MAX && bytes < CHUNK_BYTES && open.ready()? {
            let record = self.counts.records + 1;
            let taken = open.record(row_numbers.len(), &mut unfit).map_err(|damage| {
                let block = open.container.number();
                refused(format!("record {record} (block {block}) cannot be read: {damage}"))
            })?;
            match taken {
                Some(length) => {
                    self.counts.records = record;
                    row_numbers.push(i64::try_from(record).unwrap_or(i64::MAX));
                    bytes += length;
                }
                None => self.counts.skipped += 1,
            }
        }
        if row_numbers.is_empty() {
            return Ok(None);
        }
        let arrays = open.columns.iter_mut().map(Column::finish).collect::<Vec<_>>();
        let fields = open.names.iter().zip(&arrays);
        let fields = fields.map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
        let rows = row_numbers.len();
        let rescued = rescued_by_row(unfit.iter().map(|(column, unfit)| (open.names[*column].as_str(), unfit)), rows);
        let columns = batch(fields, arrays, rows)?;
        Ok(Some(Chunk { columns, row_numbers, rescued, rejects: Vec::new() }))
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

impl Open {
    /// True when there is a record to read; reads the next block when the last one is done.
    fn ready(&mut self) -> Result<bool> {
        while self.block.records == 0 {
            let (number, left) = (self.container.number(), self.block.data.len() - self.at);
            if left > 0 {
                let reason = format!("block {number} of the file is damaged: {left} bytes are left after its records");
                return Err(refused(reason));
            }
            let Some(block) = self.container.next()? else { return Ok(false) };
            (self.block, self.at) = (block, 0);
        }
        Ok(true)
    }

    /// Reads one record into row `row` and gives its length in bytes; `None` for a record that is null.
    fn record(&mut self, row: usize, unfit: &mut Vec<(usize, Unfit)>) -> Result<Option<usize>, cursor::Damage> {
        let data = &self.block.data[self.at..];
        if data.is_empty() && self.block.records > EMPTY_RECORDS_MAX {
            return Err(format!("{} records take no bytes", self.block.records));
        }
        let mut cursor = Cursor::new(data);
        self.block.records -= 1;
        let root: TypeId = self.schema.root();
        let there = text::branch(&self.schema, root, &mut cursor)?.is_some();
        if there {
            for (index, column) in self.columns.iter_mut().enumerate() {
                let lost = column.push(&self.schema, &mut cursor, &mut self.scratch)?;
                unfit.extend(lost.map(|text| (index, Unfit { row, text })));
            }
        }
        let length = data.len() - cursor.left();
        if length > RECORD_BYTES_MAX {
            return Err(format!("it is larger than {} MiB, the limit", RECORD_BYTES_MAX >> 20));
        }
        self.at += length;
        Ok(there.then_some(length))
    }
}

#[cfg(test)]
pub(super) mod tests;
