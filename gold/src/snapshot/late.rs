//! What a day that is recorded late changes on the days after it.
//!
//! The next recorded day was compared with a state that did not know the late one, so it is compared again. Where every
//! column makes a row differ and rows that are gone are recorded, that is all: the rows of the next day tell its state, the
//! same as before. Else rows stay **open** behind it, whose last version is another one than it was:
//! - `hard_deletes: ignore`: a row that is gone on the next day keeps its last version, now that of the late day. What it
//!   comes back with, on whatever day, was compared with the one before. The days do not tell that a row was gone, so the
//!   source is asked, as it was on each day.
//! - `compare_columns`: the last version may come from the late day and have other values in the columns that are not
//!   compared. A later delete keeps them as its last values.
//!
//! Where days after it were recorded by different options ([`Others`]), the source is asked on each of them too: what one day
//! did not compare the next may.
//!
//! A row is open up to the day that records it again, or could have. So is one that the table has no longer: a day that is
//! recorded again, as it was at its end, may have lost what a run had seen on it.

use arrow::array::AsArray;
use arrow::datatypes::Date32Type;
use chrono::NaiveDate;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::{JoinType, ident, lit};
use lake::columns::{CHANGE, SNAPSHOT_DATE};
use lake::history::check_readable;
use lake::session::{Session, reference};
use lake::stage::Staged;
use lake::{Error, ErrorKind, Lake, Result, Table};

use super::changed::{DELETE, changes, differing, shaped};
use super::day_app;
use super::days::Days;
use super::layout::{Layout, kept};
use super::options::{Options, Others};
use super::state::{compare, current, date, living, of};
use crate::plan::SnapshotPlan;
use crate::spec::HardDeletes;

/// A day of a `changed_only` snapshot that others follow.
pub(super) struct Late<'a> {
    pub(super) lake: &'a Lake,
    /// With the present options.
    pub(super) plan: &'a SnapshotPlan,
    /// The days that were recorded by others.
    pub(super) others: &'a Others,
    pub(super) session: &'a Session,
    /// The snapshot, registered in the session.
    pub(super) table: &'a Table,
    pub(super) layout: &'a Layout,
    /// The recorded days.
    pub(super) known: &'a Days,
    /// The late one.
    pub(super) day: NaiveDate,
}

