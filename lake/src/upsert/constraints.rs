//! The rules that a table puts on its rows, held against those that are to be written.

use super::{Probed, Upsert, Verdict, rows};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::rules::{Rule, hold};
use crate::table::Table;

/// Fails when a new row breaks a rule of the table.
pub(super) async fn check(upsert: &Upsert, lake: &Lake, table: &Table, probed: &Probed) -> Result<()> {
    let rules = Rule::of(table)?;
    if rules.is_empty() || probed.figures.inserted + probed.figures.updated == 0 {
        return Ok(());
    }
    let session = lake.session()?;
    let rows = rows::frame(probed, &session, &[Verdict::Insert, Verdict::Update])?;
    let what = format!("to be written to {}", table.name());
    let held = hold(&rules, &rows, &upsert.keys, &table.partition_columns()?, &what).await;
    held.map_err(|error| match error.hint_text() {
        None => error.hint("nothing was committed; what the spec names in `constraints` and `generated` is asked of each record, and sends it to quarantine"),
        Some(_) => error,
    })
}
