//! What must hold of a model's rows: from options to a plan.

use lake::TableName;
use lake::spec::{Problem, SpecPath};

use super::{Compiler, ModelPlan};
use crate::sources::table_named;
use crate::spec::{OnMiss, Severity};

/// What must hold before a model is committed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChecksPlan {
    /// Of every row.
    pub expectations: Vec<ExpectationPlan>,
    /// Of the table.
    pub rules: Vec<RulePlan>,
}

/// What every row must meet.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectationPlan {
    /// Its name.
    pub name: String,
    /// The condition, in SQL.
    pub check: String,
    /// What becomes of a row that does not meet it.
    pub action: OnMiss,
    /// The part of a run's rows that may miss it.
    pub max_fraction: Option<f64>,
}

/// A rule and how grave it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePlan {
    /// The rule.
    pub rule: Rule,
    /// What happens when it is broken.
    pub severity: Severity,
}

/// What must hold of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// No two rows have the same values in these columns.
    Unique(Vec<String>),
    /// These columns are never null.
    NotNull(Vec<String>),
    /// How many rows there are.
    RowCount {
        /// At least.
        min: Option<u64>,
        /// At most.
        max: Option<u64>,
    },
    /// The greatest value of a column is recent.
    Freshness {
        /// A column of days or moments.
        column: String,
        /// How old it may be, in microseconds.
        within_us: i64,
        /// The same as it is written.
        written: String,
    },
    /// The values of a column are found in another table.
    Relationship {
        /// Its name.
        name: String,
        /// The column.
        column: String,
        /// The other table.
        to: TableName,
        /// The column there.
        field: String,
    },
}

impl ModelPlan {
    /// True when nothing is asked of the rows.
    pub(crate) fn asks_nothing(&self) -> bool {
        self.checks.expectations.is_empty() && self.rules().is_empty()
    }

    /// What must hold of the table. Keys by which rows are replaced must be what they are said to be.
    pub(crate) fn rules(&self) -> Vec<RulePlan> {
        let keys = Rule::Unique(self.keys.clone());
        let is_told = self.keys.is_empty() || self.checks.rules.iter().any(|rule| rule.rule == keys);
        let of_keys = (!is_told).then_some(RulePlan { rule: keys, severity: Severity::Fail });
        self.checks.rules.iter().cloned().chain(of_keys).collect()
    }
}

impl ChecksPlan {
    /// The conditions by which rows are left out.
    pub(crate) fn drops(&self) -> Vec<String> {
        let drops = self.expectations.iter().filter(|expectation| expectation.action == OnMiss::Drop);
        drops.map(|expectation| expectation.check.clone()).collect()
    }

    /// The other tables that are asked.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.rules.iter().filter_map(|rule| match &rule.rule {
            Rule::Relationship { to, .. } => Some(to),
            _ => None,
        })
    }

    /// The columns that are named, each with its place below the model.
    pub(crate) fn columns(&self, place: &SpecPath) -> Vec<(SpecPath, String)> {
        let checks = place.key("checks");
        let listed = |key: &str, columns: &[String]| {
            let columns = columns.iter().cloned().enumerate();
            let path = checks.key(key).key("columns");
            columns.map(move |(index, column)| (path.index(index), column)).collect::<Vec<_>>()
        };
        let of_rule = |rule: &RulePlan| match &rule.rule {
            Rule::Unique(columns) => listed("unique", columns),
            Rule::NotNull(columns) => listed("not_null", columns),
            Rule::RowCount { .. } => Vec::new(),
            Rule::Freshness { column, .. } => vec![(checks.key("freshness").key("column"), column.clone())],
            Rule::Relationship { name, column, .. } => {
                vec![(checks.key("relationships").key(name.as_str()).key("column"), column.clone())]
            }
        };
        self.rules.iter().flat_map(of_rule).collect()
    }
}

impl Compiler<'_> {
    /// What must hold of the rows of a model.
    pub(super) fn checks(&mut self) -> ChecksPlan {
        ChecksPlan { expectations: self.expectations(), rules: self.rules() }
    }

    fn expectations(&mut self) -> Vec<ExpectationPlan> {
        let path = self.place("expectations");
        let mut plans = Vec::new();
        for (name, raw) in self.entry.raw.expectations.iter() {
            let at = path.key(name);
            if raw.check.trim().is_empty() {
                self.problems.add(Problem::at(&at.key("check"), "the condition is empty"));
            }
            if raw.max_fraction.is_some_and(|max| !(0.0..1.0).contains(&max)) {
                let problem = Problem::at(&at.key("max_fraction"), "a part of all rows is from 0 to below 1");
                self.problems.add(problem.hint("0.05 lets 5 % of the rows miss it"));
            }
            let (name, check) = (name.to_owned(), raw.check.clone());
            plans.push(ExpectationPlan { name, check, action: raw.action, max_fraction: raw.max_fraction });
        }
        plans
    }

    fn rules(&mut self) -> Vec<RulePlan> {
        let (raw, path) = (&self.entry.raw.checks, self.place("checks"));
        let mut rules = Vec::new();
        let mut empty = Vec::new();
        for (key, check) in [("unique", &raw.unique), ("not_null", &raw.not_null)] {
            let Some(check) = check else { continue };
            if check.columns.is_empty() {
                empty.push(Problem::at(&path.key(key), "there are no `columns`"));
            }
            let columns = check.columns.clone();
            let rule = if key == "unique" { Rule::Unique(columns) } else { Rule::NotNull(columns) };
            rules.push(RulePlan { rule, severity: check.severity });
        }
        if let Some(check) = &raw.row_count {
            if check.min.is_none() && check.max.is_none() {
                empty.push(Problem::at(&path.key("row_count"), "neither `min` nor `max` is given"));
            }
            rules.push(RulePlan { rule: Rule::RowCount { min: check.min, max: check.max }, severity: check.severity });
        }
        if let Some(check) = &raw.freshness {
            let within_us = i64::try_from(check.within.as_millis()).unwrap_or(i64::MAX).saturating_mul(1_000);
            let (column, written) = (check.column.clone(), check.within.to_string());
            let rule = Rule::Freshness { column, within_us, written };
            rules.push(RulePlan { rule, severity: check.severity });
        }
        for (name, check) in raw.relationships.iter() {
            match table_named(&check.to) {
                Ok(to) => {
                    let (name, column, field) = (name.to_owned(), check.column.clone(), check.field.clone());
                    rules.push(RulePlan {
                        rule: Rule::Relationship { name, column, to, field },
                        severity: check.severity,
                    });
                }
                Err(wrong) => {
                    let problem = Problem::at(&path.key("relationships").key(name).key("to"), wrong.message);
                    empty.push(Problem { hint: wrong.hint, ..problem });
                }
            }
        }
        empty.into_iter().for_each(|problem| self.problems.add(problem));
        rules
    }
}
