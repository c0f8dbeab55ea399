//! Facts that are not needed any more: those of work that was never done, and small files.

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::functions_window::expr_fn::lag;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Partitioning, cast, ident, lit, when};
use deltalake::kernel::Action;
use lake::upsert::same_key;
use lake::write::{Written, write_streams};
use lake::{Lake, Result, Table};

use super::number::{Done, NUMBER};

/// So many files of earlier work become one.
const PACKED_AT: usize = 32;

const KEY: &str = "__kept_";
const AT: &str = "__at";
const BEFORE: &str = "__before";
const NEWEST: &str = "__newest";
const SINCE: &str = "__since";
const UNDATED: &str = "__undated";

/// Which facts of done work are needed any longer.
pub(crate) enum Keep {
    /// All.
    All,
    /// Those for which this is true.
    If(Expr),
    /// Those of keys that were never forgotten.
    Keys(Keys),
}

/// Keys with facts that are forgotten together, when the newest of them is older than the retention. What came after that
/// was made without them: so also are all that are older than a fact by more than the retention, with none between.
/// Which facts count therefore does not depend on when the forgotten are removed.
pub(crate) struct Keys {
    /// The columns of the keys.
    pub(crate) names: Vec<String>,
    /// Columns among which these are.
    pub(crate) schema: SchemaRef,
    /// The column that says when a fact came. Null is never forgotten.
    pub(crate) at: &'static str,
    /// When that is long enough ago, in microseconds since 1970.
    pub(crate) oldest: i64,
    /// How long facts are kept, in microseconds.
    pub(crate) retention: i64,
}

impl Keys {
    /// The facts among `rows` that are not forgotten; `all` are all facts of their keys.
    pub(crate) fn of(&self, rows: DataFrame, all: DataFrame) -> Result<DataFrame> {
        let keys = self.names.iter().enumerate();
        let other = |number: usize| format!("{KEY}{number}");
        let on = keys.map(|(number, key)| same_key(&self.schema, key, ident(key), ident(other(number))));
        let on: Vec<Expr> = on.collect();
        let at = || cast(ident(AT), DataType::Int64);
        let keyed: Vec<Expr> = self.names.iter().map(ident).collect();
        // When the fact before it of the same key came.
        let before = lag(at(), Some(1), None).partition_by(keyed).order_by(vec![ident(AT).sort(true, true)]);
        let all = all.with_column(AT, ident(self.at))?.window(vec![before.build()?.alias(BEFORE)])?;
        let alone = (at() - ident(BEFORE)).gt(lit(self.retention));
        let since = when(alone, at()).end()?;
        let found = [max(at()).alias(NEWEST), max(since).alias(SINCE), max(ident(AT).is_null()).alias(UNDATED)];
        let groups = self.names.iter().enumerate().map(|(number, key)| ident(key).alias(other(number))).collect();
        let found = all.aggregate(groups, found.to_vec())?;
        let columns: Vec<Expr> = rows.schema().fields().iter().map(|field| ident(field.name())).collect();
        let is_after = ident(SINCE).is_null().or(cast(ident(self.at), DataType::Int64).gt_eq(ident(SINCE)));
        let is_kept = ident(UNDATED).or(ident(NEWEST).gt_eq(lit(self.oldest)).and(is_after));
        Ok(rows.join_on(found, JoinType::Inner, on)?.filter(is_kept)?.select(columns)?)
    }
}

/// What a commit removes beside what it adds, and what takes the place of it.
///
/// A file of one number goes as a whole with its work. Only files of which all work was done are packed, so that no file
/// of ours ever holds what counts beside what does not; where another program has joined files, that is set right at once.
pub(super) async fn of(table: &Table, done: &Done, keep: Keep, lake: &Lake) -> Result<(Vec<Action>, Written)> {
    let (mut removed, mut old, mut is_mixed) = (Vec::new(), Vec::new(), false);
    for file in table.files_with_bounds(NUMBER)? {
        match file.bounds {
            Some((least, most)) if least == most && done.is_dead(least) => removed.push(file.remove),
            Some((_, most)) if done.is_old(most) => old.push(file),
            Some((least, most)) if least < most => {
                is_mixed = true;
                old.push(file);
            }
            _ => {}
        }
    }
    if old.len() < PACKED_AT && !is_mixed {
        return Ok((removed, Written::default()));
    }
    let session = lake.session()?;
    let paths = old.iter().map(|file| file.path.clone()).collect();
    let rows = session.context().read_table(session.files(table, paths).await?)?;
    let rows = rows.filter(done.may_count())?;
    let rows = match keep {
        Keep::All => rows,
        Keep::If(keep) => rows.filter(keep)?,
        Keep::Keys(keys) => {
            // Those that do not count, but may yet, are no less facts of their keys: a fact that is forgotten among all of
            // them is so among those of them that will count, whichever these are.
            let all = session.context().read_table(session.provider(table).await?)?;
            keys.of(rows, all.filter(done.may_count())?)?
        }
    };
    let rows = rows.repartition(Partitioning::RoundRobinBatch(1))?;
    let packed = write_streams(table, &table.schema(), rows.execute_stream_partitioned().await?).await?;
    removed.extend(old.into_iter().map(|file| file.remove));
    Ok((removed, packed))
}
