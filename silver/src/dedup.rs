//! The last change of each key.

use datafusion::dataframe::DataFrame;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{ExprFunctionExt, ident, lit};
use lake::Result;

use crate::order::newest_first;

const NUMBER: &str = "__number";

/// Of each key the change that is largest in the total order: `row_number() = 1`. Null keys are a key.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the window cannot be planned.
pub fn last_per_key(changes: DataFrame, keys: &[String], sequence: &[String]) -> Result<DataFrame> {
    let columns: Vec<_> = changes.schema().fields().iter().map(|field| ident(field.name())).collect();
    let number = row_number()
        .partition_by(keys.iter().map(ident).collect())
        .order_by(newest_first(sequence))
        .build()?
        .alias(NUMBER);
    Ok(changes.window(vec![number])?.filter(ident(NUMBER).eq(lit(1_u64)))?.select(columns)?)
}
