//! Columns of the table that are what an expression over its other columns gives: computed of each change as it is
//! decoded, and once more of the rows that updates come to which do not send every column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use lake::cast::{Cast, Rules as CastRules, cast};
use lake::commit::Rules;
use lake::expression::{Scalar, Values};
use lake::schema::ColumnType;
use lake::session::Session;
use lake::upsert::DELETE;
use lake::{Context, Error, Result};

use crate::change::without_empty;
use crate::plan::TablePlan;

/// The generated columns of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generated(Vec<Column>);

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its expression, as the spec has it.
    pub(crate) sql: String,
    /// The columns that it is made of.
    pub(crate) inputs: Vec<String>,
    /// The expression as the table keeps it.
    stored: String,
    kind: ColumnType,
    rules: CastRules,
    is_partition: bool,
    schema: SchemaRef,
    scalar: Scalar,
}

impl Generated {
    /// Makes the expressions of a plan ready for rows with the columns of `target`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when one does not fit them.
    pub(crate) fn new(plan: &TablePlan, target: &Schema, session: &Session) -> Result<Self> {
        let made = plan.generated.iter().map(|generated| {
            let (name, expression) = (generated.name.clone(), &generated.expression);
            let place = || format!("`generated` of {}, column `{name}`", plan.table);
            let unknown = |column: &str| {
                let known = target.fields().iter().map(|field| field.name().as_str());
                let error = Error::spec(format!("`{column}` is not a column of the table")).context(place());
                match lake::spec::did_you_mean(column, known) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            };
            let field = |column: &str| target.field_with_name(column).map_err(|_| unknown(column));
            let fields = expression.names().iter().map(|column| Ok(field(column)?.clone().with_nullable(true)));
            let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
            let scalar = expression.ready(&schema, session).context(place)?;
            let held = field(&name)?.data_type();
            let kind = ColumnType::of(held).ok_or_else(|| Error::internal(format!("`{name}` is {held}")))?;
            if *scalar.kind() == DataType::Utf8 && kind != ColumnType::String {
                let message = format!("`{}` gives a text and the column is {kind}", expression.sql().trim());
                return Err(Error::spec(message)
                    .context(place())
                    .hint(format!("every engine reads texts its own way: `CAST(… AS {kind})` says which")));
            }
            let portable = expression.portable();
            let stored = if scalar.kind() == held { portable } else { format!("CAST({portable} AS {kind})") };
            Ok(Column {
                sql: expression.sql().trim().to_owned(),
                inputs: expression.names().to_vec(),
                stored,
                kind,
                rules: CastRules { zone: plan.zone },
                is_partition: plan.partition_by.contains(&name),
                name,
                schema,
                scalar,
            })
        });
        Ok(Self(made.collect::<Result<_>>()?))
    }

    /// The columns.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.0
    }

    /// The columns with their expressions, as the table keeps them.
    fn stored(&self) -> Vec<(String, String)> {
        self.0.iter().map(|column| (column.name.clone(), column.stored.clone())).collect()
    }

    /// Computes the columns of finished rows anew; deletes have none.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](lake::ErrorKind::Data) with the key of a row for which one cannot be computed.
    pub(crate) fn fill(&self, rows: RecordBatch, keys: &[String]) -> Result<RecordBatch> {
        let schema = rows.schema();
        let mut columns = rows.columns().to_vec();
        let deletes = rows.column_by_name(DELETE).and_then(|deletes| deletes.as_boolean_opt());
        for column in &self.0 {
            let Cast { array, bad } = column.values(rows.num_rows(), |name| rows.column_by_name(name).cloned())?;
            let is_row = |row: usize| !deletes.is_some_and(|deletes| deletes.is_valid(row) && deletes.value(row));
            if let Some((row, reason)) = bad.into_iter().find(|(row, _)| is_row(*row)) {
                let value =
                    |key: &String| rows.column_by_name(key).and_then(|key| array_value_to_string(key, row).ok());
                let key = keys.iter().map(|key| format!("{key} {}", value(key).unwrap_or_default()));
                let key = key.collect::<Vec<_>>().join(", ");
                let message =
                    format!("the generated column `{}` of the row {key} cannot be computed: {reason}", column.name);
                return Err(Error::data(message)
                    .hint("updates of several records come to this row; mend `generated` in the spec"));
            }
            columns[schema.index_of(&column.name)?] = array;
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

impl Column {
    /// Its values for rows with these columns.
    pub(crate) fn values(&self, rows: usize, of: impl Fn(&str) -> Option<ArrayRef>) -> Result<Cast> {
        let inputs = self.schema.fields().iter().map(|field| {
            let missing = || Error::internal(format!("rows have no column `{}`", field.name()));
            let held = of(field.name()).ok_or_else(missing)?;
            let same = held.data_type() == field.data_type();
            if same { Ok(held) } else { Ok(arrow_cast(&held, field.data_type())?) }
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), inputs, &options)?;
        let Values { array, failed } = self.scalar.values(&batch)?;
        let mut values = cast(&array, self.kind, self.rules);
        values.bad.extend(failed);
        values.bad.sort();
        if self.is_partition {
            values.array = without_empty(values.array)?;
        }
        Ok(values)
    }
}

/// The rules that a plan puts on the rows of its table, whose columns are `target`.
pub(crate) fn rules(plan: &TablePlan, target: &Schema, session: &Session) -> Result<Rules> {
    let check = |check: &crate::plan::RulePlan| (check.name.to_ascii_lowercase(), check.expression.portable());
    let checks = plan.constraints.iter().map(check).collect();
    Ok(Rules { checks, generated: Generated::new(plan, target, session)?.stored() })
}
