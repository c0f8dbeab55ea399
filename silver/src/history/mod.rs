//! Tables that keep more of a key than its current row: deleted rows with a mark, or every version.
//!
//! Such a table is a fold over all changes of a key, whatever their order of arrival, so it must never forget one that
//! a later one may need. Most changes can be told from the rows themselves (`events`); those that cannot (a delete of
//! a key without a row, a change that made no version of its own) are `remembered` in a table beside it. A run takes
//! the changes of the keys that it touches from both, adds the new ones and `truncated` those that are of every key,
//! folds them again (`marked`, `versions`), and writes what `difference` there is to the rows.

mod difference;
mod events;
mod marked;
mod partial;
mod remembered;
mod truncated;
mod versions;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::commit::Txn;
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::{Probed, Upsert};
use lake::{Error, Result, RunId, Table};

pub(crate) use self::events::COUNTED;
use self::events::{Events, NEW, OLD_FILE, ORIGIN, REMEMBERED, TRUNCATE};
use self::partial::{RANK, Whole};
use self::remembered::Remembered;
use self::truncated::{COINCIDES, Truncated};
use crate::change::FILE_RANK;
use crate::plan::{Kept, TablePlan};
use crate::refine::Refinement;
use crate::truncates::{Found, Truncates};

/// Whether a change is to be remembered beside the table.
const HIDDEN: &str = "__hidden";
/// What became of a change; one of the constants below.
const VERDICT: &str = "__verdict";
const APPLIED: i32 = 0;
const SUPERSEDED: i32 = 1;
const STALE: i32 = 2;

/// What came.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    /// New changes, of which only the last at each place is there.
    pub(crate) changes: &'a Staged,
    /// New truncates.
    pub(crate) truncates: &'a Found,
    /// Those that are known, and stood among changes which come again.
    pub(crate) beside: &'a Found,
    /// True for changes from quarantine, at their old place: all of them are remembered, since rows do not tell which of two
    /// changes of one batch was the later.
    pub(crate) again: bool,
}

/// What is kept beside the rows of a table.
pub(crate) struct Side<'a> {
    /// The name of the table of changes that rows do not tell.
    pub(crate) versions: &'a str,
    pub(crate) truncates: Option<Truncates<'a>>,
}

/// New changes folded with all that is known of their keys.
pub(crate) struct Folded<'a> {
    pub(crate) upsert: Upsert,
    pub(crate) probed: Probed,
    pub(crate) counts: Counts,
    pub(crate) beside: Beside<'a>,
}

/// What is to be remembered beside the rows.
pub(crate) struct Beside<'a> {
    remembered: Remembered<'a>,
    hidden: Option<Staged>,
    truncates: Option<(Truncates<'a>, Vec<RecordBatch>)>,
}

/// What became of new changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) applied: u64,
    pub(crate) superseded: u64,
    pub(crate) stale: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            applied: self.applied + other.applied,
            superseded: self.superseded + other.superseded,
            stale: self.stale + other.stale,
        }
    }
}

impl Refinement<'_> {
    /// Folds what came with what the table and its side hold of the keys.
    pub(crate) async fn fold<'a>(&'a self, arrived: Incoming<'_>, table: &Table, side: Side<'a>) -> Result<Folded<'a>> {
        let Incoming { changes, again, .. } = arrived;
        let Side { versions, truncates } = side;
        let (lake, plan) = (self.lake, self.plan.as_ref());
        let session = lake.session()?;
        let events = Events::new(plan, table, changes);
        let remembered = Remembered::of(lake, plan, table, versions, events.base()).await?;
        let truncated = Truncated::of(&events, truncates.as_ref(), arrived, &session).await?;
        let keyed = match &truncated {
            Some(truncated) => truncated.touched(&events, table, changes, &session).await?,
            None => changes.clone(),
        };
        let held = events.held(table, &keyed, &session).await?;
        let before = remembered.events(&events, &keyed, &session).await?;
        let all = events.all(changes, &held, before, &session).await?;
        let all = match truncated {
            Some(truncated) => truncated.among(all, &events, &session).await?,
            None => all,
        };
        let Whole { standing: winners, others, counts: settled } = match plan.partial.is_on() {
            true => partial::whole(all, &events, &session).await?,
            false => Whole::standing(events.winners(all)?),
        };
        let timeline = match &plan.kept {
            Kept::Marked => marked::timeline(winners, &events)?,
            Kept::Current | Kept::History(_) => versions::timeline(winners, &events)?,
        };
        let timeline = Staged::write(timeline).await?;
        let others = match others {
            Some(others) => Some(Staged::write(others).await?),
            None => None,
        };
        let counts = counts(changes, (&timeline, others.as_ref(), settled), &session).await?;
        let rows = match &plan.kept {
            Kept::Marked => marked::rows(timeline.frame(&session).await?, &events)?,
            Kept::Current | Kept::History(_) => versions::rows(timeline.frame(&session).await?, &events)?,
        };
        let changed = difference::difference(rows, held.frame(&session).await?, &events)?;
        let changed = Staged::write(changed).await?;
        let upsert = match &plan.kept {
            Kept::Marked => Upsert { keys: plan.keys.clone(), sequence: plan.sequence_columns() },
            Kept::Current | Kept::History(_) => Upsert { keys: plan.kept.row_keys(plan), sequence: Vec::new() },
        };
        let probed = upsert.probe(lake, table, &changed).await?.bound().with_mode(plan.write_mode);
        let found = probed.figures;
        if found.stale + found.absent > 0 || found.applied() != changed.rows() {
            return Err(Error::internal(format!(
                "the rows of {} are not what was read of them: {found:?}",
                plan.table
            )));
        }
        let hidden = hidden((&timeline, others.as_ref()), &events, again, &session).await?;
        let own = &arrived.truncates.all;
        let truncates = truncates.filter(|_| !own.is_empty()).map(|truncates| (truncates, own.clone()));
        Ok(Folded { upsert, probed, counts, beside: Beside { remembered, hidden, truncates } })
    }
}

