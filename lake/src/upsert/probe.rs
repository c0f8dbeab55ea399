//! What each change meets: nothing, an older row, or a newer one.

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::JoinType;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit, when};

use super::compare::{older, same_key};
use super::{ABSENT, DELETE, DELETED, INSERT, Probed, STALE, UPDATE, Upsert, UpsertFigures, VERDICT};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;

const STORED: &str = "__stored_";
const PRESENT: &str = "__present";

pub(super) async fn probe(upsert: &Upsert, lake: &Lake, table: &Table, changes: &Staged) -> Result<Probed> {
    let session = lake.session()?;
    let stored: Vec<Expr> = upsert
        .keys
        .iter()
        .map(String::as_str)
        .chain(upsert.order())
        .enumerate()
        .map(|(number, name)| ident(name).alias(format!("{STORED}{number}")))
        .chain([lit(true).alias(PRESENT)])
        .collect();
    let target = session.context().read_table(session.provider(table).await?)?.select(stored)?;
    let schema = table.schema();
    let keys = upsert.keys.iter().enumerate();
    let keys = keys.map(|(number, key)| same_key(&schema, key, ident(key), ident(format!("{STORED}{number}"))));
    let keys: Vec<Expr> = keys.collect();
    let columns = changes.schema().fields().iter().map(|field| ident(field.name())).collect::<Vec<_>>();
    let verdict = verdict(upsert)?.alias(VERDICT);
    let judged = changes
        .frame(&session)
        .await?
        .join_on(target, JoinType::Left, keys)?
        .select(columns.into_iter().chain([verdict]).collect::<Vec<_>>())?;
    let rows = Staged::write(judged).await?;
    let figures = count_verdicts(lake, &rows).await?;
    Ok(Probed { rows, figures })
}

fn verdict(upsert: &Upsert) -> Result<Expr> {
    let first = upsert.keys.len();
    let parts =
        upsert.order().enumerate().map(|(number, name)| (ident(name), ident(format!("{STORED}{}", first + number))));
    let stale = older(&parts.collect::<Vec<_>>());
    Ok(when(ident(PRESENT).is_null().and(ident(DELETE)), lit(ABSENT))
        .when(ident(PRESENT).is_null(), lit(INSERT))
        .when(stale, lit(STALE))
        .when(ident(DELETE), lit(DELETED))
        .otherwise(lit(UPDATE))?)
}

async fn count_verdicts(lake: &Lake, rows: &Staged) -> Result<UpsertFigures> {
    let session = lake.session()?;
    let counts = rows
        .frame(&session)
        .await?
        .aggregate(vec![ident(VERDICT)], vec![count(lit(1)).alias("rows")])?
        .select(vec![ident(VERDICT), ident("rows")])?
        .collect()
        .await?;
    let mut figures = UpsertFigures::default();
    for batch in &counts {
        let verdicts = batch.column(0).as_primitive::<Int32Type>();
        let rows = batch.column(1).as_primitive::<Int64Type>();
        for index in 0..batch.num_rows() {
            let count = u64::try_from(rows.value(index)).unwrap_or(0);
            match verdicts.value(index) {
                STALE => figures.stale = count,
                INSERT => figures.inserted = count,
                UPDATE => figures.updated = count,
                DELETED => figures.deleted = count,
                ABSENT => figures.absent = count,
                other => return Err(Error::internal(format!("unknown verdict {other}"))),
            }
        }
    }
    if figures.applied() + figures.stale != rows.rows() {
        return Err(Error::internal("a change met more than one row: the table holds a key twice"));
    }
    Ok(figures)
}
