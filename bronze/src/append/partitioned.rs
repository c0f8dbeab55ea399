//! Rows of a file with the columns that its folders say.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use lake::{Error, Result};

use crate::decode::{Chunk, folded};
use crate::discover::FolderValue;
use crate::evolve::{rescued_text, with_member};

/// Adds the values of a file's folders to its rows. A folder outweighs a column of the same name in the file; what the
/// file says otherwise is rescued.
///
/// # Errors
/// [`ErrorKind::Internal`](lake::ErrorKind::Internal) when a value cannot be rendered.
pub(super) fn add_folders(chunk: &mut Chunk, folders: &[(String, FolderValue)]) -> Result<()> {
    folders.iter().try_for_each(|(name, value)| add(chunk, name, value))
}

fn add(chunk: &mut Chunk, name: &str, value: &FolderValue) -> Result<()> {
    let rows = chunk.columns.num_rows();
    let schema = chunk.columns.schema();
    let held = schema.fields().iter().position(|field| folded(field.name()) == folded(name));
    let value = match (value, held) {
        (FolderValue::Absent, Some(_)) => return Ok(()),
        (FolderValue::Absent, None) => None,
        (FolderValue::Given(value), _) => value.as_deref(),
    };
    let column: ArrayRef = match value {
        Some(value) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, rows))),
        None => new_null_array(&DataType::Utf8, rows),
    };
    let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    let mut columns = chunk.columns.columns().to_vec();
    match held {
        Some(at) => {
            rescue(chunk, at, value)?;
            fields[at] = Arc::new(Field::new(fields[at].name(), DataType::Utf8, true));
            columns[at] = column;
        }
        None => {
            fields.push(Arc::new(Field::new(name, DataType::Utf8, true)));
            columns.push(column);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    chunk.columns = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| Error::internal("the columns of folders do not join a file").with_source(error))?;
    Ok(())
}

/// Keeps what the file says in the column at `at`, where that is something else than its folder.
fn rescue(chunk: &mut Chunk, at: usize, value: Option<&str>) -> Result<()> {
    let (column, rows) = (chunk.columns.column(at), chunk.columns.num_rows());
    let schema = chunk.columns.schema();
    for row in (0..rows).filter(|row| column.is_valid(*row)) {
        let text = rescued_text(column, row)?;
        if Some(text.as_str()) != value {
            let rescued = chunk.rescued.get_or_insert_with(|| vec![None; rows]);
            rescued[row] = Some(with_member(rescued[row].take(), schema.field(at).name(), text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};

    use super::*;

    fn joined(name: &str, value: FolderValue) -> Chunk {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), Some(6), None]));
        let columns = RecordBatch::try_from_iter([("Shop", numbers)]).expect("a batch");
        let mut chunk = Chunk { columns, row_numbers: vec![1, 2, 3], rescued: None, rejects: Vec::new() };
        add_folders(&mut chunk, &[(name.to_owned(), value)]).expect("columns");
        chunk
    }

    fn texts(chunk: &Chunk, at: usize) -> Vec<Option<&str>> {
        chunk.columns.column(at).as_string::<i32>().iter().collect()
    }

    #[test]
    fn folders_become_columns_of_text() {
        let chunk = joined("dt", FolderValue::Given(Some("2024-05-01".into())));
        assert_eq!(
            (chunk.columns.schema().field(1).name().as_str(), texts(&chunk, 1)),
            ("dt", vec![Some("2024-05-01"); 3])
        );
        assert_eq!(texts(&joined("dt", FolderValue::Given(None)), 1), [None; 3]);
        assert_eq!(texts(&joined("dt", FolderValue::Absent), 1), [None; 3]);
    }

    #[test]
    fn a_folder_outweighs_the_file_and_nothing_is_lost() {
        let chunk = joined("shop", FolderValue::Given(Some("5".into())));
        assert_eq!((chunk.columns.num_columns(), texts(&chunk, 0)), (1, vec![Some("5"); 3]));
        assert_eq!(chunk.rescued, Some(vec![None, Some("{\"Shop\":\"6\"}".into()), None]));
        let kept = joined("shop", FolderValue::Absent);
        assert_eq!((kept.columns.column(0).data_type(), kept.rescued), (&DataType::Int64, None));
    }
}
