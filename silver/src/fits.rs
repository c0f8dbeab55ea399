//! Whether a table that is there can become what its plan asks for.

use arrow::datatypes::Schema;
use lake::schema::{Evolution, evolution};
use lake::{Error, ErrorKind, Result, Table, TableName, columns};

use crate::plan::{Columns, TablePlan};

/// The table property that holds keys and sequence.
pub(crate) const IDENTITY: &str = "lakehouse.changes";

impl TablePlan {
    /// Refuses a table that was made by another plan, whether there is something new for it or not.
    pub(crate) fn check_made_alike(&self, table: &Table) -> Result<()> {
        let (held, wanted) = (table.property(IDENTITY)?, self.identity());
        if let Some(held) = held.filter(|held| *held != wanted) {
            let message = format!("{} was made with `{held}` and the spec has `{wanted}`", self.table);
            return Err(Error::new(ErrorKind::Table, message).hint(self.rebuild_hint()));
        }
        self.check_no_new_generated(table)?;
        let Columns::Declared(declared) = &self.columns else { return Ok(()) };
        let held = table.schema();
        let is_ours = |name: &str| columns::is_silver_technical(name) || self.kept.reserves(name);
        let technical = held.fields().iter().filter(|field| is_ours(field.name()));
        let technical = technical.map(|field| field.as_ref().clone());
        let is_declared = |name: &str| declared.iter().any(|plan| plan.column.name.eq_ignore_ascii_case(name));
        let joined = held
            .fields()
            .iter()
            .filter(|field| self.joining.is_some() && !is_ours(field.name()) && !is_declared(field.name()));
        let joined = joined.map(|field| field.as_ref().clone());
        let fields = declared.iter().map(|plan| plan.column.field()).chain(joined).chain(technical);
        match evolution(&held, &Schema::new(fields.collect::<Vec<_>>())) {
            Evolution::Refused(problems) => Err(self.refused(&problems)),
            Evolution::Same | Evolution::Add(_) => Ok(()),
        }
    }

    /// Refuses a generated column that is new to a table with rows: they lack what its expression gives.
    fn check_no_new_generated(&self, table: &Table) -> Result<()> {
        let is_new = |name: &str| table.schema().index_of(name).is_err();
        let new = self.generated.iter().find(|generated| is_new(&generated.name));
        let Some(new) = new.filter(|_| table.file_count().is_ok_and(|files| files > 0)) else { return Ok(()) };
        let message = format!("{} has rows, which lack the new generated column `{}`", self.table, new.name);
        Err(Error::new(ErrorKind::Table, message).hint(self.rebuild_hint()))
    }

    /// True when the next rows bring columns of the spec that the table has not yet.
    pub(crate) fn lacks_columns(&self, table: &Table) -> bool {
        let Columns::Declared(declared) = &self.columns else { return false };
        let held = table.schema();
        let has = |name: &str| held.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name));
        declared.iter().any(|plan| !has(&plan.column.name))
    }

    /// Refuses a table with other partitions.
    pub(crate) fn check_partitions(&self, table: &Table) -> Result<()> {
        let held = table.partition_columns()?;
        if held == self.partition_by {
            return Ok(());
        }
        let message = format!("{} is partitioned by {held:?} and the spec says {:?}", self.table, self.partition_by);
        Err(Error::new(ErrorKind::Table, message).hint(self.rebuild_hint()))
    }

    /// What is said of columns that a table cannot take.
    pub(crate) fn refused(&self, problems: &[String]) -> Error {
        let message = format!("{} cannot take the columns of the spec: {}", self.table, problems.join("; "));
        Error::new(ErrorKind::Table, message).hint(self.rebuild_hint())
    }

    /// What is said of a bronze table that was made anew and counts its batches from the start.
    pub(crate) fn ahead_of_source(&self, after: i64, newest: i64) -> Error {
        let source = TableName::bronze(&self.source);
        let message = format!("{} has applied batch {after} of {source}, which ends with batch {newest}", self.table);
        Error::new(ErrorKind::Table, message).hint(format!(
            "{source} was made anew: build the table from what is there now with `silver rebuild {}`",
            self.table.name
        ))
    }
}
