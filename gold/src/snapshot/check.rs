//! What a snapshot holds day by day: rows, keys that are there twice, days without a run.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Date32Type, Int64Type};
use chrono::NaiveDate;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, ident, lit, when};
use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::report::grid::{Align, Grid};
use lake::report::{WIDTH, counted, thousands};
use lake::session::{Session, reference};
use lake::{Error, Result, Table, TableName};
use serde_json::{Value, json};

use super::changed::{DELETE, INSERT, UPDATE};
use super::days::Days;
use super::layout::respelled;
use super::state::{date, living};
use super::strategy_name;
use crate::plan::SnapshotPlan;
use crate::spec::Strategy;

/// A snapshot day by day.
#[derive(Debug)]
pub struct Check {
    /// The snapshot.
    pub table: TableName,
    strategy: Strategy,
    days: BTreeMap<NaiveDate, DayRows>,
    /// Rows of days that are gone, kept for the state of the first day.
    carried: u64,
    /// Other rows of days that are gone: needless, they go with a later day.
    needless: u64,
    /// Runs of days without a recorded state, between the first and the last.
    gaps: Vec<(NaiveDate, NaiveDate)>,
    /// True when it is known which columns identify a row.
    has_keys: bool,
}

/// The rows of a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DayRows {
    rows: u64,
    inserted: u64,
    updated: u64,
    deleted: u64,
    /// Rows beyond the first of their key.
    doubled: u64,
}

/// Counts what a snapshot holds.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when its rows cannot be read.
pub async fn check(session: &Session, table: &Table, plan: &SnapshotPlan) -> Result<Check> {
    let plan = &respelled(plan, Some(table), table);
    session.register(table).await?;
    let rows = session.context().table(reference(table.name())).await?;
    let known = Days::of(table)?;
    let mut days: BTreeMap<NaiveDate, DayRows> = known.iter().map(|day| (day, DayRows::default())).collect();
    let changes: &[&str] = if plan.strategy == Strategy::ChangedOnly { &[INSERT, UPDATE, DELETE] } else { &[] };
    for (day, counts) in per_day(rows.clone(), counts_of(changes)?).await? {
        let of = |place: usize| counts.get(place).copied().unwrap_or(0);
        days.insert(
            day,
            DayRows { rows: of(0), inserted: of(1), updated: of(2), deleted: of(3), ..DayRows::default() },
        );
    }
    if !plan.source_keys.is_empty() {
        const TIMES: &str = "__times";
        let by = [SNAPSHOT_DATE].into_iter().chain(plan.source_keys.iter().map(String::as_str)).map(ident);
        let times = rows.clone().aggregate(by.collect(), vec![count(lit(1_i64)).alias(TIMES)])?;
        let more = times.filter(ident(TIMES).gt(lit(1_i64)))?;
        let doubled = per_day(more, vec![sum(ident(TIMES) - lit(1_i64)).alias("doubled")]).await?;
        for (day, counts) in doubled {
            days.entry(day).or_default().doubled = counts.first().copied().unwrap_or(0);
        }
    }
    // Rows before the first day are no day of their own.
    let older = known.first().map(|first| {
        let kept = days.split_off(&first);
        std::mem::replace(&mut days, kept)
    });
    let older: u64 = older.iter().flat_map(BTreeMap::values).map(|day| day.rows).sum();
    let carried = match known.first() {
        Some(first) if older > 0 && plan.strategy == Strategy::ChangedOnly => {
            let up_to_first = rows.filter(ident(SNAPSHOT_DATE).lt_eq(date(first)))?;
            let living = living(up_to_first, &plan.keys)?;
            living.filter(ident(SNAPSHOT_DATE).lt(date(first)))?.count().await? as u64
        }
        _ => 0,
    };
    let needless = older.saturating_sub(carried);
    let (strategy, has_keys) = (plan.strategy, !plan.source_keys.is_empty());
    Ok(Check { table: table.name().clone(), strategy, days, carried, needless, gaps: known.gaps(), has_keys })
}

