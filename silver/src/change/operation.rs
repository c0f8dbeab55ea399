//! What a record does: upsert, delete, nothing, or something that the spec does not know.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use lake::session::Session;
use lake::{Context, Result};

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
    Nothing,
    Unknown(String),
    /// The spec's condition cannot be asked of it, for this reason.
    Unanswered(String),
}

/// Reads the operation of records.
pub(super) enum OperationReader {
    Upsert,
    Column { op: Op, position: Option<usize> },
    Flag { flag: DeleteFlag, position: Option<usize> },
    Either { op: Op, flag: DeleteFlag, positions: (Option<usize>, Option<usize>) },
    Condition { condition: Arc<dyn PhysicalExpr>, columns: Vec<usize> },
}

impl OperationReader {
    pub(super) fn new(plan: &TablePlan, bronze: &SchemaRef, view: &View, session: &Session) -> Result<Self> {
        Ok(match &plan.operation {
            Operation::Upsert => Self::Upsert,
            Operation::Column(op) => Self::Column { op: op.clone(), position: view.record(&op.column) },
            Operation::Flag(flag) => Self::Flag { flag: flag.clone(), position: view.record(&flag.column) },
            Operation::Either(op, flag) => Self::Either {
                op: op.clone(),
                flag: flag.clone(),
                positions: (view.record(&op.column), view.record(&flag.column)),
            },
            Operation::Condition(sql) => {
                let condition =
                    condition(sql, bronze, session).context(|| format!("`apply_as_deletes` of {}", plan.table))?;
                let columns = collect_columns(&condition).iter().map(Column::index).collect();
                Self::Condition { condition, columns }
            }
        })
    }

    /// The column that holds the operation, where one does.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Self::Column { op, .. } | Self::Either { op, .. } => Some(&op.column),
            Self::Flag { flag, .. } => Some(&flag.column),
            Self::Upsert | Self::Condition { .. } => None,
        }
    }

    /// The columns that hold the operation and are not there, when none is.
    pub(super) fn absent(&self) -> Option<&str> {
        match self {
            Self::Column { op, position: None } | Self::Either { op, positions: (None, None), .. } => Some(&op.column),
            Self::Flag { flag, position: None } => Some(&flag.column),
            _ => None,
        }
    }

    /// What each record does. `columns` are those of the view, `batch` has the columns of bronze, `restored` also what bronze could not hold in them; a
    /// condition that needs such a value cannot be asked.
    pub(super) fn read(&self, columns: &[ArrayRef], batch: &RecordBatch, restored: &Restored) -> Result<Vec<Does>> {
        let rows = batch.num_rows();
        Ok(match self {
            Self::Upsert | Self::Column { position: None, .. } | Self::Flag { position: None, .. } => {
                vec![Does::Upsert; rows]
            }
            Self::Column { op, position: Some(position) } => {
                (0..rows).map(|row| by_value(op, &columns[*position], row)).collect()
            }
            Self::Flag { flag, position: Some(position) } => {
                (0..rows).map(|row| by_flag(flag, &columns[*position], row)).collect()
            }
            Self::Either { op, flag, positions: (by_op, marked) } => {
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
            Self::Condition { condition, columns: asked } => {
                let Answers { values, failed } = answers(condition, batch)?;
                let does = |row: usize| match restored.text(row, asked) {
                    Some(text) => Does::Unknown(text.to_owned()),
                    None if values.is_valid(row) && values.value(row) => Does::Delete,
                    None => match failed.binary_search_by_key(&row, |(row, _)| *row) {
                        Ok(place) => Does::Unanswered(failed[place].1.clone()),
                        Err(_) => Does::Upsert,
                    },
                };
                (0..rows).map(does).collect()
            }
        })
    }
}

fn by_value(op: &Op, column: &ArrayRef, row: usize) -> Does {
    let Some(text) = value(column, row).filter(|text| !text.is_empty()) else { return Does::Upsert };
    let is_in = |values: &[String]| values.contains(&text);
    if is_in(&op.delete) {
        Does::Delete
    } else if is_in(&op.insert) || is_in(&op.update) {
        Does::Upsert
    } else if is_in(&op.ignore) {
        Does::Nothing
    } else {
        Does::Unknown(text)
    }
}

fn by_flag(flag: &DeleteFlag, column: &ArrayRef, row: usize) -> Does {
    let held = value(column, row);
    let deleted = match flag.when {
        Some(_) => held.is_some(),
        None => held.is_some_and(|held| flag.values.contains(&held)),
    };
    if deleted { Does::Delete } else { Does::Upsert }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;
    use crate::spec::FlagWhen;

    fn column(values: &[Option<&str>]) -> ArrayRef {
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
            ignore: list(&["B"]),
        };
        let column = column(&[None, Some(""), Some("I"), Some("D"), Some("B"), Some("d")]);
        let does: Vec<_> = (0..6).map(|row| by_value(&op, &column, row)).collect();
        let unknown = Does::Unknown("d".into());
        assert_eq!(does, [Does::Upsert, Does::Upsert, Does::Upsert, Does::Delete, Does::Nothing, unknown]);
    }

    #[test]
    fn a_flag_deletes_by_value_or_by_being_there() {
        let by_values = DeleteFlag { column: "gone".into(), values: vec!["true".into(), "1".into()], when: None };
        let column = column(&[Some("1"), Some("false"), None]);
        let does: Vec<_> = (0..3).map(|row| by_flag(&by_values, &column, row)).collect();
        assert_eq!(does, [Does::Delete, Does::Upsert, Does::Upsert]);
        let by_presence = DeleteFlag { values: Vec::new(), when: Some(FlagWhen::NotNull), ..by_values };
        let does: Vec<_> = (0..3).map(|row| by_flag(&by_presence, &column, row)).collect();
        assert_eq!(does, [Does::Delete, Does::Delete, Does::Upsert]);
    }
}
