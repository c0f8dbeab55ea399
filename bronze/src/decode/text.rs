//! Bytes become text a block at a time: the byte order mark is dropped, invalid bytes refuse the file.

use std::io::Read;

use lake::{Error, Result};

use super::bytes::{Bytes, explain};
use super::refused;

/// Bytes read at a time.
const BLOCK_BYTES: u64 = 1024 * 1024;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The text of a file, of which a part is held. [`fill`](TextReader::fill) adds to its end and
/// [`consume`](TextReader::consume) takes from its start.
pub(super) struct TextReader {
    source: Bytes,
    text: String,
    consumed: usize,
    /// Bytes that are not yet a whole character, then the block being read.
    block: Vec<u8>,
    /// Bytes of the file before `block`.
    position: u64,
    started: bool,
    ended: bool,
}

impl TextReader {
    pub(super) fn new(source: Bytes) -> Self {
        Self { source, text: String::new(), consumed: 0, block: Vec::new(), position: 0, started: false, ended: false }
    }

    /// The text that is held and not consumed.
    pub(super) fn text(&self) -> &str {
        &self.text[self.consumed..]
    }

    /// True when [`text`](TextReader::text) holds all that is left of the file.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Takes `length` bytes, which must end at a character, from the start of the text.
    pub(super) fn consume(&mut self, length: usize) {
        self.consumed += length;
    }

    /// The position in the file, in bytes, of the `offset`-th byte of the text.
    pub(super) fn position_of(&self, offset: usize) -> u64 {
        self.position - (self.text.len() - self.consumed - offset) as u64
    }

    /// What positions count, for messages.
    pub(super) fn noun(&self) -> &'static str {
        self.source.noun()
    }

    /// Adds a block to the end of the text; at the end of the file, says so through [`ended`](TextReader::ended).
    pub(super) fn fill(&mut self) -> Result<()> {
        self.text.drain(..self.consumed);
        self.consumed = 0;
        let held = self.block.len();
        let read = (&mut self.source).take(BLOCK_BYTES).read_to_end(&mut self.block).map_err(explain)?;
        self.ended = read == 0;
        debug_assert_eq!(self.block.len(), held + read);
        let valid = match std::str::from_utf8(&self.block) {
            Ok(text) => text,
            Err(error) if error.error_len().is_some() || self.ended => {
                return Err(self.invalid(error.valid_up_to()));
            }
            Err(error) => std::str::from_utf8(&self.block[..error.valid_up_to()]).unwrap_or_default(),
        };
        let length = valid.len();
        let marked = !self.started && valid.starts_with(BYTE_ORDER_MARK);
        self.text.push_str(if marked { &valid[BYTE_ORDER_MARK.len_utf8()..] } else { valid });
        self.started |= length > 0;
        self.position += length as u64;
        self.block.drain(..length);
        Ok(())
    }

    fn invalid(&self, offset: usize) -> Error {
        let position = self.position + offset as u64;
        let byte = self.block.get(offset).copied().unwrap_or_default();
        let reason = match position == 0
            && (self.block.starts_with(&[0xff, 0xfe]) || self.block.starts_with(&[0xfe, 0xff]))
        {
            true => "the file is UTF-16, which is not read: its first bytes are a UTF-16 byte order mark".to_owned(),
            false => format!("{} {position} (0x{byte:02X}) is not valid UTF-8", self.source.noun()),
        };
        refused(reason).hint("the file must be UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::{Compression, decompress};
    use super::*;
    use std::io::{self, Cursor};

    /// Gives a byte at a time, so that every character is cut.
    struct Drip(Cursor<Vec<u8>>);

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn read(bytes: &[u8]) -> Result<String> {
        let source = decompress(Drip(Cursor::new(bytes.to_vec())), Compression::None)?;
        let mut reader = TextReader::new(source);
        while !reader.ended() {
            reader.fill()?;
        }
        Ok(reader.text().to_owned())
    }

    #[test]
    fn the_mark_is_dropped_once_and_only_at_the_start() {
        assert_eq!(read("\u{feff}a\u{feff}b".as_bytes()).expect("text"), "a\u{feff}b");
        assert_eq!(read(b"").expect("text"), "");
        assert_eq!(read("день".as_bytes()).expect("text"), "день");
    }

    #[test]
    fn invalid_bytes_are_named_with_their_position() {
        let error = read(b"id\ncaf\xe9\n").expect_err("latin-1").to_string();
        assert_eq!(error, "byte 6 (0xE9) is not valid UTF-8");
        let error = read("abc\u{20ac}".as_bytes().split_last().expect("bytes").1).expect_err("cut").to_string();
        assert_eq!(error, "byte 3 (0xE2) is not valid UTF-8");
        assert!(read(b"\xff\xfea\x00").expect_err("utf-16").to_string().contains("UTF-16"));
    }

    #[test]
    fn blocks_join_without_a_seam() {
        let text: String = (0..200_000).map(|number| format!("{number} é\n")).collect();
        let source = decompress(Cursor::new(text.clone().into_bytes()), Compression::Auto).expect("bytes");
        let mut reader = TextReader::new(source);
        let mut seen = String::new();
        while !reader.ended() {
            reader.fill().expect("text");
            let length = reader.text().rfind('\n').map_or(0, |end| end + 1);
            assert_eq!(reader.position_of(0), seen.len() as u64);
            seen.push_str(&reader.text()[..length]);
            reader.consume(length);
        }
        assert_eq!(seen, text);
    }
}
