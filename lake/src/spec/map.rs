//! A map that keeps the order of the file, for what the spec orders by writing it: the columns of a table.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Names with their values, in the order of the file, each name once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<T>(Vec<(String, T)>);

impl<T> Map<T> {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// True when the name is there.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and values in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Names in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Values in the order of the file.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> IntoIterator for Map<T> {
    type Item = (String, T);
    type IntoIter = std::vec::IntoIter<(String, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<N: Into<String>, T> FromIterator<(N, T)> for Map<T> {
    /// Keeps the first of two equal names.
    fn from_iter<I: IntoIterator<Item = (N, T)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (name, value) in pairs {
            let name = name.into();
            if !map.contains_key(&name) {
                map.0.push((name, value));
            }
        }
        map
    }
}

// === serde and schema ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Map<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for MapVisitor<T> {
    type Value = Map<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Map<T>, A::Error> {
        let mut map = Map::default();
        while let Some((name, value)) = access.next_entry::<String, T>()? {
            if map.contains_key(&name) {
                return Err(de::Error::custom(format!("duplicate key `{name}`")));
            }
            map.0.push((name, value));
        }
        Ok(map)
    }
}

impl<T: Serialize> Serialize for Map<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<T: JsonSchema> JsonSchema for Map<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        std::collections::BTreeMap::<String, T>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_file_is_kept() {
        let map: Map<String> = serde_yaml::from_str("zebra: bigint\napple: string\n").expect("a map");
        assert_eq!(map.keys().collect::<Vec<_>>(), ["zebra", "apple"]);
        assert_eq!(map.get("apple").map(String::as_str), Some("string"));
        assert_eq!(serde_yaml::to_string(&map).expect("text"), "zebra: bigint\napple: string\n");
    }
}
