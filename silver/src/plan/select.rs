//! The columns that expressions make: their text, and what can be known of it before there are records.

use lake::expression::Expression;
use lake::session::Session;
use lake::spec::{Problem, SpecPath};
use lake::{Error, Result};

use super::check::Check;
use super::{Columns, SelectPlan};

impl Check<'_> {
    /// The columns that expressions make.
    pub(super) fn select(&mut self, columns: &Columns) -> Vec<SelectPlan> {
        let raw = &self.entry.raw;
        let place = self.at("select");
        let known = columns.names();
        let mut plans = Vec::new();
        for (name, sql) in raw.select.iter() {
            let path = place.key(name);
            if !known.contains(&name) {
                let problem = Problem::at(&path, format!("`{name}` is not a declared column"));
                let problem = problem.hint("declare it in `columns` with the type of the result");
                self.problems.add(problem.did_you_mean(name, known.iter().copied()));
            }
            if raw.column_names.contains_key(name) {
                let message = format!("`{name}` comes from an expression and from a column of the source");
                self.problems.add(Problem::at(&path, message).hint("name the column in the expression"));
            }
            let expression = self.expression(&path, sql);
            plans.extend(expression.map(|expression| SelectPlan { name: name.to_owned(), expression }));
        }
        plans
    }

    /// An expression over the record; a problem where it is none.
    fn expression(&mut self, path: &SpecPath, sql: &str) -> Option<Expression> {
        if sql.trim().is_empty() {
            self.problems.add(Problem::at(path, "the expression is empty"));
            return None;
        }
        let is_text = self.source.is_text || self.paths().row.is_some();
        let checked = Session::detached().and_then(|session| checked(sql, is_text, &session));
        match checked {
            Ok(expression) => {
                self.known(path, expression.names().iter().map(String::as_str));
                Some(expression)
            }
            Err(error) => {
                self.problems.add(Problem::at(path, error.to_string()));
                None
            }
        }
    }
}

fn checked(sql: &str, is_text: bool, session: &Session) -> Result<Expression> {
    let expression = Expression::parse(sql)?;
    match is_text {
        true => expression.ready_for_texts(session).map(drop)?,
        false => expression.check(session)?,
    }
    Ok::<_, Error>(expression)
}
