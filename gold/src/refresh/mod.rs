//! A refresh by groups: only those that a change of the sources touches are computed again, and replaced in one commit.
//!
//! [`shape`](self::shape) says which columns of the result tell groups and what stands in the way (`obstacles`). Of each
//! source `lake::changes` tells the rows that changed since the version that the table was made from; [`touched`]
//! follows them through the query to the groups, [`groups`] asks the query for these groups alone, and [`apply`] puts
//! the answer in their place: groups that are not in it are gone.
//!
//! The result is that of a full computation to the last byte, since the groups are computed again, never patched, and
//! queries whose aggregates depend on the order of rows are not taken (`obstacles`).

pub(crate) mod apply;
mod groups;
mod obstacles;
mod scans;
pub(crate) mod shape;
mod spans;
mod through;
mod touched;
mod unique;

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::LogicalPlan;
use futures::FutureExt;
use futures::future::BoxFuture;
use lake::changes::{Told, before, between};
use lake::commit::Txn;
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Error, Lake, Result, Table};

use self::groups::{Touched, restrict};
use self::scans::Scans;
use self::shape::{Coverage, Shape};
use self::touched::Follow;
use crate::known::Known;
use crate::model::empty_as_null;
use crate::output;
use crate::plan::ModelPlan;

/// Of the groups of a table so many at most are refreshed one by one.
const TOUCHED_SHARE_MAX: f64 = 0.5;
/// So few groups are always refreshed one by one.
const TOUCHED_FEW: usize = 64;

/// Why a model is computed as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whole {
    /// There is no table yet.
    First,
    /// It was asked for, or the query allows nothing else; a person may ask `gold explain`.
    Always(String),
    /// It costs less this time.
    Cheaper(String),
    /// What the table was made by or from is not what it was.
    Reset(String),
}

/// What became of a refresh by groups.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done(Box<TaskReport>),
    /// The model is to be computed as a whole instead.
    Whole(Whole),
}

/// A table that is to be refreshed. It owns what it works with, so that its future can be seen to be `Send`.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) lake: Lake,
    pub(crate) plan: ModelPlan,
    pub(crate) ctx: RunContext,
    /// The table as it is.
    pub(crate) held: Table,
    /// Its sources as they are now, each with the version that the table was made from.
    pub(crate) sources: Vec<(Table, i64)>,
    /// What the commit carries.
    pub(crate) txns: Vec<Txn>,
}

/// What is known of the columns of tables that are there.
pub(crate) async fn known(session: &Session, tables: &[Table]) -> Result<Known> {
    let mut columns = Vec::new();
    for table in tables {
        columns.push((table.name().clone(), session.provider(table).await?.schema()));
    }
    Known::new(columns)
}

impl Work {
    /// Refreshes the groups that changes of the sources touch, where that can be done.
    ///
    /// # Errors
    /// As a full computation.
    pub(crate) fn refresh(self) -> BoxFuture<'static, Result<Answer>> {
        self.by_groups().boxed()
    }

    async fn by_groups(self) -> Result<Answer> {
        let session = self.lake.query_session()?;
        let sources: Vec<Table> = self.sources.iter().map(|(source, _)| source.clone()).collect();
        let known = known(&session, &sources).await?;
        let shape = match Coverage::of(&self.plan, &known)? {
            Coverage::Groups(shape) => shape,
            Coverage::Whole(reasons) => return Ok(Answer::Whole(Whole::Always(reasons.join("; ")))),
        };
        let columns = output::columns(shape.plan.schema().as_arrow(), &self.plan.table)?;
        if columns.fields() != self.held.schema().fields() {
            return Ok(Answer::Whole(Whole::Reset("its columns have changed".to_owned())));
        }
        let mut scans = match self.follow(&session, &shape).await? {
            Ok(scans) => scans,
            Err(whole) => return Ok(Answer::Whole(whole)),
        };
        let touched = match self.touched(&session, &shape, &mut scans).await? {
            Ok(touched) => touched,
            Err(whole) => return Ok(Answer::Whole(whole)),
        };
        let share = touched.len() as f64 / self.held.row_count()?.unwrap_or(0).max(1) as f64;
        if touched.len() > TOUCHED_FEW && share > TOUCHED_SHARE_MAX {
            return Ok(Answer::Whole(Whole::Cheaper("more than half of its groups were touched".to_owned())));
        }
        let groups = shape.group_columns();
        let restricted = restrict(&session, &shape.plan, &groups, &touched, &scans, &sources).await?;
        let rows = empty_as_null(frame(&session, restricted.plan), &self.plan.partition_by)?;
        let rows = Staged::write(rows).await?;
        apply::replace(self, &session, &shape, &touched, rows, restricted.bytes).await
    }

    /// The sources, with what changed in each; or why that cannot be told or is not worth it.
    async fn follow(&self, session: &Session, shape: &Shape) -> Result<Result<Scans, Whole>> {
        let mut scans = Scans::default();
        for (source, from) in &self.sources {
            let columns = shape.columns.get(source.name()).cloned().unwrap_or_default();
            let from = u64::try_from(*from).unwrap_or_default();
            let names: Vec<String> = columns.iter().cloned().collect();
            let changes = match between(&self.lake, source, from, &names).await? {
                Told::Known(changes) => changes,
                Told::Broken(why) => return Ok(Err(Whole::Reset(why))),
            };
            if changes.is_empty() {
                scans.add_same(session, source).await?;
                continue;
            }
            let changes = match changes.locate().await? {
                Told::Known(changes) => changes,
                Told::Broken(why) => return Ok(Err(Whole::Reset(why))),
            };
            if changes.is_most()? {
                let why = format!("most of {} has changed", source.name());
                return Ok(Err(Whole::Cheaper(why)));
            }
            let changed = changes.read(&self.lake, &names).await?;
            scans.add_changed(session, source, &changed, &columns).await?;
        }
        Ok(Ok(scans))
    }

    /// The groups that the changes touch, each once; or why that cannot be told.
    async fn touched(&self, session: &Session, shape: &Shape, scans: &mut Scans) -> Result<Result<Touched, Whole>> {
        let exprs = shape.group_columns();
        let mut plan = Follow(scans).groups(&shape.plan, &exprs)?;
        // Only what the plan reads of the past is opened: much of it may be gone.
        let lacking = scans.lacking();
        for (source, from) in self.sources.iter().filter(|(source, _)| lacking.contains(source.name())) {
            let from = u64::try_from(*from).unwrap_or_default();
            match before(&self.lake, source, from).await? {
                Told::Known(old) => scans.add_old(session, &old).await?,
                Told::Broken(why) => return Ok(Err(Whole::Reset(why))),
            }
        }
        if !lacking.is_empty() {
            plan = Follow(scans).groups(&shape.plan, &exprs)?;
        }
        if !scans.lacking().is_empty() {
            return Err(Error::internal(format!("{} was followed without its sources as they were", self.plan.table)));
        }
        let Some(plan) = plan else {
            let schema = Arc::new(frame(session, shape.plan.clone()).select(exprs)?.schema().as_arrow().clone());
            return Touched::new(session, &Touched::named(&schema), Vec::new()).map(Ok);
        };
        let frame = frame(session, plan);
        let schema = Arc::new(frame.schema().as_arrow().clone());
        Touched::new(session, &Touched::named(&schema), frame.collect().await?).map(Ok)
    }
}

/// A plan, ready to be computed.
pub(crate) fn frame(session: &Session, plan: LogicalPlan) -> DataFrame {
    DataFrame::new(session.context().state(), plan)
}
