//! A column in the type of the table's, and values that do not fit as JSON text.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, new_null_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field};
use arrow::util::display::array_value_to_string;
use chrono_tz::Tz;
use lake::cast::{Cast, Rules, binary_text, cast};
use lake::schema::ColumnType;
use lake::{Error, Result};

use super::Rescued;

/// A column in the type of the table's; values that the change would harm, or give another meaning, are rescued. Text becomes typed by its
/// meaning where the spec names the type (`hinted`, with the zone of text timestamps), and elsewhere only when the type
/// would write it like that.
///
/// # Errors
/// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when a value cannot be rendered.
pub(super) fn fit(column: &ArrayRef, field: &Field, hinted: Option<Tz>, rescued: &mut Rescued) -> Result<ArrayRef> {
    let target = field.data_type();
    if column.data_type() == target {
        return Ok(ArrayRef::clone(column));
    }
    let is_text = column.data_type() == &DataType::Utf8;
    if hinted.is_none() && !joins(column.data_type(), target) {
        rescue(column, field.name(), rescued)?;
        return Ok(new_null_array(target, column.len()));
    }
    let (fitted, harmed) = match ColumnType::of(target) {
        Some(kind) if !is_text || hinted.is_some() => {
            let Cast { array, bad } = cast(column, kind, Rules { zone: hinted.unwrap_or(Tz::UTC) });
            (array, bad.into_iter().map(|(row, _)| row).collect())
        }
        _ => as_written(column, target)?,
    };
    for row in harmed {
        add_value(column, row, field.name(), rescued)?;
    }
    Ok(fitted)
}

/// Rescues every value of a column that has no place in the table.
///
/// # Errors
/// As [`fit`].
pub(super) fn rescue(column: &ArrayRef, name: &str, rescued: &mut Rescued) -> Result<()> {
    for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
        add_value(column, row, name, rescued)?;
    }
    Ok(())
}

/// Whether values of one type can mean the same in the other: a number is no date and no boolean, and a day is no
/// instant. Text can be anything, and anything can be text.
fn joins(held: &DataType, target: &DataType) -> bool {
    let is_text = |kind: &DataType| kind == &DataType::Utf8;
    is_text(held) || is_text(target) || (held.is_numeric() && target.is_numeric()) || held.equals_datatype(target)
}

/// A value as it is rescued: as text, bytes that are no text as `\x00ff`, so that they are taken for no number.
///
/// # Errors
/// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when it cannot be rendered.
pub(crate) fn rescued_text(column: &ArrayRef, row: usize) -> Result<String> {
    if let Some(bytes) = column.as_binary_opt::<i32>() {
        return Ok(binary_text(bytes.value(row)));
    }
    array_value_to_string(column, row).map_err(|error| Error::internal("a value cannot be rendered").with_source(error))
}

fn add_value(column: &ArrayRef, row: usize, name: &str, rescued: &mut Rescued) -> Result<()> {
    let value = rescued_text(column, row)?;
    let texts = rescued.get_or_insert_with(|| vec![None; column.len()]);
    texts[row] = Some(with_member(texts[row].take(), name, value));
    Ok(())
}

/// Text in another type, with nulls for the values that it would write otherwise, and the rows of those.
fn as_written(column: &ArrayRef, target: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    let all = || (0..column.len()).filter(|row| column.is_valid(*row)).collect();
    if !can_cast_types(column.data_type(), target) || !can_cast_types(target, column.data_type()) {
        return Ok((new_null_array(target, column.len()), all()));
    }
    let failed = |error| Error::internal("a column cannot change its type").with_source(error);
    let options = CastOptions::default();
    let there = cast_with_options(column, target, &options).map_err(failed)?;
    let back = cast_with_options(&there, column.data_type(), &options).map_err(failed)?;
    let Some((before, after)) = column.as_string_opt::<i32>().zip(back.as_string_opt::<i32>()) else {
        return Ok((new_null_array(target, column.len()), all()));
    };
    let same = |row: usize| plain_number(before.value(row)) == plain_number(after.value(row));
    let harmed: Vec<usize> =
        (0..column.len()).filter(|row| before.is_valid(*row) && !(after.is_valid(*row) && same(*row))).collect();
    if harmed.is_empty() {
        return Ok((there, harmed));
    }
    let mut mask = vec![false; column.len()];
    harmed.iter().for_each(|row| mask[*row] = true);
    Ok((arrow::compute::nullif(&there, &BooleanArray::from(mask)).map_err(failed)?, harmed))
}

/// Texts of numbers may come back with other zeros at the end of the fraction.
fn plain_number(text: &str) -> &str {
    match text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte)) {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// A JSON object, which may be there already, with one more member. What is there stays as it is written.
pub(crate) fn with_member(object: Option<String>, name: &str, value: String) -> String {
    let (name, value) = (serde_json::Value::String(name.to_owned()), serde_json::Value::String(value));
    match object.as_deref().and_then(|object| object.strip_suffix('}')) {
        Some(open) if open.len() > 1 => format!("{open},{name}:{value}}}"),
        _ => format!("{{{name}:{value}}}"),
    }
}
