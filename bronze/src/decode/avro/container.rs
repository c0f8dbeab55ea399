//! The frame of an Avro file: its header, and its blocks without their compression. Every mark between two blocks is
//! checked, so that a file that was cut or damaged is refused and never ends early in silence.

use std::io::{self, BufReader, Read};

use lake::Result;

use super::super::bytes::{Bytes, check_ratio, explain};
use super::super::refused;

const MAGIC: &[u8] = b"Obj\x01";
/// Size of a block at most, compressed or not.
const BLOCK_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Size of one text of the header at most.
const HEADER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Texts of the header at most.
const HEADER_ENTRIES_MAX: usize = 10_000;
const MARK_BYTES: usize = 16;

/// How the blocks of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
    Xz,
}

/// An Avro file, block by block.
pub(super) struct Container {
    source: BufReader<Bytes>,
    codec: Codec,
    mark: [u8; MARK_BYTES],
    /// Blocks read so far.
    blocks: u64,
    /// Bytes of all blocks, as they are in the file and as they became.
    compressed: u64,
    given: u64,
}

/// The records of one block.
pub(super) struct Block {
    /// How many there are.
    pub(super) records: u64,
    /// Their bytes.
    pub(super) data: Vec<u8>,
}

impl Container {
    /// Reads the header of a file; its schema as JSON text. `None` for a file without any byte.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when it is not an Avro file, or of a compression that is not known.
    pub(super) fn open(source: Bytes) -> Result<Option<(Self, Vec<u8>)>> {
        let mut source = BufReader::new(source);
        let mut magic = Vec::new();
        (&mut source).take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(explain)?;
        if magic.is_empty() {
            return Ok(None);
        }
        if magic != MAGIC {
            return Err(refused("the file is not an Avro object container file: it does not begin with `Obj` and 1")
                .hint("single messages of a schema registry are not files; their sink must write container files"));
        }
        let (mut schema, mut codec) = (None, Codec::Null);
        let mut entries = 0;
        loop {
            let count = match long(&mut source)? {
                0 => break,
                count if count < 0 => {
                    long(&mut source)?;
                    count.unsigned_abs()
                }
                count => count.unsigned_abs(),
            };
            for _ in 0..count {
                let (key, value) = (text(&mut source)?, text(&mut source)?);
                entries += 1;
                if entries > HEADER_ENTRIES_MAX {
                    return Err(refused("the header of the file does not end"));
                }
                match key.as_slice() {
                    b"avro.schema" => schema = Some(value),
                    b"avro.codec" => codec = Codec::of(&value)?,
                    _ => {}
                }
            }
        }
        let mut mark = [0; MARK_BYTES];
        source.read_exact(&mut mark).map_err(cut)?;
        let schema = schema.ok_or_else(|| refused("the header of the file has no schema"))?;
        Ok(Some((Self { source, codec, mark, blocks: 0, compressed: 0, given: 0 }, schema)))
    }

    /// The next block; `None` at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when the file ends inside a block, or the block is damaged.
    pub(super) fn next(&mut self) -> Result<Option<Block>> {
        let mut first = [0];
        if (&mut self.source).take(1).read(&mut first).map_err(explain)? == 0 {
            return Ok(None);
        }
        self.blocks += 1;
        let place = |problem: &str, number: u64| refused(format!("block {number} of the file {problem}"));
        let records = long_from(&mut self.source, first[0])?;
        let size = long(&mut self.source)?;
        let (Ok(records), Ok(size)) = (u64::try_from(records), u64::try_from(size)) else {
            return Err(place("is damaged: it has a size below 0", self.blocks));
        };
        if size > BLOCK_BYTES_MAX {
            return Err(place(&format!("is larger than {} MiB, or damaged", BLOCK_BYTES_MAX >> 20), self.blocks));
        }
        let mut data = Vec::new();
        let read = (&mut self.source).take(size).read_to_end(&mut data).map_err(explain)?;
        let mut mark = [0; MARK_BYTES];
        if (read as u64) < size {
            return Err(ends_early());
        }
        self.source.read_exact(&mut mark).map_err(cut)?;
        if mark != self.mark {
            return Err(place("is damaged: the mark after it is not that of the file", self.blocks));
        }
        let data = self.codec.inflate(data).map_err(|reason| {
            place(&format!("cannot be decompressed ({}): {reason}", self.codec.name()), self.blocks)
        })?;
        self.compressed += size;
        self.given += data.len() as u64;
        check_ratio(self.compressed, self.given)?;
        Ok(Some(Block { records, data }))
    }

