//! The silver table that a refinement writes, its tombstones, and the names under which both count what was applied.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lake::commit::Txn;
use lake::rules::Rule;
use lake::schema::{Evolution, evolution};
use lake::table::Definition;
use lake::{Context, Error, ErrorKind, Result, Table, TableName, columns};

use crate::change::Decoder;
use crate::facts::{REBUILT_BEFORE, rebuilt};
use crate::fits::IDENTITY;
use crate::generated::rules;
use crate::refine::Refinement;
use crate::tombstones::{Owner, Tombstones};

/// The columns at most that get file statistics, as Delta has it by default.
const STATS_COLUMNS_MAX: usize = 32;

impl Refinement<'_> {
    pub(crate) fn app(&self) -> String {
        format!("{}:{}", self.plan.table, TableName::bronze(&self.plan.source))
    }

    /// The application in the quarantine and in the tombstones. It names the table by its id: what those hold of a
    /// table that was deleted and made anew belongs to the deleted one. A table that was made anew in its place is named by
    /// the rebuild.
    pub(crate) fn side_app(&self, table: &Table) -> Result<String> {
        match rebuilt(table)? {
            Some(number) => Ok(format!("{}:@{number}", self.app())),
            None => Ok(format!("{}:{}", self.app(), table.id()?)),
        }
    }

    /// The applications that a rebuilt table had there before it was rebuilt.
    pub(crate) fn earlier_side_apps(&self, table: &Table) -> Result<Vec<String>> {
        let first = format!("{}:{}", self.app(), table.id()?);
        let before = table.property(REBUILT_BEFORE)?.map(|number| format!("{}:@{number}", self.app()));
        Ok([first].into_iter().chain(before).collect())
    }

    pub(crate) async fn tombstones<'a>(
        &'a self,
        table: &Table,
        side: &'a str,
        sequence: &'a [String],
    ) -> Result<Tombstones<'a>> {
        let owner = Owner {
            lake: self.lake,
            app: side,
            target: table.schema(),
            keys: &self.plan.keys,
            sequence,
            retention_millis: self.plan.tombstone_retention_millis,
        };
        Tombstones::of(owner, table).await
    }

    /// The silver table with the columns that the plan asks for.
    pub(crate) async fn table(&self, decoder: &Decoder) -> Result<Table> {
        let wanted = self.plan.kept.columns(&decoder.target(), &self.plan.sequence);
        let mut properties = self.plan.properties.clone();
        properties.push((IDENTITY.to_owned(), self.plan.identity()));
        if self.plan.change_data_feed {
            properties.push(("delta.enableChangeDataFeed".to_owned(), "true".to_owned()));
        }
        if self.plan.deletion_vectors {
            properties.push(("delta.enableDeletionVectors".to_owned(), "true".to_owned()));
        }
        let definition = Definition {
            partition_by: self.plan.partition_by.clone(),
            properties,
            ..Definition::new(Arc::clone(&wanted))
        };
        let definition = definition.with_stats_columns(&self.stats_columns(&wanted));
        let mut table = self.lake.create_or_open(&self.plan.table, &definition).await?;
        self.plan.check_made_alike(&table)?;
        match evolution(&table.schema(), &wanted) {
            Evolution::Same => {}
            Evolution::Add(schema) => {
                let app = format!("{}:columns", self.plan.table);
                let held = table.txn_version(&app).await?.unwrap_or(0);
                let columns = i64::try_from(schema.fields().len()).unwrap_or(i64::MAX);
                // A table that was exchanged for a copy may have had them once.
                let txn = Txn::new(app, columns.max(held + 1));
                table.add_columns(&schema, txn, &self.ctx.run).await.context(|| "adding columns")?;
                if !matches!(evolution(&table.schema(), &wanted), Evolution::Same) {
                    let message = format!("{} got other columns meanwhile", self.plan.table);
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
            }
            Evolution::Refused(problems) => return Err(self.plan.refused(&problems)),
        }
        self.plan.check_partitions(&table)?;
        let app = format!("{}:properties", self.plan.table);
        table.alter(&self.plan.properties, None, &[], &app, &self.ctx.run).await?;
        let app = format!("{}:vectors", self.plan.table);
        table.allow_deletion_vectors(self.plan.deletion_vectors, &app, &self.ctx.run).await?;
        self.set_rules(&mut table).await?;
        Ok(table)
    }

    /// Puts the rules of the spec on the table, where it has others.
    pub(crate) async fn set_rules(&self, table: &mut Table) -> Result<()> {
        let has_any = !self.plan.constraints.is_empty() || !self.plan.generated.is_empty();
        if !has_any && Rule::of(table)?.is_empty() {
            return Ok(());
        }
        let rules = rules(self.plan, &table.schema(), &self.lake.session()?)?;
        let app = format!("{}:rules", self.plan.table);
        table.set_rules(self.lake, &rules, &self.plan.keys, &app, &self.ctx.run).await
    }

    /// Keys, sequence and batch first, then the other columns whose statistics can be trusted.
    fn stats_columns(&self, target: &SchemaRef) -> Vec<String> {
        let technical = |name: &&String| columns::is_silver_technical(name) || self.plan.kept.reserves(name);
        let names: Vec<&String> = target.fields().iter().map(|field| field.name()).collect();
        let first = self.plan.keys.iter().chain(names.iter().copied().filter(technical));
        let mut chosen: Vec<String> = Vec::new();
        for name in first.chain(names.iter().copied()) {
            let sound =
                target.field_with_name(name).ok().and_then(|field| lake::schema::ColumnType::of(field.data_type()));
            let sound = sound.is_some_and(lake::schema::ColumnType::has_sound_stats);
            let taken = chosen.contains(name) || self.plan.partition_by.contains(name);
            if sound && !taken && chosen.len() < STATS_COLUMNS_MAX {
                chosen.push(name.clone());
            }
        }
        chosen
    }
}
