//! The newest change of every key among those that one worker has met.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use hashbrown::HashTable;
use lake::{Context, Error, Result};

use super::cells::{Columns, Held};

/// Rows of a batch that is made of others.
const BATCH_ROWS: usize = 8192;
/// Parts that changes are dealt out to on disk, by their key.
const BUCKETS: usize = 32;

/// Changes of one batch that a worker is given.
pub(super) struct Piece {
    pub(super) held: Arc<Held>,
    /// Of every row of the batch.
    pub(super) hashes: Arc<Vec<u64>>,
    /// The rows that are meant.
    pub(super) rows: Vec<u32>,
}

/// One change for each key. What is not in memory is on disk, in the bucket of its key.
pub(super) struct Newest {
    columns: Arc<Columns>,
    /// Bytes of batches that may be held.
    budget: usize,
    /// Workers that hold the same batches.
    shared_by: usize,
    batches: Vec<Arc<Held>>,
    bytes: usize,
    last: HashTable<Slot>,
    buckets: Vec<Bucket>,
    superseded: u64,
}

/// Where the newest change of a key is.
#[derive(Clone, Copy)]
struct Slot {
    hash: u64,
    batch: u32,
    row: u32,
}

/// Changes on disk with their hashes, written in the order in which they came.
struct Bucket {
    writer: StreamWriter<BufWriter<File>>,
    file: File,
    hashes: Vec<u64>,
}

impl Newest {
    pub(super) fn new(columns: Arc<Columns>, budget: usize, shared_by: usize) -> Self {
        let (batches, last, buckets) = (Vec::new(), HashTable::new(), Vec::new());
        Self { columns, budget, shared_by, batches, bytes: 0, last, buckets, superseded: 0 }
    }

    /// # Errors
    /// [`ErrorKind::Store`](lake::ErrorKind::Store) when the disk is full.
    pub(super) fn add(&mut self, piece: &Piece) -> Result<()> {
        let held = &piece.held;
        let batch = self.next_batch()?;
        for row in &piece.rows {
            let slot = Slot { hash: piece.hashes[*row as usize], batch, row: *row };
            let batches = &self.batches;
            let known = self.last.find_mut(slot.hash, |known| {
                known.hash == slot.hash && {
                    let theirs = if known.batch == batch { held } else { &batches[known.batch as usize] };
                    held.is_same_key(slot.row as usize, theirs, known.row as usize)
                }
            });
            match known {
                Some(known) => {
                    self.superseded += 1;
                    let theirs = if known.batch == batch { held } else { &batches[known.batch as usize] };
                    if held.cmp(slot.row as usize, theirs, known.row as usize).is_gt() {
                        *known = slot;
                    }
                }
                None => {
                    self.last.insert_unique(slot.hash, slot, |slot| slot.hash);
                }
            }
        }
        self.bytes += held.batch.get_array_memory_size() / self.shared_by;
        self.batches.push(Arc::clone(held));
        if self.bytes <= self.budget {
            return Ok(());
        }
        // What is older goes first; when that frees little, the rest goes to disk.
        self.compact()?;
        if self.bytes > self.budget / 2 { self.spill() } else { Ok(()) }
    }

    /// Gives the newest change of every key to `take`, until it wants no more.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](lake::ErrorKind::Store) when the disk cannot be read.
    pub(super) fn drain(&mut self, mut take: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        if self.buckets.is_empty() {
            self.give(&mut take)?;
            return Ok(());
        }
        self.spill()?;
        for bucket in std::mem::take(&mut self.buckets) {
            // A bucket holds a thirty-second of the keys: it is taken as a whole.
            let mut part = Self::new(Arc::clone(&self.columns), usize::MAX, 1);
            bucket.read(|batch, hashes| {
                let rows = (0..u32::try_from(hashes.len()).unwrap_or(u32::MAX)).collect();
                part.add(&Piece { held: Arc::new(self.columns.hold(batch)?), hashes: Arc::new(hashes), rows })
            })?;
            self.superseded += part.superseded;
            if !part.give(&mut take)? {
                break;
            }
        }
        Ok(())
    }

    /// Changes that were older than another of their key, when all were given.
    pub(super) fn superseded(&self) -> u64 {
        self.superseded
    }

    fn next_batch(&self) -> Result<u32> {
        u32::try_from(self.batches.len()).map_err(|error| Error::internal("too many batches").with_source(error))
    }

