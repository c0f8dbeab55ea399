//! The typed parts of a sequence: what they are called, how they are stored so that they compare as what they are.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::datatypes::DataType;
use lake::cast::{Cast, Rules, cast, from_epoch, map_text};
use lake::columns;
use lake::schema::ColumnType;

/// The type of one part of `sequence_by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceType {
    /// A value of a column type that has an order.
    Plain(ColumnType),
    /// Milliseconds since the epoch, a moment.
    TimestampMillis,
    /// Microseconds since the epoch, a moment.
    TimestampMicros,
    /// Dotted numbers compared part by part: `000007.98` < `000007.1024`.
    Version,
    /// A binlog file compared by its number: `mysql-bin.000009` < `mysql-bin.000010`.
    BinlogFile,
    /// A position in a log in hexadecimal, compared part by part: `0x…`, `00000027:00000758:0005`, `16/B374D848`, bytes.
    Lsn,
}

/// The names of sequence types, for hints.
pub const SEQUENCE_TYPE_NAMES: &[&str] = &[
    "bigint",
    "decimal(p,s)",
    "timestamp",
    "timestamp_ms",
    "timestamp_us",
    "date",
    "string",
    "version",
    "binlog_file",
    "lsn",
];

impl SequenceType {
    /// The Arrow type of the column of silver that holds the part.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Plain(kind) => kind.arrow(),
            Self::TimestampMillis | Self::TimestampMicros => columns::timestamp_type(),
            Self::Version | Self::BinlogFile | Self::Lsn => DataType::Utf8,
        }
    }
}

impl FromStr for SequenceType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "timestamp_ms" => Self::TimestampMillis,
            "timestamp_us" => Self::TimestampMicros,
            "version" => Self::Version,
            "binlog_file" => Self::BinlogFile,
            "lsn" => Self::Lsn,
            other => {
                let kind: ColumnType = other.parse()?;
                let ordered = matches!(
                    kind,
                    ColumnType::Bigint
                        | ColumnType::Int
                        | ColumnType::Smallint
                        | ColumnType::Tinyint
                        | ColumnType::Decimal(..)
                        | ColumnType::Timestamp
                        | ColumnType::Date
                        | ColumnType::String
                );
                if !ordered {
                    return Err(format!("`{other}` cannot order changes"));
                }
                Self::Plain(kind)
            }
        })
    }
}

impl fmt::Display for SequenceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(kind) => kind.fmt(f),
            Self::TimestampMillis => f.write_str("timestamp_ms"),
            Self::TimestampMicros => f.write_str("timestamp_us"),
            Self::Version => f.write_str("version"),
            Self::BinlogFile => f.write_str("binlog_file"),
            Self::Lsn => f.write_str("lsn"),
        }
    }
}

/// Casts a bronze column to a part of a sequence, in the form in which it is stored and compared.
pub fn cast_sequence(column: &ArrayRef, kind: SequenceType, rules: Rules) -> Cast {
    let as_text = |column: &ArrayRef, key: fn(&str) -> Result<String, String>| {
        let Cast { array, mut bad } = cast(column, ColumnType::String, rules);
        let keys = map_text(array.as_string(), key);
        bad.extend(keys.bad);
        Cast { array: keys.array, bad }
    };
    match kind {
        SequenceType::Plain(kind) => cast(column, kind, rules),
        SequenceType::TimestampMillis => from_epoch(&cast(column, ColumnType::Bigint, rules), 1_000),
        SequenceType::TimestampMicros => from_epoch(&cast(column, ColumnType::Bigint, rules), 1),
        SequenceType::Lsn => match column.data_type() {
            DataType::Binary => as_text(&hex(column.as_binary()), lsn_key),
            _ => as_text(column, lsn_key),
        },
        SequenceType::Version => as_text(column, version_key),
        SequenceType::BinlogFile => as_text(column, binlog_key),
    }
}

/// Writes dotted numbers so that their texts compare as the numbers do, part by part: each part is its number of
/// digits in two places, then its digits. A shorter version comes before a longer one that begins with it.
///
/// # Errors
/// A sentence when a part is not a number, or has more than 99 digits.
pub fn version_key(text: &str) -> Result<String, String> {
    let mut key = String::with_capacity(text.len() + 8);
    for (number, part) in text.trim().split('.').enumerate() {
        if number > 0 {
            key.push('.');
        }
        push_number(&mut key, part).ok_or_else(|| format!("`{text}` is not a version of dotted numbers"))?;
    }
    Ok(key)
}

