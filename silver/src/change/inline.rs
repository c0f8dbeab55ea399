//! What an inline schema of Kafka Connect says about the values beside it: which number is a day, which text is the
//! base64 of a decimal. Such a value becomes the text that a person would write; all others stay as they are.

use std::collections::HashMap;

use chrono::DateTime;
use serde::Deserialize;
use serde_json::value::RawValue;

use lake::cast::bytes_text;

use super::json::{Object, text_of};
use crate::written::{base64, unscaled};

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Base64 of the digits, with so many behind the point.
    Decimal(i32),
    /// An object of `scale` and `value`.
    VariableDecimal,
    Days,
    /// A moment, in so many units a second.
    Moment(i64),
    /// A time of day, in so many units a second.
    TimeOfDay(i64),
    /// The base64 of bytes.
    Bytes,
}

/// The meanings of fields by the struct that they are in; a record that is the row itself has none: `""`.
#[derive(Debug, Default)]
pub(super) struct InlineSchema(HashMap<String, HashMap<String, Meaning>>);

#[derive(Deserialize)]
struct Node {
    field: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    #[serde(default)]
    fields: Vec<Node>,
    parameters: Option<HashMap<String, String>>,
}

impl InlineSchema {
    /// Reads a schema; what is none says nothing.
    pub(super) fn read(text: &str) -> Self {
        let Ok(node) = serde_json::from_str::<Node>(text) else { return Self::default() };
        let mut structs = HashMap::from([(String::new(), meanings(&node.fields))]);
        for inner in &node.fields {
            if let Some(field) = &inner.field {
                structs.insert(field.clone(), meanings(&inner.fields));
            }
        }
        Self(structs)
    }

    /// The bytes of field `name` in a struct, as a column of bytes reads them; `None` when the schema does not say that the
    /// value is bytes, or it is no base64.
    pub(super) fn bytes(&self, inside: &[&str], name: &str, value: &RawValue) -> Option<String> {
        let meaning = inside.iter().find_map(|inside| self.0.get(*inside)?.get(name))?;
        let text = text_of(value).ok()??;
        (*meaning == Meaning::Bytes).then(|| base64(&text)).flatten().map(|bytes| bytes_text(&bytes))
    }

    /// A value of field `name` in a struct, as text: `None` when the schema says nothing about it.
    pub(super) fn text(&self, inside: &[&str], name: &str, value: &RawValue) -> Option<String> {
        let meaning = inside.iter().find_map(|inside| self.0.get(*inside)?.get(name))?;
        match meaning {
            Meaning::Decimal(scale) => decimal(&text_of(value).ok()??, *scale),
            Meaning::VariableDecimal => variable_decimal(value),
            // What a column of text holds is the base64 itself.
            Meaning::Bytes => None,
            Meaning::Days => {
                let days: i64 = value.get().parse().ok()?;
                let moment = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?;
                Some(moment.date_naive().format("%Y-%m-%d").to_string())
            }
            Meaning::Moment(units) => {
                let (seconds, nanos) = seconds(value.get().parse().ok()?, *units)?;
                Some(DateTime::from_timestamp(seconds, nanos)?.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string())
            }
            Meaning::TimeOfDay(units) => {
                let (seconds, nanos) = seconds(value.get().parse().ok()?, *units)?;
                let moment = DateTime::from_timestamp(seconds, nanos).filter(|_| (0..86_400).contains(&seconds))?;
                Some(moment.format("%H:%M:%S%.f").to_string())
            }
        }
    }
}

/// A decimal of its own scale, `{"scale":2,"value":"AeJA"}`, as text: it says itself what it is.
pub(super) fn variable_decimal(value: &RawValue) -> Option<String> {
    let object = Object::read(value.get())?;
    let scale = object.get("scale")?.get().parse().ok()?;
    decimal(&text_of(object.get("value")?).ok()??, scale)
}

fn meanings(fields: &[Node]) -> HashMap<String, Meaning> {
    let known = fields.iter().filter_map(|node| Some((node.field.clone()?, meaning(node)?)));
    known.collect()
}

fn meaning(node: &Node) -> Option<Meaning> {
    Some(match node.name.as_deref().unwrap_or_default() {
        "org.apache.kafka.connect.data.Decimal" => {
            Meaning::Decimal(node.parameters.as_ref()?.get("scale")?.parse().ok()?)
        }
        "io.debezium.data.VariableScaleDecimal" => Meaning::VariableDecimal,
        "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => Meaning::Days,
        "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => Meaning::Moment(1_000),
        "io.debezium.time.MicroTimestamp" => Meaning::Moment(1_000_000),
        "io.debezium.time.NanoTimestamp" => Meaning::Moment(1_000_000_000),
        "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => Meaning::TimeOfDay(1_000),
        "io.debezium.time.MicroTime" => Meaning::TimeOfDay(1_000_000),
        "io.debezium.time.NanoTime" => Meaning::TimeOfDay(1_000_000_000),
        _ if node.kind.as_deref() == Some("bytes") => Meaning::Bytes,
        _ => return None,
    })
}

