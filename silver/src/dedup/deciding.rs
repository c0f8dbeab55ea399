//! The changes that decide about each key where updates may not send every column: then it is not the last one alone.

use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr, ExprFunctionExt, ident, lit};
use lake::Result;
use lake::stage::Staged;

use crate::change::UNSENT;
use crate::order::newest_first;

const NUMBER: &str = "__number";
const PARTIAL: &str = "__partial";
const WANTED: &str = "__wanted";

/// Of a key with an update that did not send every column all changes, of other keys the last one, put aside; and how
/// many others there were. Null keys are a key.
///
/// # Errors
/// What the changes fail with, and [`ErrorKind::Store`](lake::ErrorKind::Store) when the disk is full.
pub async fn deciding(changes: DataFrame, keys: &[String], sequence: &[String]) -> Result<(Staged, u64)> {
    let columns: Vec<_> = changes.schema().fields().iter().map(|field| ident(field.name())).collect();
    let key = || keys.iter().map(ident).collect::<Vec<_>>();
    let number = row_number().partition_by(key()).order_by(newest_first(sequence)).build()?.alias(NUMBER);
    let any =
        WindowFunction::new(WindowFunctionDefinition::AggregateUDF(max_udaf()), vec![ident(UNSENT).is_not_null()]);
    let partial = Expr::from(any).partition_by(key()).build()?.alias(PARTIAL);
    let wanted = ident(NUMBER).eq(lit(1_u64)).or(ident(PARTIAL)).alias(WANTED);
    let marked = changes.window(vec![number])?.window(vec![partial])?;
    let marked = marked.select(columns.into_iter().chain([wanted]).collect::<Vec<_>>())?;
    Staged::write_where(marked, WANTED).await
}
