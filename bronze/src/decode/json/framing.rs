//! Where the records of a JSON file begin and end.
//!
//! A file whose first character is `[` is an array of records; one whose first line is the start of an object that
//! goes on in the next lines, or holds more than one, holds objects one after the other; every other file holds one
//! record a line. In a file
//! of lines a broken line is one bad record and nothing else; in the others the brackets say where a record ends.

use memchr::{memchr, memchr2};
use serde::de::IgnoredAny;

/// What stands at a position of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A record, from `start` to `end`.
    Record { start: usize, end: usize, next: usize },
    /// A blank line or a null.
    Skipped { next: usize },
    /// White space, commas and brackets between records.
    Nothing { next: usize },
    /// A record whose end is not in the text yet.
    Incomplete,
    /// The file ends inside its array.
    Cut,
    /// The end of the file.
    End,
}

/// The layout of a file, learnt from its start.
#[derive(Debug, Default)]
pub(super) struct Framing {
    layout: Layout,
    /// Lines begun, in a file of lines.
    lines: u64,
}

#[derive(Debug, Default, Clone, Copy)]
enum Layout {
    #[default]
    Unknown,
    Lines,
    Values {
        in_array: bool,
    },
}

impl Framing {
    /// Says what stands at byte `at` of `text`; `ended` when the file holds nothing beyond it.
    pub(super) fn next(&mut self, text: &str, at: usize, ended: bool) -> Frame {
        match self.layout {
            Layout::Unknown => match learn(&text[at..], ended) {
                None => Frame::Incomplete,
                Some(layout) => {
                    self.layout = layout;
                    self.next(text, at, ended)
                }
            },
            Layout::Lines => self.line_at(text, at, ended),
            Layout::Values { in_array } => {
                let (frame, in_array) = value_at(text, at, ended, in_array);
                self.layout = Layout::Values { in_array };
                frame
            }
        }
    }

    /// The 1-based line of the record that was found last, in a file of lines.
    pub(super) fn line(&self) -> Option<u64> {
        matches!(self.layout, Layout::Lines).then_some(self.lines)
    }

    fn line_at(&mut self, text: &str, at: usize, ended: bool) -> Frame {
        let (end, next) = match memchr(b'\n', &text.as_bytes()[at..]) {
            Some(length) => (at + length, at + length + 1),
            None if !ended => return Frame::Incomplete,
            None if at == text.len() => return Frame::End,
            None => (text.len(), text.len()),
        };
        self.lines += 1;
        let line = &text[at..end];
        let blanks = blanks(line);
        let trimmed = line[blanks..].trim_ascii_end();
        if trimmed.is_empty() || trimmed == "null" {
            return Frame::Skipped { next };
        }
        let start = at + blanks;
        Frame::Record { start, end: start + trimmed.len(), next }
    }
}

/// The layout of a file that starts with `text`; `None` when more of it must be seen.
fn learn(text: &str, ended: bool) -> Option<Layout> {
    let start = &text[blanks(text)..];
    let first = match start.as_bytes().first() {
        None if ended => return Some(Layout::Lines),
        None => return None,
        Some(first) => *first,
    };
    if first == b'[' {
        return Some(Layout::Values { in_array: false });
    }
    if first == b'{' && is_followed_at_once(start) {
        return Some(Layout::Values { in_array: false });
    }
    let Some(length) = memchr(b'\n', start.as_bytes()) else {
        return ended.then_some(Layout::Lines);
    };
    let goes_on = serde_json::from_str::<IgnoredAny>(&start[..length]).is_err_and(|error| error.is_eof());
    if first != b'{' || !goes_on {
        return Some(Layout::Lines);
    }
    // A line that was cut is followed by the next record, the first line of a tall object by a key or an end.
    let rest = &start[length..];
    match rest.as_bytes()[blanks(rest)..].first() {
        None if !ended => None,
        None | Some(b'{') => Some(Layout::Lines),
        Some(_) => Some(Layout::Values { in_array: false }),
    }
}

/// The length of the white space that a text begins with. Byte order marks are some: files that were put together to
/// this one began with theirs.
fn blanks(text: &str) -> usize {
    let is_blank = |character: char| character.is_ascii_whitespace() || character == '\u{feff}';
    text.len() - text.trim_start_matches(is_blank).len()
}

/// True when another object follows the first one before a line feed does.
fn is_followed_at_once(text: &str) -> bool {
    let Some(end) = nested_end(text.as_bytes(), 0) else { return false };
    let rest = text[end..].trim_start_matches([' ', '\t', '\r']);
    rest.starts_with('{') && !text[..end].contains('\n')
}

