//! What a record does: upsert, delete, nothing, or something that the spec does not know.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use lake::cast::boolean;
use lake::session::Session;
use lake::{Context, Error, Result};

use super::record::value;
use super::rescue::Restored;
use super::view::View;
use crate::condition::{Answers, answers, condition};
use crate::plan::{Operation, TablePlan};
use crate::spec::{DeleteFlag, Op};

/// What one record does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    Upsert,
    Delete,
    Truncate,
    Nothing,
    Unknown(String),
    /// A condition of the spec cannot be asked of it, for this reason.
    Unanswered {
        option: &'static str,
        reason: String,
    },
}

/// Reads the operation of records.
pub(super) struct OperationReader {
    deletes: Deletes,
    truncates: Option<Condition>,
}

enum Deletes {
    Upsert,
    Column { op: Op, position: Option<usize> },
    Flag { flag: DeleteFlag, position: Option<usize> },
    Either { op: Op, flag: DeleteFlag, positions: (Option<usize>, Option<usize>) },
    Condition(Condition),
}

/// SQL of the spec over the record.
struct Condition {
    option: &'static str,
    condition: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
    then: Does,
}

impl OperationReader {
    pub(super) fn new(plan: &TablePlan, bronze: &SchemaRef, view: &View, session: &Session) -> Result<Self> {
        let asked = |option: &'static str, sql: &str, then: Does| {
            let condition = condition(sql, bronze, session).context(|| format!("`{option}` of {}", plan.table))?;
            let columns = collect_columns(&condition).iter().map(Column::index).collect();
            Ok::<_, Error>(Condition { option, condition, columns, then })
        };
        let deletes = match &plan.operation {
            Operation::Upsert => Deletes::Upsert,
            Operation::Column(op) => Deletes::Column { op: as_read(op, plan), position: view.record(&op.column) },
            Operation::Flag(flag) => Deletes::Flag { flag: flag.clone(), position: view.record(&flag.column) },
            Operation::Either(op, flag) => Deletes::Either {
                op: as_read(op, plan),
                flag: flag.clone(),
                positions: (view.record(&op.column), view.record(&flag.column)),
            },
            Operation::Condition(sql) => Deletes::Condition(asked("apply_as_deletes", sql, Does::Delete)?),
        };
        let truncates = plan.truncate_condition.as_ref().map(|sql| asked("apply_as_truncates", sql, Does::Truncate));
        Ok(Self { deletes, truncates: truncates.transpose()? })
    }

    /// The column that holds the operation, where one does.
    pub(super) fn column(&self) -> Option<&str> {
        match &self.deletes {
            Deletes::Column { op, .. } | Deletes::Either { op, .. } => Some(&op.column),
            Deletes::Flag { flag, .. } => Some(&flag.column),
            Deletes::Upsert | Deletes::Condition(_) => None,
        }
    }

    /// The columns that hold the operation and are not there, when none is.
    pub(super) fn absent(&self) -> Option<&str> {
        match &self.deletes {
            Deletes::Column { op, position: None } | Deletes::Either { op, positions: (None, None), .. } => {
                Some(&op.column)
            }
            Deletes::Flag { flag, position: None } => Some(&flag.column),
            _ => None,
        }
    }

    /// What each record does. `columns` are those of the view, `batch` has the columns of bronze, `restored` also what bronze could not hold in them; a
    /// condition that needs such a value cannot be asked.
    pub(super) fn read(&self, columns: &[ArrayRef], batch: &RecordBatch, restored: &Restored) -> Result<Vec<Does>> {
        let rows = batch.num_rows();
        let mut all: Vec<Does> = match &self.deletes {
            Deletes::Upsert | Deletes::Column { position: None, .. } | Deletes::Flag { position: None, .. } => {
                vec![Does::Upsert; rows]
            }
            Deletes::Column { op, position: Some(position) } => {
                (0..rows).map(|row| by_value(op, &columns[*position], row)).collect()
            }
            Deletes::Flag { flag, position: Some(position) } => {
                (0..rows).map(|row| by_flag(flag, &columns[*position], row)).collect()
            }
            Deletes::Either { op, flag, positions: (by_op, marked) } => {
                let does = |row: usize| {
                    let flagged = marked.map(|position| by_flag(flag, &columns[position], row));
                    let said = by_op.map_or(Does::Upsert, |position| by_value(op, &columns[position], row));
                    match (flagged, said) {
                        (Some(Does::Delete), Does::Upsert) => Does::Delete,
                        (_, said) => said,
                    }
                };
                (0..rows).map(does).collect()
            }
            Deletes::Condition(condition) => condition.ask(batch, restored)?,
        };
        if let Some(condition) = &self.truncates {
            for (does, truncates) in all.iter_mut().zip(condition.ask(batch, restored)?) {
                if truncates != Does::Upsert {
                    *does = truncates;
                }
            }
        }
        Ok(all)
    }
}

