//! Finds where records and fields begin and end. Values are not copied and nulls are not decided here.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

use super::dialect::Dialect;

/// A field, as a part of the text that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Its first byte, after the opening quote.
    pub(super) start: u32,
    /// The byte after its last, before the closing quote.
    pub(super) end: u32,
    /// How it is written.
    pub(super) kind: Kind,
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Without quotes.
    Bare,
    /// In quotes, to be taken as it stands.
    Quoted,
    /// In quotes, with escaped quotes in it.
    Escaped,
    /// Not there: the record has too few fields.
    Missing,
}

/// What stands at a position of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// A record; the tokenizer holds its fields.
    Record {
        /// Where the next one starts.
        next: usize,
    },
    /// A blank line or a comment.
    Skipped {
        /// Where the next record starts.
        next: usize,
    },
    /// A record that breaks the rules.
    Malformed {
        /// Where the next one starts.
        next: usize,
        /// The rule.
        reason: Malformed,
    },
    /// A record whose end is not in the text yet.
    Incomplete,
    /// The end of the file.
    End,
}

/// How a record breaks the rules. Fields are counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// A quoted field without a closing quote.
    Unclosed { field: usize, at: usize, end: usize },
    /// Text between a closing quote and the next delimiter.
    AfterQuote { field: usize },
}

impl Malformed {
    /// The reason as a sentence; `start` is where the record starts in `text`.
    pub(super) fn text(&self, text: &str, start: usize) -> String {
        match *self {
            Self::Unclosed { field, at, end } => {
                let lines = memchr::memchr_iter(b'\n', &text.as_bytes()[at..end]).count();
                let line = memchr::memchr_iter(b'\n', &text.as_bytes()[start..at]).count() + 1;
                format!(
                    "the quote that opens field {field} (line {line} of the record) is not closed before the end of \
                     the file, {lines} line breaks later"
                )
            }
            Self::AfterQuote { field } => format!("field {field} has text after its closing quote"),
        }
    }
}

/// Splits text into the fields of one record after the other.
pub(super) struct Tokenizer {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    fields: Vec<Span>,
}

/// Where a field ended.
enum End {
    /// Before a delimiter; the next field starts here.
    Field(usize),
    /// Before a line break or the end of the file; the next record starts here.
    Record(usize),
    /// Not in the text yet.
    Unknown,
}

/// What follows an opening quote.
enum Quoted {
    /// A value and a closing quote; what comes next starts here.
    Closed { span: Span, next: usize },
    /// No closing quote in the text.
    Open,
}

impl Tokenizer {
    pub(super) fn new(dialect: &Dialect) -> Self {
        let escape = dialect.escape.filter(|escape| Some(*escape) != dialect.quote);
        let Dialect { delimiter, quote, comment, .. } = *dialect;
        Self { delimiter, quote, escape, comment, fields: Vec::new() }
    }

    /// The fields of the record that was found last.
    pub(super) fn fields(&self) -> &[Span] {
        &self.fields
    }

    /// Says what stands at byte `at` of `text`; `ended` when the file holds nothing beyond it.
    pub(super) fn record(&mut self, text: &str, at: usize, ended: bool) -> Scan {
        let bytes = text.as_bytes();
        let at = at + marks(&bytes[at..]);
        match bytes.get(at) {
            None if ended => return Scan::End,
            None => return Scan::Incomplete,
            Some(b'\n') => return Scan::Skipped { next: at + 1 },
            Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => return Scan::Skipped { next: at + 2 },
            Some(b'\r') if at + 1 == bytes.len() && ended => return Scan::Skipped { next: at + 1 },
            Some(first) if Some(*first) == self.comment => {
                return match memchr(b'\n', &bytes[at..]) {
                    Some(length) => Scan::Skipped { next: at + length + 1 },
                    None if ended => Scan::Skipped { next: bytes.len() },
                    None => Scan::Incomplete,
                };
            }
            Some(_) => {}
        }
        self.fields.clear();
        self.scan_fields(bytes, at, ended)
    }

    fn scan_fields(&mut self, bytes: &[u8], at: usize, ended: bool) -> Scan {
        let mut position = at;
        let mut stray = None;
        loop {
            let quoted = self.quote.is_some_and(|quote| bytes.get(position) == Some(&quote));
            let end = match quoted {
                false => self.bare(bytes, position, ended),
                true => match self.quoted(bytes, position + 1, ended) {
                    Quoted::Open if ended => {
                        let (field, end) = (self.fields.len() + 1, bytes.len());
                        return Scan::Malformed { next: end, reason: Malformed::Unclosed { field, at: position, end } };
                    }
                    Quoted::Open => return Scan::Incomplete,
                    Quoted::Closed { span, next } => {
                        let (end, clean) = self.after_quote(bytes, next, ended);
                        self.fields.push(span);
                        if !clean {
                            stray.get_or_insert(self.fields.len());
                        }
                        end
                    }
                },
            };
            match (end, stray) {
                (End::Field(next), _) => position = next,
                (End::Unknown, _) => return Scan::Incomplete,
                (End::Record(next), None) => return Scan::Record { next },
                (End::Record(next), Some(field)) => {
                    return Scan::Malformed { next, reason: Malformed::AfterQuote { field } };
                }
            }
        }
    }

