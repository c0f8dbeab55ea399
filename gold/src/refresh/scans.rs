//! The sources of a query as plans: as they are, as they were when the table was last made, and what changed between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::ScalarValue;
use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, cast, ident, lit};
use lake::changes::IS_NEW;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Result, Table, TableName};

/// Which version of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The one that the table was last made from.
    Old,
    /// The one that it is made from now.
    New,
}

/// A source.
#[derive(Debug)]
pub(super) struct Source {
    /// All of it as it is.
    new: LogicalPlan,
    /// All of it as it was; `None` where that is the same or not known.
    old: Option<LogicalPlan>,
    /// True once it was asked for as it was, which is not known.
    lacks_old: AtomicBool,
    /// The changed rows as they were and as they are; `None` where none changed.
    changed: Option<[LogicalPlan; 2]>,
}

/// The sources of a query.
#[derive(Debug, Default)]
pub(super) struct Scans(BTreeMap<TableName, Source>);

/// The table of the lake that a scan reads.
pub(super) fn table_of(reference: &TableReference) -> Option<TableName> {
    TableName::parse(&format!("{}.{}", reference.schema()?, reference.table()))
}

impl Scans {
    /// Takes a source that has not changed.
    pub(super) async fn add_same(&mut self, session: &Session, table: &Table) -> Result<()> {
        let new = all(session, table).await?;
        self.0
            .insert(table.name().clone(), Source { new, old: None, lacks_old: AtomicBool::new(false), changed: None });
        Ok(())
    }

    /// Takes a source that changed: how it is, and the changed rows with the columns `told`.
    pub(super) async fn add_changed(
        &mut self,
        session: &Session,
        table: &Table,
        changed: &Staged,
        told: &BTreeSet<String>,
    ) -> Result<()> {
        let new = all(session, table).await?;
        let side = |is_new: bool, frame: datafusion::dataframe::DataFrame| -> Result<LogicalPlan> {
            let wanted = if is_new { ident(IS_NEW) } else { Expr::Not(Box::new(ident(IS_NEW))) };
            let columns = new.schema().fields().iter().map(|field| {
                Ok(match told.contains(field.name()) {
                    true => cast(ident(field.name()), field.data_type().clone()),
                    // A column that the query does not ask for.
                    false => lit(ScalarValue::try_from(field.data_type())?),
                }
                .alias(field.name()))
            });
            let columns = columns.collect::<PlanResult<Vec<Expr>>>()?;
            Ok(frame.filter(wanted)?.select(columns)?.into_unoptimized_plan())
        };
        let changed = [side(false, changed.frame(session).await?)?, side(true, changed.frame(session).await?)?];
        let source = Source { new, old: None, lacks_old: AtomicBool::new(false), changed: Some(changed) };
        self.0.insert(table.name().clone(), source);
        Ok(())
    }

    /// Takes a changed source as it was.
    pub(super) async fn add_old(&mut self, session: &Session, old: &Table) -> Result<()> {
        let plan = all(session, old).await?;
        if let Some(source) = self.0.get_mut(old.name()) {
            source.old = Some(plan);
            source.lacks_old = AtomicBool::new(false);
        }
        Ok(())
    }

    /// The changed sources that were asked for as they were, which is not known: plans that were made until now are not
    /// to be used then.
    pub(super) fn lacking(&self) -> Vec<TableName> {
        let lacking = self.0.iter().filter(|(_, source)| source.lacks_old.load(Ordering::Relaxed));
        lacking.map(|(name, _)| name.clone()).collect()
    }

    /// What a scan reads, on a side.
    pub(super) fn all(&self, scan: &TableScan, side: Side) -> PlanResult<Option<LogicalPlan>> {
        let Some(source) = self.source(scan) else { return Ok(None) };
        let plan = match (side, &source.old) {
            (Side::Old, Some(old)) => old,
            (Side::Old, None) if source.changed.is_some() => {
                source.lacks_old.store(true, Ordering::Relaxed);
                &source.new
            }
            _ => &source.new,
        };
        named(plan.clone(), scan).map(Some)
    }

    /// What changed in what a scan reads: the rows of a side; `None` when none did.
    pub(super) fn changed(&self, scan: &TableScan, side: Side) -> PlanResult<Option<LogicalPlan>> {
        let Some([old, new]) = self.source(scan).and_then(|source| source.changed.as_ref()) else { return Ok(None) };
        let plan = if side == Side::Old { old } else { new };
        named(plan.clone(), scan).map(Some)
    }

    /// A plan over the sources of a side.
    pub(super) fn whole(&self, node: &LogicalPlan, side: Side) -> PlanResult<LogicalPlan> {
        let replaced = node.clone().transform_up(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            Ok(match self.all(scan, side)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(node),
            })
        })?;
        Ok(replaced.data)
    }

    fn source(&self, scan: &TableScan) -> Option<&Source> {
        self.0.get(&table_of(&scan.table_name)?)
    }
}

/// All columns of a table, under their own names.
async fn all(session: &Session, table: &Table) -> Result<LogicalPlan> {
    of_provider(session, session.provider(table).await?)
}

/// The same of any scan.
pub(super) fn of_provider(
    session: &Session,
    provider: std::sync::Arc<dyn datafusion::catalog::TableProvider>,
) -> Result<LogicalPlan> {
    let frame = session.context().read_table(provider)?;
    let names: Vec<Expr> = frame.schema().fields().iter().map(|field| ident(field.name())).collect();
    Ok(frame.select(names)?.into_unoptimized_plan())
}

/// A plan in the place of a scan: its columns under the scan's name.
pub(super) fn named(plan: LogicalPlan, scan: &TableScan) -> PlanResult<LogicalPlan> {
    let builder = LogicalPlanBuilder::from(plan);
    match &scan.projection {
        None => builder.alias(scan.table_name.clone())?.build(),
        Some(_) => {
            let names = scan.projected_schema.fields().iter().map(|field| ident(field.name()));
            builder.project(names.collect::<Vec<_>>())?.alias(scan.table_name.clone())?.build()
        }
    }
}
