//! A daily snapshot: the state of a table, kept for each day.
//!
//! The day of a run is the day of the lake's clock in the pipeline's zone. A day is a partition (`snapshot_date`) and
//! is replaced as a whole, in one commit, when it is run again: several runs on a day leave one state of it, the last.
//! - `full` keeps every row of the table.
//! - `changed_only` keeps the rows that differ from the last version of their key over all days *before* the day, so
//!   that a day that is run again is compared with the same versions as the first time; what is gone is recorded as
//!   a delete, once, with its last values ([`changed`]). Where the log of the source tells what changed since the last
//!   day before, only that is compared ([`since`]).
//!
//! # Once
//! A commit for a day carries these transactions:
//! - `gold.x:silver.y:2024-05-01` = the source version that the day holds. The day is done when it is held, also a day
//!   without a row. One name per day costs a line of the log per day, about 100 bytes in each checkpoint, and lets any
//!   day be done by itself; a single name with a rising day would make a missed day look done as soon as a later one
//!   is there.
//! - `gold.x:silver.y` = the newest source version in the table.
//! - `gold.x:recipe` when the options or the identity of the source have changed ([`Recipe`]).
//! - `gold.x:purged` when needless rows of all days that are gone have been looked for ([`retention`]).
//!
//! **Unchanged source, same day**: the day's transaction is held, nothing is done. **Unchanged source, new day**:
//! `full` writes the new day. `changed_only` has nothing to record, because the last commit has recorded the source as
//! it is: `gold.x:silver.y` holds its version, and no version is added.
//!
//! **Two runs at once, a crash, a lost answer**: as for a model; the loser of a race looks again. **Midnight**: a run
//! keeps the day on which its task began. When a later day has been recorded meanwhile, a `changed_only` run leaves its
//! own day alone, because the later day was compared with it.
//!
//! **A day late** ([`past`]) is recorded from the source as it was at the end of the day. The next recorded day keeps its
//! state and is told anew as a change from the late one, in the same commit, and later ones where they build on it
//! ([`late`]), so the table is as if the day had been recorded in its time. Which days are recorded is known by [`days`]: a
//! day without a change has no rows. By which options is known by [`options`]: a late day is recorded by the present ones,
//! those after it are compared by their own, and a day that was recorded by others is recorded again when it is asked for.

mod changed;
mod check;
mod day;
mod days;
mod keys;
mod late;
mod layout;
mod options;
mod past;
mod retention;
mod since;
mod state;
mod swap;

use chrono::{Days as DayCount, NaiveDate};
use lake::columns::SNAPSHOT_DATE;
use lake::commit::Txn;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Error, ErrorKind, Lake, Result, Table};

pub use self::check::{Check, check};
use self::day::Day;
use self::days::Days;
use self::layout::respelled;
use self::options::{Options, Others};
pub(crate) use self::past::Past;
pub use self::state::{AsOf, as_of};
pub use self::swap::swapped;
use crate::about::tell;
use crate::answer;
use crate::plan::SnapshotPlan;
use crate::recipe::{Held, Recipe, source_app};
use crate::spec::Strategy;

/// Which day is recorded.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    /// The present one, from the source as the run has settled on it.
    Today(NaiveDate),
    /// An earlier one, from the source as it was at its end.
    Past(Past),
}

impl Which {
    fn day(&self) -> NaiveDate {
        match self {
            Self::Today(day) => *day,
            Self::Past(past) => past.day(),
        }
    }
}