    /// A field without quotes that starts at `start`.
    fn bare(&mut self, bytes: &[u8], start: usize, ended: bool) -> End {
        let (end, length) = match memchr2(self.delimiter, b'\n', &bytes[start..]) {
            Some(length) if bytes[start + length] == self.delimiter => (End::Field(start + length + 1), length),
            Some(length) => {
                let carriage = length > 0 && bytes[start + length - 1] == b'\r';
                (End::Record(start + length + 1), length - usize::from(carriage))
            }
            None if ended => {
                let length = bytes.len() - start;
                let carriage = length > 0 && bytes[bytes.len() - 1] == b'\r';
                (End::Record(bytes.len()), length - usize::from(carriage))
            }
            None => return End::Unknown,
        };
        self.fields.push(Span { start: narrow(start), end: narrow(start + length), kind: Kind::Bare });
        end
    }

    /// The inside of a quoted field that starts at `start`, after the opening quote.
    fn quoted(&self, bytes: &[u8], start: usize, ended: bool) -> Quoted {
        let Some(quote) = self.quote else { return Quoted::Open };
        let mut kind = Kind::Quoted;
        let mut position = start;
        loop {
            let found = match self.escape {
                None => memchr(quote, &bytes[position..]),
                Some(escape) => memchr2(quote, escape, &bytes[position..]),
            };
            let Some(offset) = found else { return Quoted::Open };
            let at = position + offset;
            let next = bytes.get(at + 1).copied();
            if next.is_none() && !ended {
                return Quoted::Open;
            }
            if bytes[at] != quote {
                let special = next == Some(quote) || next == self.escape;
                kind = if special { Kind::Escaped } else { kind };
                position = at + 1 + usize::from(special);
            } else if next == Some(quote) {
                kind = Kind::Escaped;
                position = at + 2;
            } else {
                let span = Span { start: narrow(start), end: narrow(at), kind };
                return Quoted::Closed { span, next: at + 1 };
            }
        }
    }

    /// What follows a closing quote; false when it is neither a delimiter nor the end of the record.
    fn after_quote(&self, bytes: &[u8], at: usize, ended: bool) -> (End, bool) {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(byte), _) if *byte == self.delimiter => (End::Field(at + 1), true),
            (Some(b'\n'), _) => (End::Record(at + 1), true),
            (Some(b'\r'), Some(b'\n')) => (End::Record(at + 2), true),
            (None, _) | (Some(b'\r'), None) => match ended {
                true => (End::Record(bytes.len()), true),
                false => (End::Unknown, true),
            },
            _ => match memchr2(self.delimiter, b'\n', &bytes[at..]) {
                Some(length) if bytes[at + length] == self.delimiter => (End::Field(at + length + 1), false),
                Some(length) => (End::Record(at + length + 1), false),
                None if ended => (End::Record(bytes.len()), false),
                None => (End::Unknown, false),
            },
        }
    }
}

impl Span {
    /// A field that is not there.
    pub(super) const MISSING: Self = Self { start: 0, end: 0, kind: Kind::Missing };

    /// The part of `text` that the field is, as written.
    pub(super) fn slice<'a>(&self, text: &'a str) -> &'a str {
        &text[self.start as usize..self.end as usize]
    }

    /// The value of the field: without quotes, escapes undone.
    pub(super) fn text<'a>(&self, text: &'a str, dialect: &Dialect) -> Cow<'a, str> {
        let raw = self.slice(text);
        match (self.kind, dialect.quote) {
            (Kind::Escaped, Some(quote)) => {
                let mut value = String::with_capacity(raw.len());
                unescape(raw, quote, dialect.escape, |part| value.push_str(part));
                Cow::Owned(value)
            }
            _ => Cow::Borrowed(raw),
        }
    }
}

/// The length of the byte order marks that a record begins with, as the files that were put together to this one did.
fn marks(bytes: &[u8]) -> usize {
    let is_mark = |mark: &&[u8]| *mark == "\u{feff}".as_bytes();
    match bytes.first() {
        Some(0xef) => bytes.chunks_exact(3).take_while(is_mark).count() * 3,
        _ => 0,
    }
}

/// Gives the parts of a quoted value between its escapes. The value of `""x\"` is `"x"`.
pub(super) fn unescape(raw: &str, quote: u8, escape: Option<u8>, mut part: impl FnMut(&str)) {
    let bytes = raw.as_bytes();
    let escape = escape.unwrap_or(quote);
    let (mut from, mut position) = (0, 0);
    while let Some(offset) = memchr3(quote, escape, quote, &bytes[position..]) {
        let at = position + offset;
        let next = bytes.get(at + 1).copied();
        let special = match bytes[at] == quote {
            true => next == Some(quote),
            false => next == Some(quote) || next == Some(escape),
        };
        if special {
            part(&raw[from..at]);
            from = at + 1;
        }
        position = at + 1 + usize::from(special);
    }
    part(&raw[from..]);
}

/// Positions fit: a record is refused long before its end is 4 GiB away.
fn narrow(position: usize) -> u32 {
    debug_assert!(u32::try_from(position).is_ok());
    position as u32
}
