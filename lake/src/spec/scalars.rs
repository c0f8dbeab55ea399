//! Values that the spec writes as text with a unit: durations and sizes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The JSON Schema format of a [`Duration`].
pub(super) const DURATION_FORMAT: &str = "duration";
/// The JSON Schema format of a [`ByteSize`].
pub(super) const SIZE_FORMAT: &str = "byte-size";

/// A length of time, to the millisecond: `250ms`, `2s`, `30m`, `1h`, `30 days`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    millis: u64,
}

/// An amount of bytes: `100MiB` (1024 based), `500MB` (1000 based), `1024`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize {
    bytes: u64,
}

/// Unit names and milliseconds each; the first name of a length is the one that is printed.
const DURATION_UNITS: &[(&str, u64)] = &[
    ("days", 86_400_000),
    ("day", 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("hours", 3_600_000),
    ("hour", 3_600_000),
    ("m", 60_000),
    ("min", 60_000),
    ("minutes", 60_000),
    ("minute", 60_000),
    ("s", 1_000),
    ("seconds", 1_000),
    ("second", 1_000),
    ("ms", 1),
    ("milliseconds", 1),
    ("weeks", 604_800_000),
    ("week", 604_800_000),
];

/// Unit names and bytes each; powers of 1024 first, largest first.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
    ("", 1),
];

impl Duration {
    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self { millis: seconds * 1_000 }
    }

    /// So many days of 24 hours.
    pub const fn from_days(days: u64) -> Self {
        Self { millis: days * 86_400_000 }
    }

    /// The length in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// The length in whole days of 24 hours, rounded down.
    pub const fn as_days(self) -> u64 {
        self.millis / 86_400_000
    }

    /// The length for the standard library.
    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.millis)
    }
}

impl ByteSize {
    /// So many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self { bytes }
    }

    /// So many units of 1024 × 1024 bytes.
    pub const fn from_mib(mebibytes: u64) -> Self {
        Self { bytes: mebibytes << 20 }
    }

    /// So many units of 1024 × 1024 × 1024 bytes.
    pub const fn from_gib(gibibytes: u64) -> Self {
        Self { bytes: gibibytes << 30 }
    }

    /// The amount in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.bytes
    }
}

// === text ===

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = split(text);
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a duration such as `2s` or `7 days`"))?;
        let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| match unit {
            "" => format!("`{text}` has no unit: write `{text}s`, `{text}m`, `{text}h` or `{text} days`"),
            unit => format!("`{unit}` is not a unit of time: ms, s, m, h, days"),
        })?;
        let millis = number.checked_mul(*millis).ok_or_else(|| format!("`{text}` is too long"))?;
        Ok(Self { millis })
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = split(text);
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size such as `100MiB` or `4GiB`"))?;
        let (_, bytes) = SIZE_UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(|| format!("`{unit}` is not a unit of size: KiB, MiB, GiB, TiB, KB, MB, GB, TB"))?;
        let bytes = number.checked_mul(*bytes).ok_or_else(|| format!("`{text}` is too large"))?;
        Ok(Self { bytes })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = [("days", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
            .into_iter()
            .find(|(_, size)| self.millis >= *size && self.millis.is_multiple_of(*size))
            .unwrap_or(("ms", 1));
        match (unit, self.millis / size) {
            ("days", 1) => f.write_str("1 day"),
            ("days", days) => write!(f, "{days} days"),
            ("ms", 0) => f.write_str("0s"),
            (unit, number) => write!(f, "{number}{unit}"),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = SIZE_UNITS
            .iter()
            .filter(|(name, _)| name.ends_with("iB"))
            .find(|(_, size)| self.bytes >= *size && self.bytes.is_multiple_of(*size))
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.bytes / size)
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

// === serde and schema ===

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": DURATION_FORMAT, "examples": ["2s", "30m", "7 days"]})
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as `100MiB`")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize { bytes })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "format": SIZE_FORMAT, "minimum": 0, "examples": ["100MiB", "4GiB"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let millis = |text: &str| text.parse::<Duration>().map(Duration::as_millis);
        assert_eq!(millis("250ms"), Ok(250));
        assert_eq!(millis("2s"), Ok(2_000));
        assert_eq!(millis("30m"), Ok(1_800_000));
        assert_eq!(millis("7 days"), Ok(604_800_000));
        assert_eq!(millis("168 hours"), millis("7 days"));
        assert_eq!(millis("2"), Err("`2` has no unit: write `2s`, `2m`, `2h` or `2 days`".to_owned()));
        assert_eq!(millis("2 moons"), Err("`moons` is not a unit of time: ms, s, m, h, days".to_owned()));
        assert_eq!(millis("soon"), Err("`soon` is not a duration such as `2s` or `7 days`".to_owned()));
        assert!(millis("99999999999999999999 days").is_err());
        assert!(millis("9999999999999999 days").is_err());
        for text in ["250ms", "2s", "90m", "1h", "1 day", "30 days", "0s"] {
            assert_eq!(text.parse::<Duration>().expect("a duration").to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        let bytes = |text: &str| text.parse::<ByteSize>().map(ByteSize::as_bytes);
        assert_eq!(bytes("100MiB"), Ok(104_857_600));
        assert_eq!(bytes("4 GiB"), Ok(4_294_967_296));
        assert_eq!(bytes("500MB"), Ok(500_000_000));
        assert_eq!(bytes("1024"), Ok(1024));
        assert_eq!(bytes("4 gigs"), Err("`gigs` is not a unit of size: KiB, MiB, GiB, TiB, KB, MB, GB, TB".to_owned()));
        assert!(bytes("-1").is_err());
        assert_eq!(ByteSize::from_mib(100).to_string(), "100MiB");
        assert_eq!(ByteSize::from_bytes(1_000).to_string(), "1000B");
        assert_eq!(serde_yaml::from_str::<ByteSize>("1024").expect("a size"), ByteSize::from_bytes(1024));
        assert_eq!(serde_yaml::from_str::<ByteSize>("10GiB").expect("a size"), ByteSize::from_gib(10));
    }
}
