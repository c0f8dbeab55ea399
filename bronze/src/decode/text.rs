//! Bytes become text a block at a time: the byte order mark is dropped, invalid bytes refuse the file.

use std::io::Read;

use lake::{Error, Result};

use super::bytes::{Bytes, explain};
use super::encoding::{self, Encoding};
use super::{foreign, refused};

/// Bytes read at a time: what is made of them on the way to a data file stays in the cache of a core.
const BLOCK_BYTES: u64 = 256 * 1024;
/// The mark of UTF-32 in the little order, which begins like that of UTF-16.
const UTF_32_LE: &[u8] = &[0xff, 0xfe, 0, 0];

/// The text of a file, of which a part is held. [`fill`](TextReader::fill) adds to its end and
/// [`consume`](TextReader::consume) takes from its start.
pub(super) struct TextReader {
    source: Bytes,
    block_bytes: u64,
    /// What the spec says; the mark of the file may say otherwise.
    encoding: Encoding,
    /// For a file that is not UTF-8.
    decoder: Option<encoding_rs::Decoder>,
    text: String,
    consumed: usize,
    /// Bytes that are not yet a whole character, then the block being read.
    block: Vec<u8>,
    /// Bytes of the file before `block`.
    position: u64,
    /// Bytes of text before `text`, when the file is not UTF-8.
    decoded: u64,
    started: bool,
    ended: bool,
}

/// A part of a text that was taken from its start.
pub(super) struct Taken {
    text: String,
    start: usize,
}

impl Taken {
    pub(super) fn text(&self) -> &str {
        &self.text[self.start..]
    }
}

impl TextReader {
    pub(super) fn new(source: Bytes, encoding: Encoding) -> Self {
        Self::by_blocks(source, encoding, BLOCK_BYTES)
    }

    /// Reads so many bytes at a time, at least one.
    pub(super) fn by_blocks(source: Bytes, encoding: Encoding, block_bytes: u64) -> Self {
        Self {
            source,
            block_bytes,
            encoding,
            decoder: None,
            text: String::new(),
            consumed: 0,
            block: Vec::new(),
            position: 0,
            decoded: 0,
            started: false,
            ended: false,
        }
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

    /// Takes `length` bytes, which must end at a character, from the start of the text, without copying them.
    pub(super) fn take(&mut self, length: usize) -> Taken {
        let (start, end) = (self.consumed, self.consumed + length);
        let rest = self.text[end..].to_owned();
        let mut text = std::mem::replace(&mut self.text, rest);
        text.truncate(end);
        self.consumed = 0;
        self.decoded += end as u64;
        Taken { text, start }
    }

    /// The position in the file of the `offset`-th byte of the text, in what [`noun`](TextReader::noun) says.
    pub(super) fn position_of(&self, offset: usize) -> u64 {
        match self.decoder {
            None => self.position - (self.text.len() - self.consumed - offset) as u64,
            Some(_) => self.decoded + (self.consumed + offset) as u64,
        }
    }

    /// What positions count, for messages.
    pub(super) fn noun(&self) -> &'static str {
        match self.decoder {
            None => self.source.noun(),
            Some(_) => "byte (of its text as UTF-8)",
        }
    }

    /// Adds a block to the end of the text; at the end of the file, says so through [`ended`](TextReader::ended).
    pub(super) fn fill(&mut self) -> Result<()> {
        self.text.drain(..self.consumed);
        self.decoded += self.consumed as u64;
        self.consumed = 0;
        if self.started && self.decoder.is_none() {
            return self.fill_utf8();
        }
        let held = self.block.len();
        let read = (&mut self.source).take(self.block_bytes).read_to_end(&mut self.block).map_err(explain)?;
        self.ended = read == 0;
        debug_assert_eq!(self.block.len(), held + read);
        if !self.started && read > 0 {
            self.start()?;
        }
        match self.decoder.take() {
            None => self.take_utf8(),
            Some(mut decoder) => {
                let taken = encoding::decode(&mut decoder, &self.block, self.ended, &mut self.text);
                self.decoder = Some(decoder);
                taken.map_err(|offset| self.invalid(offset))?;
                self.position += self.block.len() as u64;
                self.block.clear();
                Ok(())
            }
        }
    }

    /// Learns the encoding from the first block of the file.
    fn start(&mut self) -> Result<()> {
        self.started = true;
        if self.block.starts_with(UTF_32_LE) {
            return Err(refused("the file is UTF-32, which is not read").hint("write it as UTF-8"));
        }
        if let Some(refusal) = foreign::refusal(&self.block, self.source.compression()) {
            return Err(refusal);
        }
        let (encoding, mark) = self.encoding.of_file(&self.block);
        if encoding.is_utf8()
            && let Some(label) = unmarked_utf16(&self.block)
        {
            return Err(refused("the file is UTF-16 without its byte order mark")
                .hint(format!("`encoding: {label}` reads such files")));
        }
        self.encoding = encoding;
        self.decoder = (!encoding.is_utf8()).then(|| encoding.decoder());
        self.block.drain(..mark);
        self.position += mark as u64;
        Ok(())
    }

    fn take_utf8(&mut self) -> Result<()> {
        let valid = match std::str::from_utf8(&self.block) {
            Ok(text) => text,
            Err(error) if error.error_len().is_some() || self.ended => {
                return Err(self.invalid(error.valid_up_to() as i64));
            }
            Err(error) => std::str::from_utf8(&self.block[..error.valid_up_to()]).unwrap_or_default(),
        };
        let length = valid.len();
        self.text.push_str(valid);
        self.position += length as u64;
        self.block.drain(..length);
        Ok(())
    }

