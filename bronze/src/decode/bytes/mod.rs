//! The bytes of a file without their compression, which is told from the content and never from the name.
//!
//! A stream is read to its very end: every member of gzip, every frame of zstd, every stream of bzip2. What is cut,
//! broken, or followed by something else refuses the file.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lake::{Error, Result};

use super::refused;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// What follows the first byte of a zstd frame that holds no data; such frames may stand first.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
/// What follows `BZh` and a digit: the mark of a block, or that of the end of a stream without blocks.
const BZIP2_NEXT: [&[u8]; 2] = [&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59], &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];
/// The longest of these marks.
const MAGIC_BYTES: u64 = 10;
const BUFFER_BYTES: usize = 64 * 1024;

/// Decompressed bytes that any file may have, whatever its ratio.
const INFLATED_ALWAYS: u64 = 256 * 1024 * 1024;
/// Bytes that one compressed byte may become, beyond [`INFLATED_ALWAYS`]. Tables of text stay below 100 even when they
/// repeat themselves much; a bomb of gzip has 1000, one of zstd or bzip2 far more.
const RATIO_MAX: u64 = 500;

/// The compression that a source's files have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// What the first bytes of each file say.
    #[default]
    Auto,
    /// None; the bytes are taken as they are.
    None,
    /// gzip, with all its members.
    Gzip,
    /// zstd, with all its frames.
    Zstd,
    /// bzip2, with all its streams.
    Bzip2,
}

/// The mark that a read failed below, not in what was read. Readers of a store wrap its error in it.
#[derive(Debug)]
pub struct SourceFailure(pub Error);

impl fmt::Display for SourceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for SourceFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

/// Bytes that are being read, compressed or not.
pub(super) enum Bytes {
    Plain(Prefixed),
    Inflated(Inflated),
}

/// Undoes the compression of `source`.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when the content is not what `compression` says.
pub(super) fn decompress(source: impl Read + Send + 'static, compression: Compression) -> Result<Bytes> {
    let compressed = Arc::new(AtomicU64::new(0));
    let mut source = Source { reader: Box::new(source), count: Arc::clone(&compressed) };
    let mut magic = Vec::with_capacity(MAGIC_BYTES as usize);
    (&mut source).take(MAGIC_BYTES).read_to_end(&mut magic).map_err(explain)?;
    let seen = seen(&magic);
    let kind = match compression {
        Compression::Auto => seen,
        Compression::None => Compression::None,
        _ if magic.is_empty() => Compression::None,
        wanted if wanted == seen => wanted,
        wanted => {
            return Err(refused(format!(
                "the file is not {name}, as `compression: {name}` says",
                name = wanted.name()
            )));
        }
    };
    let bytes = Cursor::new(magic).chain(source);
    let buffered = |bytes| BufReader::with_capacity(BUFFER_BYTES, bytes);
    let stream = match kind {
        Compression::Auto | Compression::None => return Ok(Bytes::Plain(bytes)),
        Compression::Gzip => Stream::Gzip(Box::new(MultiGzDecoder::new(buffered(bytes)))),
        Compression::Bzip2 => Stream::Bzip2(MultiBzDecoder::new(buffered(bytes))),
        Compression::Zstd => Stream::Zstd(zstd::Decoder::with_buffer(buffered(bytes)).map_err(explain)?),
    };
    Ok(Bytes::Inflated(Inflated { stream, compressed, given: 0 }))
}

/// What the first bytes of a file say.
pub(super) fn seen(magic: &[u8]) -> Compression {
    let skippable = magic.first().is_some_and(|first| first & 0xf0 == 0x50);
    match magic {
        _ if magic.starts_with(GZIP) => Compression::Gzip,
        _ if magic.starts_with(ZSTD) => Compression::Zstd,
        [_, rest @ ..] if skippable && rest.starts_with(ZSTD_SKIPPABLE) => Compression::Zstd,
        [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] if BZIP2_NEXT.iter().any(|next| is_start(rest, next)) => {
            Compression::Bzip2
        }
        _ => Compression::None,
    }
}

