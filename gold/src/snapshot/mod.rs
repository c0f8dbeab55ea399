//! A daily snapshot: the state of a table, kept for each day.
//!
//! The day of a run is the day of the lake's clock in the pipeline's zone. A day is a partition (`snapshot_date`) and
//! is replaced as a whole, in one commit, when it is run again: several runs on a day leave one state of it, the last.
//! - `full` keeps every row of the table.
//! - `changed_only` keeps the rows that differ from the last version of their key over all days *before* the day, so
//!   that a day that is run again is compared with the same versions as the first time; what is gone is recorded as
//!   a delete, once, with its last values ([`changed`]).
//!
//! # Once
//! A commit for a day carries three transactions:
//! - `gold.x:silver.y:2024-05-01` = the source version that the day holds. The day is done when it is held, also a day
//!   without a row. One name per day costs a line of the log per day, about 100 bytes in each checkpoint, and lets any
//!   day be done by itself; a single name with a rising day would make a missed day look done as soon as a later one
//!   is there.
//! - `gold.x:silver.y` = the newest source version in the table.
//! - `gold.x:recipe` when the options or the identity of the source have changed ([`Recipe`]).
//!
//! **Unchanged source, same day**: the day's transaction is held, nothing is done. **Unchanged source, new day**: `full`
//! writes the new day. `changed_only` has nothing to record, because the last commit has recorded the source as it
//! is: `gold.x:silver.y` holds its version, and no version is added.
//!
//! **Two runs at once, a crash, a lost answer**: as for a model; the loser of a race looks again. **Midnight**: a run
//! keeps the day on which its task began. When a later day has been recorded meanwhile, a `changed_only` run leaves its
//! own day alone, because the later day was compared with it.

mod changed;
mod layout;
mod retention;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use chrono::{Days, NaiveDate};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, cast, ident, lit};
use deltalake::kernel::Action;
use lake::columns::{CHANGE, DELETED_BATCH_ID, END_AT, IS_DELETED, SNAPSHOT_DATE};
use lake::commit::Txn;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::session::{Session, reference};
use lake::table::Definition;
use lake::{Context, Error, ErrorKind, Lake, Layer, Result, Table};

use crate::answer;
use crate::plan::SnapshotPlan;
use crate::publish::{Publication, Target};
use crate::recipe::{Held, Recipe, source_app};
use crate::spec::Strategy;
use crate::write::Rows;
use layout::Layout;

/// Keeps the state of the source for `day`.
///
/// # Errors
/// [`ErrorKind::Spec`] when the source lacks a column of the plan, [`ErrorKind::Table`] when the table holds something
/// else, [`ErrorKind::Data`] when a key is there twice, [`ErrorKind::Conflict`] when the work must be done again.
pub(crate) async fn take(lake: &Lake, plan: &SnapshotPlan, ctx: &RunContext, day: NaiveDate) -> Result<TaskReport> {
    let held_table = lake.table(&plan.table).await?;
    let Some(source) = ctx.pins.open(lake, &plan.source).await? else {
        return Ok(answer::waiting(&plan.table, held_table.as_ref(), &plan.source));
    };
    let recipe = recipe(plan).with_sources([&source])?;
    let held = Held::of(held_table.as_ref())?;
    check_same_table(plan, &held)?;

    let version = i64::try_from(source.version()).unwrap_or(i64::MAX);
    let newest = held.version_of(&plan.source, &recipe).await?;
    let day_app = format!("{}:{day}", source_app(&plan.table, &plan.source));
    let of_day = match &held_table {
        Some(table) => table.txn_version(&day_app).await?,
        None => None,
    };
    let same = held.recipe.as_ref() == Some(&recipe);
    let recorded = plan.strategy == Strategy::ChangedOnly && newest.is_some_and(|newest| newest >= version);
    if same && (recorded || of_day.is_some_and(|held| held >= version)) {
        return Ok(answer::up_to_date(&plan.table, held_table.as_ref(), [&source]));
    }
    if let Some(later) = later_day(plan, held_table.as_ref(), day)? {
        let mut report = answer::up_to_date(&plan.table, held_table.as_ref(), [&source]);
        report.notes.push(format!("{day} stays as it is: {later} has been recorded after it"));
        return Ok(report);
    }

    let mut txns = vec![
        Txn::new(source_app(&plan.table, &plan.source), newest.map_or(version, |newest| newest.max(version))),
        Txn::new(day_app, version),
    ];
    if !same {
        txns.push(held.next_change(&plan.table).await?);
    }
    Day { lake, plan, ctx, day, first: of_day.is_none() }.record(&source, held_table, &recipe, txns).await
}

/// One day to be recorded.
struct Day<'a> {
    lake: &'a Lake,
    plan: &'a SnapshotPlan,
    ctx: &'a RunContext,
    day: NaiveDate,
    /// True when the day has not been recorded before.
    first: bool,
}