    /// Reads a block behind the text that is held; it is valid UTF-8 where it stands, and is not copied.
    fn fill_utf8(&mut self) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        let held = bytes.len();
        bytes.append(&mut self.block);
        bytes.reserve(self.block_bytes.min(BLOCK_BYTES) as usize);
        let read = (&mut self.source).take(self.block_bytes).read_to_end(&mut bytes).map_err(explain)?;
        self.ended = read == 0;
        match String::from_utf8(bytes) {
            Ok(text) => self.text = text,
            Err(error) => {
                let (invalid, mut bytes) = (error.utf8_error(), error.into_bytes());
                self.block = bytes.split_off(invalid.valid_up_to());
                self.text = String::from_utf8(bytes).unwrap_or_default();
                if invalid.error_len().is_some() || self.ended {
                    self.position += (self.text.len() - held) as u64;
                    return Err(self.invalid(0));
                }
            }
        }
        self.position += (self.text.len() - held) as u64;
        Ok(())
    }

    /// The refusal for the byte at `offset` in the block, which may be in the block before.
    fn invalid(&self, offset: i64) -> Error {
        let position = self.position.saturating_add_signed(offset);
        let byte = usize::try_from(offset).ok().and_then(|offset| self.block.get(offset));
        let byte = byte.map(|byte| format!(" (0x{byte:02X})")).unwrap_or_default();
        let (noun, name) = (self.source.noun(), self.encoding.name());
        let hint = match self.encoding.is_utf8() {
            true => "a file that is not UTF-8 needs its `encoding`, such as `encoding: windows-1252`",
            false => "the file is damaged, or written in another `encoding`",
        };
        refused(format!("{noun} {position}{byte} is not valid {name}")).hint(hint)
    }
}

/// The label of UTF-16, when a file begins as two plain characters are written in it.
fn unmarked_utf16(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [1..=255, 0, 1..=255, 0, ..] => Some("utf-16le"),
        [0, 1..=255, 0, 1..=255, ..] => Some("utf-16be"),
        _ => None,
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
        read_as(bytes, "utf-8")
    }

    fn read_as(bytes: &[u8], label: &str) -> Result<String> {
        let source = decompress(Drip(Cursor::new(bytes.to_vec())), Compression::None)?;
        let mut reader = TextReader::new(source, Encoding::for_label(label).expect("a label"));
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
        assert!(read(b"\xff\xfe\0\0a\0\0\0").expect_err("utf-32").to_string().contains("UTF-32"));
    }

    /// UTF-16 with its mark, in either order of bytes.
    fn utf16(text: &str, little: bool) -> Vec<u8> {
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        units.flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    }

    #[test]
    fn other_encodings_are_read_by_their_mark_or_their_label() {
        for little in [true, false] {
            assert_eq!(read(&utf16("día 😀\n", little)).expect("text"), "día 😀\n");
            assert_eq!(read_as(&utf16("é", little), "windows-1252").expect("the mark wins"), "é");
        }
        assert_eq!(read_as(&utf16("ab", true)[2..], "utf-16le").expect("no mark"), "ab");
        for (little, label) in [(true, "utf-16le"), (false, "utf-16be")] {
            let error = read(&utf16("{\"a\":1}", little)[2..]).expect_err("neither mark nor label");
            assert_eq!(error.hint_text(), Some(format!("`encoding: {label}` reads such files").as_str()));
        }
        assert_eq!(read_as(b"caf\xe9 \x80", "windows-1252").expect("text"), "café €");
        assert_eq!(read_as(b"\xef\xbb\xbf\xc3\xa9", "latin1").expect("the mark wins"), "é");
        assert_eq!(read_as(b"\x93\xfa\x96{", "shift_jis").expect("text"), "日本");
    }

    #[test]
    fn what_is_no_character_in_another_encoding_is_named_with_its_position() {
        let cut = utf16("ab", true);
        let error = read(&cut[..cut.len() - 1]).expect_err("half a unit").to_string();
        assert!(error.starts_with("byte 4") && error.ends_with("is not valid UTF-16LE"), "{error}");
        let lone = [&utf16("a", true)[..], &[0x00, 0xd8, b'b', 0]].concat();
        let error = read(&lone).expect_err("half a pair").to_string();
        assert!(error.starts_with("byte 4"), "{error}");
        let error = read_as(b"ok \x81\xff", "shift_jis").expect_err("no character").to_string();
        assert!(error.starts_with("byte 3") && error.ends_with("is not valid Shift_JIS"), "{error}");
    }

    #[test]
    fn positions_in_decoded_text_count_its_bytes() {
        let text: String = (0..200_000).map(|number| format!("{number} é\n")).collect();
        let latin: Vec<u8> = text.chars().map(|character| character as u8).collect();
        let source = decompress(Cursor::new(latin), Compression::Auto).expect("bytes");
        let mut reader = TextReader::new(source, Encoding::for_label("latin1").expect("a label"));
        let mut seen = String::new();
        while !reader.ended() {
            reader.fill().expect("text");
            assert_eq!(reader.position_of(0), seen.len() as u64);
            let length = reader.text().rfind('\n').map_or(0, |end| end + 1);
            seen.push_str(&reader.text()[..length]);
            reader.consume(length);
        }
        assert_eq!(seen, text);
        assert_eq!(reader.noun(), "byte (of its text as UTF-8)");
    }

    #[test]
    fn blocks_join_without_a_seam() {
        let text: String = (0..200_000).map(|number| format!("{number} é\n")).collect();
        let source = decompress(Cursor::new(text.clone().into_bytes()), Compression::Auto).expect("bytes");
        let mut reader = TextReader::new(source, Encoding::default());
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
