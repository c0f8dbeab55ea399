//! One JSON object becomes values by column; nothing of it is kept when it breaks a rule.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::NESTING_MAX;
use super::columns::{Columns, Key};

/// The values of one object. Reused from one to the next.
#[derive(Default)]
pub(super) struct Values<'t> {
    raw: Vec<(usize, &'t str)>,
    decoded: Vec<(usize, Option<Cow<'t, str>>)>,
    unnamed: Option<&'t str>,
}

/// Why a record is not an object that can be a row.
#[derive(Debug)]
pub(super) enum Fault {
    /// It breaks the grammar, or repeats a key.
    Json(serde_json::Error),
    /// It is a value of another kind.
    NotAnObject(&'static str),
    /// A text holds an escape that is no character.
    Text { key: String, error: serde_json::Error },
    /// A value is nested deeper than [`NESTING_MAX`]; this refuses the file.
    Deep { key: String },
}

impl<'t> Values<'t> {
    /// Reads an object; new keys join `columns` only when all of it is right.
    pub(super) fn read(&mut self, text: &'t str, columns: &mut Columns) -> Result<(), Fault> {
        let known = columns.len();
        let result = self.parse(text, columns);
        if result.is_err() {
            columns.forget_after(known);
        }
        result
    }

    /// The values by column; columns that are not in it were absent.
    pub(super) fn by_column(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        self.decoded.iter().map(|(column, value)| (*column, value.as_deref()))
    }

    /// What the columns do not say, as JSON text for the rescued data: the value of the key without a name, and, when
    /// `nulls` are wanted, which keys were there with null.
    pub(super) fn rescued(&self, columns: &Columns, nulls: bool) -> Option<String> {
        let unnamed = self.unnamed.map(|raw| format!("\"\":{raw}"));
        let null = |(column, value): &(usize, Option<Cow<'_, str>>)| {
            (nulls && value.is_none()).then(|| format!("{}:null", serde_json::Value::from(columns.name(*column))))
        };
        let members: Vec<String> = unnamed.into_iter().chain(self.decoded.iter().filter_map(null)).collect();
        (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
    }

    fn parse(&mut self, text: &'t str, columns: &mut Columns) -> Result<(), Fault> {
        self.raw.clear();
        self.decoded.clear();
        self.unnamed = None;
        if let Some(kind) = other_kind(text) {
            return Err(Fault::NotAnObject(kind));
        }
        columns.begin_record();
        let mut json = serde_json::Deserializer::from_str(text);
        Object { values: self, columns }.deserialize(&mut json).and_then(|()| json.end()).map_err(Fault::Json)?;
        for (column, raw) in &self.raw {
            if is_deep(raw) {
                return Err(Fault::Deep { key: columns.name(*column).to_owned() });
            }
            let value = decode(raw).map_err(|error| Fault::Text { key: columns.name(*column).to_owned(), error })?;
            self.decoded.push((*column, value));
        }
        Ok(())
    }
}

impl Fault {
    /// The reason as a sentence; `line` is the line of the file, when the record is one.
    pub(super) fn reason(&self, line: Option<u64>) -> String {
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        match self {
            Self::Json(error) => format!("{place}{}", described(error, line.is_some())),
            Self::NotAnObject(kind) => format!("{place}the record is {kind}, not an object"),
            Self::Text { key, error } => {
                format!("{place}the text of `{key}` cannot be read: {}", described(error, true))
            }
            Self::Deep { key } => {
                format!("{place}the value of `{key}` is nested deeper than {NESTING_MAX} levels, the limit")
            }
        }
    }
}

/// The message of the parser without the line that it counted itself.
fn described(error: &serde_json::Error, one_line: bool) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    match one_line || error.line() == 0 {
        true if error.column() > 0 => format!("{message} (column {})", error.column()),
        true => message.to_owned(),
        false => format!("{message} (line {} of the record, column {})", error.line(), error.column()),
    }
}

fn other_kind(text: &str) -> Option<&'static str> {
    match text.as_bytes().first()? {
        b'[' => Some("an array"),
        b'"' => Some("a text"),
        b't' | b'f' if matches!(text, "true" | "false") => Some("a boolean"),
        b'-' | b'0'..=b'9' if serde_json::from_str::<&RawValue>(text).is_ok() => Some("a number"),
        _ => None,
    }
}

/// True for a value that is nested too deep. Brackets in texts are only told apart when there are many.
fn is_deep(raw: &str) -> bool {
    if !raw.starts_with(['{', '[']) || memchr::memchr2_iter(b'{', b'[', raw.as_bytes()).count() <= NESTING_MAX {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in raw.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return true;
        }
    }
    false
}

/// The record with `NaN`, `Infinity` and `-Infinity`, which are no JSON and which some programs write all the same, as
/// texts; `None` when it has none of them.
pub(super) fn with_quoted_words(record: &str) -> Option<String> {
    const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    let mut fixed = String::new();
    let (mut from, mut at, mut in_text) = (0, 0, false);
    let bytes = record.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'N' | b'I' | b'-' => {
                if let Some(word) = WORDS.into_iter().find(|word| record[at..].starts_with(word)) {
                    fixed.push_str(&record[from..at]);
                    fixed.extend(["\"", word, "\""]);
                    from = at + word.len();
                    at = from - 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    (from > 0).then(|| fixed + &record[from..])
}

/// A text as it reads, everything else as it is written, null as none.
fn decode(raw: &str) -> Result<Option<Cow<'_, str>>, serde_json::Error> {
    match raw.as_bytes() {
        [b'"', inner @ .., b'"'] => match memchr::memchr(b'\\', inner) {
            None => Ok(Some(Cow::Borrowed(&raw[1..raw.len() - 1]))),
            Some(_) => serde_json::from_str::<String>(raw).map(|text| Some(Cow::Owned(text))),
        },
        b"null" => Ok(None),
        _ => Ok(Some(Cow::Borrowed(raw))),
    }
}

// === the parts of an object, read without making a tree of it ===

struct Object<'v, 't> {
    values: &'v mut Values<'t>,
    columns: &'v mut Columns,
}

impl<'t> DeserializeSeed<'t> for Object<'_, 't> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for Object<'_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KeySeed { columns: self.columns })? {
            let raw = map.next_value::<&'t RawValue>()?.get();
            match key {
                Key::Column(column) => self.values.raw.push((column, raw)),
                Key::Unnamed if self.values.unnamed.is_some() => return Err(repeated("")),
                Key::Unnamed => self.values.unnamed = Some(raw),
            }
        }
        Ok(())
    }
}

struct KeySeed<'v> {
    columns: &'v mut Columns,
}

impl<'t> DeserializeSeed<'t> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        self.columns.key(key).ok_or_else(|| repeated(key))
    }
}

fn repeated<E: Error>(key: &str) -> E {
    E::custom(format!("the key `{key}` is repeated"))
}
