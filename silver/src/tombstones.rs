//! Deletes remembered: keys with the sequence of their delete, so that a late older change does not bring a row back.
//!
//! Of several tombstones of a key the newest counts. They are facts (`facts`): those of work that was not done
//! do not count.

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::commit::Txn;
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::{Probed, older, same_key};
use lake::{Lake, Layer, Result, RunId, Table, columns};

use crate::facts::{Facts, Keep, Opened};

const DELETED_AT: &str = "deleted_at";
/// The column that the join adds: true for a change that is older than a tombstone.
const STALE_MARK: &str = "mark";
const LIVING: &str = "__living";
const ASIDE: &str = "__aside_";

/// Whose tombstones.
pub struct Owner<'a> {
    /// The lake.
    pub lake: &'a Lake,
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
    opened: Opened<'a>,
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
    /// Opens the tombstones that count for the open version of the table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](lake::ErrorKind::Store) when they cannot be read.
    pub async fn of(owner: Owner<'a>, silver: &Table) -> Result<Self> {
        let opened = owner.facts().open(silver).await?;
        Ok(Self { owner, opened })
    }

    /// The deletes that are remembered, as keys and what orders them; `None` when there is none.
    pub(crate) async fn rows(&self, session: &Session) -> Result<Option<DataFrame>> {
        let Some(rows) = self.opened.rows(session).await? else { return Ok(None) };
        let rows = rows.filter(self.owner.is_kept())?;
        Ok(Some(rows.select(self.owner.columns().map(ident).collect::<Vec<_>>())?))
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

    /// Remembers the deletes among probed changes that nothing else covers. Returns the transaction that the commit of
    /// the rows must carry.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](lake::ErrorKind::Conflict) when another run has been here meanwhile, and as
    /// [`Table::commit`].
    pub async fn remember(self, probed: &Probed, covered: Covered, run: &RunId) -> Result<Option<Txn>> {
        if probed.figures.deleted + probed.figures.absent <= covered.rows {
            return Ok(None);
        }
        let owner = &self.owner;
        let session = owner.lake.session()?;
        let now = lit(timestamp(owner.lake.clock().now_micros())).alias(DELETED_AT);
        let deletes = match covered.by {
            Some(by) => probed.deletes(&session).await?.filter(by.is_not_true())?,
            None => probed.deletes(&session).await?,
        };
        let rows = deletes.select(owner.columns().map(ident).chain([now]).collect::<Vec<_>>())?;
        let is_kept = owner.is_kept();
        self.opened.add(rows, Keep::If(is_kept), run).await.map(Some)
    }
}

impl<'a> Owner<'a> {
    fn facts(&self) -> Facts<'a> {
        let fields = self.columns().filter_map(|name| self.target.field_with_name(name).ok()).cloned();
        Facts {
            lake: self.lake,
            layer: Layer::Tombstones,
            about: "deletes remembered, so that late changes stay late, of",
            app: self.app,
            columns: fields.chain([Field::new(DELETED_AT, columns::timestamp_type(), false)]).collect(),
            point: "tombstones_committed",
        }
    }

    /// The keys and what orders deletes.
    fn columns(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str).chain(self.order())
    }

    fn order(&self) -> impl Iterator<Item = &str> {
        self.sequence.iter().map(String::as_str).chain([columns::BATCH_ID])
    }

    /// True for deletes that are not forgotten yet.
    fn is_kept(&self) -> Expr {
        let kept_micros = i64::try_from(self.retention_millis).unwrap_or(i64::MAX).saturating_mul(1_000);
        let oldest = timestamp(self.lake.clock().now_micros().saturating_sub(kept_micros));
        ident(DELETED_AT).gt_eq(lit(oldest))
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
