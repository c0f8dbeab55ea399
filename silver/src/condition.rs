//! SQL conditions of the spec, ready for batches of rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use lake::session::Session;
use lake::{Error, Result};

/// Makes a SQL condition ready for batches of `schema`.
pub(crate) fn condition(sql: &str, schema: &SchemaRef, session: &Session) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = DFSchema::try_from(Arc::clone(schema))?;
    let wrong = |error: datafusion::error::DataFusionError| {
        Error::spec(format!("`{sql}` is not a condition on the columns")).with_source(Error::from(error))
    };
    let parsed = session.context().parse_sql_expr(sql, &schema).map_err(wrong)?;
    let physical = session.context().create_physical_expr(parsed, &schema).map_err(wrong)?;
    let answer = physical.data_type(schema.as_arrow())?;
    if answer != DataType::Boolean {
        return Err(Error::spec(format!("`{sql}` is not a condition: it gives {answer}")));
    }
    Ok(physical)
}

/// The answers of a condition to the rows of a batch.
pub(crate) struct Answers {
    /// True, false or null; false where there is none.
    pub(crate) values: BooleanArray,
    /// The rows that it cannot be asked of, with the reason.
    pub(crate) failed: Vec<(usize, String)>,
}

/// Asks a condition of every row. Where the batch as a whole cannot be asked, its halves are, down to single rows: a
/// row that fails (a division by zero, say) is no reason to leave others without an answer.
pub(crate) fn answers(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Answers> {
    let mut failed = Vec::new();
    let mut values: Vec<Option<bool>> = Vec::with_capacity(batch.num_rows());
    let mut parts = vec![(0, batch.num_rows())];
    while let Some((start, length)) = parts.pop() {
        let part = batch.slice(start, length);
        match condition.evaluate(&part).and_then(|answer| answer.into_array(length)) {
            Ok(answer) => values.extend(answer.as_boolean().iter()),
            Err(error) if length == 1 => {
                failed.push((start, plain(&error.strip_backtrace())));
                values.push(Some(false));
            }
            Err(_) => {
                let half = length / 2;
                parts.push((start + half, length - half));
                parts.push((start, half));
            }
        }
    }
    Ok(Answers { values: values.into(), failed })
}

/// The innermost cause, which says what is wrong with the row.
fn plain(text: &str) -> String {
    let cause = text.rsplit_once("\ncaused by\n").map_or(text, |(_, cause)| cause);
    let prefixes = ["Execution error: ", "Arrow error: ", "Compute error: ", "Cast error: "];
    let cause = prefixes.iter().fold(cause, |cause, prefix| cause.strip_prefix(prefix).unwrap_or(cause));
    let mut chars = cause.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
