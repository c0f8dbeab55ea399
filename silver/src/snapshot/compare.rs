//! Extracts against what was there before them: new and changed rows are upserts, missing ones deletes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::functions_window::expr_fn::{lag, lead};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprFunctionExt, Operator, cast, ident, lit, when};
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::DELETE;
use lake::{Result, Table, columns};

use super::extracts::{Extract, Extracts};
use crate::change::{CHANGE_NUMBER, Decoder, FILE_RANK, FILE_TIME, OP_RANK, RANK_IN_FILE};
use crate::plan::{Kept, TablePlan};

/// The number of the extract that a row is of, from 0; -1 for the table.
const NUMBER: &str = "__number";
/// The last extract before it, and the first after it, that deletes what it lacks.
const DELETES_BEFORE: &str = "__deletes_before";
const DELETES_AFTER: &str = "__deletes_after";
const WAS_NUMBER: &str = "__was_number";
const NEXT_NUMBER: &str = "__next_number";
const WAS: &str = "__was_";
const UPSERT: &str = "__upsert";
/// The extract that deletes the row.
const GONE: &str = "__gone";
/// Columns of the list of extracts.
const OF: &str = "__of_";

/// The changes that extracts come to.
pub(super) struct Compared<'a> {
    differences: Staged,
    extracts: Vec<&'a Extract>,
    plan: &'a TablePlan,
    schema: Arc<Schema>,
    pub(super) upserts: u64,
    pub(super) deletes: u64,
}

impl<'a> Compared<'a> {
    /// Compares extracts with the current rows of a table and with each other.
    pub(super) async fn of(
        plan: &'a TablePlan,
        decoder: &Decoder,
        table: &Table,
        records: &Staged,
        extracts: &'a Extracts,
        session: &Session,
    ) -> Result<Self> {
        let schema = records.schema();
        let taken: Vec<&Extract> = extracts.taken().collect();
        let own: Vec<&str> = decoder.own().filter(|name| !plan.keys.iter().any(|key| key == name)).collect();
        let rows = in_extracts(records.frame(session).await?, &schema, &taken, session)?;
        let rows = rows.union(current(plan, table, &schema, decoder, &taken, session).await?)?;
        let over = |call: Expr, name: String| -> Result<Expr> {
            let keys = plan.keys.iter().map(ident).collect();
            Ok(call.partition_by(keys).order_by(vec![ident(NUMBER).sort(true, true)]).build()?.alias(name))
        };
        let mut windows = vec![
            over(lag(ident(NUMBER), Some(1), None), WAS_NUMBER.to_owned())?,
            over(lead(ident(NUMBER), Some(1), None), NEXT_NUMBER.to_owned())?,
        ];
        for (number, name) in own.iter().enumerate() {
            windows.push(over(lag(ident(*name), Some(1), None), format!("{WAS}{number}"))?);
        }
        let was_deleted = ident(DELETES_BEFORE).gt(ident(WAS_NUMBER)).is_true();
        let is_new = ident(WAS_NUMBER).is_null().or(was_deleted);
        let differs =
            own.iter().enumerate().map(|(number, name)| distinct(ident(*name), ident(format!("{WAS}{number}"))));
        let upsert = ident(NUMBER).gt_eq(lit(0_i64)).and(differs.fold(is_new, Expr::or));
        let is_missing = ident(NEXT_NUMBER).is_null().or(ident(NEXT_NUMBER).gt(ident(DELETES_AFTER)));
        let gone = when(is_missing, ident(DELETES_AFTER)).end()?;
        let columns = schema.fields().iter().map(|field| ident(field.name()));
        let columns = columns.chain([upsert.alias(UPSERT), gone.alias(GONE)]).collect::<Vec<_>>();
        let differences = rows.window(windows)?.select(columns)?;
        let differences = differences.filter(ident(UPSERT).or(ident(GONE).is_not_null()))?;
        let differences = Staged::write(differences).await?;
        let upserts = differences.frame(session).await?.filter(ident(UPSERT))?.count().await? as u64;
        let deletes = differences.frame(session).await?.filter(ident(GONE).is_not_null())?.count().await? as u64;
        Ok(Self { differences, extracts: taken, plan, schema, upserts, deletes })
    }

    /// The changes, each at the place of its extract.
    pub(super) async fn events(&self, session: &Session) -> Result<DataFrame> {
        let names: Vec<Expr> = self.schema.fields().iter().map(|field| ident(field.name())).collect();
        let upserts = self.differences.frame(session).await?.filter(ident(UPSERT))?.select(names)?;
        if self.deletes == 0 {
            return Ok(upserts);
        }
        let places = session.context().read_batch(self.places()?)?;
        let gone = self.differences.frame(session).await?.filter(ident(GONE).is_not_null())?;
        let gone = gone.join_on(places, JoinType::Inner, [ident(GONE).eq(ident(format!("{OF}{NUMBER}")))])?;
        let sequence = self.plan.sequence_columns();
        let columns = self.schema.fields().iter().map(|field| {
            let name = field.name().as_str();
            let of_extract = [columns::BATCH_ID, columns::FILE_PATH, FILE_RANK, FILE_TIME].contains(&name)
                || sequence.iter().any(|part| part == name);
            Ok(match name {
                DELETE => lit(true),
                columns::ROW_NUMBER => lit(0_i64),
                _ if of_extract => ident(format!("{OF}{name}")),
                _ if self.plan.keys.iter().any(|key| key == name) => ident(name),
                OP_RANK | RANK_IN_FILE | CHANGE_NUMBER => lit(0_i32),
                _ => lit(ScalarValue::try_from(field.data_type())?),
            }
            .alias(name))
        });
        let deletes = gone.select(columns.collect::<Result<Vec<_>>>()?)?;
        Ok(upserts.union(deletes)?)
    }

