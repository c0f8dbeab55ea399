//! Timestamps of SQL in microseconds, as the tables hold them, and zones that exist.
//!
//! DataFusion plans `TIMESTAMP` and `AT TIME ZONE` in nanoseconds, which end in the years 1677 and 2262 and so fail
//! for the `9999-12-31` of many a source.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::{Error, ErrorKind};
use crate::spec::nearest;

/// Plans `TIMESTAMP` as microseconds without a zone. A precision of more than six digits is left to DataFusion.
#[derive(Debug)]
pub(super) struct Microseconds;

impl TypePlanner for Microseconds {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let zone = match sql_type {
            SqlType::Timestamp(None | Some(0..=6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => None,
            SqlType::Datetime(None | Some(0..=6)) => None,
            SqlType::Timestamp(None | Some(0..=6), TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => Some("UTC".into()),
            _ => return Ok(None),
        };
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, zone);
        Ok(Some(Arc::new(Field::new("", timestamp, true))))
    }
}

/// The plan with each `AT TIME ZONE` in microseconds.
///
/// # Errors
/// [`ErrorKind::Query`] for a zone that does not exist.
pub(super) fn in_microseconds(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut any = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            any |= expr.exists(|inner| Ok(zone_of(inner).is_some()))?;
            Ok(if any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if !any {
        return Ok(plan);
    }
    let changed = plan.transform_up_with_subqueries(|node| {
        let node = node.map_expressions(|expr| expr.transform_up(to_microseconds))?;
        // Also where no expression changed: what lies below may have other types now.
        node.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(changed.data)
}

/// The zone of an `AT TIME ZONE` as DataFusion plans it.
fn zone_of(expr: &Expr) -> Option<&Arc<str>> {
    match expr {
        Expr::Cast(cast) => match cast.field.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, zone) => zone.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

fn to_microseconds(expr: Expr) -> Result<Transformed<Expr>> {
    let Some(zone) = zone_of(&expr).cloned() else { return Ok(Transformed::no(expr)) };
    check_zone(&zone)?;
    let Expr::Cast(Cast { expr, .. }) = expr else { return Ok(Transformed::no(expr)) };
    Ok(Transformed::yes(Expr::Cast(Cast::new(expr, DataType::Timestamp(TimeUnit::Microsecond, Some(zone))))))
}

fn check_zone(zone: &str) -> Result<()> {
    if Tz::from_str(zone).is_ok() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Query, format!("`{zone}` is not a time zone"));
    Err(match nearest(zone, chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("write an IANA name such as `Europe/Lisbon`, or an offset such as `+05:30`"),
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_planned_in_microseconds() {
        let planned = |sql_type: SqlType| {
            let field = Microseconds.plan_type_field(&sql_type).expect("a plan");
            field.map(|field| field.data_type().clone())
        };
        let micros = |zone: Option<&str>| Some(DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into)));
        assert_eq!(planned(SqlType::Timestamp(None, TimezoneInfo::None)), micros(None));
        assert_eq!(planned(SqlType::Timestamp(Some(3), TimezoneInfo::WithTimeZone)), micros(Some("UTC")));
        assert_eq!(planned(SqlType::Timestamp(Some(9), TimezoneInfo::None)), None);
        assert_eq!(planned(SqlType::Date), None);
    }

    #[test]
    fn a_zone_must_exist() {
        for zone in ["America/New_York", "UTC", "+05:30"] {
            check_zone(zone).expect("a zone");
        }
        let error = Error::from(check_zone("Europe/Lisbo").expect_err("no zone"));
        assert_eq!(error.to_string(), "`Europe/Lisbo` is not a time zone");
        assert_eq!(error.hint_text(), Some("did you mean `Europe/Lisbon`?"));
    }
}