/// The value at byte `at`, and whether the text after it is inside the array of the file.
fn value_at(text: &str, at: usize, ended: bool, in_array: bool) -> (Frame, bool) {
    let bytes = text.as_bytes();
    let start = at + blanks(&text[at..]);
    let Some(first) = bytes.get(start) else {
        let frame = match (ended, in_array) {
            (false, _) => Frame::Incomplete,
            (true, true) => Frame::Cut,
            (true, false) => Frame::End,
        };
        return (frame, in_array);
    };
    match first {
        b'[' if !in_array => return (Frame::Nothing { next: start + 1 }, true),
        b']' if in_array => return (Frame::Nothing { next: start + 1 }, false),
        b',' if in_array => return (Frame::Nothing { next: start + 1 }, true),
        _ => {}
    }
    let end = match first {
        b'{' | b'[' => nested_end(bytes, start),
        b'"' => text_end(bytes, start + 1),
        _ => bare_end(bytes, start, ended),
    };
    let frame = match end {
        Some(end) if &text[start..end] == "null" => Frame::Skipped { next: end },
        Some(end) => Frame::Record { start, end, next: end },
        None if !ended => Frame::Incomplete,
        None if in_array => Frame::Cut,
        None => Frame::Record { start, end: text.trim_ascii_end().len(), next: text.len() },
    };
    (frame, in_array)
}

/// The byte after the bracket that closes the one at `start`.
fn nested_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut position) = (0_usize, start);
    loop {
        match bytes.get(position)? {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(position + 1);
                }
            }
            b'"' => {
                position = text_end(bytes, position + 1)?;
                continue;
            }
            _ => {}
        }
        position += 1;
    }
}

/// The byte after the quote that closes a text whose inside starts at `start`.
fn text_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut position = start;
    loop {
        let at = position + memchr2(b'"', b'\\', bytes.get(position..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => position = at + 2,
        }
    }
}

/// The end of a number, a word or of what is none; at least one character.
fn bare_end(bytes: &[u8], start: usize, ended: bool) -> Option<usize> {
    let stops = |byte: &u8| byte.is_ascii_whitespace() || b",[]{}\"".contains(byte);
    match bytes[start + 1..].iter().position(stops) {
        Some(length) => Some(start + 1 + length),
        None => ended.then_some(bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a text that arrives in two parts.
    fn records(text: &str, seam: usize) -> Option<Vec<&str>> {
        let mut framing = Framing::default();
        let (mut at, mut found, mut held) = (0, Vec::new(), seam);
        loop {
            let ended = held == text.len();
            match framing.next(&text[..held], at, ended) {
                Frame::Record { start, end, next } => {
                    found.push(&text[start..end]);
                    at = next;
                }
                Frame::Skipped { next } | Frame::Nothing { next } => at = next,
                Frame::Incomplete => {
                    assert!(!ended, "incomplete at the end of {text:?}");
                    held = text.len();
                }
                Frame::Cut => return None,
                Frame::End => return Some(found),
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&[&str]>) {
        for seam in 0..=text.len() {
            if text.is_char_boundary(seam) {
                assert_eq!(records(text, seam).as_deref(), expected, "{text:?} cut at {seam}");
            }
        }
    }

    #[test]
    fn lines_are_records() {
        check("{\"a\":1}\n\n null \r\n{\"a\":2}", Some(&["{\"a\":1}", "{\"a\":2}"]));
        check("", Some(&[]));
        check("\n\n", Some(&[]));
        check("{\"a\":1", Some(&["{\"a\":1"]));
        check("junk\n{\"a\":1}\n", Some(&["junk", "{\"a\":1}"]));
    }

    #[test]
    fn byte_order_marks_between_records_are_none_of_them() {
        check("\u{feff}\u{feff}{\"a\":1}\r\n\u{feff}{\"a\":2}\n\u{feff}", Some(&["{\"a\":1}", "{\"a\":2}"]));
        check("[{\"a\":1}]\u{feff}[{\"a\":2}]\u{feff}", Some(&["{\"a\":1}", "{\"a\":2}"]));
        check("{\n\"a\":1}\n\u{feff}{\"a\":2}", Some(&["{\n\"a\":1}", "{\"a\":2}"]));
    }

    #[test]
    fn a_cut_first_line_does_not_swallow_the_next() {
        check("{\"a\":{\"b\":1\n{\"a\":2}\n", Some(&["{\"a\":{\"b\":1", "{\"a\":2}"]));
    }

    #[test]
    fn arrays_and_tall_objects_are_read_by_their_brackets() {
        check("[\n {\"a\":\"]\\\"}\"},\n {\"b\":[{}]}, null\n]\n", Some(&["{\"a\":\"]\\\"}\"}", "{\"b\":[{}]}"]));
        check("[]", Some(&[]));
        check("[{\"a\":1}][{\"a\":2}]", Some(&["{\"a\":1}", "{\"a\":2}"]));
        check("{\n \"a\": 1\n}\n{\n \"a\": 2\n}\n", Some(&["{\n \"a\": 1\n}", "{\n \"a\": 2\n}"]));
        check("{\n}\n{\n \"a\": 2\n", Some(&["{\n}", "{\n \"a\": 2"]));
        check("[1, x] }", Some(&["1", "x", "}"]));
    }

    #[test]
    fn an_array_without_its_end_is_cut() {
        check("[{\"a\":1},{\"a\":2}", None);
        check("[{\"a\":1},{\"a\":", None);
        check("[", None);
    }
}
