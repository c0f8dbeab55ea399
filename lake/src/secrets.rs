//! Values that the spec takes from the environment or from files: no message, event or report of this process shows them.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

/// Shorter values are parts of ordinary words, and hide nothing: every message would be made unreadable by them.
const SHORTEST: usize = 6;
/// Members whose texts are names of the spec, which come from its keys and not from its values.
const NAMES: [&str; 9] = ["task", "tasks", "table", "tables", "run_id", "status", "kind", "program", "model"];

/// Values with the reference that stands for each, the longest first.
static HIDDEN: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// Has a value hidden from now on; `reference` stands for it.
pub fn hide(value: &str, reference: &str) {
    if value.chars().count() < SHORTEST {
        return;
    }
    let mut hidden = HIDDEN.write().unwrap_or_else(PoisonError::into_inner);
    if !hidden.iter().any(|(known, _)| known == value) {
        hidden.push((value.to_owned(), reference.to_owned()));
        hidden.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    }
}

/// A text with the references in place of the hidden values.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let hidden = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
    let mut shown = Cow::Borrowed(text);
    for (value, reference) in hidden.iter().filter(|(value, _)| text.contains(value.as_str())) {
        shown = Cow::Owned(shown.replace(value.as_str(), reference));
    }
    shown
}

/// The same for all texts of a JSON value, but for names of tasks and tables.
pub fn redact_json(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = redacted(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_json),
        Value::Object(members) => {
            members
                .iter_mut()
                .filter(|(name, _)| !NAMES.contains(&name.as_str()))
                .for_each(|(_, value)| redact_json(value));
        }
        _ => {}
    }
}

/// Writes what is written to it without the hidden values. A value that comes in two pieces is not found.
#[derive(Debug)]
pub struct Redacting<W>(pub W);

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(redacted(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_values_are_shown_by_their_reference() {
        hide("hunter2-of-secrets", "${PASSWORD}");
        hide("hunter2-of-secrets-and-more", "${LONGER}");
        hide("short", "${SHORT}");
        assert_eq!(redacted("x hunter2-of-secrets-and-more y hunter2-of-secrets"), "x ${LONGER} y ${PASSWORD}");
        assert_eq!(redacted("short"), "short");
        let mut value = json!({"message": ["at hunter2-of-secrets"], "task": "hunter2-of-secrets", "n": 1});
        redact_json(&mut value);
        assert_eq!(value, json!({"message": ["at ${PASSWORD}"], "task": "hunter2-of-secrets", "n": 1}));
        let mut out = Redacting(Vec::new());
        out.write_all(b"key hunter2-of-secrets\n").expect("written");
        assert_eq!(out.0, b"key ${PASSWORD}\n");
    }
}
