//! SQL conditions of the spec, ready for batches of rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use lake::expression::{Values, by_row, physical};
use lake::session::Session;
use lake::{Error, Result};

/// Makes a SQL condition ready for batches of `schema`.
pub(crate) fn condition(sql: &str, columns: &SchemaRef, session: &Session) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = DFSchema::try_from(Arc::clone(columns))?;
    let wrong = |error: datafusion::error::DataFusionError| {
        let error = lake::session::query_error(error);
        let hint = error.hint_text().map(str::to_owned);
        let told = Error::spec(format!("`{sql}` is not a condition on the columns")).with_source(error);
        match hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    };
    let parsed = session.context().parse_sql_expr(sql, &schema).map_err(wrong)?;
    let physical = physical(parsed, columns, session).map_err(wrong)?;
    let answer = physical.data_type(columns)?;
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

/// Asks a condition of every row; a row that fails is no reason to leave others without an answer.
pub(crate) fn answers(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Answers> {
    let Values { array, failed } = by_row(condition, &DataType::Boolean, batch)?;
    let values = array.as_boolean().iter().enumerate();
    let failed_at = |row: usize| failed.binary_search_by_key(&row, |(row, _)| *row).is_ok();
    let values = values.map(|(row, answer)| if failed_at(row) { Some(false) } else { answer }).collect();
    Ok(Answers { values, failed })
}