/// The digits behind a base64 text with the point in its place.
fn decimal(text: &str, scale: i32) -> Option<String> {
    let value = unscaled(text).ok()?;
    if scale <= 0 {
        return Some(if scale == 0 { value.to_string() } else { format!("{value}e{}", -scale) });
    }
    let scale = usize::try_from(scale).ok().filter(|scale| *scale <= 76)?;
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    Some(format!("{}{whole}.{fraction}", if value < 0 { "-" } else { "" }))
}

/// Whole seconds and nanoseconds.
fn seconds(value: i64, units: i64) -> Option<(i64, u32)> {
    let nanos = value.rem_euclid(units) * (1_000_000_000 / units);
    Some((value.div_euclid(units), u32::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"struct","fields":[{"field":"after","type":"struct","fields":[
        {"field":"amount","type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}},
        {"field":"any","type":"struct","name":"io.debezium.data.VariableScaleDecimal"},
        {"field":"due","type":"int32","name":"io.debezium.time.Date"},
        {"field":"paid","type":"int64","name":"io.debezium.time.Timestamp"},
        {"field":"made","type":"int64","name":"io.debezium.time.MicroTimestamp"},
        {"field":"fine","type":"int64","name":"io.debezium.time.NanoTimestamp"},
        {"field":"at","type":"int64","name":"io.debezium.time.MicroTime"},
        {"field":"raw","type":"bytes"},{"field":"bits","type":"bytes","name":"io.debezium.data.Bits"},
        {"field":"id","type":"int32"}]}]}"#;

    fn text(name: &str, value: &str) -> Option<String> {
        let value: &RawValue = serde_json::from_str(value).expect("a value");
        InlineSchema::read(SCHEMA).text(&["before", "after"], name, value)
    }

    #[test]
    fn a_value_becomes_the_text_that_its_schema_means() {
        for (name, value, expected) in [
            ("amount", r#""AeJA""#, "1234.56"),
            ("amount", r#""/w==""#, "-0.01"),
            ("amount", r#""AA==""#, "0.00"),
            ("any", r#"{"scale":3,"value":"AeJA"}"#, "123.456"),
            ("any", r#"{"scale":0,"value":"AeJA"}"#, "123456"),
            ("any", r#"{"scale":-2,"value":"AeJA"}"#, "123456e2"),
            ("due", "19844", "2024-05-01"),
            ("due", "-1", "1969-12-31"),
            ("paid", "1714557600007", "2024-05-01T10:00:00.007Z"),
            ("paid", "-1", "1969-12-31T23:59:59.999Z"),
            ("made", "1714557600007042", "2024-05-01T10:00:00.007042Z"),
            ("fine", "1714557600000000001", "2024-05-01T10:00:00.000000001Z"),
            ("at", "36000000001", "10:00:00.000001"),
        ] {
            assert_eq!(text(name, value).as_deref(), Some(expected), "{name} {value}");
        }
    }

    #[test]
    fn bytes_are_behind_their_base64() {
        let bytes = |name: &str, value: &str| {
            let value: &RawValue = serde_json::from_str(value).expect("a value");
            InlineSchema::read(SCHEMA).bytes(&["after"], name, value)
        };
        assert_eq!(bytes("raw", r#""AP8=""#).as_deref(), Some("\\x00ff"));
        assert_eq!(bytes("bits", r#""BQ==""#).as_deref(), Some("\\x05"));
        assert_eq!((bytes("raw", "null"), bytes("raw", r#""AP8""#), bytes("id", r#""AP8=""#)), (None, None, None));
        assert_eq!(text("raw", r#""AP8=""#), None, "a column of text holds the base64");
    }

    #[test]
    fn what_a_schema_does_not_say_or_cannot_mean_is_left_as_it_is() {
        assert_eq!(text("id", "1"), None);
        assert_eq!(text("amount", "null"), None);
        assert_eq!(text("amount", r#""10.00""#), None, "a text of another mode");
        assert_eq!(text("made", "9223372036825200000"), None, "the infinity of Postgres");
        assert_eq!(text("at", "86400000000"), None, "no time of a day");
        assert!(InlineSchema::read("no schema").0.is_empty());
    }
}
