//! The columns of a file: named by its header, or by the spec.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lake::Result;

use super::super::names::{column_names, shown_name};
use super::super::refused;
use super::dialect::{Dialect, Header};
use super::tokenizer::{Kind, Span, Tokenizer};

/// The name of the operation that change files have in front of their columns.
const OPERATION: &str = "Op";

/// The columns of a file, by position.
pub(super) struct Columns {
    schema: SchemaRef,
    is_header: bool,
}

impl Columns {
    /// Learns the columns from the first record of a file, which `tokenizer` holds as spans of `text`.
    ///
    /// # Errors
    /// As [`column_names`].
    pub(super) fn from_first(dialect: &Dialect, tokenizer: &Tokenizer, text: &str) -> Result<Self> {
        let (raw, is_header) = match &dialect.header {
            Header::Present => {
                // A byte order mark may also stand inside of the quotes.
                let name = |field: &Span| field.text(text, dialect).trim_start_matches('\u{feff}').to_owned();
                let names: Vec<String> = tokenizer.fields().iter().map(name).collect();
                if let Some(first) = before_carriage_return(tokenizer, text) {
                    return Err(only_carriage_returns(&format!("the column name `{}`", shown_name(first))));
                }
                (names, true)
            }
            Header::Given { columns, leading_op } => {
                // A record that a line feed ends may hold such a character as any other.
                let is_all = tokenizer.fields().last().is_none_or(|last| !text[last.end as usize..].contains('\n'));
                if let Some(first) = before_carriage_return(tokenizer, text).filter(|_| is_all) {
                    return Err(only_carriage_returns(&format!(
                        "the field `{}` of the first record",
                        shown_name(first)
                    )));
                }
                let with_op = *leading_op && tokenizer.fields().len() > columns.len();
                let op = with_op.then(|| OPERATION.to_owned());
                (op.into_iter().chain(columns.iter().cloned()).collect(), false)
            }
        };
        let names = column_names(raw, dialect.duplicate_columns)?;
        let fields: Vec<Field> = names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), is_header })
    }

    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        self.schema.fields().len()
    }

    /// The columns by position, all of them text.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// True when the first record of the file is not data.
    pub(super) fn is_header(&self) -> bool {
        self.is_header
    }
}

/// What stands before a carriage return in a field without quotes, where line ends were taken off already.
fn before_carriage_return<'t>(tokenizer: &Tokenizer, text: &'t str) -> Option<&'t str> {
    let bare = tokenizer.fields().iter().filter(|field| field.kind == Kind::Bare);
    bare.map(|field| field.slice(text)).find_map(|field| field.split_once('\r')).map(|(before, _)| before)
}

fn only_carriage_returns(place: &str) -> lake::Error {
    refused(format!("a carriage return follows {place} and no line feed")).hint("write line ends as LF or CRLF")
}
