//! How a source writes delimited text.

use super::super::DuplicateColumns;

/// When an empty field is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EmptyIsNull {
    /// When it is bare; `""` is an empty text.
    #[default]
    Unquoted,
    /// Always, quoted or not.
    Always,
    /// Never.
    Never,
}

/// Where the names of the columns come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// From the first record.
    Present,
    /// From the spec, by position.
    Given {
        /// The names.
        columns: Vec<String>,
        /// True when files may have one more column, the operation, in front; each file's first record tells.
        leading_op: bool,
    },
}

/// How a source writes delimited text. All characters are ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Where the names of the columns come from.
    pub header: Header,
    /// Between two fields.
    pub delimiter: u8,
    /// Around a field that holds delimiters, line breaks or quotes; `None` when quotes mean nothing.
    pub quote: Option<u8>,
    /// In front of a quote or of itself inside quotes; a doubled quote is understood with and without it.
    pub escape: Option<u8>,
    /// At the start of a line that is not data.
    pub comment: Option<u8>,
    /// Bare fields that are null.
    pub null_values: Vec<String>,
    /// When an empty field is null.
    pub empty_is_null: EmptyIsNull,
    /// What to do with two columns of one name.
    pub duplicate_columns: DuplicateColumns,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            header: Header::Present,
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            comment: None,
            null_values: Vec::new(),
            empty_is_null: EmptyIsNull::default(),
            duplicate_columns: DuplicateColumns::default(),
        }
    }
}

impl Dialect {
    /// True when a bare field is null.
    #[inline]
    pub(super) fn bare_is_null(&self, field: &str) -> bool {
        match field.is_empty() {
            true => self.empty_is_null != EmptyIsNull::Never || self.is_null_token(field),
            false => self.is_null_token(field),
        }
    }

    fn is_null_token(&self, field: &str) -> bool {
        self.null_values.iter().any(|token| token == field)
    }
}
