//! The columns of a file: named by its header, or by the spec.

use lake::Result;

use super::super::names::column_names;
use super::super::refused;
use super::dialect::{Dialect, Header};
use super::tokenizer::Tokenizer;

/// The name of the operation that change files have in front of their columns.
const OPERATION: &str = "Op";

/// The columns of a file, by position.
pub(super) struct Columns {
    names: Vec<String>,
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
                let names = tokenizer.fields().iter().map(|field| field.text(text, dialect).into_owned());
                let names: Vec<String> = names.collect();
                if let Some(name) = names.iter().find(|name| name.contains('\r')) {
                    let first = name.split('\r').next().unwrap_or_default();
                    let reason = format!("a carriage return follows the column name `{first}` and no line feed");
                    return Err(refused(reason).hint("write line ends as LF or CRLF"));
                }
                (names, true)
            }
            Header::Given { columns, leading_op } => {
                let with_op = *leading_op && tokenizer.fields().len() > columns.len();
                let op = with_op.then(|| OPERATION.to_owned());
                (op.into_iter().chain(columns.iter().cloned()).collect(), false)
            }
        };
        Ok(Self { names: column_names(raw, dialect.duplicate_columns)?, is_header })
    }

    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names, by position.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// True when the first record of the file is not data.
    pub(super) fn is_header(&self) -> bool {
        self.is_header
    }
}