impl Condition {
    /// What each record does by the condition alone.
    fn ask(&self, batch: &RecordBatch, restored: &Restored) -> Result<Vec<Does>> {
        let Answers { values, failed } = answers(&self.condition, batch)?;
        let does = |row: usize| match restored.text(row, &self.columns) {
            Some(text) => Does::Unknown(text.to_owned()),
            None if values.is_valid(row) && values.value(row) => self.then.clone(),
            None => match failed.binary_search_by_key(&row, |(row, _)| *row) {
                Ok(place) => Does::Unanswered { option: self.option, reason: failed[place].1.clone() },
                Err(_) => Does::Upsert,
            },
        };
        Ok((0..batch.num_rows()).map(does).collect())
    }
}

/// The values as records are read by them. The row before an update is a delete of its key that the row after it outweighs,
/// and that takes away what the update did not send: where it may leave out columns, it is no change.
fn as_read(op: &Op, plan: &TablePlan) -> Op {
    let mut op = op.clone();
    if plan.partial.is_on() {
        op.ignore.append(&mut op.preimage);
    }
    op
}

fn by_value(op: &Op, column: &ArrayRef, row: usize) -> Does {
    let Some(text) = value(column, row).filter(|text| !text.is_empty()) else { return Does::Upsert };
    let is_in = |values: &[String]| values.contains(&text);
    if is_in(&op.delete) || is_in(&op.preimage) {
        Does::Delete
    } else if is_in(&op.insert) || is_in(&op.update) {
        Does::Upsert
    } else if is_in(&op.truncate) {
        Does::Truncate
    } else if is_in(&op.ignore) {
        Does::Nothing
    } else {
        Does::Unknown(text)
    }
}

fn by_flag(flag: &DeleteFlag, column: &ArrayRef, row: usize) -> Does {
    let held = value(column, row);
    let deleted = match flag.when {
        // A CSV file has an empty text for null.
        Some(_) => held.is_some_and(|held| !held.is_empty()),
        None => held.is_some_and(|held| {
            let is_true = |text: &str| boolean(text) == Ok(true);
            flag.values.contains(&held) || (is_true(&held) && flag.values.iter().any(|value| is_true(value)))
        }),
    };
    if deleted { Does::Delete } else { Does::Upsert }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;
    use crate::spec::FlagWhen;

    fn column_of(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[test]
    fn a_null_or_empty_operation_is_an_upsert() {
        let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let op = Op {
            column: "op".into(),
            insert: list(&["I"]),
            update: list(&["U"]),
            delete: list(&["D"]),
            truncate: list(&["T"]),
            preimage: list(&["O"]),
            ignore: list(&["B"]),
        };
        let column = column_of(&[None, Some(""), Some("I"), Some("D"), Some("B"), Some("d"), Some("T"), Some("O")]);
        let does: Vec<_> = (0..8).map(|row| by_value(&op, &column, row)).collect();
        let unknown = Does::Unknown("d".into());
        let expected = [
            Does::Upsert,
            Does::Upsert,
            Does::Upsert,
            Does::Delete,
            Does::Nothing,
            unknown,
            Does::Truncate,
            Does::Delete,
        ];
        assert_eq!(does, expected);
    }

    #[test]
    fn a_flag_deletes_by_value_or_by_being_there() {
        let by_values = DeleteFlag { column: "gone".into(), values: vec!["true".into(), "1".into()], when: None };
        let column = column_of(&[Some("1"), Some("false"), None]);
        let does: Vec<_> = (0..3).map(|row| by_flag(&by_values, &column, row)).collect();
        assert_eq!(does, [Does::Delete, Does::Upsert, Does::Upsert]);
        let words = column_of(&[Some("T"), Some("Yes"), Some("0"), Some("gone")]);
        let does: Vec<_> = (0..4).map(|row| by_flag(&by_values, &words, row)).collect();
        assert_eq!(does, [Does::Delete, Does::Delete, Does::Upsert, Does::Upsert]);
        let by_presence = DeleteFlag { values: Vec::new(), when: Some(FlagWhen::NotNull), ..by_values };
        let does: Vec<_> = (0..3).map(|row| by_flag(&by_presence, &column, row)).collect();
        assert_eq!(does, [Does::Delete, Does::Delete, Does::Upsert]);
    }
}
