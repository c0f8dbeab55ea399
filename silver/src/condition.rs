//! SQL conditions of the spec, ready for batches of rows.

use std::sync::Arc;

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
