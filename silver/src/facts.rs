//! What must be known of a silver table beside its rows: facts about what arrived, in a table of their own.
//!
//! A fact stays true whatever becomes of the rows: facts are appended before the rows are written, and a crash between
//! the two leaves facts of batches above the table's own, which are left out when they are read. The application names
//! the silver table by its id: when the table is deleted and made anew, its facts start anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Partitioning, ident, lit};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, evolve, redefine};
use lake::schema::ColumnType;
use lake::session::Session;
use lake::table::{Definition, with_new_columns};
use lake::write::{discard, write_streams};
use lake::{Error, ErrorKind, Lake, Result, RunId, Table, TableName, columns};

/// The number of the commit that a fact came with.
pub(crate) const NUMBER: &str = "number";

/// Which facts, and of which table.
pub(crate) struct Facts<'a> {
    /// The lake.
    pub(crate) lake: &'a Lake,
    /// The table that holds them.
    pub(crate) name: TableName,
    /// What they are, for people.
    pub(crate) about: &'static str,
    /// The silver table.
    pub(crate) of: &'a TableName,
    /// The application of that table here.
    pub(crate) app: &'a str,
    /// Their columns. Those up to the batch have file statistics.
    pub(crate) columns: Vec<Field>,
    /// The fault point of their commits.
    pub(crate) point: &'static str,
}

/// Facts as they stood when they were opened.
pub(crate) struct Opened<'a> {
    facts: Facts<'a>,
    table: Option<Table>,
    /// How often the owner has added some.
    number: Option<i64>,
}

impl<'a> Facts<'a> {
    /// Opens them.
    pub(crate) async fn open(self) -> Result<Opened<'a>> {
        let table = self.lake.table(&self.name).await?;
        let number = match &table {
            Some(table) => table.txn_version(self.app).await?,
            None => None,
        };
        Ok(Opened { facts: self, table, number })
    }

    fn definition(&self) -> Definition {
        let number = Field::new(NUMBER, DataType::Int64, false);
        let schema = Schema::new(self.columns.iter().cloned().chain([number]).collect::<Vec<_>>());
        let end = self.columns.iter().position(|field| field.name() == columns::BATCH_ID).map_or(0, |place| place + 1);
        let sound = self.columns[..end]
            .iter()
            .filter(|field| ColumnType::of(field.data_type()).is_some_and(ColumnType::has_sound_stats));
        let stats: Vec<String> = sound.map(|field| field.name().clone()).collect();
        let description = Some(format!("{} {}", self.about, self.of));
        Definition { description, ..Definition::new(Arc::new(schema)) }.with_stats_columns(&stats)
    }
}

impl Opened<'_> {
    /// The facts of batches up to `after`; those above belong to work that was not done.
    pub(crate) async fn upto(&self, after: i64, session: &Session) -> Result<Option<DataFrame>> {
        let (Some(table), Some(_)) = (&self.table, self.number) else { return Ok(None) };
        let rows = session.context().read_table(session.provider(table).await?)?;
        Ok(Some(rows.filter(ident(columns::BATCH_ID).lt_eq(lit(after)))?))
    }

    /// Adds more. The first that an owner adds take the place of all that another has left.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another run has added some meanwhile.
    pub(crate) async fn add(self, rows: DataFrame, run: &RunId) -> Result<()> {
        let Self { facts, table, number } = self;
        let definition = facts.definition();
        let schema: SchemaRef = Arc::clone(&definition.schema);
        let mut table = match table {
            Some(table) => table,
            None => facts.lake.create_or_open(&facts.name, &definition).await?,
        };
        let next = number.unwrap_or(0) + 1;
        let columns = facts.columns.iter().map(|field| ident(field.name())).chain([lit(next).alias(NUMBER)]);
        let rows = rows.select(columns.collect::<Vec<_>>())?.repartition(Partitioning::RoundRobinBatch(1))?;
        let mut actions: Vec<Action> = Vec::new();
        if number.is_none() {
            actions.extend(redefine(&table, &definition)?);
            actions.extend(table.removes(|_| true)?);
        } else if let Some(wider) = with_new_columns(&table.schema(), &schema) {
            actions.extend(evolve(&table, &wider, &[])?);
        }
        let written = write_streams(&table, &schema, rows.execute_stream_partitioned().await?).await?;
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: facts.point,
            txns: vec![Txn::new(facts.app, next)],
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
                let message = format!("another run has worked on {} meanwhile", facts.of);
                Err(Error::new(ErrorKind::Conflict, message))
            }
            Err(error) => Err(error),
        }
    }
}
