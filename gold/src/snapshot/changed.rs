//! What a `changed_only` day records: the rows of the source that differ from the last version of their key, new
//! ones, and those that are gone.

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::NaiveDate;
use datafusion::common::{Column, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::{BinaryExpr, Expr, JoinType, Operator, ident, lit, when};
use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::session::{Session, reference};
use lake::{Error, ErrorKind, Result, Table};

use super::layout::Layout;
use super::{current, date};
use crate::plan::SnapshotPlan;
use crate::spec::HardDeletes;

/// The row as the source has it now.
const NOW: &str = "now";
/// The last version of its key before the day.
const WAS: &str = "was";
/// True on each side of the join where that side has a row.
const HERE: &str = "__here";

pub(super) const INSERT: &str = "insert";
const UPDATE: &str = "update";
pub(super) const DELETE: &str = "delete";

/// The rows of `day`, with the columns of the table.
///
/// # Errors
/// [`ErrorKind::Query`] when the comparison cannot be planned.
pub(super) async fn changes(
    session: &Session,
    source: &Table,
    table: &Table,
    layout: &Layout,
    plan: &SnapshotPlan,
    day: NaiveDate,
) -> Result<DataFrame> {
    let history = session.context().table(reference(table.name())).await?;
    let before = history.filter(ident(SNAPSHOT_DATE).lt(date(day)))?;
    let was = last_versions(before, &plan.keys, layout)?.filter(ident(CHANGE).not_eq(lit(DELETE)))?;
    let was = with_mark(was)?.alias(WAS)?;
    let now = with_mark(current(session, source).await?)?.alias(NOW)?;

    let join = match plan.hard_deletes {
        HardDeletes::Record => JoinType::Full,
        HardDeletes::Ignore => JoinType::Left,
    };
    let keys = plan.keys.iter().map(|key| compare(of(NOW, key), layout.same_key(), of(WAS, key)));
    let joined = now.join_on(was, join, keys)?;

    let differs = layout.compared.iter().map(|column| match layout.is_known(column) {
        true => compare(of(NOW, column), Operator::IsDistinctFrom, of(WAS, column)),
        false => of(NOW, column).is_not_null(),
    });
    let appeared = of(WAS, HERE).is_null();
    let vanished = of(NOW, HERE).is_null();
    let recorded = differs.fold(appeared.clone().or(vanished.clone()), Expr::or);

    let columns = layout.schema.fields().iter().map(|field| {
        let name = field.name();
        let none = || ScalarValue::try_from(field.data_type()).map(lit);
        Ok(match name.as_str() {
            SNAPSHOT_DATE => date(day),
            CHANGE => when(appeared.clone(), lit(INSERT)).when(vanished.clone(), lit(DELETE)).otherwise(lit(UPDATE))?,
            _ => {
                let last = if layout.is_known(name) { of(WAS, name) } else { none()? };
                let current = if layout.is_kept(name) { of(NOW, name) } else { none()? };
                when(vanished.clone(), last).otherwise(current)?
            }
        }
        .alias(name))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(joined.filter(recorded)?.select(columns)?)
}

/// The newest row of each key. A day has each key at most once.
pub(super) fn last_versions(rows: DataFrame, keys: &[String], layout: &Layout) -> Result<DataFrame> {
    const LAST: &str = "last";
    let all = rows.clone().alias(WAS)?;
    let newest = vec![max(ident(SNAPSHOT_DATE)).alias(SNAPSHOT_DATE)];
    let last = rows.aggregate(keys.iter().map(ident).collect(), newest)?.alias(LAST)?;
    let same = keys.iter().map(|key| compare(of(WAS, key), layout.same_key(), of(LAST, key)));
    let day = compare(of(WAS, SNAPSHOT_DATE), layout.same_key(), of(LAST, SNAPSHOT_DATE));
    Ok(all.join_on(last, JoinType::LeftSemi, same.chain([day]))?)
}

/// A silver table has each key once; for any other source that must be seen.
///
/// # Errors
/// [`ErrorKind::Data`] with the first key that is there twice.
pub(super) async fn check_keys(session: &Session, source: &Table, keys: &[String]) -> Result<()> {
    if source.name().layer == lake::Layer::Silver {
        return Ok(());
    }
    const TIMES: &str = "__times";
    let rows = session.context().table(reference(source.name())).await?;
    let counted = rows.aggregate(keys.iter().map(ident).collect(), vec![count(lit(1_i64)).alias(TIMES)])?;
    let twice = counted.filter(ident(TIMES).gt(lit(1_i64)))?.limit(0, Some(1))?.collect().await?;
    let Some(batch) = twice.iter().find(|batch| batch.num_rows() > 0) else { return Ok(()) };
    let message = format!("{} has several rows with {}", source.name(), shown(batch, keys)?);
    Err(Error::new(ErrorKind::Data, message).hint("`keys` must identify a row"))
}

/// The key of the first row: `id = 7, day = 2024-05-01`.
fn shown(batch: &RecordBatch, keys: &[String]) -> Result<String> {
    let options = FormatOptions::default().with_null("null");
    let parts = keys.iter().zip(batch.columns()).map(|(key, column)| {
        let column: &dyn Array = column;
        Ok(format!("{key} = {}", ArrayFormatter::try_new(column, &options)?.value(0)))
    });
    Ok(parts.collect::<Result<Vec<_>>>()?.join(", "))
}

fn with_mark(rows: DataFrame) -> Result<DataFrame> {
    let mut columns: Vec<Expr> = rows.schema().fields().iter().map(|field| ident(field.name())).collect();
    columns.push(lit(true).alias(HERE));
    Ok(rows.select(columns)?)
}

fn of(side: &str, column: &str) -> Expr {
    Expr::Column(Column::new(Some(side), column))
}

fn compare(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}
