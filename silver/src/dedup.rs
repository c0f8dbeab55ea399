//! The last change of each key.

use datafusion::dataframe::DataFrame;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{ExprFunctionExt, ident, lit};
use lake::Result;

use crate::order::newest_first;

/// The boolean column of [`marked`].
pub const LAST: &str = "__last";
const NUMBER: &str = "__number";

/// All changes, each with [`LAST`]: true for the one that is largest in the total order of its key
/// (`row_number() = 1`). Null keys are a key.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the window cannot be planned.
pub fn marked(changes: DataFrame, keys: &[String], sequence: &[String]) -> Result<DataFrame> {
    let columns: Vec<_> = changes.schema().fields().iter().map(|field| ident(field.name())).collect();
    let number = row_number()
        .partition_by(keys.iter().map(ident).collect())
        .order_by(newest_first(sequence))
        .build()?
        .alias(NUMBER);
    let last = ident(NUMBER).eq(lit(1_u64)).alias(LAST);
    Ok(changes.window(vec![number])?.select(columns.into_iter().chain([last]).collect::<Vec<_>>())?)
}