    /// The number of the block that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.blocks
    }
}

impl Codec {
    fn of(name: &[u8]) -> Result<Self> {
        Ok(match name {
            b"null" => Self::Null,
            b"deflate" => Self::Deflate,
            b"snappy" => Self::Snappy,
            b"zstandard" => Self::Zstandard,
            b"bzip2" => Self::Bzip2,
            b"xz" => Self::Xz,
            other => {
                let name = String::from_utf8_lossy(other).into_owned();
                return Err(refused(format!("the file is compressed with `{name}`, which is not read"))
                    .hint("null, deflate, snappy, zstandard, bzip2 and xz are"));
            }
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstandard => "zstandard",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// The bytes of a block without compression.
    fn inflate(self, block: Vec<u8>) -> Result<Vec<u8>, String> {
        let bytes = block.as_slice();
        match self {
            Self::Null => Ok(block),
            Self::Deflate => drain(flate2::read::DeflateDecoder::new(bytes)),
            Self::Zstandard => drain(zstd::Decoder::with_buffer(bytes).map_err(|error| error.to_string())?),
            Self::Bzip2 => drain(bzip2::read::MultiBzDecoder::new(bytes)),
            Self::Xz => drain(liblzma::read::XzDecoder::new_multi_decoder(bytes)),
            Self::Snappy => snappy(bytes),
        }
    }
}

/// Reads a stream to its end, which must not be too far.
fn drain(stream: impl Read) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    stream.take(BLOCK_BYTES_MAX + 1).read_to_end(&mut data).map_err(|error| error.to_string())?;
    match data.len() as u64 > BLOCK_BYTES_MAX {
        true => Err(format!("it becomes larger than {} MiB", BLOCK_BYTES_MAX >> 20)),
        false => Ok(data),
    }
}

/// Snappy without a frame, then the CRC-32 of what it becomes.
fn snappy(block: &[u8]) -> Result<Vec<u8>, String> {
    let (stream, sum) = block.split_last_chunk::<4>().ok_or("it has no checksum")?;
    let length = snap::raw::decompress_len(stream).map_err(|error| error.to_string())?;
    if length as u64 > BLOCK_BYTES_MAX {
        return Err(format!("it becomes larger than {} MiB", BLOCK_BYTES_MAX >> 20));
    }
    let data = snap::raw::Decoder::new().decompress_vec(stream).map_err(|error| error.to_string())?;
    let mut crc = flate2::Crc::new();
    crc.update(&data);
    match crc.sum() == u32::from_be_bytes(*sum) {
        true => Ok(data),
        false => Err("its checksum does not fit".to_owned()),
    }
}

fn text(source: &mut impl Read) -> Result<Vec<u8>> {
    let length = u64::try_from(long(source)?).ok().filter(|length| *length <= HEADER_BYTES_MAX);
    let length = length.ok_or_else(|| refused("the header of the file is damaged"))?;
    let mut bytes = Vec::new();
    let read = source.take(length).read_to_end(&mut bytes).map_err(explain)?;
    if (read as u64) < length { Err(ends_early()) } else { Ok(bytes) }
}

/// A number of Avro: seven bits a byte, the lowest first, the sign in the lowest bit.
fn long(source: &mut impl Read) -> Result<i64> {
    let mut byte = [0];
    source.read_exact(&mut byte).map_err(cut)?;
    long_from(source, byte[0])
}

fn long_from(source: &mut impl Read, first: u8) -> Result<i64> {
    let (mut value, mut shift, mut byte) = (u64::from(first & 0x7f), 7, [first]);
    while byte[0] & 0x80 != 0 {
        if shift > 63 {
            return Err(refused("a number of the file is damaged"));
        }
        source.read_exact(&mut byte).map_err(cut)?;
        value |= u64::from(byte[0] & 0x7f) << shift;
        shift += 7;
    }
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn cut(error: io::Error) -> lake::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof if error.get_ref().is_none() => ends_early(),
        _ => explain(error),
    }
}

fn ends_early() -> lake::Error {
    refused("the file ends inside a block: it was cut or is still being written")
}
