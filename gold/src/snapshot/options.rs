//! By which options each day of a snapshot was recorded: a day that is recorded late has later ones compared again, each as
//! it was compared in its time.
//!
//! The table's recipe has the present options. Days that were recorded by others are the table property
//! [`SNAPSHOT_OPTIONS`], as JSON: `[{"days": "2024-05-01..2024-05-06", "columns": ["id"], "hard_deletes": "record"}]`. It
//! changes in the commits that change the recipe, record such a day again or take it away.

use chrono::NaiveDate;
use lake::columns::SNAPSHOT_OPTIONS;
use lake::{Error, ErrorKind, Result, Table};
use serde::{Deserialize, Serialize};

use super::days::Days;
use crate::plan::SnapshotPlan;
use crate::recipe::Recipe;
use crate::spec::HardDeletes;

/// What decides which rows of a day are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    /// The kept columns; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
    /// The columns that make a row differ; empty for all kept ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compare_columns: Vec<String>,
    /// What becomes of rows that are gone; `None` where each day has every row.
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_deletes: Option<HardDeletes>,
}

/// Days that were recorded by other options than the present ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Others(Vec<Other>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Other {
    days: Days,
    #[serde(flatten)]
    options: Options,
}

impl Options {
    /// Those of a recipe.
    pub(super) fn of(recipe: &Recipe) -> Self {
        Self {
            columns: recipe.columns.clone(),
            compare_columns: recipe.compare_columns.clone(),
            hard_deletes: recipe.hard_deletes,
        }
    }

    /// Those of a plan.
    pub(super) fn of_plan(plan: &SnapshotPlan) -> Self {
        Self {
            columns: plan.columns.clone(),
            compare_columns: plan.compare_columns.clone(),
            hard_deletes: Some(plan.hard_deletes),
        }
    }

    /// The plan with these options.
    fn given_to(&self, plan: &SnapshotPlan) -> SnapshotPlan {
        SnapshotPlan {
            columns: self.columns.clone(),
            compare_columns: self.compare_columns.clone(),
            hard_deletes: self.hard_deletes.unwrap_or(plan.hard_deletes),
            ..plan.clone()
        }
    }
}

impl Others {
    /// Those of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the property cannot be read.
    pub(super) fn of(table: &Table) -> Result<Self> {
        let Some(text) = table.property(SNAPSHOT_OPTIONS)? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|error| {
            let message = format!("the property `{SNAPSHOT_OPTIONS}` of {} is not readable", table.name());
            Error::new(ErrorKind::Table, message).with_source(error)
        })
    }

    /// From now on `now` are the present options: all days so far were recorded by `before`, but for those that are here
    /// already.
    pub(super) fn change(&mut self, days: &Days, before: Options, now: &Options) {
        let mut days = days.clone();
        self.0.iter().flat_map(|other| other.days.iter()).for_each(|day| days.remove(day));
        self.0.push(Other { days, options: before });
        self.retain(|options, _| options != now);
    }

    /// The day is recorded by the present options.
    pub(super) fn recorded(&mut self, day: NaiveDate) {
        self.retain(|_, other| other != day);
    }

    /// Takes away the days before `cut`.
    pub(super) fn cut(&mut self, cut: NaiveDate) {
        self.retain(|_, day| day >= cut);
    }

    fn retain(&mut self, stays: impl Fn(&Options, NaiveDate) -> bool) {
        for other in &mut self.0 {
            other.days.retain(|day| stays(&other.options, day));
        }
        self.0.retain(|other| other.days.first().is_some());
    }

    /// True for a day that was recorded by other options than the present ones.
    pub(super) fn has(&self, day: NaiveDate) -> bool {
        self.0.iter().any(|other| other.days.has(day))
    }

    /// The plan by which a day was recorded.
    pub(super) fn plan_of(&self, day: NaiveDate, plan: &SnapshotPlan) -> SnapshotPlan {
        match self.0.iter().find(|other| other.days.has(day)) {
            Some(other) => other.options.given_to(plan),
            None => plan.clone(),
        }
    }

    /// The property that keeps them; `None` where there are none and the table has none.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table cannot be read, [`ErrorKind::Internal`] when they cannot be written as JSON.
    pub(super) fn property(&self, table: Option<&Table>) -> Result<Option<(String, String)>> {
        let has_property = table.map(|table| table.property(SNAPSHOT_OPTIONS)).transpose()?.flatten().is_some();
        if self.0.is_empty() && !has_property {
            return Ok(None);
        }
        let text = serde_json::to_string(self)
            .map_err(|error| Error::internal("options cannot be written as JSON").with_source(error))?;
        Ok(Some((SNAPSHOT_OPTIONS.to_owned(), text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(columns: &[&str]) -> Options {
        let columns = columns.iter().map(ToString::to_string).collect();
        Options { columns, hard_deletes: Some(HardDeletes::Record), ..Options::default() }
    }

    fn days(text: &str) -> Days {
        Days::parse(text).expect("days")
    }

    fn day(text: &str) -> NaiveDate {
        text.parse().expect("a day")
    }

    fn text(others: &Others) -> String {
        others.property(None).expect("JSON").map_or_else(String::new, |(_, text)| text)
    }

    #[test]
    fn days_keep_their_options_until_they_are_recorded_again() {
        let mut others = Others::default();
        others.change(&days("2024-05-01..2024-05-03"), options(&["id"]), &options(&[]));
        others.change(&days("2024-05-01..2024-05-05"), options(&[]), &options(&["id", "name"]));
        let told = r#"[{"days":"2024-05-01..2024-05-03","columns":["id"],"hard_deletes":"record"},{"days":"2024-05-04..2024-05-05","hard_deletes":"record"}]"#;
        assert_eq!(text(&others), told);
        assert_eq!(serde_json::from_str::<Others>(told).expect("others"), others);
        others.recorded(day("2024-05-02"));
        assert!(others.has(day("2024-05-01")) && !others.has(day("2024-05-02")));
        others.cut(day("2024-05-03"));
        assert!(!others.has(day("2024-05-01")) && others.has(day("2024-05-03")));
        // Back to the first options: only the days between were recorded by others.
        others.change(&days("2024-05-02..2024-05-06"), options(&["id", "name"]), &options(&["id"]));
        assert!(!others.has(day("2024-05-03")) && others.has(day("2024-05-02")) && others.has(day("2024-05-04")));
    }

    #[test]
    fn options_that_never_changed_are_no_property() {
        let mut others = Others::default();
        others.change(&days("2024-05-01"), options(&["id"]), &options(&["id"]));
        assert_eq!(text(&others), "");
    }
}
