//! That the source has each key once: asked of all of it, or, where it was so before, of what has changed since.

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{JoinType, ident, lit};
use lake::session::{Session, reference};
use lake::skip::Wanted;
use lake::stage::Staged;
use lake::{Error, ErrorKind, Layer, Result, Table};

use super::layout::{Layout, spelled};
use super::state::{compare, of};

/// How often a key is there.
const TIMES: &str = "__times";
/// So many new keys at most choose the files of the source in which they are looked for.
const CHOOSING_MAX: u64 = 1_000_000;

/// A silver table has each key once; of any other source that must be seen.
///
/// # Errors
/// [`ErrorKind::Data`] with the first key that is there twice.
pub(super) async fn check_all(session: &Session, source: &Table, keys: &[String]) -> Result<()> {
    if source.name().layer == Layer::Silver {
        return Ok(());
    }
    let rows = session.context().table(reference(source.name())).await?;
    check(rows, source, keys).await
}

/// The same for a source that had each key once at a version since which these rows changed: `net` tells of each how often
/// more it came than it went. Only of keys that came more often can there be another row, and only the files that may hold
/// these are read.
///
/// # Errors
/// As [`check_all`].
pub(super) async fn check_changed(
    session: &Session,
    source: &Table,
    layout: &Layout,
    keys: &[String],
    net: (&DataFrame, &str),
) -> Result<()> {
    const NEW: &str = "new";
    const ALL: &str = "all";
    if source.name().layer == Layer::Silver {
        return Ok(());
    }
    let (changed, net) = net;
    let names = of_source(source, keys);
    let more = vec![sum(ident(net)).alias(TIMES)];
    let new = changed.clone().aggregate(names.iter().map(ident).collect(), more)?;
    let new = new.filter(ident(TIMES).gt(lit(0_i64)))?.select(names.iter().map(ident).collect::<Vec<_>>())?;
    let new = Staged::write(new).await?;
    if new.rows() == 0 {
        return Ok(());
    }
    let all = match new.rows() <= CHOOSING_MAX {
        true => {
            let batches = new.frame(session).await?.collect().await?;
            let values = concat_batches(&new.schema(), &batches)?;
            let wanted = names.iter().cloned().zip(values.columns().iter().cloned().map(Wanted::Values));
            let files = source.files_with(&wanted.collect::<Vec<_>>())?.paths;
            session.context().read_table(session.part(source, files).await?)?
        }
        false => session.context().table(reference(source.name())).await?,
    };
    let met = names.iter().map(|key| compare(of(NEW, key), layout.same_key(), of(ALL, key)));
    let met = new.frame(session).await?.alias(NEW)?.join_on(all.alias(ALL)?, JoinType::RightSemi, met)?;
    check(met, source, keys).await
}

/// Looks for a key that is there twice among rows of the source.
async fn check(rows: DataFrame, source: &Table, keys: &[String]) -> Result<()> {
    let names = of_source(source, keys);
    let counted = rows.aggregate(names.iter().map(ident).collect(), vec![count(lit(1_i64)).alias(TIMES)])?;
    let twice = counted.filter(ident(TIMES).gt(lit(1_i64)))?.limit(0, Some(1))?.collect().await?;
    let Some(batch) = twice.iter().find(|batch| batch.num_rows() > 0) else { return Ok(()) };
    let message = format!("{} has several rows with {}", source.name(), shown(batch, keys)?);
    Err(Error::new(ErrorKind::Data, message).hint("`keys` must identify a row"))
}

/// The keys as the source spells them.
fn of_source(source: &Table, keys: &[String]) -> Vec<String> {
    let schema = source.schema();
    keys.iter().map(|key| spelled(key, [&*schema])).collect()
}

/// The key of the first row: `id = 7, day = 2024-05-01`.
fn shown(batch: &RecordBatch, keys: &[String]) -> Result<String> {
    let options = FormatOptions::default().with_null("null");
    let parts = keys.iter().zip(batch.columns()).map(|(key, column)| {
        let column: &dyn Array = column;
        Ok(format!("{key} = {}", ArrayFormatter::try_new(column, &options)?.value(0)))
    });
    Ok(parts.collect::<Result<Vec<_>>>()?.join(", "))
}