impl Late<'_> {
    /// The days from `next` on, the first after the late one, that say something else when that has the rows `of_day`;
    /// oldest first, each with all its rows.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the source is not there any more as a later day has it and must be asked.
    pub(super) async fn told_anew(&self, of_day: DataFrame, next: NaiveDate) -> Result<Vec<(NaiveDate, DataFrame)>> {
        let before = self.history().await?.filter(ident(SNAPSHOT_DATE).lt(date(self.day)))?.union(of_day)?;
        let tells_all = self.plan_of(next).tells_all();
        let there = if tells_all { self.told(next).await? } else { self.source_on(next).await? };
        let of_next = Staged::write(self.changes(before.clone(), there, next)?).await?.frame(self.session).await?;
        let mut anew = vec![(next, of_next.clone())];
        if !tells_all {
            let open = self.open(before.union(of_next)?, next, None).await?;
            self.follow(open, next, &mut anew).await?;
        }
        Ok(anew)
    }

    /// Adds the days after `last` that say something else of the open rows.
    async fn follow(
        &self,
        mut open: Staged,
        mut last: NaiveDate,
        anew: &mut Vec<(NaiveDate, DataFrame)>,
    ) -> Result<()> {
        let asks = self.must_ask(last);
        while let Some(day) = self.day_after(last, &open, asks).await? {
            let rows = open.frame(self.session).await?;
            let there = if asks { self.source_on(day).await? } else { self.told(day).await? };
            let there = self.of_keys(there, &rows, JoinType::LeftSemi)?;
            let of_open = Staged::write(self.changes(rows.clone(), there, day)?).await?;
            let of_open_frame = of_open.frame(self.session).await?;
            let held = self.history().await?.filter(ident(SNAPSHOT_DATE).eq(date(day)))?;
            let said = self.of_keys(held.clone(), &rows, JoinType::LeftSemi)?.count().await?;
            if said > 0 || of_open.rows() > 0 {
                let others = self.of_keys(held, &rows, JoinType::LeftAnti)?;
                anew.push((day, others.union(of_open_frame.clone())?));
            }
            open = self.open(rows.clone().union(of_open_frame)?, day, Some(&rows)).await?;
            last = day;
        }
        Ok(())
    }

    /// What `day` records when the source is `there` after these rows of earlier days.
    fn changes(&self, before: DataFrame, there: DataFrame, day: NaiveDate) -> Result<DataFrame> {
        let was = shaped(living(before, &self.plan.keys)?, self.layout)?;
        changes(was, there, self.layout, &self.plan_of(day), day)
    }

    /// The plan by which a day was recorded.
    fn plan_of(&self, day: NaiveDate) -> SnapshotPlan {
        self.others.plan_of(day, self.plan)
    }

    /// True when the days from `day` on do not tell whether they say something else of an open row.
    fn must_ask(&self, day: NaiveDate) -> bool {
        ignores(&self.plan_of(day)) || !self.are_alike(day)
    }

    /// True when the days from `day` on were recorded by the same options.
    fn are_alike(&self, day: NaiveDate) -> bool {
        let first = Options::of_plan(&self.plan_of(day));
        let later = self.known.iter().filter(|known| *known > day);
        later.map(|later| self.plan_of(later)).all(|plan| Options::of_plan(&plan) == first)
    }

    /// The next day that may say something else of the open rows.
    async fn day_after(&self, day: NaiveDate, open: &Staged, asks: bool) -> Result<Option<NaiveDate>> {
        if open.rows() == 0 {
            return Ok(None);
        }
        if asks {
            return Ok(self.known.after(day));
        }
        let later = self.history().await?.filter(ident(SNAPSHOT_DATE).gt(date(day)))?;
        let of_open = self.of_keys(later, &open.frame(self.session).await?, JoinType::LeftSemi)?;
        let first =
            of_open.aggregate(Vec::new(), vec![min(ident(SNAPSHOT_DATE)).alias(SNAPSHOT_DATE)])?.collect().await?;
        let days = first.iter().flat_map(|batch| batch.column(0).as_primitive::<Date32Type>().iter().flatten());
        Ok(days.filter_map(Date32Type::to_naive_date_opt).next())
    }

    /// Those last versions up to `day`, of rows as the table says them from now on, that are others than it says now, and
    /// those that it says now and not from now on, as deletes. With `among`, `rows` are all of these keys alone.
    async fn open(&self, rows: DataFrame, day: NaiveDate, among: Option<&DataFrame>) -> Result<Staged> {
        let columns = self.mattering(day);
        let keys = &self.plan.keys;
        let mut was = living(self.history().await?.filter(ident(SNAPSHOT_DATE).lt_eq(date(day)))?, keys)?;
        if let Some(among) = among {
            was = self.of_keys(was, among, JoinType::LeftSemi)?;
        }
        let now = living(rows, keys)?;
        let lost = self.of_keys(was.clone(), &now, JoinType::LeftAnti)?;
        let lost = lost.select(self.layout.schema.fields().iter().map(|field| match field.name().as_str() {
            CHANGE => lit(DELETE).alias(CHANGE),
            name => ident(name),
        }))?;
        Staged::write(differing(was, now, self.layout, keys, &columns)?.union(lost)?).await
    }

    /// The columns whose values on `day` matter to later days. What is not compared matters to deletes alone, which keep it.
    fn mattering(&self, day: NaiveDate) -> Vec<String> {
        let plan = self.plan_of(day);
        match ignores(&plan) && self.are_alike(day) {
            true => self.layout.compared(&plan),
            false => self.layout.values().map(|field| field.name().clone()).collect(),
        }
    }

    /// The state of a day as the table says it.
    async fn told(&self, day: NaiveDate) -> Result<DataFrame> {
        let rows = self.history().await?.filter(ident(SNAPSHOT_DATE).lt_eq(date(day)))?;
        shaped(living(rows, &self.plan.keys)?, self.layout)
    }

    /// The state of a day as the source had it.
    async fn source_on(&self, day: NaiveDate) -> Result<DataFrame> {
        let source = &self.plan.source;
        let version = self.table.txn_version(&day_app(self.plan, day)).await?;
        let gone = || {
            let message = format!("{} cannot be recorded", self.day);
            let hint =
                format!("{day}, which follows it, would have to be compared again: {source} is not there as it was");
            Error::new(ErrorKind::Table, message).hint(hint)
        };
        let version = version.and_then(|held| u64::try_from(held).ok()).ok_or_else(gone)?;
        let then = self.lake.table_at(source, version).await?;
        check_readable(&then, &self.lake.existing(source).await?).await.map_err(|error| gone().with_source(error))?;
        // A session of its own: the source is registered as it is on the late day.
        let session = self.lake.session()?;
        session.register(&then).await?;
        let kept = kept(&self.plan_of(day), &then.schema())?;
        let rows = current(&session, &then).await?.select(kept.iter().map(ident).collect::<Vec<_>>())?;
        shaped(rows, self.layout)
    }

    /// All rows of the table, with the columns that it has from now on.
    async fn history(&self) -> Result<DataFrame> {
        self.layout.like(self.session.context().table(reference(self.table.name())).await?)
    }

    /// The rows whose key is, or is not, among those of others.
    fn of_keys(&self, rows: DataFrame, others: &DataFrame, join: JoinType) -> Result<DataFrame> {
        const ROWS: &str = "rows_of_day";
        const OTHERS: &str = "open";
        let keys = &self.plan.keys;
        let others = others.clone().select(keys.iter().map(ident).collect::<Vec<_>>())?.alias(OTHERS)?;
        let met = keys.iter().map(|key| compare(of(ROWS, key), self.layout.same_key(), of(OTHERS, key)));
        Ok(rows.alias(ROWS)?.join_on(others, join, met)?)
    }
}

fn ignores(plan: &SnapshotPlan) -> bool {
    plan.hard_deletes == HardDeletes::Ignore
}
