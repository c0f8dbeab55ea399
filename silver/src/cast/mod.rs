//! Values of bronze into the types of silver, nothing lost: what does not fit exactly is named, never rounded, cut or
//! turned into null.

mod number;
mod text;
mod time;
mod typed;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use chrono_tz::Tz;
use lake::schema::ColumnType;

use crate::sequence::SequenceType;

/// What text means where the text alone does not say.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The zone of text timestamps without an offset.
    pub zone: Tz,
}

/// A column in its new type, and the rows whose value did not fit: they are null in `array`.
#[derive(Debug)]
pub struct Cast {
    /// The values.
    pub array: ArrayRef,
    /// Row number in the batch and the reason, rising.
    pub bad: Vec<(usize, String)>,
}

/// Casts a bronze column (text, or the widest form of a typed source) to a column type.
pub fn cast(column: &ArrayRef, kind: ColumnType, rules: Rules) -> Cast {
    match column.data_type() {
        held if *held == kind.arrow() => Cast { array: ArrayRef::clone(column), bad: Vec::new() },
        DataType::Utf8 => text::cast(column.as_string(), kind, rules),
        _ => typed::cast(column, kind),
    }
}

/// Casts a bronze column to a part of a sequence, in the form in which it is stored and compared.
pub fn cast_sequence(column: &ArrayRef, kind: SequenceType, rules: Rules) -> Cast {
    let as_text = |column: &ArrayRef, key: fn(&str) -> Result<String, String>| {
        let Cast { array, mut bad } = cast(column, ColumnType::String, rules);
        let keys = text::map_text(array.as_string(), key);
        bad.extend(keys.bad);
        Cast { array: keys.array, bad }
    };
    match kind {
        SequenceType::Plain(kind) => cast(column, kind, rules),
        SequenceType::TimestampMillis => time::from_epoch(&cast(column, ColumnType::Bigint, rules), 1_000),
        SequenceType::TimestampMicros => time::from_epoch(&cast(column, ColumnType::Bigint, rules), 1),
        SequenceType::Version => as_text(column, crate::sequence::version_key),
        SequenceType::BinlogFile => as_text(column, crate::sequence::binlog_key),
    }
}

#[cfg(test)]
mod tests;
