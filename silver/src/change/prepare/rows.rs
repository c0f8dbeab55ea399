//! Messages of Canal: `data` is an array of rows, `old` one of what changed in each. Every row is a change.

use arrow::array::{RecordBatch, StringArray};
use lake::Result;
use serde_json::value::RawValue;

use super::{Prepare, Prepared, text, texts, with_columns};

pub(super) const COLUMNS: &[&str] = &["data", "old"];

/// Takes messages apart. A message without rows stays one record.
pub(super) fn apart(batch: &RecordBatch) -> Result<Prepared> {
    let (data, old) = (texts(batch, "data")?, texts(batch, "old")?);
    let (mut origins, mut numbers) = (Vec::new(), Vec::new());
    let (mut rows, mut olds): (Vec<Option<String>>, Vec<Option<String>>) = (Vec::new(), Vec::new());
    for record in 0..batch.num_rows() {
        let elements = elements(text(data.as_ref(), record));
        let before = text(old.as_ref(), record).map(|text| self::elements(Some(text))).unwrap_or_default();
        for (number, row) in elements.into_iter().enumerate() {
            origins.push(record);
            numbers.push(i32::try_from(number).unwrap_or(i32::MAX));
            rows.push(row);
            olds.push(before.get(number).cloned().flatten());
        }
    }
    let made = vec![("data", StringArray::from(rows)), ("old", StringArray::from(olds))];
    let batch = with_columns(batch, Some(&origins), Prepare::RowArrays, made)?;
    Ok(Prepared { batch, origins: Some(origins), numbers: Some(numbers), nothing: Vec::new() })
}

/// The elements of an array, null as `None`; what is no array, or an empty one, is one element.
fn elements(text: Option<&str>) -> Vec<Option<String>> {
    let array = text.and_then(|text| serde_json::from_str::<Vec<&RawValue>>(text).ok());
    match array {
        Some(array) if !array.is_empty() => {
            let element = |value: &&RawValue| (value.get() != "null").then(|| value.get().to_owned());
            array.iter().map(element).collect()
        }
        Some(_) => vec![None],
        None => vec![text.map(str::to_owned)],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, AsArray};

    use super::*;

    #[test]
    fn every_row_of_a_message_is_a_change() {
        let column = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([
            ("type", column(vec![Some("UPDATE"), Some("ALTER"), Some("INSERT")])),
            ("data", column(vec![Some(r#"[{"id":"1"},{"id":"2"}]"#), None, Some("[]")])),
            ("old", column(vec![Some(r#"[null,{"id":"9"}]"#), None, None])),
        ]);
        let prepared = apart(&batch.expect("a batch")).expect("rows");
        let texts = |place: usize| {
            let column = prepared.batch.column(place).as_string::<i32>();
            (0..column.len()).map(|row| text(Some(column), row)).collect::<Vec<_>>()
        };
        assert_eq!(texts(0), [Some("UPDATE"), Some("UPDATE"), Some("ALTER"), Some("INSERT")]);
        assert_eq!(texts(1), [Some(r#"{"id":"1"}"#), Some(r#"{"id":"2"}"#), None, None]);
        assert_eq!(texts(2), [None, Some(r#"{"id":"9"}"#), None, None]);
        assert_eq!((0..4).map(|row| prepared.origin(row)).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(prepared.numbers().values(), &[0, 1, 0, 0]);
    }
}
