//! Debezium's events of MongoDB: documents are texts of extended JSON, and a delete has its key in the key of the Kafka
//! record alone. `after` becomes plain JSON, and `key` the document `{"_id": …}` of the key.

use std::borrow::Cow;

use arrow::array::{RecordBatch, StringArray};
use chrono::DateTime;
use lake::Result;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::json::{Object, text_of};
use super::{Prepare, Prepared, text, texts, with_columns};

pub(super) const COLUMNS: &[&str] = &["key", "after", "before", "op", "source"];

/// Takes envelopes apart, with and without a Kafka record or a schema around them.
pub(super) fn plain(batch: &RecordBatch) -> Result<Prepared> {
    let around = [texts(batch, "value")?, texts(batch, "payload")?];
    let mut own = Vec::new();
    for name in COLUMNS {
        own.push(texts(batch, name)?);
    }
    let mut made: Vec<Vec<Option<String>>> = vec![Vec::with_capacity(batch.num_rows()); COLUMNS.len()];
    let mut nothing = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let envelope = around.iter().find_map(|column| unwrapped(text(column.as_ref(), row)?));
        let member = |place: usize| -> Option<Cow<'_, str>> {
            match &envelope {
                Some(envelope) => text_of(envelope.get(COLUMNS[place])?).ok()?,
                None => text(own[place].as_ref(), row).map(Cow::Borrowed),
            }
        };
        let (after, before) = (member(1).map(|text| document(&text)), member(2).map(|text| document(&text)));
        let key = text(own[0].as_ref(), row).and_then(key).or_else(|| id_of(before.as_deref()?));
        nothing.push(after.is_none() && before.is_none() && member(3).is_none());
        let values = [key, after, before, member(3).map(Cow::into_owned), member(4).map(Cow::into_owned)];
        made.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    let made = COLUMNS.iter().zip(made).map(|(name, column)| (*name, StringArray::from(column))).collect();
    let batch = with_columns(batch, None, Prepare::Documents, made)?;
    Ok(Prepared { nothing, ..Prepared::as_it_is(batch) })
}

/// An object, or the payload in it.
fn unwrapped(text: &str) -> Option<Object<'_>> {
    let object = Object::read(text)?;
    let payload = object.get("payload").and_then(|payload| Object::read(payload.get()));
    Some(payload.unwrap_or(object))
}

/// The document of the key of a Kafka record, whose `id` is a text of extended JSON.
fn key(text: &str) -> Option<String> {
    let id = unwrapped(text)?.get("id").map(text_of)?.ok()??.into_owned();
    let id = match serde_json::from_str::<&RawValue>(&id) {
        Ok(value) => plain_value(value),
        Err(_) => Value::from(id).to_string(),
    };
    Some(format!("{{\"_id\":{id}}}"))
}

fn id_of(document: &str) -> Option<String> {
    Some(format!("{{\"_id\":{}}}", Object::read(document)?.get("_id")?.get()))
}

/// A document of extended JSON as plain JSON; what is no JSON stays as it is.
fn document(text: &str) -> String {
    serde_json::from_str::<&RawValue>(text).map_or_else(|_| text.to_owned(), plain_value)
}

/// A value of extended JSON, canonical or relaxed, as plain JSON; numbers keep their digits.
/// <https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md>
fn plain_value(value: &RawValue) -> String {
    let raw = value.get();
    if let Some(object) = Object::read(raw) {
        if let Some(value) = wrapped(&object) {
            return value;
        }
        let member = |(name, value): (&str, &RawValue)| format!("{}:{}", Value::from(name), plain_value(value));
        return format!("{{{}}}", object.members().map(member).collect::<Vec<_>>().join(","));
    }
    match serde_json::from_str::<Vec<&RawValue>>(raw) {
        Ok(array) => format!("[{}]", array.into_iter().map(plain_value).collect::<Vec<_>>().join(",")),
        Err(_) => raw.to_owned(),
    }
}

/// The value of an object that stands for one, such as `{"$numberLong":"1"}`.
fn wrapped(object: &Object<'_>) -> Option<String> {
    let mut members = object.members();
    let (name, value) = members.next().filter(|(name, _)| name.starts_with('$'))?;
    if members.next().is_some() {
        return None;
    }
    let text = || text_of(value).ok().flatten().map(Cow::into_owned);
    Some(match name {
        "$numberInt" | "$numberLong" | "$numberDouble" => {
            let text = text()?;
            // Not a number, and the infinities.
            if text.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
                text
            } else {
                Value::from(text).to_string()
            }
        }
        "$numberDecimal" | "$oid" | "$uuid" | "$symbol" => Value::from(text()?).to_string(),
        "$undefined" => "null".to_owned(),
        "$binary" => match Object::read(value.get()) {
            Some(binary) => binary.get("base64")?.get().to_owned(),
            None => Value::from(text()?).to_string(),
        },
        "$date" => {
            let inner = plain_value(value);
            match inner.parse::<i64>().ok().and_then(DateTime::from_timestamp_millis) {
                Some(at) => Value::from(at.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string()).to_string(),
                None => inner,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_json_becomes_plain() {
        for (extended, plain) in [
            (r#"{"_id": {"$numberLong": "9007199254740993"}, "s": "new"}"#, r#"{"_id":9007199254740993,"s":"new"}"#),
            (r#"{"a": {"$numberDecimal": "10.50"}}"#, r#"{"a":"10.50"}"#),
            (r#"{"a": {"$numberDouble": "NaN"}, "b": {"$numberDouble": "1.0"}}"#, r#"{"a":"NaN","b":1.0}"#),
            (r#"{"a": {"$date": {"$numberLong": "1714557600007"}}}"#, r#"{"a":"2024-05-01T10:00:00.007Z"}"#),
            (
                r#"{"a": {"$date": 0}, "b": {"$date": "2024-05-01T10:00:00Z"}}"#,
                r#"{"a":"1970-01-01T00:00:00Z","b":"2024-05-01T10:00:00Z"}"#,
            ),
            (
                r#"{"a": {"$oid": "596e"}, "b": [{"$numberInt": "1"}, {"x": {"$undefined": true}}]}"#,
                r#"{"a":"596e","b":[1,{"x":null}]}"#,
            ),
            (r#"{"a": {"$binary": {"base64": "AAEC", "subType": "00"}}}"#, r#"{"a":"AAEC"}"#),
            (
                r#"{"a": {"$timestamp": {"t": 1, "i": 2}}, "b": 12345678901234567890.10}"#,
                r#"{"a":{"$timestamp":{"t":1,"i":2}},"b":12345678901234567890.10}"#,
            ),
        ] {
            assert_eq!(document(extended), plain);
        }
        assert_eq!(document("no JSON"), "no JSON");
    }

    #[test]
    fn a_key_is_the_document_of_its_id() {
        assert_eq!(key(r#"{"id":"1"}"#).as_deref(), Some(r#"{"_id":1}"#));
        assert_eq!(key(r#"{"schema":null,"payload":{"id":"\"a\""}}"#).as_deref(), Some(r#"{"_id":"a"}"#));
        assert_eq!(key(r#"{"id":"{\"$oid\":\"596e\"}"}"#).as_deref(), Some(r#"{"_id":"596e"}"#));
        assert_eq!(key(r#"{"id":"a b"}"#).as_deref(), Some(r#"{"_id":"a b"}"#));
        assert_eq!(key("{}"), None);
    }
}
