//! The values of an expression, row by row: an error is one of its row alone.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_empty_array, new_null_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, NegativeExpr, lit};

use crate::error::Result;
use crate::schema::ColumnType;
use crate::session::Session;

/// An expression that is ready for batches of rows.
#[derive(Debug, Clone)]
pub struct Scalar {
    physical: Arc<dyn PhysicalExpr>,
    /// What it computes, and the form of it that columns are made of.
    computed: DataType,
    kind: DataType,
}

/// The values of an expression.
#[derive(Debug)]
pub struct Values {
    /// Null where there is none.
    pub array: ArrayRef,
    /// The rows that have none because of an error, rising, with the reason.
    pub failed: Vec<(usize, String)>,
}

impl Scalar {
    /// `Err` says what the expression gives that no column can hold.
    pub(super) fn new(physical: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Self, String> {
        let broken = |error: datafusion::error::DataFusionError| {
            format!("cannot be computed: {}", plain(&error.strip_backtrace()))
        };
        let physical = strict(physical, schema).map_err(broken)?;
        let computed = physical.data_type(schema).map_err(broken)?;
        match held_as(&computed) {
            Some(kind) => Ok(Self { physical, computed, kind }),
            None => Err(format!("gives {computed}, which no column can hold")),
        }
    }

    /// The type of its values.
    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Its values for the rows of a batch, which has the columns that it was made ready for.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when the batch has other columns.
    pub fn values(&self, batch: &RecordBatch) -> Result<Values> {
        let Values { array, failed } = by_row(&self.physical, &self.computed, batch)?;
        let array = if self.computed == self.kind { array } else { cast(&array, &self.kind)? };
        Ok(Values { array, failed })
    }
}

/// Makes a planned expression ready for rows of `schema`.
///
/// # Errors
/// When its types do not fit the columns.
pub fn physical(
    logical: Expr,
    schema: &SchemaRef,
    session: &Session,
) -> datafusion::error::Result<Arc<dyn PhysicalExpr>> {
    planned(logical, schema, &session.context().state())
}

/// The same by the state of a session.
pub(crate) fn planned(
    logical: Expr,
    schema: &SchemaRef,
    state: &SessionState,
) -> datafusion::error::Result<Arc<dyn PhysicalExpr>> {
    let frame = Arc::new(DFSchema::try_from(Arc::clone(schema))?);
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(&frame))
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time);
    let simplifier = ExprSimplifier::new(context.build());
    // Some functions, `coalesce` for one, are only there to be made simpler.
    let simple = simplifier.simplify(simplifier.coerce(logical, &frame)?)?;
    state.create_physical_expr(simple, &frame)
}

/// Asks an expression of every row. Where the batch as a whole cannot be asked, its halves are, down to single rows: a
/// row that fails (a division by zero, say) is no reason to leave others without an answer.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when the answers are of several types.
pub fn by_row(expression: &Arc<dyn PhysicalExpr>, kind: &DataType, batch: &RecordBatch) -> Result<Values> {
    let mut failed = Vec::new();
    let mut answers: Vec<ArrayRef> = Vec::new();
    let mut parts = vec![(0, batch.num_rows())];
    while let Some((start, length)) = parts.pop() {
        if length == 0 {
            continue;
        }
        let part = batch.slice(start, length);
        match expression.evaluate(&part).and_then(|answer| answer.into_array(length)) {
            Ok(answer) => answers.push(answer),
            Err(error) if length == 1 => {
                failed.push((start, plain(&error.strip_backtrace())));
                answers.push(new_null_array(kind, 1));
            }
            Err(_) => {
                let half = length / 2;
                parts.push((start + half, length - half));
                parts.push((start, half));
            }
        }
    }
    let array = match answers.as_slice() {
        [] => new_empty_array(kind),
        [one] => Arc::clone(one),
        _ => concat(&answers.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
    };
    Ok(Values { array, failed })
}

/// The innermost cause, which says what is wrong with the row.
pub(super) fn plain(text: &str) -> String {
    let cause = text.rsplit_once("\ncaused by\n").map_or(text, |(_, cause)| cause);
    let prefixes = [
        "Error during planning: ",
        "Schema error: ",
        "SQL error: ",
        "Execution error: ",
        "Arrow error: ",
        "Compute error: ",
        "Cast error: ",
    ];
    let cause = prefixes.iter().fold(cause, |cause, prefix| cause.strip_prefix(prefix).unwrap_or(cause));
    let cause = cause.replace('\n', " ");
    let mut chars = cause.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// The same with whole numbers that do not wrap.
pub(crate) fn strict(
    physical: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> datafusion::error::Result<Arc<dyn PhysicalExpr>> {
    let strict = physical.transform_up(|part| {
        let (left, operator, right) = if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
            (Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()))
        } else if let Some(negative) = part.downcast_ref::<NegativeExpr>() {
            let kind = negative.arg().data_type(schema)?;
            if !kind.is_integer() {
                return Ok(Transformed::no(part));
            }
            // The least number has no negative one.
            (lit(ScalarValue::new_zero(&kind)?), Operator::Minus, Arc::clone(negative.arg()))
        } else {
            return Ok(Transformed::no(part));
        };
        let strict = BinaryExpr::new(left, operator, right).with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(strict)))
    });
    Ok(strict?.data)
}

/// The type in which computed values are held: one of the spec's, or one that casts into it without loss.
fn held_as(computed: &DataType) -> Option<DataType> {
    Some(match computed {
        DataType::Null | DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Dictionary(_, value) => held_as(value)?,
        // Casting these says what is lost.
        DataType::Timestamp(..) | DataType::Date64 | DataType::Decimal256(..) => computed.clone(),
        other => ColumnType::of(other)?.arrow(),
    })
}