/// The number of all rows, and of those with each of these changes.
fn counts_of(changes: &[&str]) -> Result<Vec<Expr>> {
    let mut counts = vec![count(lit(1_i64)).alias("rows")];
    for change in changes {
        let one = when(ident(CHANGE).eq(lit(*change)), lit(1_i64)).otherwise(lit(0_i64))?;
        counts.push(sum(one).alias(*change));
    }
    Ok(counts)
}

/// Figures of each day.
async fn per_day(rows: DataFrame, figures: Vec<Expr>) -> Result<Vec<(NaiveDate, Vec<u64>)>> {
    let batches = rows.aggregate(vec![ident(SNAPSHOT_DATE)], figures)?.collect().await?;
    let mut days = Vec::new();
    for batch in &batches {
        let dates = batch.column(0).as_primitive::<Date32Type>();
        for row in 0..batch.num_rows() {
            let day = Date32Type::to_naive_date_opt(dates.value(row));
            let day = day.ok_or_else(|| Error::internal("a snapshot has a day that is none"))?;
            let figures = batch.columns()[1..].iter().map(|column| {
                let column = column.as_primitive::<Int64Type>();
                if column.is_valid(row) { u64::try_from(column.value(row)).unwrap_or(0) } else { 0 }
            });
            days.push((day, figures.collect()));
        }
    }
    Ok(days)
}

impl Check {
    /// True when no day has a key twice.
    pub fn holds(&self) -> bool {
        self.days.values().all(|day| day.doubled == 0)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let recorded = counted(self.days.len(), "recorded day");
        let mut text = format!("{} ({}), {recorded}\n", self.table, strategy_name(self.strategy));
        let figure = |number: u64| if number == 0 { "-".to_owned() } else { thousands(number) };
        let mut grid = Grid::new();
        grid.column("day", None, Align::Left, self.days.keys().map(NaiveDate::to_string));
        let mut column = |title: &str, of: fn(&DayRows) -> u64| {
            grid.column(title, None, Align::Right, self.days.values().map(|day| figure(of(day))));
        };
        column("rows", |day| day.rows);
        if self.strategy == Strategy::ChangedOnly {
            column("inserted", |day| day.inserted);
            column("updated", |day| day.updated);
            column("deleted", |day| day.deleted);
        }
        if self.has_keys {
            column("doubled", |day| day.doubled);
        }
        if !self.days.is_empty() {
            text.push_str(&grid.render(WIDTH));
        }
        if self.carried > 0 {
            let rows = thousands(self.carried);
            text.push_str(&format!("{rows} rows of days that are gone are kept for the state of the first day\n"));
        }
        if self.needless > 0 {
            text.push_str(&format!("{} older rows go when later days are recorded\n", thousands(self.needless)));
        }
        for (first, last) in &self.gaps {
            let days = if first == last { first.to_string() } else { format!("{first} to {last}") };
            text.push_str(&match self.strategy {
                Strategy::Full => format!("not recorded: {days}\n"),
                Strategy::ChangedOnly => format!("nothing recorded: {days} (no run, or nothing had changed)\n"),
            });
        }
        text.push_str(match (self.has_keys, self.holds()) {
            (false, _) => "whether a row is there twice cannot be told: the keys are not known\n",
            (true, true) => "no key is there twice on a day\n",
            (true, false) => "there are keys that are there twice on a day\n",
        });
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let day = |(day, rows): (&NaiveDate, &DayRows)| {
            let mut told = json!({"day": day.to_string(), "rows": rows.rows});
            if self.strategy == Strategy::ChangedOnly {
                told["inserted"] = rows.inserted.into();
                told["updated"] = rows.updated.into();
                told["deleted"] = rows.deleted.into();
            }
            if self.has_keys {
                told["doubled"] = rows.doubled.into();
            }
            told
        };
        let gap = |(first, last): &(NaiveDate, NaiveDate)| json!({"from": first.to_string(), "to": last.to_string()});
        json!({
            "table": self.table.to_string(),
            "strategy": strategy_name(self.strategy),
            "days": self.days.iter().map(day).collect::<Vec<_>>(),
            "rows_carried": self.carried,
            "rows_needless": self.needless,
            "gaps": self.gaps.iter().map(gap).collect::<Vec<_>>(),
            "holds": self.has_keys.then(|| self.holds()),
        })
    }
}
