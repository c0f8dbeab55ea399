//! What must be known of a silver table beside its rows: facts about what arrived, in a table of their own.
//!
//! Facts are committed before the rows that they go with, under a number of their own (`number`), and the commit of the
//! rows names the number: facts that no such commit has named are of work that was not done. They are left out when
//! facts are read, and removed by a later attempt. The application names the silver table by its id: when the table is
//! deleted and made anew, its facts start anew.

mod number;
mod undo;
mod upkeep;

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
use lake::write::write_streams;
use lake::{Error, ErrorKind, Lake, Layer, Result, RunId, Table, TableName, columns};

use self::number::Done;
pub(crate) use self::number::NUMBER;
pub(crate) use self::undo::undo;
pub(crate) use self::upkeep::{Keep, Keys};

/// Which facts, and of which table.
pub(crate) struct Facts<'a> {
    /// The lake.
    pub(crate) lake: &'a Lake,
    /// Their layer.
    pub(crate) layer: Layer,
    /// What they are, for people.
    pub(crate) about: &'static str,
    /// The application of the silver table here.
    pub(crate) app: &'a str,
    /// Their columns. Those up to the batch have file statistics.
    pub(crate) columns: Vec<Field>,
    /// The fault point of their commits.
    pub(crate) point: &'static str,
}

/// Facts as they stood when they were opened.
pub(crate) struct Opened<'a> {
    facts: Facts<'a>,
    /// The silver table.
    of: TableName,
    /// The table that holds them.
    name: TableName,
    table: Option<Table>,
    /// The number of the owner's last ones, done or not.
    held: Option<i64>,
    done: Done,
}

impl<'a> Facts<'a> {
    /// Opens what counts for the open version of a silver table.
    pub(crate) async fn open(self, silver: &Table) -> Result<Opened<'a>> {
        let (of, name) = (silver.name().clone(), beside(silver, self.layer)?);
        let table = self.lake.table(&name).await?;
        let held = match &table {
            Some(table) => table.txn_version(self.app).await?,
            None => None,
        };
        let done = match held {
            Some(_) => silver.txn_version(&named(&of, &name)).await?,
            None => None,
        };
        let done = Done::new(done, undo::undone(silver, self.layer)?);
        Ok(Opened { facts: self, of, name, table, held, done })
    }

    fn definition(&self, of: &TableName) -> Definition {
        let number = Field::new(NUMBER, DataType::Int64, false);
        let schema = Schema::new(self.columns.iter().cloned().chain([number]).collect::<Vec<_>>());
        let end = self.columns.iter().position(|field| field.name() == columns::BATCH_ID).map_or(0, |place| place + 1);
        let sound = self.columns[..end]
            .iter()
            .filter(|field| ColumnType::of(field.data_type()).is_some_and(ColumnType::has_sound_stats));
        let stats: Vec<String> = sound.map(|field| field.name().clone()).chain([NUMBER.to_owned()]).collect();
        let description = Some(format!("{} {of}", self.about));
        Definition { description, ..Definition::new(Arc::new(schema)) }.with_stats_columns(&stats)
    }
}

impl Opened<'_> {
    /// The facts of work that was done; `None` when there never was any.
    pub(crate) async fn rows(&self, session: &Session) -> Result<Option<DataFrame>> {
        let (Some(table), Some(_)) = (&self.table, self.held) else { return Ok(None) };
        let rows = session.context().read_table(session.provider(table).await?)?;
        Ok(Some(rows.filter(self.done.is_done())?))
    }

    /// Adds more, and removes what belongs to work that was never done. Where many small files have come together, they
    /// become one, of the facts that `keep` says are needed. Returns the transaction that the commit of the rows must carry
    /// for them to count.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another run has added some meanwhile.
    pub(crate) async fn add(self, rows: DataFrame, keep: Keep, run: &RunId) -> Result<Txn> {
        let definition = self.facts.definition(&self.of);
        let schema: SchemaRef = Arc::clone(&definition.schema);
        let mut table = match &self.table {
            Some(table) => table.clone(),
            None => self.facts.lake.create_or_open(&self.name, &definition).await?,
        };
        let number = self.done.next(self.held);
        let number = number.ok_or_else(|| Error::internal(format!("{} has no more numbers", self.name)))?;
        let columns = self.facts.columns.iter().map(|field| ident(field.name())).chain([lit(number).alias(NUMBER)]);
        let rows = rows.select(columns.collect::<Vec<_>>())?.repartition(Partitioning::RoundRobinBatch(1))?;
        let mut actions: Vec<Action> = Vec::new();
        let mut written = write_streams(&table, &schema, rows.execute_stream_partitioned().await?).await?;
        if self.held.is_none() {
            actions.extend(redefine(&table, &definition)?);
            actions.extend(table.removes(|_| true)?);
        } else {
            if let Some(wider) = with_new_columns(&table.schema(), &schema) {
                actions.extend(evolve(&table, &wider, &[])?);
            }
            let (removed, packed) = upkeep::of(&table, &self.done, keep, self.facts.lake).await?;
            actions.extend(removed);
            written = written.and(packed);
        }
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: self.facts.point,
            txns: vec![Txn::new(self.facts.app, number)],
            operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
            actions,
            blind_append: false,
            metrics: BTreeMap::from([("numOutputRows", written.rows)]),
            run: run.clone(),
        };
        match table.commit_files(commit, &written.files).await? {
            Outcome::Committed { .. } => Ok(Txn::new(named(&self.of, &self.name), number)),
            Outcome::AlreadyApplied { .. } => {
                let message = format!("another run has worked on {} meanwhile", self.of);
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }
}

/// The layers of facts.
pub(crate) const LAYERS: [Layer; 4] = [Layer::Tombstones, Layer::Truncates, Layer::Versions, Layer::Extracts];

/// The property of a silver table that was made anew by a rebuild: the number of the rebuild. They only rise.
pub(crate) const REBUILT: &str = "lakehouse.rebuilt";

/// The number that a table had before it was made anew; a table that no rebuild had made has none.
pub(crate) const REBUILT_BEFORE: &str = "lakehouse.rebuilt.before";

/// The number of the rebuild that made a silver table.
pub(crate) fn rebuilt(silver: &Table) -> Result<Option<i64>> {
    let number = silver.property(REBUILT)?;
    number.map(|number| number.parse()).transpose().map_err(|error: std::num::ParseIntError| {
        let message = format!("the property `{REBUILT}` of {} is no number", silver.name());
        Error::new(ErrorKind::Table, message).with_source(error)
    })
}

/// The table of a layer that goes with a silver table as it stands: each rebuild has tables of its own.
pub(crate) fn beside(silver: &Table, layer: Layer) -> Result<TableName> {
    let name = &silver.name().name;
    Ok(match rebuilt(silver)? {
        Some(number) => TableName::new(layer, format!("{name}@{number}")),
        None => TableName::new(layer, name),
    })
}

/// The transactions by which a silver table names the facts that count.
pub(crate) async fn counting(silver: &Table) -> Result<Vec<Txn>> {
    let mut txns = Vec::new();
    for layer in LAYERS {
        let app = named(silver.name(), &beside(silver, layer)?);
        txns.extend(silver.txn_version(&app).await?.map(|number| Txn::new(app, number)));
    }
    Ok(txns)
}

/// The application under which a silver table names the facts that count.
fn named(of: &TableName, facts: &TableName) -> String {
    format!("{of}:{facts}")
}
