//! The members of JSON objects without copying what they hold; numbers keep their digits.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order; of a repeated name the last counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Object<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

impl<'t> Object<'t> {
    /// Reads an object; `None` when the text is something else.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        if !text.trim_ascii_start().starts_with('{') {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// A member by its exact name, else without regard to case.
    pub(super) fn get(&self, name: &str) -> Option<&'t RawValue> {
        let members = || self.0.iter().rev();
        let exact = members().find(|(key, _)| key == name);
        exact.or_else(|| members().find(|(key, _)| key.eq_ignore_ascii_case(name))).map(|(_, value)| *value)
    }

    /// A name that comes twice: what it means is not told. Of names that differ in case the exact one counts.
    pub(super) fn repeated(&self) -> Option<&str> {
        /// As many names are compared with one another; more are put in a set.
        const FEW: usize = 32;
        let names = || self.0.iter().map(|(name, _)| name.as_ref());
        if self.0.len() <= FEW {
            let is_known = |at: usize, name: &str| self.0[..at].iter().any(|(known, _)| known == name);
            return names().enumerate().find(|(at, name)| is_known(*at, name)).map(|(_, name)| name);
        }
        let mut known = HashSet::with_capacity(self.0.len());
        names().find(|name| !known.insert(*name))
    }

    /// The members in their order.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &'t RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// A member by its name, or by a path with dots where no member has the whole name.
    pub(super) fn walk(&self, path: &str) -> Option<&'t RawValue> {
        if let Some(value) = self.get(path) {
            return Some(value);
        }
        let (first, rest) = path.split_once('.')?;
        Object::read(self.get(first)?.get())?.walk(rest)
    }
}

/// A value as bronze would hold it in a column of text: `None` is null, a text is without its quotes, all else is as
/// it is written.
///
/// # Errors
/// A sentence when a text holds an escape that is no character.
pub(super) fn text_of(value: &RawValue) -> Result<Option<Cow<'_, str>>, String> {
    let raw = value.get();
    match raw.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => match raw[1..].strip_suffix('"').filter(|inner| !inner.contains('\\')) {
            Some(inner) => Ok(Some(Cow::Borrowed(inner))),
            None => serde_json::from_str::<String>(raw)
                .map(|text| Some(Cow::Owned(text)))
                .map_err(|error| format!("{raw} is no text: {error}")),
        },
        _ => Ok(Some(Cow::Borrowed(raw))),
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key_seed(Name)? {
            members.push((name, map.next_value()?));
        }
        Ok(Object(members))
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(object: &str, path: &str) -> Option<String> {
        let object = Object::read(object).expect("an object");
        object.walk(path).and_then(|value| text_of(value).expect("a value").map(Cow::into_owned))
    }

    #[test]
    fn values_keep_their_digits_and_texts_lose_their_quotes() {
        let object = r#"{"n":12345678901234567890.10,"t":"a\"\u00e9","o":{"x":[1, 2]},"no":null,"b":true}"#;
        assert_eq!(text(object, "n").as_deref(), Some("12345678901234567890.10"));
        assert_eq!(text(object, "t").as_deref(), Some("a\"é"));
        assert_eq!(text(object, "o").as_deref(), Some(r#"{"x":[1, 2]}"#));
        assert_eq!(text(object, "o.x").as_deref(), Some("[1, 2]"));
        assert_eq!((text(object, "no"), text(object, "absent")), (None, None));
        assert!(Object::read(object).expect("an object").walk("no").is_some(), "null is there, absent is not");
        assert_eq!(text(object, "b").as_deref(), Some("true"));
    }

    #[test]
    fn an_exact_name_wins_over_a_path_and_over_another_case() {
        let object = r#"{"a":{"b":1},"a.b":2,"ID":3,"id":4,"Key":5}"#;
        assert_eq!(text(object, "a.b").as_deref(), Some("2"));
        assert_eq!((text(object, "id").as_deref(), text(object, "key").as_deref()), (Some("4"), Some("5")));
        assert!(Object::read("[1]").is_none() && Object::read("{").is_none());
    }

    #[test]
    fn a_name_that_comes_twice_is_found() {
        let repeated = |text: &str| Object::read(text).expect("an object").repeated().map(str::to_owned);
        assert_eq!(repeated(r#"{"id":1,"v":"a","v":"b"}"#).as_deref(), Some("v"));
        assert_eq!(repeated(r#"{"id":1,"V":"a","v":"b"}"#), None, "two names");
        assert_eq!(repeated(r#"{"id":1,"v":{"v":1},"w":[{"v":1}]}"#), None);
        let many: Vec<String> = (0..100).map(|number| format!("\"c{number}\":1")).collect();
        assert_eq!(repeated(&format!("{{{}}}", many.join(","))), None);
        assert_eq!(repeated(&format!("{{{},\"c7\":1}}", many.join(","))).as_deref(), Some("c7"));
    }

    #[test]
    fn an_escape_that_is_no_character_is_an_error() {
        let object = Object::read(r#"{"t":"\ud800"}"#).expect("an object");
        assert!(text_of(object.get("t").expect("a member")).is_err());
    }
}