/// Writes the name of a binlog file so that texts compare by the file's number first.
///
/// # Errors
/// A sentence when the name does not end in `.NUMBER`.
pub fn binlog_key(text: &str) -> Result<String, String> {
    let (name, number) =
        text.trim().rsplit_once('.').ok_or_else(|| format!("`{text}` is not a binlog file: it has no number"))?;
    let mut key = String::with_capacity(text.len() + 4);
    push_number(&mut key, number).ok_or_else(|| format!("`{text}` is not a binlog file: it has no number"))?;
    key.push(' ');
    key.push_str(name);
    Ok(key)
}

/// Writes a position in a log so that texts compare as the numbers do that its parts are in hexadecimal. Decimal numbers
/// alone compare right as well: of two the longer is the larger, and of one length the digits decide.
///
/// # Errors
/// A sentence when a part is no hexadecimal number, or has more than 99 digits.
pub fn lsn_key(text: &str) -> Result<String, String> {
    let digits = text.trim();
    // A number that passed through a float.
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    let digits = ["0x", "0X", "\\x"].iter().find_map(|start| digits.strip_prefix(start)).unwrap_or(digits);
    let mut key = String::with_capacity(digits.len() + 8);
    for (number, part) in digits.split([':', '/', '-']).enumerate() {
        if number > 0 {
            key.push('.');
        }
        let part = part.to_ascii_lowercase();
        push_digits(&mut key, &part, |byte| byte.is_ascii_hexdigit())
            .ok_or_else(|| format!("`{text}` is not a position in a log: it is not hexadecimal"))?;
    }
    Ok(key)
}

fn hex(bytes: &BinaryArray) -> ArrayRef {
    let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Arc::new(bytes.iter().map(|bytes| bytes.map(text)).collect::<StringArray>())
}

fn push_number(key: &mut String, digits: &str) -> Option<()> {
    push_digits(key, digits, |byte| byte.is_ascii_digit())
}

/// How many digits there are without leading zeros, in two places, then these.
fn push_digits(key: &mut String, digits: &str, is_digit: impl Fn(&u8) -> bool) -> Option<()> {
    if digits.is_empty() || !digits.as_bytes().iter().all(is_digit) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    let significant = if significant.is_empty() { "0" } else { significant };
    if significant.len() > 99 {
        return None;
    }
    key.push_str(&format!("{:02}{significant}", significant.len()));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_part_by_part() {
        let key = |text: &str| version_key(text).expect("a version");
        assert!(key("000007.98") < key("000007.1024"));
        assert!(key("9") < key("10"));
        assert!(key("7") < key("7.0"));
        assert!(key("7.5") < key("8"));
        assert_eq!(key("007.01"), key("7.1"));
        assert!(version_key("7.x").is_err());
        assert!(version_key("7..1").is_err());
    }

    #[test]
    fn positions_compare_as_hexadecimal_numbers() {
        let key = |text: &str| lsn_key(text).expect("a position");
        assert!(key("0x00000027000007580005") < key("0x0000002700000758000A"));
        assert_eq!(key("0x000B"), key("000b"));
        assert_eq!(key("\\x000b"), key("000b"), "bytes inside of a record");
        assert!(key("00000027:00000758:0005") < key("00000027:00000758:0010"));
        assert!(key("9/FF000000") < key("10/00000001"));
        assert!(key("999") < key("1000"));
        assert!(lsn_key("AAAAJwAAB1gABQ==").is_err() && lsn_key("").is_err());
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[0, 0xff][..], &[1, 0][..]]));
        let cast = cast_sequence(&bytes, SequenceType::Lsn, Rules { zone: chrono_tz::Tz::UTC });
        let keys = cast.array.as_string::<i32>();
        assert!(cast.bad.is_empty() && keys.value(0) < keys.value(1));
    }

    #[test]
    fn binlog_files_compare_by_their_number() {
        let key = |text: &str| binlog_key(text).expect("a file");
        assert!(key("mysql-bin.999999") < key("mysql-bin.1000000"));
        assert!(key("b.000009") < key("a.000010"));
        assert!(binlog_key("mysql-bin").is_err());
    }

    #[test]
    fn a_type_without_an_order_is_refused() {
        assert!("boolean".parse::<SequenceType>().is_err());
        assert_eq!("decimal(38,0)".parse::<SequenceType>().expect("a type").to_string(), "decimal(38,0)");
    }

    #[test]
    fn sequences_in_milliseconds_are_moments() {
        use arrow::array::StringArray;
        use arrow::datatypes::TimestampMicrosecondType;
        let column: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["1714557600000", "x"]));
        let utc = Rules { zone: chrono_tz::Tz::UTC };
        let Cast { array, bad } = cast_sequence(&column, SequenceType::TimestampMillis, utc);
        assert_eq!(array.as_primitive::<TimestampMicrosecondType>().value(0), 1_714_557_600_000_000);
        assert_eq!(bad.len(), 1);
    }
}
