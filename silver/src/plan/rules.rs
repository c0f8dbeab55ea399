//! The rules that the spec puts on the rows of a table: its constraints and its generated columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use lake::expression::{Expression, Scalar};
use lake::schema::ColumnType;
use lake::session::Session;
use lake::spec::{Problem, SpecPath};

use super::check::Check;
use super::{Columns, RulePlan, SequencePart};
use crate::spec::Undeclared;

impl Check<'_> {
    /// The conditions that every row must meet.
    pub(super) fn constraints(&mut self, columns: &Columns) -> Vec<RulePlan> {
        let raw = &self.entry.raw;
        let place = self.at("constraints");
        let mut plans: Vec<RulePlan> = Vec::new();
        for (name, sql) in raw.constraints.iter() {
            let path = place.key(name);
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                let problem = Problem::at(&path, format!("`{name}` cannot name a constraint"));
                self.problems.add(problem.hint("letters, digits and `_`"));
            }
            // Delta keeps the names of constraints in small letters.
            if let Some(twin) = plans.iter().find(|plan| plan.name.eq_ignore_ascii_case(name)) {
                let message = format!("`{name}` and `{}` are the same name of a constraint", twin.name);
                self.problems.add(Problem::at(&path, message));
            }
            let Some((expression, scalar)) = self.over_rows(&path, sql, columns) else { continue };
            if let Some(kind) = scalar.map(|scalar| scalar.kind().clone()).filter(|kind| *kind != DataType::Boolean) {
                self.problems.add(Problem::at(&path, format!("`{sql}` is not a condition: it gives {kind}")));
            }
            plans.push(RulePlan { name: name.to_owned(), expression });
        }
        plans
    }

    /// The columns that an expression over the others makes.
    pub(super) fn generated(&mut self, columns: &Columns, sequence: &[SequencePart]) -> Vec<RulePlan> {
        let raw = &self.entry.raw;
        let place = self.at("generated");
        let mut plans = Vec::new();
        for (name, sql) in raw.generated.iter() {
            let path = place.key(name);
            if columns.declared(name).is_none() {
                let known = columns.names();
                let problem = Problem::at(&path, format!("`{name}` is not a declared column"));
                let problem = problem.hint("declare it in `columns` with the type of the result");
                self.problems.add(problem.did_you_mean(name, known.iter().copied()));
            }
            let of_sequence = |part: &SequencePart| {
                part.of_row && columns.declared(name).is_some_and(|own| own.source == part.source)
            };
            if raw.keys.iter().any(|key| key == name) || sequence.iter().any(of_sequence) {
                let message = format!("`{name}` says which row a change meets and is made of that row");
                let hint = "keys and the sequence come from the record: make it with `select`";
                self.problems.add(Problem::at(&path, message).hint(hint));
            }
            if raw.select.contains_key(name) {
                let message = format!("`{name}` is made by `select` as well");
                self.problems.add(Problem::at(&path, message).hint("keep one of them"));
            }
            let Some((expression, scalar)) = self.over_rows(&path, sql, columns) else { continue };
            let own = columns.declared(name).map(|own| own.column.kind);
            let is_text = scalar.is_some_and(|scalar| *scalar.kind() == DataType::Utf8);
            if let Some(kind) = own.filter(|kind| is_text && *kind != ColumnType::String) {
                let message =
                    format!("`{sql}` gives a text and `{name}` is {kind}: every engine reads texts its own way");
                let hint = format!("cast it in the expression: `CAST(… AS {kind})`");
                self.problems.add(Problem::at(&path, message).hint(hint));
            }
            for other in expression.names().iter().filter(|other| raw.generated.contains_key(other)) {
                let message = format!("`{other}` is a generated column, and none can be made of another");
                self.problems.add(Problem::at(&path, message).hint("write out its expression"));
            }
            plans.push(RulePlan { name: name.to_owned(), expression });
        }
        plans
    }

    /// An expression over the columns of the table, ready where all of them are declared.
    fn over_rows(&mut self, path: &SpecPath, sql: &str, columns: &Columns) -> Option<(Expression, Option<Scalar>)> {
        if sql.trim().is_empty() {
            self.problems.add(Problem::at(path, "the expression is empty"));
            return None;
        }
        let is_known = self.entry.raw.undeclared_columns != Some(Undeclared::Add);
        let ready = Session::detached().and_then(|session| {
            let expression = Expression::parse(sql)?;
            expression.check(&session)?;
            Ok((expression, session))
        });
        let checked = ready.and_then(|(expression, session)| {
            let Columns::Declared(declared) = columns else { return Ok((expression, None)) };
            let known: Vec<&str> = declared.iter().map(|plan| plan.column.name.as_str()).collect();
            if let Some(unknown) = expression.names().iter().find(|name| !known.contains(&name.as_str())) {
                if is_known {
                    let problem = Problem::at(path, format!("`{unknown}` is not a column of the table"));
                    self.problems.add(problem.did_you_mean(unknown, known.iter().copied()));
                }
                return Ok((expression, None));
            }
            let fields = declared.iter().map(|plan| plan.column.field().with_nullable(true));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let scalar = expression.ready(&schema, &session)?;
            Ok((expression, Some(scalar)))
        });
        match checked {
            Ok(found) => Some(found),
            Err(error) => {
                self.problems.add(Problem::at(path, error.to_string()));
                None
            }
        }
    }
}