    /// The changes that are held, in the order in which they came, in batches with their hashes.
    fn held(&self) -> impl Iterator<Item = Result<(RecordBatch, Vec<u64>)>> + '_ {
        let mut slots: Vec<Slot> = self.last.iter().copied().collect();
        slots.sort_unstable_by_key(|slot| (slot.batch, slot.row));
        let chunks = slots.len().div_ceil(BATCH_ROWS);
        (0..chunks).map(move |chunk| {
            let slots = &slots[chunk * BATCH_ROWS..slots.len().min((chunk + 1) * BATCH_ROWS)];
            Ok((self.gather(slots)?, slots.iter().map(|slot| slot.hash).collect()))
        })
    }

    /// The changes of these places as a batch.
    fn gather(&self, slots: &[Slot]) -> Result<RecordBatch> {
        // The places are sorted by batch, so the batches that are meant are few and close to each other.
        let mut batches: Vec<&RecordBatch> = Vec::new();
        let mut rows = Vec::with_capacity(slots.len());
        let mut at = None;
        for slot in slots {
            if at != Some(slot.batch) {
                at = Some(slot.batch);
                batches.push(&self.batches[slot.batch as usize].batch);
            }
            rows.push((batches.len() - 1, slot.row as usize));
        }
        Ok(interleave_record_batch(&batches, &rows)?)
    }

    /// False when no more is wanted.
    fn give(&self, take: &mut impl FnMut(RecordBatch) -> bool) -> Result<bool> {
        for part in self.held() {
            if !take(part?.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets go of changes that are not the newest of their key.
    fn compact(&mut self) -> Result<()> {
        let mut kept = Self::new(Arc::clone(&self.columns), usize::MAX, 1);
        for part in self.held() {
            let (batch, hashes) = part?;
            let number = kept.next_batch()?;
            for (row, hash) in (0..).zip(hashes) {
                kept.last.insert_unique(hash, Slot { hash, batch: number, row }, |slot| slot.hash);
            }
            kept.bytes += batch.get_array_memory_size();
            kept.batches.push(Arc::new(self.columns.hold(batch)?));
        }
        (self.batches, self.bytes, self.last) = (kept.batches, kept.bytes, kept.last);
        Ok(())
    }

    /// Puts all that is held on disk.
    fn spill(&mut self) -> Result<()> {
        let mut slots: Vec<Slot> = self.last.drain().collect();
        // By bucket, and then in the order in which they came.
        slots.sort_unstable_by_key(|slot| (bucket_of(slot.hash), slot.batch, slot.row));
        let mut rest = &slots[..];
        while let Some(first) = rest.first() {
            let bucket = bucket_of(first.hash);
            let rows = rest.iter().take_while(|slot| bucket_of(slot.hash) == bucket).take(BATCH_ROWS).count();
            let (part, others) = rest.split_at(rows);
            let batch = self.gather(part)?;
            while self.buckets.len() < BUCKETS {
                self.buckets.push(Bucket::new(&batch)?);
            }
            self.buckets[bucket].write(&batch, part.iter().map(|slot| slot.hash))?;
            rest = others;
        }
        self.batches.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// By bits that neither the workers nor the table of a worker go by.
fn bucket_of(hash: u64) -> usize {
    (hash >> 32) as usize % BUCKETS
}

impl Bucket {
    /// An empty bucket for rows as those of `batch`.
    fn new(batch: &RecordBatch) -> Result<Self> {
        let file = tempfile::tempfile().context(|| "making a temporary file")?;
        let writer = BufWriter::new(file.try_clone().context(|| "opening a temporary file")?);
        Ok(Self { writer: StreamWriter::try_new(writer, &batch.schema())?, file, hashes: Vec::new() })
    }

    fn write(&mut self, batch: &RecordBatch, hashes: impl Iterator<Item = u64>) -> Result<()> {
        self.hashes.extend(hashes);
        Ok(self.writer.write(batch)?)
    }

    /// Gives every batch with its hashes to `take`.
    fn read(mut self, mut take: impl FnMut(RecordBatch, Vec<u64>) -> Result<()>) -> Result<()> {
        use std::io::Seek;
        self.writer.finish()?;
        drop(self.writer);
        self.file.rewind().context(|| "reading a temporary file")?;
        let mut hashes = self.hashes.into_iter();
        for batch in StreamReader::try_new(BufReader::new(self.file), None)? {
            let batch = batch?;
            let hashes = hashes.by_ref().take(batch.num_rows()).collect();
            take(batch, hashes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
