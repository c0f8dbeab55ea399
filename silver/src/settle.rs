//! The changes of a run held against what is remembered of deletes and truncates, and where it takes more than the last
//! change of each key, against the rows of the table.

use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::logical_expr::{Expr, ident, lit};
use lake::accounting::Figures;
use lake::quarantine::Rejected;
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::same_key;
use lake::{Result, Table, columns};

use crate::fold::{Folded, Shape};
use crate::generated::Generated;
use crate::history::COUNTED;
use crate::read::Tally;
use crate::refine::Refinement;
use crate::tombstones::{Covered, Tombstones};
use crate::truncates::{Truncate, Truncates};

const KEY: &str = "__settled_";
const MARK: &str = "__settled";
const LIVING: &str = "__living";

/// What is remembered beside a table.
pub(crate) struct Memory<'a> {
    pub(crate) tombstones: Tombstones<'a>,
    /// `None` where nothing truncates.
    pub(crate) truncates: Option<Truncates<'a>>,
}

/// The changes that are left, at most one for each key.
pub(crate) struct Settled {
    pub(crate) changes: Staged,
    /// Whether they were held against the rows of the table already.
    pub(crate) folded: bool,
    /// What became of the others, and where they are folded of all.
    pub(crate) figures: Figures,
    /// The truncate to remember, and the deletes that need no tombstones then.
    pub(crate) truncate: Option<Truncate>,
    pub(crate) covered: Covered,
    /// Records that go to quarantine after all.
    pub(crate) incomplete: Vec<Rejected>,
    pub(crate) notes: Vec<String>,
}