/// Keeps the state of the source for a day.
///
/// # Errors
/// [`ErrorKind::Spec`] when the source lacks a column of the plan, [`ErrorKind::Table`] when the table holds something
/// else or the source cannot be read as it was, [`ErrorKind::Data`] when a key is there twice, [`ErrorKind::Conflict`]
/// when the work must be done again.
pub(crate) async fn take(lake: &Lake, plan: &SnapshotPlan, ctx: &RunContext, which: &Which) -> Result<TaskReport> {
    lake.open_ahead([plan.source.clone()]);
    let held_table = lake.table(&plan.table).await?;
    let source = match which {
        Which::Today(_) => ctx.pins.open(lake, &plan.source).await?,
        Which::Past(past) => Some(past.source(lake, &plan.source).await?),
    };
    let Some(source) = source else {
        return Ok(answer::waiting(&plan.table, held_table.as_ref(), &plan.source));
    };
    let plan = &respelled(plan, held_table.as_ref(), &source);
    let recipe = recipe(plan).with_sources([&source])?;
    let held = Held::of(held_table.as_ref())?;
    check_same_table(plan, &held)?;

    let day = which.day();
    let version = i64::try_from(source.version()).unwrap_or(i64::MAX);
    let newest = held.version_of(&plan.source, &recipe).await?;
    let of_day = match &held_table {
        Some(table) => table.txn_version(&day_app(plan, day)).await?,
        None => None,
    };
    let same = held.recipe.as_ref() == Some(&recipe);
    let is_today = matches!(which, Which::Today(_));
    let recorded = is_today && plan.strategy == Strategy::ChangedOnly && newest.is_some_and(|newest| newest >= version);
    let options = Options::of(&recipe);
    let mut others = held_table.as_ref().map(Others::of).transpose()?.unwrap_or_default();
    let is_as_now = !others.has(day);
    if same && (recorded || (is_as_now && of_day.is_some_and(|held| held >= version))) {
        tell(held_table.as_ref(), &plan.about, &plan.described(), ctx).await?;
        return Ok(answer::up_to_date(&plan.table, held_table.as_ref(), [&source]));
    }
    if !is_today && !same && held.recipe.is_some() {
        let message = format!("{} has other options or another source than when its last day was recorded", plan.table);
        return Err(Error::new(ErrorKind::Table, message).hint("record today first: `gold run`"));
    }
    if is_today && let Some(later) = later_day(plan, held_table.as_ref(), day)? {
        let mut report = answer::up_to_date(&plan.table, held_table.as_ref(), [&source]);
        report.notes.push(format!("{day} stays as it is: {later} has been recorded after it"));
        return Ok(report);
    }

    let mut txns = vec![
        Txn::new(source_app(&plan.table, &plan.source), newest.map_or(version, |newest| newest.max(version))),
        Txn::new(day_app(plan, day), version),
    ];
    if !same || !is_as_now {
        txns.push(held.next_change(&plan.table).await?);
    }
    if !same {
        txns.push(since::options_of(plan, day));
    }
    if let (Some(table), Some(before)) = (&held_table, &held.recipe) {
        others.change(&Days::of(table)?, Options::of(before), &options);
    }
    others.recorded(day);
    let base = match &held_table {
        Some(table) if same && is_today => since::base(plan, table, day).await?,
        _ => None,
    };
    // Old days go when a new one comes.
    let cut = if is_today && of_day.is_none() { cut(plan, day) } else { None };
    Day { lake, plan, ctx, day, others, base, cut, is_today }.record(&source, held_table, &recipe, txns).await
}

/// The application of the source's version that a day holds.
fn day_app(plan: &SnapshotPlan, day: NaiveDate) -> String {
    format!("{}:{day}", source_app(&plan.table, &plan.source))
}

/// The first day that `retention` keeps when `today` is the present one.
fn cut(plan: &SnapshotPlan, today: NaiveDate) -> Option<NaiveDate> {
    today.checked_sub_days(DayCount::new(plan.retention_days?))
}

fn recipe(plan: &SnapshotPlan) -> Recipe {
    let changed_only = plan.strategy == Strategy::ChangedOnly;
    Recipe {
        strategy: Some(plan.strategy),
        keys: plan.keys.clone(),
        columns: plan.columns.clone(),
        compare_columns: plan.compare_columns.clone(),
        hard_deletes: changed_only.then_some(plan.hard_deletes),
        ..Recipe::default()
    }
}

/// The days of a table cannot be read in two ways.
fn check_same_table(plan: &SnapshotPlan, held: &Held<'_>) -> Result<()> {
    let refuse = |holds: String| {
        let message =
            format!("{} {holds}, and the spec makes it a `{}` snapshot", plan.table, strategy_name(plan.strategy));
        let hint = "give the snapshot another name, or remove the table's folder, which loses its days";
        Err(Error::new(ErrorKind::Table, message).hint(hint))
    };
    match (held.table, &held.recipe) {
        (_, Some(recipe)) => match recipe.strategy {
            None => refuse("holds the result of a query".to_owned()),
            Some(strategy) if strategy != plan.strategy => {
                refuse(format!("holds a `{}` snapshot", strategy_name(strategy)))
            }
            Some(_) if recipe.keys != plan.keys => refuse(format!("identifies rows by `{}`", recipe.keys.join("`, `"))),
            Some(_) => Ok(()),
        },
        (Some(table), None) if table.partition_columns()? != [SNAPSHOT_DATE] => refuse("is not a snapshot".to_owned()),
        _ => Ok(()),
    }
}

/// A day after `day` that is recorded already, where days build on one another.
fn later_day(plan: &SnapshotPlan, table: Option<&Table>, day: NaiveDate) -> Result<Option<NaiveDate>> {
    let (Strategy::ChangedOnly, Some(table)) = (plan.strategy, table) else { return Ok(None) };
    Ok(Days::of(table)?.after(day))
}

pub(crate) fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Full => "full",
        Strategy::ChangedOnly => "changed_only",
    }
}
