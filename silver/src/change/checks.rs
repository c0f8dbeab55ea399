//! The rules that typed changes are held to: a key, values where they must be, the conditions of the spec.

use arrow::array::{Array, ArrayRef, RecordBatch};
use lake::{Error, Result};

use super::unsent::Unsent;
use super::view::Viewed;
use super::{Decoder, Fate, record, reject};
use crate::expect::{Finding, Tested};
use crate::spec::{OnBad, OnBadValue, OnNullKey, OnTruncate};

/// Refuses records that have a key twice where values are read from: what it means is not told.
pub(super) fn repeated_keys(viewed: &Viewed<'_>, fates: &mut [Fate]) {
    for (row, fate) in fates.iter_mut().enumerate() {
        if let Some(name) = viewed.repeated(row) {
            reject(fate, "repeated_key", format!("the key `{name}` is repeated"), Some(&name.to_owned()), None);
        }
    }
}

impl Decoder {
    pub(super) fn keys(&self, typed: &[ArrayRef], fates: &mut [Fate]) {
        let keys: Vec<&ArrayRef> = self.resolved.key_positions().iter().map(|position| &typed[*position]).collect();
        for (row, fate) in fates.iter_mut().enumerate() {
            if matches!(fate, Fate::Upsert | Fate::Delete) && keys.iter().all(|key| key.is_null(row)) {
                let text = format!("the key is null: {}", self.plan.keys.join(", "));
                reject(fate, "null_key", text, self.plan.keys.first(), None);
            }
        }
    }

    pub(super) fn not_null(&self, typed: &[ArrayRef], fates: &mut [Fate], unsent: &Unsent) {
        for (number, (column, values)) in self.resolved.columns().iter().zip(typed).enumerate() {
            if column.nullable || values.null_count() == 0 {
                continue;
            }
            let is_key = self.plan.keys.contains(&column.name);
            for (row, fate) in fates.iter_mut().enumerate() {
                let needed = matches!(fate, Fate::Upsert) || (is_key && matches!(fate, Fate::Delete));
                if needed && values.is_null(row) && !unsent.has(row, number) {
                    reject(
                        fate,
                        "not_null",
                        format!("`{}` is null and must not be", column.name),
                        Some(&column.name),
                        None,
                    );
                }
            }
        }
    }

    /// An update that did not send a column of a condition is not held to it.
    pub(super) fn expect(&self, typed: &[ArrayRef], fates: &mut [Fate], unsent: &Unsent) -> Result<Vec<Tested>> {
        let mut held = vec![Tested::default(); self.expectations.len()];
        if self.expectations.is_empty() {
            return Ok(held);
        }
        let rows = RecordBatch::try_new(self.resolved.rows(), typed.to_vec())?;
        for (number, misses) in self.expectations.misses(&rows)?.into_iter().enumerate() {
            let is_asked = |row: usize| !misses.columns.iter().any(|column| unsent.has(row, *column));
            let held = &mut held[number];
            let asked = (0..fates.len()).filter(|row| matches!(fates[*row], Fate::Upsert) && is_asked(*row));
            held.asked += asked.count() as u64;
            for (row, text) in misses.failed {
                let kind = match misses.finding {
                    Finding::Reject { kind: crate::expect::FAIL } => crate::expect::FAIL,
                    _ => crate::expect::EVALUATION,
                };
                if matches!(fates[row], Fate::Upsert) && is_asked(row) {
                    held.missed += 1;
                    reject(&mut fates[row], kind, text, None, None);
                }
            }
            for row in misses.rows {
                if !matches!(fates[row], Fate::Upsert) || !is_asked(row) {
                    continue;
                }
                held.missed += 1;
                match misses.finding {
                    Finding::Warn => {}
                    Finding::Drop => fates[row] = Fate::Dropped,
                    Finding::Reject { kind } => reject(&mut fates[row], kind, misses.text.clone(), None, None),
                }
            }
        }
        Ok(held)
    }

    /// Fails when a record broke a rule that must stop the run.
    pub(super) fn stop(&self, batch: &RecordBatch, fates: &[Fate]) -> Result<()> {
        for (row, fate) in fates.iter().enumerate() {
            if matches!(fate, Fate::Truncate) && self.plan.truncates == OnTruncate::Fail {
                let arrival = record::Arrival::of(batch, row)?;
                let message = format!(
                    "{}: file `{}`, record {} is a truncate",
                    self.plan.table, arrival.file_path, arrival.row_number
                );
                return Err(Error::data(message).hint(
                    "`truncates: fail` stops the run at such a record and nothing was committed; `truncates: apply` \
                     removes every row that is older",
                ));
            }
            let Fate::Rejected(reason) = fate else { continue };
            let option = match reason.kind {
                "unknown_op" if self.plan.on_unknown_op == OnBad::Fail => "on_unknown_op: fail",
                "null_key" if self.plan.on_null_key == OnNullKey::Fail => "on_null_key: fail",
                "cast" | "not_null" if self.plan.on_cast_error == OnBadValue::Fail => "on_cast_error: fail",
                crate::expect::FAIL => "action: fail",
                _ => continue,
            };
            let arrival = record::Arrival::of(batch, row)?;
            let column = reason.column.as_ref().map(|column| format!(", column `{column}`")).unwrap_or_default();
            let message = format!(
                "{}: file `{}`, record {}{column}: {}",
                self.plan.table, arrival.file_path, arrival.row_number, reason.text
            );
            return Err(Error::data(message).hint(format!(
                "`{option}` stops the run at such a record and nothing was committed; mend the file, or send such records to quarantine"
            )));
        }
        Ok(())
    }
}