impl Refinement<'_> {
    /// Opens what is remembered beside the table.
    pub(crate) async fn memory<'a>(
        &'a self,
        table: &Table,
        side: &'a str,
        sequence: &'a [String],
    ) -> Result<Memory<'a>> {
        let tombstones = self.tombstones(table, side, sequence).await?;
        let truncates = self.truncates(table, side, sequence).await?;
        Ok(Memory { tombstones, truncates })
    }

    /// Opens the truncates that are remembered beside the table; `None` where nothing truncates.
    pub(crate) async fn truncates<'a>(
        &'a self,
        table: &Table,
        side: &'a str,
        sequence: &'a [String],
    ) -> Result<Option<Truncates<'a>>> {
        match self.plan.can_truncate() {
            true => Truncates::of(self.lake, table, side, sequence).await.map(Some),
            false => Ok(None),
        }
    }

    /// Settles the changes of a run. `kept` are the last changes of each key, and all changes of keys of which an
    /// update did not send every column; `beside` is a truncate that is not counted.
    pub(crate) async fn settle(
        &self,
        kept: Staged,
        tally: &Tally,
        beside: Option<Truncate>,
        table: &Table,
        memory: &Memory<'_>,
    ) -> Result<Settled> {
        let remembered = memory.truncates.as_ref().and_then(Truncates::newest).cloned();
        let own = tally.truncated.newest.clone();
        let is_newer = |truncate: &Truncate| remembered.as_ref().is_none_or(|held| truncate.at >= held.at);
        let truncate = Truncate::newer(own.clone(), beside).filter(is_newer);
        let is_own = own.is_some_and(|own| truncate.as_ref().is_some_and(|truncate| truncate.at == own.at));
        let truncates = match (tally.truncates, is_own) {
            (0, _) => Figures::default(),
            (more, true) => Figures { applied: 1, superseded: more - 1, ..Figures::default() },
            (more, false) => Figures { stale: more, ..Figures::default() },
        };
        let is_partial = self.plan.partial.is_on() && !table.is_all_null(columns::SET_AT)?;
        let counts_some = kept.schema().index_of(COUNTED).is_ok();
        if truncate.is_some() || tally.partial > 0 || is_partial || counts_some {
            let mut settled = self.folded(kept, truncate, remembered, table, memory).await?;
            settled.figures = settled.figures.and(truncates);
            return Ok(settled);
        }
        let (living, outdated) = match &remembered {
            Some(truncate) => self.after(kept, truncate).await?,
            None => (kept, 0),
        };
        let (changes, buried) = memory.tombstones.without_stale(living).await?;
        Ok(Settled {
            changes,
            folded: false,
            figures: truncates.and(Figures { stale: outdated + buried, ..Figures::default() }),
            truncate: None,
            covered: Covered::default(),
            incomplete: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// The changes that are not older than a truncate.
    async fn after(&self, changes: Staged, truncate: &Truncate) -> Result<(Staged, u64)> {
        let session = self.lake.session()?;
        let living = !truncate.outdates(&self.plan.sequence_columns())?;
        let all = changes.schema().fields().iter().map(|field| ident(field.name())).collect::<Vec<_>>();
        let all = all.into_iter().chain([living.alias(LIVING)]).collect::<Vec<_>>();
        Staged::write_where(changes.frame(&session).await?.select(all)?, LIVING).await
    }

    async fn folded(
        &self,
        kept: Staged,
        truncate: Option<Truncate>,
        remembered: Option<Truncate>,
        table: &Table,
        memory: &Memory<'_>,
    ) -> Result<Settled> {
        let session = self.lake.session()?;
        let changes = kept.frame(&session).await?;
        let stored = self.stored(&changes, truncate.as_ref(), table, &session).await?;
        let deletes = match memory.tombstones.rows(&session).await? {
            Some(rows) => Some(self.of_same_keys(rows, &changes, table, JoinType::LeftSemi)?),
            None => None,
        };
        let shape = Shape {
            table: self.plan.table.clone(),
            target: table.schema(),
            sent: kept.schema().fields().iter().map(|field| field.name().clone()).collect(),
            keys: self.plan.keys.clone(),
            sequence: self.plan.sequence_columns(),
            is_partial: self.plan.partial.is_on(),
            truncate: truncate.clone(),
            remembered,
            generated: match self.plan.partial.is_on() {
                true => Generated::new(self.plan, &table.schema(), &session)?,
                false => Generated::default(),
            },
        };
        let deletes = match deletes {
            Some(deletes) => Some(deletes.with_column(lake::upsert::DELETE, lit(true))?),
            None => None,
        };
        let (changes, folded) = shape.fold(changes, stored, deletes, &session).await?;
        let Folded { applied, superseded, stale, incomplete, truncated, unset } = folded;
        let by = match &truncate {
            Some(truncate) => Some(self.is_of(truncate)?),
            None => None,
        };
        let note = format!(
            "{} with columns that no change has set: updates of keys that the table did not have, null there",
            lake::report::many(unset, "row")
        );
        let quarantined = incomplete.len() as u64;
        Ok(Settled {
            changes,
            folded: true,
            figures: Figures { applied, superseded, stale, quarantined, ..Figures::default() },
            truncate,
            covered: Covered { rows: truncated, by },
            incomplete,
            notes: if unset > 0 { vec![note] } else { Vec::new() },
        })
    }

    /// The rows of the table that have the keys of changes; of a truncate also those that it touches.
    async fn stored(
        &self,
        changes: &DataFrame,
        truncate: Option<&Truncate>,
        table: &Table,
        session: &Session,
    ) -> Result<DataFrame> {
        let is_partial = self.plan.partial.is_on();
        let schema = table.schema();
        // What a row holds is only asked where a change may leave some of it.
        let needed = |name: &str| {
            is_partial || columns::is_silver_technical(name) || self.plan.keys.iter().any(|key| key == name)
        };
        let names = schema.fields().iter().map(|field| field.name()).filter(|name| needed(name));
        let rows = session.context().read_table(session.provider(table).await?)?;
        let rows = rows.select(names.map(ident).collect::<Vec<_>>())?;
        let Some(truncate) = truncate else {
            let rows = self.between(rows, changes).await?;
            return self.of_same_keys(rows, changes, table, JoinType::LeftSemi);
        };
        let names: Vec<Expr> = rows.schema().fields().iter().map(|field| ident(field.name())).collect();
        let touched = self.of_same_keys(rows, changes, table, JoinType::Left)?;
        let changed = ident(MARK).is_not_null().or(truncate.outdates(&self.plan.sequence_columns())?);
        let changed = if is_partial { changed.or(ident(columns::SET_AT).is_not_null()) } else { changed };
        Ok(touched.filter(changed)?.select(names)?)
    }

    /// Rows whose first key is in the range of that of the changes, so that files without any are not read.
    async fn between(&self, rows: DataFrame, changes: &DataFrame) -> Result<DataFrame> {
        let Some(key) = self.plan.keys.first().map(ident) else { return Ok(rows) };
        let range = vec![min(key.clone()).alias("least"), max(key.clone()).alias("most")];
        let range = changes.clone().aggregate(Vec::new(), range)?.collect().await?;
        let Some(range) = range.first().filter(|range| range.num_rows() == 1) else { return Ok(rows) };
        let bound = |column: usize| datafusion::common::ScalarValue::try_from_array(range.column(column), 0);
        let (least, most) = (bound(0)?, bound(1)?);
        if least.is_null() || most.is_null() {
            return Ok(rows);
        }
        Ok(rows.filter(key.clone().between(lit(least), lit(most)).or(key.is_null()))?)
    }

    fn of_same_keys(&self, rows: DataFrame, changes: &DataFrame, table: &Table, join: JoinType) -> Result<DataFrame> {
        let keys = self.plan.keys.iter().enumerate();
        let renamed = keys.clone().map(|(number, key)| ident(key).alias(format!("{KEY}{number}")));
        let on = keys.map(|(number, key)| same_key(&table.schema(), key, ident(key), ident(format!("{KEY}{number}"))));
        let on: Vec<Expr> = on.collect();
        let renamed = renamed.chain([lit(true).alias(MARK)]).collect::<Vec<_>>();
        Ok(rows.join_on(changes.clone().select(renamed)?.distinct()?, join, on)?)
    }

    /// True for deletes that stand where a truncate stands.
    fn is_of(&self, truncate: &Truncate) -> Result<Expr> {
        let sequence = self.plan.sequence_columns();
        let before = truncate.outdates(&sequence)?;
        let after = truncate.precedes(&sequence)?;
        Ok(!before.or(after))
    }
}
