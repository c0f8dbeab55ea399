//! The changes that the rows of a table do not tell, in a table beside it.
//!
//! What is remembered is a fact about what arrived, whatever becomes of the rows: it is appended before the rows are
//! written, and a crash between the two leaves changes that the next run takes from bronze again. Of several of one
//! place the newest counts. The application names the silver table by its id: when the table is deleted and made anew,
//! what was remembered starts anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Partitioning, ident, lit};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, evolve, redefine};
use lake::session::Session;
use lake::stage::Staged;
use lake::table::{Definition, with_new_columns};
use lake::write::{discard, write_streams};
use lake::{Error, ErrorKind, Lake, Result, RunId, Table, TableName, columns};

use super::events::Events;
use crate::plan::TablePlan;

/// Whether a remembered change is a delete.
pub(super) const IS_DELETE: &str = "is_delete";
/// The number of the commit that remembered it.
pub(super) const NUMBER: &str = "number";

/// What is remembered of one silver table, as it stood when it was opened.
pub(super) struct Remembered<'a> {
    lake: &'a Lake,
    name: TableName,
    of: &'a TableName,
    app: &'a str,
    schema: SchemaRef,
    table: Option<Table>,
    /// How often the owner has remembered something here.
    number: Option<i64>,
}

impl<'a> Remembered<'a> {
    /// Opens what is remembered of the table of a plan. `app` is the application of that table, `base` are the
    /// columns of its changes.
    pub(super) async fn of(lake: &'a Lake, plan: &'a TablePlan, app: &'a str, base: SchemaRef) -> Result<Self> {
        let name = TableName::versions(&plan.table.name);
        let table = lake.table(&name).await?;
        let number = match &table {
            Some(table) => table.txn_version(app).await?,
            None => None,
        };
        let more = [Field::new(IS_DELETE, DataType::Boolean, false), Field::new(NUMBER, DataType::Int64, false)];
        let first = plan.keys.iter().cloned().chain(plan.sequence_columns()).chain([columns::BATCH_ID.to_owned()]);
        let first: Vec<String> = first.collect();
        let leading = first.iter().filter_map(|name| base.field_with_name(name).ok()).cloned();
        let others = base.fields().iter().filter(|field| !first.contains(field.name()));
        let fields = leading.chain(more).chain(others.map(|field| field.as_ref().clone()));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { lake, name, of: &plan.table, app, schema, table, number })
    }

    /// What is remembered of the keys that changes touch. Batches above `after` are left out: they are read again.
    pub(super) async fn events(
        &self,
        events: &Events<'_>,
        changes: &Staged,
        after: i64,
        session: &Session,
    ) -> Result<Option<DataFrame>> {
        let (Some(table), Some(_)) = (&self.table, self.number) else { return Ok(None) };
        let rows = session.context().read_table(session.provider(table).await?)?;
        let rows = rows.filter(ident(columns::BATCH_ID).lt_eq(lit(after)))?;
        Ok(Some(events.remembered_events(events.touched(rows, changes, session).await?)?))
    }

    /// Remembers more. The first that an owner remembers takes the place of all that another has left.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another run has remembered something meanwhile.
    pub(super) async fn add(self, hidden: &Staged, run: &RunId) -> Result<()> {
        let definition = self.definition();
        let mut table = match self.table {
            Some(table) => table,
            None => self.lake.create_or_open(&self.name, &definition).await?,
        };
        let number = self.number.unwrap_or(0) + 1;
        let session = self.lake.session()?;
        let named = self.schema.fields().iter().map(|field| match field.name().as_str() {
            NUMBER => lit(number).alias(NUMBER),
            name => ident(name),
        });
        let rows = hidden.frame(&session).await?.select(named.collect::<Vec<_>>())?;
        let rows = rows.repartition(Partitioning::RoundRobinBatch(1))?;
        let mut actions: Vec<Action> = Vec::new();
        if self.number.is_none() {
            actions.extend(redefine(&table, &definition)?);
            actions.extend(table.removes(|_| true)?);
        } else if let Some(wider) = with_new_columns(&table.schema(), &self.schema) {
            actions.extend(evolve(&table, &wider, &[])?);
        }
        let written = write_streams(&table, &self.schema, rows.execute_stream_partitioned().await?).await?;
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: "versions_committed",
            txns: vec![Txn::new(self.app, number)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions,
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        match table.commit(commit).await {
            Ok(Outcome::Committed { .. }) => Ok(()),
            Ok(Outcome::AlreadyApplied { .. }) => {
                discard(&table, &written.files).await;
                let message = format!("another run has remembered changes of {} meanwhile", self.of);
                Err(Error::new(ErrorKind::Conflict, message))
            }
            Err(error) => Err(error),
        }
    }

    fn definition(&self) -> Definition {
        let definition = Definition {
            description: Some(format!("changes of {} that its rows do not show", self.of)),
            ..Definition::new(Arc::clone(&self.schema))
        };
        let first: Vec<String> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        let sound = |name: &&String| {
            let kind = self.schema.field_with_name(name).ok().map(Field::data_type);
            kind.and_then(lake::schema::ColumnType::of).is_some_and(lake::schema::ColumnType::has_sound_stats)
        };
        let end = first.iter().position(|name| name == IS_DELETE).unwrap_or(0);
        let stats: Vec<String> = first[..end].iter().filter(sound).cloned().collect();
        definition.with_stats_columns(&stats)
    }
}
