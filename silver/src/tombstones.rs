//! Deletes remembered: keys with the sequence of their delete, so that a late older change does not bring a row back.
//!
//! Of several tombstones of a key the newest counts. They are appended before the upsert that deletes, under a
//! transaction of the same batch, so a crash between the two leaves tombstones of deletes that the next run applies: a
//! change is stale only when it is older than the tombstone, and a delete is as old as its own. The application of that
//! transaction names the silver table by its id: when the table is deleted and made anew, its tombstones start anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, Partitioning, ident, lit};
use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, redefine};
use lake::session::Session;
use lake::stage::Staged;
use lake::table::Definition;
use lake::upsert::{Probed, older, same_key};
use lake::write::{discard, write_streams};
use lake::{Lake, Result, RunId, Table, TableName, columns};

const DELETED_AT: &str = "deleted_at";
/// The column that the join adds: true for a change that is older than a tombstone.
const STALE_MARK: &str = "mark";
const LIVING: &str = "__living";
const ASIDE: &str = "__aside_";

/// Whose tombstones.
pub struct Owner<'a> {
    /// The lake.
    pub lake: &'a Lake,
    /// The silver table.
    pub table: &'a TableName,
    /// The application of the silver table in its tombstones. What another application has left there is not its own.
    pub app: &'a str,
    /// The columns of the silver table.
    pub target: SchemaRef,
    /// Its keys.
    pub keys: &'a [String],
    /// Its sequence columns.
    pub sequence: &'a [String],
    /// How long deletes are remembered.
    pub retention_millis: u64,
}

/// The tombstones of one silver table as they stood when they were opened.
pub struct Tombstones<'a> {
    owner: Owner<'a>,
    table: Option<Table>,
    /// How far the owner's work has come here.
    held: Option<i64>,
}

/// Deletes that need not be remembered, since a truncate is.
#[derive(Debug, Clone, Default)]
pub struct Covered {
    /// How many there are.
    pub rows: u64,
    /// True for them.
    pub by: Option<Expr>,
}

impl<'a> Tombstones<'a> {
    /// Opens the tombstones of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](lake::ErrorKind::Store) when they cannot be read.
    pub async fn of(owner: Owner<'a>) -> Result<Self> {
        let table = owner.lake.table(&owner.name()).await?;
        let held = match &table {
            Some(table) => table.txn_version(owner.app).await?,
            None => None,
        };
        Ok(Self { owner, table, held })
    }

    /// The deletes that are remembered, as keys and what orders them; `None` when there is none.
    pub(crate) async fn rows(&self, session: &Session) -> Result<Option<DataFrame>> {
        let (Some(table), Some(_)) = (&self.table, self.held) else { return Ok(None) };
        let owner = &self.owner;
        let rows = session.context().read_table(session.provider(table).await?)?;
        let rows = rows.filter(ident(DELETED_AT).gt_eq(lit(owner.oldest())))?;
        Ok(Some(rows.select(owner.columns().map(ident).collect::<Vec<_>>())?))
    }

    /// The changes that no remembered delete has made stale, and how many it has.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](lake::ErrorKind::Query) when the comparison cannot be computed.
    pub async fn without_stale(&self, changes: Staged) -> Result<(Staged, u64)> {
        let owner = &self.owner;
        let session = owner.lake.session()?;
        let Some(tombstones) = self.rows(&session).await? else { return Ok((changes, 0)) };
        let renamed = owner.columns().enumerate().map(|(number, name)| ident(name).alias(remembered(number)));
        let tombstones = tombstones.select(renamed.collect::<Vec<_>>())?;
        // The join adds a column of its own, so the columns of the changes step aside meanwhile.
        let schema = changes.schema();
        let aside = |name: &str| Ok::<_, lake::Error>(ident(format!("{ASIDE}{}", schema.index_of(name)?)));
        let names = schema.fields().iter().map(|field| field.name()).enumerate();
        let (away, back): (Vec<Expr>, Vec<Expr>) = names
            .map(|(place, name)| {
                let aside = format!("{ASIDE}{place}");
                (ident(name).alias(&aside), ident(aside).alias(name))
            })
            .unzip();
        let mut on = Vec::new();
        for (number, key) in owner.keys.iter().enumerate() {
            on.push(same_key(&owner.target, key, aside(key)?, ident(remembered(number))));
        }
        let parts = owner.order().enumerate();
        let parts = parts.map(|(number, name)| Ok((aside(name)?, ident(remembered(owner.keys.len() + number)))));
        on.push(older(&parts.collect::<Result<Vec<_>>>()?));
        let living = ident(STALE_MARK).is_not_true().alias(LIVING);
        let marked = changes
            .frame(&session)
            .await?
            .select(away)?
            .join_on(tombstones, JoinType::LeftMark, on)?
            .select(back.into_iter().chain([living]).collect::<Vec<_>>())?;
        Staged::write_where(marked, LIVING).await
    }

