//! Facts that are not needed any more: those of work that was never done, and small files.

use datafusion::logical_expr::{Expr, Partitioning};
use deltalake::kernel::Action;
use lake::write::{Written, write_streams};
use lake::{Lake, Result, Table};

use super::number::{Done, NUMBER};

/// So many files of earlier work become one.
const PACKED_AT: usize = 32;

/// What a commit removes beside what it adds, and what takes the place of it.
///
/// A file of one number goes as a whole with its work. Only files of which all work was done are packed, so that no file
/// ever holds what counts beside what does not.
pub(super) async fn of(table: &Table, done: Done, keep: Option<Expr>, lake: &Lake) -> Result<(Vec<Action>, Written)> {
    let (mut removed, mut old) = (Vec::new(), Vec::new());
    for file in table.files_with_bounds(NUMBER)? {
        match file.bounds {
            Some((least, most)) if least == most && done.is_dead(least) => removed.push(file.remove),
            Some((_, most)) if done.is_old(most) => old.push(file),
            _ => {}
        }
    }
    if old.len() < PACKED_AT {
        return Ok((removed, Written::default()));
    }
    let session = lake.session()?;
    let paths = old.iter().map(|file| file.path.clone()).collect();
    let rows = session.context().read_table(session.files(table, paths).await?)?;
    let rows = match keep {
        Some(keep) => rows.filter(keep)?,
        None => rows,
    };
    let rows = rows.repartition(Partitioning::RoundRobinBatch(1))?;
    let packed = write_streams(table, &table.schema(), rows.execute_stream_partitioned().await?).await?;
    removed.extend(old.into_iter().map(|file| file.remove));
    Ok((removed, packed))
}
