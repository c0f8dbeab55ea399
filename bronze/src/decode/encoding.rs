//! How characters are written as bytes: UTF-8, or any encoding of the WHATWG list.

use std::fmt;

use encoding_rs::{Decoder, DecoderResult, UTF_8, UTF_16BE, UTF_16LE};

/// The encoding of a source's files; a byte order mark in a file wins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

/// A byte order mark and the encoding that it stands for; the longest first.
const MARKS: [(&[u8], &encoding_rs::Encoding); 3] =
    [(&[0xef, 0xbb, 0xbf], UTF_8), (&[0xff, 0xfe], UTF_16LE), (&[0xfe, 0xff], UTF_16BE)];

/// The names of the WHATWG list that files are written in; each has more labels (`latin1` is windows-1252).
pub(crate) const ENCODING_NAMES: [&str; 39] = [
    "utf-8",
    "utf-16le",
    "utf-16be",
    "windows-1252",
    "latin1",
    "iso-8859-1",
    "ascii",
    "iso-8859-2",
    "iso-8859-3",
    "iso-8859-4",
    "iso-8859-5",
    "iso-8859-6",
    "iso-8859-7",
    "iso-8859-8",
    "iso-8859-10",
    "iso-8859-13",
    "iso-8859-14",
    "iso-8859-15",
    "iso-8859-16",
    "windows-1250",
    "windows-1251",
    "windows-1253",
    "windows-1254",
    "windows-1255",
    "windows-1256",
    "windows-1257",
    "windows-1258",
    "windows-874",
    "macintosh",
    "x-mac-cyrillic",
    "ibm866",
    "koi8-r",
    "koi8-u",
    "gbk",
    "gb18030",
    "big5",
    "euc-jp",
    "shift_jis",
    "euc-kr",
];

impl Default for Encoding {
    fn default() -> Self {
        Self(UTF_8)
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Encoding {
    /// The encoding of a WHATWG label, in any case; `None` for any other text.
    pub fn for_label(label: &str) -> Option<Self> {
        encoding_rs::Encoding::for_label_no_replacement(label.as_bytes()).map(Self)
    }

    /// The encoding of a file that starts with `bytes`, and the length of its mark.
    pub(super) fn of_file(self, bytes: &[u8]) -> (Self, usize) {
        let mark = MARKS.into_iter().find(|(mark, _)| bytes.starts_with(mark));
        mark.map_or((self, 0), |(mark, encoding)| (Self(encoding), mark.len()))
    }

    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        self.0.name()
    }

    /// True for UTF-8, whose bytes are text already.
    pub(super) fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    /// A decoder for the bytes after the mark.
    pub(super) fn decoder(self) -> Decoder {
        self.0.new_decoder_without_bom_handling()
    }
}

/// Adds the text of `bytes` to `text`. `Err` is the number of the bytes before the first that are no character, which
/// may be negative: then it began in an earlier block.
pub(super) fn decode(decoder: &mut Decoder, bytes: &[u8], last: bool, text: &mut String) -> Result<(), i64> {
    let mut from = 0;
    loop {
        let needed = decoder.max_utf8_buffer_length_without_replacement(bytes.len() - from);
        text.reserve(needed.unwrap_or(bytes.len()));
        let (result, read) = decoder.decode_to_string_without_replacement(&bytes[from..], text, last);
        from += read;
        match result {
            DecoderResult::InputEmpty => return Ok(()),
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(length, after) => {
                return Err(from as i64 - i64::from(length) - i64::from(after));
            }
        }
    }
}

/// The text of a file that starts with `head`, and the label of its encoding where neither a mark nor UTF-8 tells it: every
/// second byte is 0 in UTF-16, and what is left is most often windows-1252.
pub(super) fn guess(head: &[u8], is_cut: bool) -> (Option<&'static str>, String) {
    let (marked, mark) = Encoding::default().of_file(head);
    let body = &head[mark..];
    if mark > 0 && !marked.is_utf8() {
        return (None, marked.0.decode_without_bom_handling(body).0.into_owned());
    }
    match std::str::from_utf8(body) {
        Ok(text) if !text.contains('\0') => return (None, text.to_owned()),
        // The last character may be cut.
        Err(error) if is_cut && error.error_len().is_none() => {
            return (None, String::from_utf8_lossy(&body[..error.valid_up_to()]).into_owned());
        }
        _ => {}
    }
    let zeros = |start: usize| body.iter().skip(start).step_by(2).filter(|byte| **byte == 0).count() * 4 > body.len();
    let (label, encoding) = match (zeros(1), zeros(0)) {
        (true, _) => ("utf-16le", UTF_16LE),
        (_, true) => ("utf-16be", UTF_16BE),
        _ => ("windows-1252", encoding_rs::WINDOWS_1252),
    };
    (Some(label), encoding.decode_without_bom_handling(body).0.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_label_and_every_label_is_known() {
        for name in ENCODING_NAMES {
            assert!(Encoding::for_label(name).is_some(), "{name}");
        }
        assert_eq!(Encoding::for_label(" Latin1 ").map(Encoding::name), Some("windows-1252"));
        assert_eq!(Encoding::for_label("UTF8"), Some(Encoding::default()));
        assert_eq!(Encoding::for_label("replacement"), None);
        assert_eq!(Encoding::for_label("utf-9"), None);
    }

    #[test]
    fn a_mark_wins_over_the_label() {
        let latin = Encoding::for_label("latin1").expect("a label");
        let of = |bytes: &[u8]| (latin.of_file(bytes).0.name(), latin.of_file(bytes).1);
        assert_eq!(of(b"\xef\xbb\xbfa"), ("UTF-8", 3));
        assert_eq!(of(b"\xff\xfea\0"), ("UTF-16LE", 2));
        assert_eq!(of(b"\xfe\xff\0a"), ("UTF-16BE", 2));
        assert_eq!(of(b"a"), ("windows-1252", 0));
    }

    #[test]
    fn an_encoding_is_guessed_where_nothing_tells_it() {
        assert_eq!(guess("é,b".as_bytes(), false), (None, "é,b".to_owned()));
        assert_eq!(guess(&"aé".as_bytes()[..2], true), (None, "a".to_owned()));
        assert_eq!(guess(b"caf\xe9", false), (Some("windows-1252"), "café".to_owned()));
        assert_eq!(guess(b"a\0,\0b\0\n\0", false), (Some("utf-16le"), "a,b\n".to_owned()));
        assert_eq!(guess(b"\0a\0,\0b\0\n", false), (Some("utf-16be"), "a,b\n".to_owned()));
        assert_eq!(guess(b"\xff\xfea\0", false), (None, "a".to_owned()));
    }
}
