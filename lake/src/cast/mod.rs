//! Values into the types of the spec, nothing lost: what does not fit exactly is named, never rounded, cut or turned
//! into null.

mod bytes;
mod format;
mod number;
mod text;
mod time;
mod typed;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use chrono_tz::Tz;

use crate::schema::ColumnType;

pub use self::bytes::{binary_text, bytes_text};
pub use self::format::{TextFormat, cast_format};
pub use self::text::map_text;
pub use self::time::{from_days, from_epoch, is_day, is_moment};
pub use self::typed::widened;
pub use number::boolean;

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

/// Casts a column (text, or the widest form of a typed source) to a column type.
pub fn cast(column: &ArrayRef, kind: ColumnType, rules: Rules) -> Cast {
    match column.data_type() {
        held if *held == kind.arrow() => time::within(column),
        DataType::Utf8 => text::cast(column.as_string(), kind, rules),
        _ => typed::cast(column, kind),
    }
}

#[cfg(test)]
mod tests;