    /// The place of each extract, by its number.
    fn places(&self) -> Result<RecordBatch> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        let mut push = |name: &str, array: ArrayRef| {
            fields.push(Field::new(format!("{OF}{name}"), array.data_type().clone(), true));
            arrays.push(array);
        };
        push(
            NUMBER,
            Arc::new((0..self.extracts.len()).map(|number| i64::try_from(number).ok()).collect::<Int64Array>()),
        );
        for (part, name) in self.plan.sequence_columns().iter().enumerate() {
            let values = self.extracts.iter().map(|extract| extract.position[part].clone());
            push(name, ScalarValue::iter_to_array(values)?);
        }
        push(
            columns::BATCH_ID,
            Arc::new(self.extracts.iter().map(|extract| Some(extract.file.0)).collect::<Int64Array>()),
        );
        let paths = self.extracts.iter().map(|extract| Some(extract.file.1.as_str()));
        push(columns::FILE_PATH, Arc::new(paths.collect::<StringArray>()));
        push(FILE_RANK, Arc::new(self.extracts.iter().map(|extract| Some(extract.rank)).collect::<Int32Array>()));
        push(FILE_TIME, Arc::new(self.extracts.iter().map(|extract| Some(extract.time)).collect::<Int64Array>()));
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }
}

/// The records of extracts, each with the number of its extract and of those around it that delete.
fn in_extracts(records: DataFrame, schema: &Schema, taken: &[&Extract], session: &Session) -> Result<DataFrame> {
    let number = |found: Option<usize>| found.and_then(|number| i64::try_from(number).ok());
    let deletes = |number: &usize| taken[*number].is_complete;
    let all = 0..taken.len();
    let before = all.clone().map(|place| number((0..place).rev().find(deletes)));
    let after = all.clone().map(|place| number((place + 1..taken.len()).find(deletes)));
    let arrays: Vec<(&str, ArrayRef)> = vec![
        (columns::BATCH_ID, Arc::new(taken.iter().map(|extract| Some(extract.file.0)).collect::<Int64Array>())),
        (
            columns::FILE_PATH,
            Arc::new(taken.iter().map(|extract| Some(extract.file.1.as_str())).collect::<StringArray>()),
        ),
        (NUMBER, Arc::new(all.map(|place| number(Some(place))).collect::<Int64Array>())),
        (DELETES_BEFORE, Arc::new(before.collect::<Int64Array>())),
        (DELETES_AFTER, Arc::new(after.collect::<Int64Array>())),
    ];
    let fields = arrays.iter().map(|(name, array)| Field::new(format!("{OF}{name}"), array.data_type().clone(), true));
    let list = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let list = RecordBatch::try_new(list, arrays.iter().map(|(_, array)| Arc::clone(array)).collect())?;
    let on = [columns::BATCH_ID, columns::FILE_PATH].map(|name| ident(name).eq(ident(format!("{OF}{name}"))));
    let joined = records.join_on(session.context().read_batch(list)?, JoinType::Inner, on)?;
    let names = schema.fields().iter().map(|field| ident(field.name()));
    let more = [NUMBER, DELETES_BEFORE, DELETES_AFTER].map(|name| ident(format!("{OF}{name}")).alias(name));
    Ok(joined.select(names.chain(more).collect::<Vec<_>>())?)
}

/// The current rows of the table, as if they were the extract before the first.
async fn current(
    plan: &TablePlan,
    table: &Table,
    schema: &Schema,
    decoder: &Decoder,
    taken: &[&Extract],
    session: &Session,
) -> Result<DataFrame> {
    let rows = session.context().read_table(session.provider(table).await?)?;
    let rows = match plan.kept {
        Kept::Current => rows,
        Kept::Marked => rows.filter(ident(columns::IS_DELETED).is_not_true())?,
        Kept::History(_) => rows.filter(ident(columns::END_AT).is_null())?,
    };
    let own: Vec<&str> = decoder.own().collect();
    let names = schema.fields().iter().map(|field| {
        let (name, kind) = (field.name().as_str(), field.data_type());
        let value = match name {
            _ if own.contains(&name) => cast(ident(name), kind.clone()),
            DELETE => lit(false),
            _ if *kind == DataType::Utf8 => lit(""),
            _ if field.is_nullable() => lit(ScalarValue::try_from(kind)?),
            _ => cast(lit(0_i64), kind.clone()),
        };
        Ok(value.alias(name))
    });
    let first =
        (0..taken.len()).find(|number| taken[*number].is_complete).and_then(|number| i64::try_from(number).ok());
    let more = [
        lit(-1_i64).alias(NUMBER),
        lit(ScalarValue::Int64(None)).alias(DELETES_BEFORE),
        lit(ScalarValue::Int64(first)).alias(DELETES_AFTER),
    ];
    let names = names.collect::<Result<Vec<_>>>()?;
    Ok(rows.select(names.into_iter().chain(more).collect::<Vec<_>>())?)
}

fn distinct(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsDistinctFrom, Box::new(right)))
}
