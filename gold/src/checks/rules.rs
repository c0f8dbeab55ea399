//! What must hold of a table as a whole.

use arrow::array::{Array, AsArray};
use arrow::compute::cast as cast_array;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::{Expr, ident, lit};
use lake::report::{counted, thousands};
use lake::{Error, Result};

use super::{Asking, NAMED_MAX};
use crate::plan::Rule;
use crate::verify::words;

const TIMES: &str = "__times";
const FIELD: &str = "__field";
const DAY_US: i64 = 86_400_000_000;

impl Asking<'_> {
    /// What breaks a rule, in words.
    pub(super) async fn broken(&self, rule: &Rule, all: DataFrame, groups: &[String]) -> Result<Option<String>> {
        match rule {
            Rule::Unique(columns) => {
                // Where rows are replaced by columns that are among these, there can be no two.
                if !groups.is_empty() && groups.iter().all(|group| columns.contains(group)) {
                    return Ok(None);
                }
                let keys: Vec<Expr> = columns.iter().map(ident).collect();
                let twice = all.aggregate(keys, vec![count(lit(1_i64)).alias(TIMES)])?;
                let twice = twice.filter(ident(TIMES).gt(lit(1_i64)))?;
                told(twice, &format!("`unique` ({}) is broken by", columns.join(", ")), "value").await
            }
            Rule::NotNull(columns) => {
                let null = columns.iter().map(|column| ident(column).is_null()).reduce(Expr::or);
                let nulls = all.filter(null.unwrap_or_else(|| lit(false)))?;
                told(nulls, &format!("`not_null` ({}) is broken by", columns.join(", ")), "row").await
            }
            Rule::RowCount { min, max } => {
                let rows = all.count().await? as u64;
                let is_right = min.is_none_or(|min| rows >= min) && max.is_none_or(|max| rows <= max);
                let bound = |name: &str, bound: &Option<u64>| bound.map(|bound| format!("{name} {}", thousands(bound)));
                let bounds: Vec<String> =
                    [bound("at least", min), bound("at most", max)].into_iter().flatten().collect();
                Ok((!is_right).then(|| format!("`row_count` is {}, not {}", thousands(rows), bounds.join(" and "))))
            }
            Rule::Freshness { column, within_us, written } => self.stale(all, column, *within_us, written).await,
            Rule::Relationship { name, column, to, field } => {
                let Some(parent) = self.ctx.pins.open(self.lake, to).await? else {
                    return Ok(Some(format!("`relationships.{name}`: {to} does not exist yet")));
                };
                if parent.schema().field_with_name(field).is_err() {
                    return Err(Error::spec(format!("`relationships.{name}`: {to} has no column `{field}`")));
                }
                let known = self.session.context().read_table(self.session.provider(&parent).await?)?;
                let known = known.select(vec![ident(field).alias(FIELD)])?;
                let asked = all.filter(ident(column).is_not_null())?;
                let orphans = asked.join_on(known, JoinType::LeftAnti, [ident(column).eq(ident(FIELD))])?;
                told(orphans, &format!("`relationships.{name}` ({column} in {to}.{field}) is broken by"), "row").await
            }
        }
    }

    async fn stale(&self, all: DataFrame, column: &str, within_us: i64, written: &str) -> Result<Option<String>> {
        let newest = all.aggregate(Vec::new(), vec![max(ident(column)).alias(column)])?.collect().await?;
        let Some(batch) = newest.iter().find(|batch| batch.num_rows() > 0) else { return Ok(None) };
        let value = batch.column(0);
        if value.is_null(0) {
            return Ok(Some(format!("`freshness`: no row has a `{column}`")));
        }
        // A day lasts until its end.
        let lasts = if matches!(value.data_type(), DataType::Date32 | DataType::Date64) { DAY_US } else { 0 };
        let moment = cast_array(value, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let at = cast_array(&moment, &DataType::Int64)?.as_primitive::<Int64Type>().value(0).saturating_add(lasts);
        let is_fresh = at.saturating_add(within_us) >= self.lake.clock().now_micros();
        let told = || format!("`freshness`: the newest `{column}` is {}, older than {written}", newest_text(value));
        Ok((!is_fresh).then(told))
    }
}

fn newest_text(value: &dyn Array) -> String {
    arrow::util::display::array_value_to_string(value, 0).unwrap_or_default()
}

/// Rows that should not be, in words; `None` without any.
async fn told(rows: DataFrame, what: &str, noun: &str) -> Result<Option<String>> {
    let number = rows.clone().count().await?;
    if number == 0 {
        return Ok(None);
    }
    let some = rows.limit(0, Some(NAMED_MAX))?.collect().await?;
    let some: Vec<String> = some.iter().flat_map(words).collect();
    Ok(Some(format!("{what} {}: {}", counted(number, noun), some.join(" | "))))
}