impl Day<'_> {
    async fn record(&self, source: &Table, held: Option<Table>, recipe: &Recipe, txns: Vec<Txn>) -> Result<TaskReport> {
        let plan = self.plan;
        let layout = Layout::new(plan, source, held.as_ref())?;
        let definition = Definition {
            partition_by: vec![SNAPSHOT_DATE.to_owned()],
            description: Some(format!("{} day by day ({})", plan.source, strategy_name(plan.strategy))),
            ..Definition::new(Arc::clone(&layout.schema))
        };
        let session = self.lake.session()?;
        session.register(source).await?;
        let doing = || format!("recording {} in {}", self.day, plan.table);
        let change = self.change(&session, source, held.as_ref(), &layout).await.context(doing)?;
        let predicate = match change.cut {
            Some(cut) => format!("{SNAPSHOT_DATE} = '{}' OR {SNAPSHOT_DATE} < '{cut}'", self.day),
            None => format!("{SNAPSHOT_DATE} = '{}'", self.day),
        };
        let publication = Publication {
            target: Target::new(self.lake, &plan.table, held, definition),
            property: recipe.property()?,
            removes: change.removes,
            predicate: Some(predicate),
            txns,
        };
        let rows = Rows { parts: change.frame.execute_stream_partitioned().await?, ordered: false };
        let mut published = publication.publish(rows, self.ctx).await.context(doing)?;
        published.rows = published.rows.saturating_sub(change.carried);
        let mut report = answer::changed(&plan.table, std::slice::from_ref(source), &published)?;
        report.notes.extend(change.cut.map(|cut| format!("days before {cut} are gone, as `retention` says")));
        Ok(report)
    }

    async fn change(&self, session: &Session, source: &Table, held: Option<&Table>, layout: &Layout) -> Result<Change> {
        if self.plan.strategy == Strategy::ChangedOnly {
            changed::check_keys(session, source, &self.plan.keys).await?;
        }
        let Some(table) = held else {
            let frame = all(session, source, layout, self.day).await?;
            return Ok(Change { frame, removes: Vec::new(), carried: 0, cut: None });
        };
        session.register(table).await?;
        let day = self.day.to_string();
        let removes = table.removes(|partition| in_partition(partition, |held| held == day))?;
        let frame = match self.plan.strategy {
            Strategy::Full => all(session, source, layout, self.day).await?,
            Strategy::ChangedOnly => changed::changes(session, source, table, layout, self.plan, self.day).await?,
        };
        self.with_retention(session, table, layout, Change { frame, removes, carried: 0, cut: None }).await
    }

    /// The same change, which also takes away the days that are too old.
    async fn with_retention(
        &self,
        session: &Session,
        table: &Table,
        layout: &Layout,
        mut change: Change,
    ) -> Result<Change> {
        let Some(cut) = self.cut().filter(|_| self.first) else { return Ok(change) };
        let before_cut = cut.to_string();
        let old = table.removes(|partition| in_partition(partition, |held| held < before_cut.as_str()))?;
        if old.is_empty() {
            return Ok(change);
        }
        if self.plan.strategy == Strategy::ChangedOnly {
            let Some((needed, rows)) = retention::needed(session, table, layout, &self.plan.keys, cut).await? else {
                return Ok(change);
            };
            change.frame = change.frame.union(needed)?;
            change.carried = rows;
        }
        change.removes.extend(old);
        change.cut = Some(cut);
        Ok(change)
    }

    /// The first day to keep.
    fn cut(&self) -> Option<NaiveDate> {
        self.day.checked_sub_days(Days::new(self.plan.retention_days?))
    }
}

/// What a commit for a day does.
struct Change {
    /// The rows to add.
    frame: DataFrame,
    /// The files to remove.
    removes: Vec<Action>,
    /// Rows of older days among those to add.
    carried: u64,
    /// Days before this one go.
    cut: Option<NaiveDate>,
}

/// Every row of the source, as a row of the day; in a `changed_only` snapshot, as a new one.
async fn all(session: &Session, source: &Table, layout: &Layout, day: NaiveDate) -> Result<DataFrame> {
    let source = current(session, source).await?;
    let columns = layout.schema.fields().iter().map(|field| {
        Ok(match field.name().as_str() {
            SNAPSHOT_DATE => date(day).alias(SNAPSHOT_DATE),
            CHANGE => lit(changed::INSERT).alias(CHANGE),
            name if layout.is_kept(name) => ident(name),
            name => lit(ScalarValue::try_from(field.data_type())?).alias(name),
        })
    });
    Ok(source.select(columns.collect::<Result<Vec<_>>>()?)?)
}

/// The current rows of the source: of a silver table that keeps deleted rows or history, those alone.
async fn current(session: &Session, source: &Table) -> Result<DataFrame> {
    let rows = session.context().table(reference(source.name())).await?;
    let has = |name: &str| source.name().layer == Layer::Silver && source.schema().field_with_name(name).is_ok();
    Ok(match (has(END_AT), has(IS_DELETED) && has(DELETED_BATCH_ID)) {
        (true, _) => rows.filter(ident(END_AT).is_null())?,
        (false, true) => rows.filter(ident(IS_DELETED).is_not_true())?,
        (false, false) => rows,
    })
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
fn later_day(plan: &SnapshotPlan, table: Option<&Table>, day: NaiveDate) -> Result<Option<String>> {
    let (Strategy::ChangedOnly, Some(table)) = (plan.strategy, table) else { return Ok(None) };
    let newest = table.partition_values(SNAPSHOT_DATE)?.into_iter().flatten().max();
    Ok(newest.filter(|newest| *newest > day.to_string()))
}

fn in_partition(partition: &HashMap<String, Option<String>>, accepts: impl Fn(&str) -> bool) -> bool {
    partition.get(SNAPSHOT_DATE).and_then(Option::as_deref).is_some_and(accepts)
}

/// A day as a literal.
fn date(day: NaiveDate) -> Expr {
    cast(lit(day.to_string()), DataType::Date32)
}

fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Full => "full",
        Strategy::ChangedOnly => "changed_only",
    }
}
