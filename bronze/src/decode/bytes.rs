//! The bytes of a file without their compression, which is told from the content and never from the name.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;
use lake::{Error, Result};

use super::refused;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BZIP2: &[u8] = b"BZh";
const BUFFER_BYTES: usize = 64 * 1024;

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
    Gzip(Box<MultiGzDecoder<BufReader<Prefixed>>>),
}

/// Undoes the compression of `source`.
pub(super) fn decompress(source: impl Read + Send + 'static, compression: Compression) -> Result<Bytes> {
    let mut source = Source(Box::new(source));
    let mut magic = Vec::with_capacity(4);
    (&mut source).take(4).read_to_end(&mut magic).map_err(explain)?;
    let is = |prefix: &[u8]| magic.starts_with(prefix);
    let gzip = match compression {
        Compression::None => false,
        Compression::Gzip if is(GZIP) || magic.is_empty() => !magic.is_empty(),
        Compression::Gzip => return Err(refused("the file is not gzip, as `compression: gzip` says")),
        Compression::Auto if is(ZSTD) => return Err(refused("the file is compressed with zstd, which is not read")),
        Compression::Auto if is(BZIP2) => return Err(refused("the file is compressed with bzip2, which is not read")),
        Compression::Auto => is(GZIP),
    };
    let bytes = Cursor::new(magic).chain(source);
    Ok(match gzip {
        true => Bytes::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, bytes)))),
        false => Bytes::Plain(bytes),
    })
}

impl Bytes {
    /// What the bytes are called in messages about a position in them.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Plain(_) => "byte",
            Self::Gzip(_) => "byte (after decompression)",
        }
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(bytes) => bytes.read(buffer),
            Self::Gzip(bytes) => bytes.read(buffer),
        }
    }
}

/// Tells a failure of the store from a stream that is broken or cut.
pub(super) fn explain(error: io::Error) -> Error {
    let kind = error.kind();
    match error.downcast::<SourceFailure>() {
        Ok(SourceFailure(error)) => error,
        Err(error) if kind == io::ErrorKind::UnexpectedEof => {
            refused("the compressed stream ends early: the file was cut or is still being written").with_source(error)
        }
        Err(error) => refused(format!("the compressed stream is broken: {error}")).with_source(error),
    }
}

type Prefixed = io::Chain<Cursor<Vec<u8>>, Source>;

/// The reader below, with its failures marked: a cut or broken stream above it is something else.
pub(super) struct Source(Box<dyn Read + Send>);

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.downcast::<SourceFailure>() {
            Ok(failure) => io::Error::other(failure),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => error,
            // A disk that fails on one file must not stop the others.
            Err(error) => {
                let refusal = refused(format!("the file cannot be read: {error}"));
                io::Error::other(SourceFailure(refusal.with_source(error)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use lake::ErrorKind;
    use std::io::Write;

    fn gz(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    fn read(bytes: Vec<u8>, compression: Compression) -> Result<String> {
        let mut text = String::new();
        decompress(Cursor::new(bytes), compression)?.read_to_string(&mut text).map_err(explain)?;
        Ok(text)
    }

    #[test]
    fn every_member_of_a_gzip_file_is_read() {
        let both = [gz("one\n"), gz("two\n")].concat();
        assert_eq!(read(both, Compression::Auto).expect("text"), "one\ntwo\n");
        assert_eq!(read(gz(""), Compression::Auto).expect("text"), "");
    }

    #[test]
    fn the_content_says_what_it_is() {
        assert_eq!(read(b"plain".to_vec(), Compression::Auto).expect("text"), "plain");
        assert_eq!(read(Vec::new(), Compression::Gzip).expect("text"), "");
        let error = read(b"plain".to_vec(), Compression::Gzip).expect_err("not gzip");
        assert_eq!(error.kind(), ErrorKind::File);
        assert!(read(b"\x28\xb5\x2f\xfd...".to_vec(), Compression::Auto).is_err());
        assert!(read(b"BZh9...".to_vec(), Compression::None).is_ok());
    }

    #[test]
    fn a_cut_stream_is_an_error_wherever_it_is_cut() {
        let whole = gz(&"some text that compresses\n".repeat(50));
        for end in 2..whole.len() {
            let error = read(whole[..end].to_vec(), Compression::Auto).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::File, "cut at {end}: {error}");
        }
    }

    #[test]
    fn a_failing_store_is_not_the_files_fault() {
        struct Broken(fn() -> io::Error);
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(self.0())
            }
        }
        let outcome = |error: fn() -> io::Error| {
            let start = Cursor::new(gz("text")[..12].to_vec());
            let mut bytes = decompress(start.chain(Broken(error)), Compression::Auto).expect("a start");
            explain(bytes.read_to_end(&mut Vec::new()).expect_err("broken"))
        };
        let store = outcome(|| io::Error::other(SourceFailure(Error::new(ErrorKind::Store, "connection lost"))));
        assert_eq!((store.kind(), store.to_string()), (ErrorKind::Store, "connection lost".to_owned()));
        let disk = outcome(|| io::Error::new(io::ErrorKind::UnexpectedEof, "bad sector"));
        assert_eq!(disk.kind(), ErrorKind::File);
        assert!(disk.to_string().contains("bad sector"), "{disk}");
    }
}
