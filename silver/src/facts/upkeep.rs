//! Facts that are not needed any more: those of work that was never done, and small files.

use arrow::datatypes::SchemaRef;
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, Partitioning, ident};
use deltalake::kernel::Action;
use lake::upsert::same_key;
use lake::write::{Written, write_streams};
use lake::{Lake, Result, Table};

use super::number::{Done, NUMBER};

/// So many files of earlier work become one.
const PACKED_AT: usize = 32;

const KEY: &str = "__kept_";

/// Which facts of done work are needed any longer.
pub(crate) enum Keep {
    /// All.
    All,
    /// Those for which this is true.
    If(Expr),
    /// All of those keys of which this is true for one.
    Keys(Keys),
}

/// Keys of which some facts are new enough.
pub(crate) struct Keys {
    /// The columns of the keys.
    pub(crate) names: Vec<String>,
    /// Columns among which these are.
    pub(crate) schema: SchemaRef,
    /// True for facts that are new enough.
    pub(crate) recent: Expr,
}

impl Keys {
    /// The facts among `rows` whose keys have one in `all` that is new enough.
    pub(crate) fn of(&self, rows: DataFrame, all: DataFrame) -> Result<DataFrame> {
        let keys = self.names.iter().enumerate();
        let other = |number: usize| format!("{KEY}{number}");
        let on = keys.clone().map(|(number, key)| same_key(&self.schema, key, ident(key), ident(other(number))));
        let on: Vec<Expr> = on.collect();
        let names = keys.map(|(number, key)| ident(key).alias(other(number))).collect::<Vec<_>>();
        let recent = all.filter(self.recent.clone())?.select(names)?.distinct()?;
        Ok(rows.join_on(recent, JoinType::LeftSemi, on)?)
    }
}

/// What a commit removes beside what it adds, and what takes the place of it.
///
/// A file of one number goes as a whole with its work. Only files of which all work was done are packed, so that no file
/// of ours ever holds what counts beside what does not; where another program has joined files, that is set right at once.
pub(super) async fn of(table: &Table, done: Done, keep: Keep, lake: &Lake) -> Result<(Vec<Action>, Written)> {
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
            let all = session.context().read_table(session.provider(table).await?)?;
            keys.of(rows, all.filter(done.is_done())?)?
        }
    };
    let rows = rows.repartition(Partitioning::RoundRobinBatch(1))?;
    let packed = write_streams(table, &table.schema(), rows.execute_stream_partitioned().await?).await?;
    removed.extend(old.into_iter().map(|file| file.remove));
    Ok((removed, packed))
}