impl Beside<'_> {
    /// Remembers what rows do not tell. It is committed before the rows, whose commit must carry the transactions.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](lake::ErrorKind::Conflict) when another run has been here meanwhile.
    pub(crate) async fn remember(self, run: &RunId) -> Result<Vec<Txn>> {
        let mut txns = Vec::new();
        if let Some(hidden) = self.hidden {
            txns.push(self.remembered.add(&hidden, run).await?);
        }
        if let Some((truncates, arrived)) = self.truncates {
            txns.push(truncates.remember(arrived, run).await?);
        }
        Ok(txns)
    }
}

/// The changes that must be remembered, if there are any: all that no row tells, and of changes that nothing but their
/// order tells apart every one.
async fn hidden(
    (timeline, others): (&Staged, Option<&Staged>),
    events: &Events<'_>,
    again: bool,
    session: &Session,
) -> Result<Option<Staged>> {
    let is_new = ident(ORIGIN).eq(lit(NEW));
    let timeline = timeline.frame(session).await?;
    let is_alike = match timeline.schema().has_column_with_unqualified_name(RANK) {
        true => ident(RANK).is_not_null(),
        false => lit(false),
    };
    // Truncates are remembered once for all keys; one that arrived among alike changes of a key also by its place there.
    let is_truncate = ident(ORIGIN).eq(lit(TRUNCATE));
    let is_known = is_truncate.and(is_alike.clone().and(ident(FILE_RANK).gt(lit(OLD_FILE))).is_not_true());
    let is_unknown = ident(ORIGIN).not_eq(lit(REMEMBERED)).and(is_known.is_not_true());
    let stands_beside = match timeline.schema().has_column_with_unqualified_name(COINCIDES) {
        true => ident(COINCIDES),
        false => lit(false),
    };
    let unknown = ident(HIDDEN).or(is_alike).or(stands_beside).and(is_unknown.clone());
    let wanted = if again { unknown.or(is_new) } else { unknown };
    let columns = events.remembered_columns(&timeline);
    let mut hidden = timeline.filter(wanted)?.select(columns)?;
    if let Some(others) = others {
        let others = others.frame(session).await?.filter(is_unknown)?;
        let columns = events.remembered_columns(&others);
        hidden = hidden.union(others.select(columns)?)?;
    }
    let hidden = Staged::write(hidden).await?;
    Ok((hidden.rows() > 0).then_some(hidden))
}

/// New changes by what became of them: those that are found nowhere were older than another at their place.
async fn counts(
    changes: &Staged,
    (timeline, others, settled): (&Staged, Option<&Staged>, Counts),
    session: &Session,
) -> Result<Counts> {
    let all = match changes.schema().field_with_name(COUNTED) {
        Ok(_) => changes.frame(session).await?.filter(ident(COUNTED))?.count().await? as u64,
        Err(_) => changes.rows(),
    };
    let mine = || ident(ORIGIN).eq(lit(NEW)).and(ident(COUNTED));
    let mut found = settled.and(by_verdict(timeline.frame(session).await?.filter(mine())?).await?);
    if let Some(others) = others {
        found = found.and(by_verdict(others.frame(session).await?.filter(mine())?).await?);
    }
    let Counts { applied, superseded, stale } = found;
    let lost = all.checked_sub(applied + superseded + stale);
    let lost = lost.ok_or_else(|| Error::internal("changes have become more in their timeline"))?;
    Ok(Counts { stale: stale + lost, ..found })
}

async fn by_verdict(frame: DataFrame) -> Result<Counts> {
    let counted = frame.aggregate(vec![ident(VERDICT)], vec![count(lit(1)).alias("rows")])?;
    let mut counts = Counts::default();
    for batch in counted.select(vec![ident(VERDICT), ident("rows")])?.collect().await? {
        let (verdicts, rows) =
            (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let rows = u64::try_from(rows.value(row)).unwrap_or(0);
            match verdicts.value(row) {
                APPLIED => counts.applied = rows,
                SUPERSEDED => counts.superseded = rows,
                STALE => counts.stale = rows,
                other => return Err(Error::internal(format!("unknown verdict {other}"))),
            }
        }
    }
    Ok(counts)
}

/// True where one of them is; none without any.
fn or_all(parts: impl Iterator<Item = Expr>) -> Option<Expr> {
    parts.reduce(Expr::or)
}

/// False for a plan that keeps current rows only, which needs none of this.
pub(crate) fn is_needed(plan: &TablePlan) -> bool {
    plan.kept != Kept::Current
}
