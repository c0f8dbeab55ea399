//! A day into the table, in one commit: its rows, those of the day after it where that one was compared with another
//! state, and what older days still give.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::NaiveDate;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{ident, lit};
use deltalake::kernel::Action;
use lake::columns::{CHANGE, SNAPSHOT_DATE, SNAPSHOT_DAYS};
use lake::commit::Txn;
use lake::history::check_readable;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::session::{Session, reference};
use lake::table::Definition;
use lake::{Context, Error, ErrorKind, Lake, Result, Table};

use super::changed::{self, changes, shaped};
use super::days::Days;
use super::layout::Layout;
use super::since::{Sides, since};
use super::state::{current, date, living};
use super::{day_app, retention};
use crate::answer;
use crate::plan::SnapshotPlan;
use crate::publish::{Publication, Target};
use crate::recipe::Recipe;
use crate::spec::Strategy;
use crate::write::Rows;

/// One day to be recorded.
pub(super) struct Day<'a> {
    pub(super) lake: &'a Lake,
    pub(super) plan: &'a SnapshotPlan,
    pub(super) ctx: &'a RunContext,
    pub(super) day: NaiveDate,
    /// The version of the source whose state the last day before has, where that is known.
    pub(super) base: Option<u64>,
    /// Days before this one go.
    pub(super) cut: Option<NaiveDate>,
}

/// What a commit for a day does.
struct Change {
    /// The rows to add.
    frame: DataFrame,
    /// The days that are replaced.
    replaced: Vec<NaiveDate>,
    /// Rows of older days among those to add.
    carried: u64,
    /// Days before this one go.
    cut: Option<NaiveDate>,
}

impl Day<'_> {
    /// Records the day with the rows of `source`.
    ///
    /// # Errors
    /// As [`take`](super::take).
    pub(super) async fn record(
        &self,
        source: &Table,
        held: Option<Table>,
        recipe: &Recipe,
        txns: Vec<Txn>,
    ) -> Result<TaskReport> {
        let plan = self.plan;
        let layout = Layout::new(plan, source, held.as_ref())?;
        let definition = Definition {
            partition_by: vec![SNAPSHOT_DATE.to_owned()],
            description: Some(plan.described()),
            column_descriptions: plan.about.column_descriptions.clone(),
            properties: plan.about.properties.clone(),
            ..Definition::new(Arc::clone(&layout.schema))
        };
        let session = self.lake.session()?;
        session.register(source).await?;
        let doing = || format!("recording {} in {}", self.day, plan.table);
        let mut known = held.as_ref().map(Days::of).transpose()?.unwrap_or_default();
        let change = self.change(&session, source, held.as_ref(), &layout, &known).await.context(doing)?;
        known.insert(self.day);
        if let Some(cut) = change.cut {
            known.cut(cut, plan.strategy == Strategy::ChangedOnly);
        }
        let publication = Publication {
            properties: vec![recipe.property()?, (SNAPSHOT_DAYS.to_owned(), known.to_string())],
            removes: change.removes(held.as_ref())?,
            predicate: Some(change.predicate()),
            target: Target::new(self.lake, &plan.table, held, definition),
            txns,
        };
        let rows = Rows { parts: change.frame.execute_stream_partitioned().await?, ordered: false };
        let mut published = publication.publish(rows, self.ctx).await.context(doing)?;
        published.rows = published.rows.saturating_sub(change.carried);
        let mut report = answer::changed(&plan.table, std::slice::from_ref(source), &published)?;
        report.notes.extend(change.cut.map(|cut| format!("days before {cut} are gone, as `retention` says")));
        let later = change.replaced.get(1);
        report.notes.extend(later.map(|later| format!("{later} is told anew, as a change from {}", self.day)));
        Ok(report)
    }

    async fn change(
        &self,
        session: &Session,
        source: &Table,
        held: Option<&Table>,
        layout: &Layout,
        known: &Days,
    ) -> Result<Change> {
        if self.plan.strategy == Strategy::ChangedOnly {
            changed::check_keys(session, source, &self.plan.keys).await?;
        }
        let of_day = |frame| Change { frame, replaced: vec![self.day], carried: 0, cut: None };
        if let Some(base) = self.base
            && let Some(Sides { was, now }) = since(self.lake, session, source, layout, base).await?
            && let Some(table) = held
        {
            session.register(table).await?;
            let change = of_day(changes(was, now, layout, self.plan, self.day)?);
            return self.with_retention(session, table, layout, change).await;
        }
        let kept = layout.kept.iter().map(ident).collect::<Vec<_>>();
        let now = shaped(current(session, source).await?.select(kept)?, layout)?;
        let Some(table) = held else { return Ok(of_day(as_first(now, layout, self.day)?)) };
        session.register(table).await?;
        let change = match self.plan.strategy {
            Strategy::Full => of_day(as_first(now, layout, self.day)?),
            Strategy::ChangedOnly => self.changed(session, table, layout, known, now).await?,
        };
        self.with_retention(session, table, layout, change).await
    }

    /// What differs on this day, and what differs on the next recorded day from this one.
    async fn changed(
        &self,
        session: &Session,
        table: &Table,
        layout: &Layout,
        known: &Days,
        now: DataFrame,
    ) -> Result<Change> {
        let (plan, keys) = (self.plan, &self.plan.keys);
        let history = session.context().table(reference(table.name())).await?;
        let before = history.clone().filter(ident(SNAPSHOT_DATE).lt(date(self.day)))?;
        let was = shaped(living(before.clone(), keys)?, layout)?;
        let of_day = changes(was, now, layout, plan, self.day)?;
        let Some(later) = known.after(self.day) else {
            return Ok(Change { frame: of_day, replaced: vec![self.day], carried: 0, cut: None });
        };
        let upto = |rows: DataFrame| -> Result<DataFrame> { shaped(living(rows, keys)?, layout) };
        let state = upto(like(before, layout)?.union(of_day.clone())?)?;
        // The later day may have columns that the source had not yet on this one.
        let layout_later = layout.of_table(plan);
        let state_later = match plan.compare_columns.is_empty() {
            true => upto(history.filter(ident(SNAPSHOT_DATE).lt_eq(date(later)))?)?,
            // A row that differs in other columns alone is not recorded, so the source itself must tell.
            false => {
                let source = self.source_on(table, later).await?;
                let session = self.lake.session()?;
                session.register(&source).await?;
                let kept = layout.kept.iter().map(ident).collect::<Vec<_>>();
                shaped(current(&session, &source).await?.select(kept)?, layout)?
            }
        };
        let of_later = changes(state, state_later, &layout_later, plan, later)?;
        Ok(Change { frame: of_day.union(of_later)?, replaced: vec![self.day, later], carried: 0, cut: None })
    }

    /// The source as a recorded day has it.
    async fn source_on(&self, table: &Table, day: NaiveDate) -> Result<Table> {
        let source = &self.plan.source;
        let version = table.txn_version(&day_app(self.plan, day)).await?.and_then(|held| u64::try_from(held).ok());
        let gone = || {
            let message = format!("{} cannot be recorded", self.day);
            let hint =
                format!("{day}, which follows it, would have to be compared again: {source} is not there as it was");
            Error::new(ErrorKind::Table, message).hint(hint)
        };
        let then = self.lake.table_at(source, version.ok_or_else(gone)?).await?;
        check_readable(&then, &self.lake.existing(source).await?).await.map_err(|error| gone().with_source(error))?;
        Ok(then)
    }

    /// The same change, which also takes away the days that are too old.
    async fn with_retention(
        &self,
        session: &Session,
        table: &Table,
        layout: &Layout,
        mut change: Change,
    ) -> Result<Change> {
        let Some(cut) = self.cut else { return Ok(change) };
        if !table.partition_values(SNAPSHOT_DATE)?.iter().flatten().any(|held| *held < cut.to_string()) {
            return Ok(change);
        }
        if self.plan.strategy == Strategy::ChangedOnly {
            let Some((needed, rows)) = retention::needed(session, table, layout, &self.plan.keys, cut).await? else {
                return Ok(change);
            };
            change.frame = change.frame.union(needed)?;
            change.carried = rows;
        }
        change.cut = Some(cut);
        Ok(change)
    }
}

