//! A day into the table, in one commit: its rows, those of later days where these were compared with another state, and
//! what older days still give.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::NaiveDate;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{ident, lit};
use deltalake::kernel::Action;
use lake::columns::{CHANGE, SNAPSHOT_DATE, SNAPSHOT_DAYS};
use lake::commit::Txn;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::session::{Session, reference};
use lake::stage::Staged;
use lake::table::Definition;
use lake::{Context, Lake, Result, Table};

use super::changed::{self, changes, shaped};
use super::days::Days;
use super::keys;
use super::late::Late;
use super::layout::Layout;
use super::options::Others;
use super::retention::{self, Expired};
use super::since::{Sides, since};
use super::state::{current, date, living};
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
    /// The days that were recorded by other options; this one is none of them.
    pub(super) others: Others,
    /// The version of the source whose state the last day before has, where that is known.
    pub(super) base: Option<u64>,
    /// Days before this one go.
    pub(super) cut: Option<NaiveDate>,
    /// False for an earlier day, when the source may not have had each column yet.
    pub(super) is_today: bool,
}

/// What a commit for a day does.
struct Change {
    /// The rows to add.
    frame: DataFrame,
    /// The days that are replaced.
    replaced: Vec<NaiveDate>,
    /// Days before this one go.
    cut: Option<NaiveDate>,
    /// What becomes of their rows.
    expired: Expired,
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
        mut txns: Vec<Txn>,
    ) -> Result<TaskReport> {
        let plan = self.plan;
        let layout = Layout::new(plan, source, held.as_ref())?;
        if self.is_today {
            plan.about.check(&plan.table, &layout.schema)?;
        }
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
        let mut others = self.others.clone();
        if let Some(cut) = change.cut {
            known.cut(cut, plan.strategy == Strategy::ChangedOnly);
            others.cut(cut);
        }
        txns.extend(change.expired.txn.clone());
        let mut properties = vec![recipe.property()?, (SNAPSHOT_DAYS.to_owned(), known.to_string())];
        properties.extend(others.property(held.as_ref())?);
        let publication = Publication {
            properties,
            removes: change.removes(held.as_ref())?,
            predicate: Some(change.predicate()),
            target: Target::new(self.lake, &plan.table, held, definition),
            txns,
        };
        let rows = Rows { parts: change.frame.execute_stream_partitioned().await?, ordered: false };
        let mut published = publication.publish(rows, self.ctx).await.context(doing)?;
        published.rows = published.rows.saturating_sub(change.expired.kept);
        let mut report = answer::changed(&plan.table, std::slice::from_ref(source), &published)?;
        report.notes.extend(change.cut.map(|cut| format!("days before {cut} are gone, as `retention` says")));
        if let [_, later @ ..] = change.replaced.as_slice()
            && !later.is_empty()
        {
            let later = later.iter().map(NaiveDate::to_string).collect::<Vec<_>>().join(", ");
            report.notes.push(format!("told anew, as changes after {}: {later}", self.day));
        }
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
        let of_day = |frame| Change { frame, replaced: vec![self.day], cut: None, expired: Expired::default() };
        if let Some(base) = self.base
            && let Some(Sides { was, now }) = since(self.lake, session, self.plan, source, layout, base).await?
            && let Some(table) = held
        {
            session.register(table).await?;
            let change = of_day(changes(was, now, layout, self.plan, self.day)?);
            return self.with_retention(session, table, layout, known, change).await;
        }
        if self.plan.strategy == Strategy::ChangedOnly {
            keys::check_all(session, source, &self.plan.keys).await?;
        }
        let kept = layout.kept.iter().map(ident).collect::<Vec<_>>();
        let now = shaped(current(session, source).await?.select(kept)?, layout)?;
        let Some(table) = held else { return Ok(of_day(as_first(now, layout, self.day)?)) };
        session.register(table).await?;
        let change = match self.plan.strategy {
            Strategy::Full => of_day(as_first(now, layout, self.day)?),
            Strategy::ChangedOnly => self.changed(session, table, layout, known, now).await?,
        };
        self.with_retention(session, table, layout, known, change).await
    }

    /// What differs on this day, and what the days after it say differently for it.
    async fn changed(
        &self,
        session: &Session,
        table: &Table,
        layout: &Layout,
        known: &Days,
        now: DataFrame,
    ) -> Result<Change> {
        let history = layout.like(session.context().table(reference(table.name())).await?)?;
        let before = history.filter(ident(SNAPSHOT_DATE).lt(date(self.day)))?;
        let was = shaped(living(before, &self.plan.keys)?, layout)?;
        let of_day = changes(was, now, layout, self.plan, self.day)?;
        let (replaced, expired) = (vec![self.day], Expired::default());
        let mut change = Change { frame: of_day, replaced, cut: None, expired };
        let Some(next) = known.after(self.day) else { return Ok(change) };
        change.frame = Staged::write(change.frame).await?.frame(session).await?;
        let (lake, plan, others, day) = (self.lake, self.plan, &self.others, self.day);
        let late = Late { lake, plan, others, session, table, layout, known, day };
        for (later, rows) in late.told_anew(change.frame.clone(), next).await? {
            change.frame = change.frame.union(rows)?;
            change.replaced.push(later);
        }
        Ok(change)
    }

    /// The same change, which also takes away the days that are too old.
    async fn with_retention(
        &self,
        session: &Session,
        table: &Table,
        layout: &Layout,
        known: &Days,
        mut change: Change,
    ) -> Result<Change> {
        let Some(cut) = self.cut else { return Ok(change) };
        let held = table.partition_values(SNAPSHOT_DATE)?;
        let held: BTreeSet<NaiveDate> = held.iter().flatten().filter_map(|day| day.parse().ok()).collect();
        let old: BTreeSet<NaiveDate> = held.into_iter().filter(|day| *day < cut).collect();
        if old.is_empty() || known.first().is_none_or(|first| first >= cut) {
            return Ok(change);
        }
        change.cut = Some(cut);
        if self.plan.strategy == Strategy::Full {
            change.expired.days = old;
            return Ok(change);
        }
        let (expired, kept) = retention::expired(session, table, layout, &self.plan.keys, known, cut).await?;
        change.expired = expired;
        if let Some(kept) = kept {
            change.frame = change.frame.union(kept)?;
        }
        Ok(change)
    }
}

impl Change {
    /// The days whose rows go, and maybe come again.
    fn days(&self) -> BTreeSet<String> {
        self.replaced.iter().chain(&self.expired.days).map(NaiveDate::to_string).collect()
    }

    /// The files that go.
    fn removes(&self, table: Option<&Table>) -> Result<Vec<Action>> {
        let Some(table) = table else { return Ok(Vec::new()) };
        let days = self.days();
        table.removes(|partition: &HashMap<String, Option<String>>| {
            partition.get(SNAPSHOT_DATE).and_then(Option::as_ref).is_some_and(|day| days.contains(day))
        })
    }

    /// Which rows are replaced, for the table's history.
    fn predicate(&self) -> String {
        self.days().iter().map(|day| format!("{SNAPSHOT_DATE} = '{day}'")).collect::<Vec<_>>().join(" OR ")
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
