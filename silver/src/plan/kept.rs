//! What a table keeps of each key: its current row, deleted rows as well, or every version.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use lake::columns;
use lake::spec::Problem;

use super::check::Check;
use super::{Columns, SequencePart, TablePlan};
use crate::spec::DeleteMode;

/// What a table keeps of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The current row.
    Current,
    /// The current row, or the last one with the mark that it is deleted.
    Marked,
    /// Every version.
    History(Tracked),
}

/// The columns whose changes make a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracked {
    /// All.
    All,
    /// These.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

impl Kept {
    /// The columns of a table whose columns would be `base` if it kept current rows only.
    pub(crate) fn columns(&self, base: &SchemaRef, sequence: &[SequencePart]) -> SchemaRef {
        let mut fields: Vec<Field> = base.fields().iter().map(|field| field.as_ref().clone()).collect();
        match self {
            Self::Current => return Arc::clone(base),
            Self::Marked => {
                fields.push(Field::new(columns::IS_DELETED, DataType::Boolean, false));
                for number in 0..sequence.len() {
                    let part = base.field_with_name(&columns::sequence(number)).map(Field::data_type).ok();
                    fields.extend(part.map(|kind| Field::new(columns::deleted_sequence(number), kind.clone(), true)));
                }
                fields.push(Field::new(columns::DELETED_BATCH_ID, DataType::Int64, true));
            }
            Self::History(_) => {
                let own = fields.iter().take_while(|field| !columns::is_silver_technical(field.name())).count();
                let kind = position(base, sequence);
                fields.insert(own, Field::new(columns::END_AT, kind.clone(), true));
                fields.insert(own, Field::new(columns::START_AT, kind, true));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// The columns of which a table holds one row per value.
    pub(crate) fn row_keys(&self, plan: &TablePlan) -> Vec<String> {
        match self {
            Self::Current | Self::Marked => plan.keys.clone(),
            Self::History(_) => plan.keys.iter().cloned().chain(plan.sequence_columns()).collect(),
        }
    }

    /// A word for what rows were made as; nothing where only current rows are kept.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Current => String::new(),
            Self::Marked => "; soft deletes".to_owned(),
            Self::History(Tracked::All) => "; history of every column".to_owned(),
            Self::History(Tracked::Only(names)) => format!("; history of {}", names.join(", ")),
            Self::History(Tracked::Except(names)) => format!("; history of all but {}", names.join(", ")),
        }
    }

    /// True for a name that the table needs for itself, beyond what every table does.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        *self != Self::Current && columns::is_silver_past(name)
    }
}

impl Tracked {
    /// Whether changes of a column make a new version.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|tracked| tracked == name),
            Self::Except(names) => !names.iter().any(|other| other == name),
        }
    }
}

/// The type of a position in the sequence: that of its part, of several a struct of all.
fn position(base: &SchemaRef, sequence: &[SequencePart]) -> DataType {
    let kind = |number| {
        base.field_with_name(&columns::sequence(number)).map_or(DataType::Null, |part| part.data_type().clone())
    };
    if let [_] = sequence {
        return kind(0);
    }
    let names = position_names(sequence).into_iter().enumerate();
    DataType::Struct(names.map(|(number, name)| Field::new(name, kind(number), true)).collect::<Fields>())
}

/// The names of the parts in such a struct: the last names of their paths, or their numbers where those are not clear.
pub(crate) fn position_names(sequence: &[SequencePart]) -> Vec<String> {
    let last = |part: &SequencePart| part.source.rsplit('.').next().unwrap_or(&part.source).to_owned();
    let names: Vec<String> = sequence.iter().map(last).collect();
    let is_clear = |name: &String| names.iter().filter(|other| other.eq_ignore_ascii_case(name)).count() == 1;
    if names.iter().all(is_clear) { names } else { (0..sequence.len()).map(|n| format!("part_{}", n + 1)).collect() }
}

impl Check<'_> {
    /// What the table keeps of each key.
    pub(super) fn kept(&mut self, columns: &Columns) -> Kept {
        let raw = &self.entry.raw;
        let history = raw.stored_as_scd_type == Some(2);
        let lists = [
            ("track_history_column_list", &raw.track_history_column_list),
            ("track_history_except_column_list", &raw.track_history_except_column_list),
        ];
        let given: Vec<_> = lists.iter().filter(|(_, names)| !names.is_empty()).collect();
        for (option, names) in &given {
            if !history {
                let message = format!("`{option}` says what makes a new version, and the table keeps none");
                let problem = Problem::at(&self.at(option), message);
                self.problems.add(problem.hint("it goes with `stored_as_scd_type: 2`"));
            }
            let known = columns.names();
            for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
                let problem = Problem::at(&self.at(option), format!("`{name}` is not a column of the table"));
                self.problems.add(problem.did_you_mean(name, known.iter().copied()));
            }
        }
        if given.len() == 2 {
            let message = "both lists say which columns make a new version";
            self.problems.add(Problem::at(&self.at(given[1].0), message).hint("keep one of them"));
        }
        if history && raw.delete_mode == DeleteMode::Soft {
            let message = "a table that keeps every version removes none: a delete ends the current one";
            self.problems.add(Problem::at(&self.at("delete_mode"), message).hint("remove `delete_mode`"));
        }
        if history && self.sequence_by().is_empty() {
            let message = "versions begin and end at a sequence, and the table has none";
            let hint = "say what orders the changes in `sequence_by`; for whole files `[\"_file_modification_time timestamp\"]` may do";
            self.problems.add(Problem::at(&self.at("stored_as_scd_type"), message).hint(hint));
        }
        let kept = match (history, raw.delete_mode) {
            (false, DeleteMode::Hard) => Kept::Current,
            (false, DeleteMode::Soft) => Kept::Marked,
            (true, _) if !raw.track_history_column_list.is_empty() => {
                Kept::History(Tracked::Only(raw.track_history_column_list.clone()))
            }
            (true, _) if !raw.track_history_except_column_list.is_empty() => {
                Kept::History(Tracked::Except(raw.track_history_except_column_list.clone()))
            }
            (true, _) => Kept::History(Tracked::All),
        };
        for name in columns.names().into_iter().filter(|name| kept.reserves(name)) {
            let message = format!("`{name}` is a name of the program's own in such a table");
            let hint = "give it another name in `columns` and its source name in `column_names`";
            self.problems.add(Problem::at(&self.at("columns").key(name), message).hint(hint));
        }
        kept
    }
}