    /// How far the owner's work has come in the tombstones.
    pub fn held(&self) -> Option<i64> {
        self.held
    }

    /// Remembers the deletes among probed changes that nothing else covers. `txns` are of the owner's application and the batch of the upsert
    /// that follows. The first tombstones of an owner take the place of all that another has left.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](lake::ErrorKind::Conflict) when another run has been here meanwhile, and as
    /// [`Table::commit`].
    pub async fn remember(self, probed: &Probed, covered: Covered, txns: Vec<Txn>, run: &RunId) -> Result<()> {
        if probed.figures.deleted + probed.figures.absent <= covered.rows {
            return Ok(());
        }
        let (owner, definition) = (&self.owner, self.owner.definition());
        let mut table = match self.table {
            Some(table) => table,
            None => owner.lake.create_or_open(&owner.name(), &definition).await?,
        };
        let session = owner.lake.session()?;
        let now = lit(timestamp(owner.lake.clock().now_micros())).alias(DELETED_AT);
        let deletes = match covered.by {
            Some(by) => probed.deletes(&session).await?.filter(by.is_not_true())?,
            None => probed.deletes(&session).await?,
        };
        let rows = deletes.select(owner.columns().map(ident).chain([now]).collect::<Vec<_>>())?;
        let rows = rows.repartition(Partitioning::RoundRobinBatch(1))?;
        let written = write_streams(&table, &definition.schema, rows.execute_stream_partitioned().await?).await?;
        let mut actions: Vec<Action> = Vec::new();
        if self.held.is_none() {
            actions.extend(redefine(&table, &definition)?);
            actions.extend(table.removes(|_| true)?);
        }
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: "tombstones_committed",
            txns,
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
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Owner<'_> {
    fn name(&self) -> TableName {
        TableName::tombstones(&self.table.name)
    }

    /// The keys and what orders deletes.
    fn columns(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str).chain(self.order())
    }

    fn order(&self) -> impl Iterator<Item = &str> {
        self.sequence.iter().map(String::as_str).chain([columns::BATCH_ID])
    }

    fn oldest(&self) -> ScalarValue {
        let kept_micros = i64::try_from(self.retention_millis).unwrap_or(i64::MAX).saturating_mul(1_000);
        timestamp(self.lake.clock().now_micros().saturating_sub(kept_micros))
    }

    fn definition(&self) -> Definition {
        let fields = self.columns().filter_map(|name| self.target.field_with_name(name).ok()).cloned();
        let deleted_at = Field::new(DELETED_AT, columns::timestamp_type(), false);
        Definition {
            description: Some(format!("deletes of {} remembered, so that late changes stay late", self.table)),
            ..Definition::new(Arc::new(Schema::new(fields.chain([deleted_at]).collect::<Vec<_>>())))
        }
    }
}

fn remembered(number: usize) -> String {
    format!("__remembered_{number}")
}

fn timestamp(micros: i64) -> ScalarValue {
    match columns::timestamp_type() {
        DataType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(micros), zone),
        _ => ScalarValue::TimestampMicrosecond(Some(micros), None),
    }
}