impl Change {
    /// The files that go.
    fn removes(&self, table: Option<&Table>) -> Result<Vec<Action>> {
        let Some(table) = table else { return Ok(Vec::new()) };
        let replaced: Vec<String> = self.replaced.iter().map(NaiveDate::to_string).collect();
        let cut = self.cut.map(|cut| cut.to_string());
        table.removes(|partition: &HashMap<String, Option<String>>| {
            let day = partition.get(SNAPSHOT_DATE).and_then(Option::as_ref);
            day.is_some_and(|day| replaced.contains(day) || cut.as_ref().is_some_and(|cut| day < cut))
        })
    }

    /// Which rows are replaced, for the table's history.
    fn predicate(&self) -> String {
        let days = self.replaced.iter().map(|day| format!("{SNAPSHOT_DATE} = '{day}'"));
        let old = self.cut.map(|cut| format!("{SNAPSHOT_DATE} < '{cut}'"));
        days.chain(old).collect::<Vec<_>>().join(" OR ")
    }
}

/// Every row as one of the day; in a `changed_only` snapshot, as a new one.
fn as_first(rows: DataFrame, layout: &Layout, day: NaiveDate) -> Result<DataFrame> {
    let columns = layout.schema.fields().iter().map(|field| match field.name().as_str() {
        SNAPSHOT_DATE => date(day).alias(SNAPSHOT_DATE),
        CHANGE => lit(changed::INSERT).alias(CHANGE),
        name => ident(name),
    });
    Ok(rows.select(columns.collect::<Vec<_>>())?)
}

/// Rows of the table with the columns that it has from now on.
fn like(rows: DataFrame, layout: &Layout) -> Result<DataFrame> {
    let columns = layout.schema.fields().iter().map(|field| {
        Ok(match layout.is_known(field.name()) {
            true => ident(field.name()),
            false => lit(ScalarValue::try_from(field.data_type())?).alias(field.name()),
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(rows.select(columns)?)
}
