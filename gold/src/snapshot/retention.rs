//! What older days still give to those that are kept.

use chrono::NaiveDate;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{ident, lit};
use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::session::{Session, reference};
use lake::{Result, Table};

use super::changed::DELETE;
use super::layout::Layout;
use super::state::{date, last_versions};

/// The rows of days before `cut` that a `changed_only` snapshot must keep so that the day `cut` and all later ones stay
/// whole: the last version of each key as of `cut`. They keep their day. With their number; `None` when that is all of
/// them.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when the rows cannot be read.
pub(super) async fn needed(
    session: &Session,
    table: &Table,
    layout: &Layout,
    keys: &[String],
    cut: NaiveDate,
) -> Result<Option<(DataFrame, u64)>> {
    let rows = session.context().table(reference(table.name())).await?;
    let old = rows.clone().filter(ident(SNAPSHOT_DATE).lt(date(cut)))?;
    let last = last_versions(rows.filter(ident(SNAPSHOT_DATE).lt_eq(date(cut)))?, keys, layout.same_key())?;
    let living = ident(CHANGE).not_eq(lit(DELETE));
    let needed = last.filter(ident(SNAPSHOT_DATE).lt(date(cut)).and(living))?;
    let rows = needed.clone().count().await?;
    if rows == old.count().await? {
        return Ok(None);
    }
    Ok(Some((layout.like(needed)?, rows as u64)))
}
