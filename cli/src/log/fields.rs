//! What a span or an event says, as JSON values by name.

use std::fmt::Debug;

use lake::secrets;
use serde_json::Value;
use tracing::field::{Field, Visit};

/// A field whose text is JSON already.
const DETAILS: &str = "details";
/// Fields that hold names of the spec's keys and ids, which are no secrets.
const NAMES: [&str; 2] = ["run_id", "task"];

/// Fields in the order in which they were said; a name that comes again replaces its value.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Sets a field; values from the environment are shown by their reference.
    pub(super) fn set(&mut self, name: &'static str, mut value: Value) {
        if !NAMES.contains(&name) {
            secrets::redact_json(&mut value);
        }
        self.put(name, value);
    }

    fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, held)) => *held = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes over what another says.
    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, value)| self.put(name, value.clone()));
    }

    /// The value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Takes a field out.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let position = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(position).1)
    }

    /// Takes the details out: they are for programs.
    pub(super) fn take_details(&mut self) {
        self.take(DETAILS);
    }

    /// All fields.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(&'static str, Value)> {
        self.0.iter()
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        let value = match field.name() == DETAILS {
            true => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            false => Value::String(text),
        };
        self.set(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set(field.name(), u64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }
}