/// True when `bytes` begin with `mark`, or end before it does.
fn is_start(bytes: &[u8], mark: &[u8]) -> bool {
    let length = bytes.len().min(mark.len());
    bytes[..length] == mark[..length]
}

impl Compression {
    /// The word of the spec.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }
}

impl Bytes {
    /// What the compression is called.
    pub(super) fn compression(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::Inflated(Inflated { stream: Stream::Gzip(_), .. }) => Some("gzip"),
            Self::Inflated(Inflated { stream: Stream::Zstd(_), .. }) => Some("zstd"),
            Self::Inflated(Inflated { stream: Stream::Bzip2(_), .. }) => Some("bzip2"),
        }
    }

    /// What the bytes are called in messages about a position in them.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Plain(_) => "byte",
            Self::Inflated(_) => "byte (after decompression)",
        }
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(bytes) => bytes.read(buffer),
            Self::Inflated(bytes) => bytes.read(buffer),
        }
    }
}

/// A stream whose compression is being undone, within limits.
pub(super) struct Inflated {
    stream: Stream,
    /// Bytes of the file read so far.
    compressed: Arc<AtomicU64>,
    /// Bytes given so far.
    given: u64,
}

enum Stream {
    Gzip(Box<MultiGzDecoder<BufReader<Prefixed>>>),
    Zstd(zstd::Decoder<'static, BufReader<Prefixed>>),
    Bzip2(MultiBzDecoder<BufReader<Prefixed>>),
}

impl Read for Inflated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match &mut self.stream {
            Stream::Gzip(stream) => stream.read(buffer),
            Stream::Zstd(stream) => stream.read(buffer),
            Stream::Bzip2(stream) => stream.read(buffer),
        }?;
        self.given += length as u64;
        check_ratio(self.compressed.load(Ordering::Relaxed), self.given)
            .map_err(|refusal| io::Error::other(SourceFailure(refusal)))?;
        Ok(length)
    }
}

/// Stops a file that becomes far larger than it is: a bomb, or a mistake.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) with both sizes.
pub(super) fn check_ratio(compressed: u64, given: u64) -> Result<()> {
    if given <= INFLATED_ALWAYS || given / RATIO_MAX <= compressed {
        return Ok(());
    }
    let (mib, kib) = (given / (1024 * 1024), compressed / 1024);
    let reason = format!("{kib} KiB of the file have become {mib} MiB: more than {RATIO_MAX} times as much, the limit");
    Err(refused(reason).hint("a file that really repeats itself so much can be landed without compression"))
}

/// Tells a failure of the store from a stream that is broken or cut.
pub(super) fn explain(error: io::Error) -> Error {
    let kind = error.kind();
    match error.downcast::<SourceFailure>() {
        Ok(SourceFailure(error)) => error,
        Err(error) if kind == io::ErrorKind::UnexpectedEof => {
            refused("the compressed stream ends early: the file was cut or is still being written").with_source(error)
        }
        Err(error) => refused(format!("the compressed stream is broken, or something else follows it: {error}"))
            .with_source(error),
    }
}

type Prefixed = io::Chain<Cursor<Vec<u8>>, Source>;

/// The reader below, with its bytes counted and its failures marked: a cut or broken stream above it is something else.
pub(super) struct Source {
    reader: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer).map_err(|error| match error.downcast::<SourceFailure>() {
            Ok(failure) => io::Error::other(failure),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => error,
            // A disk that fails on one file must not stop the others.
            Err(error) => {
                let refusal = refused(format!("the file cannot be read: {error}"));
                io::Error::other(SourceFailure(refusal.with_source(error)))
            }
        })?;
        self.count.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

#[cfg(test)]
pub(super) mod tests;
