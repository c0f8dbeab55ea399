//! A version of a table as a table of its own, and the way back: a table that takes the columns and rows of another one, in
//! one commit.
//!
//! Copies have names of their own, so that a file that comes back never has the name of one that is there.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use deltalake::kernel::{Action, Add, LogicalFileView, Metadata};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Map, Value};

use crate::changes::{feed_files, own_feed};
use crate::commit::{ByHand, Outcome, is_void, joint_protocol};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::listing::add_of;
use crate::names::{RunId, TableName};
use crate::restore::Along;
use crate::rules::{self, Kind, Rule};
use crate::table::Table;
use crate::upsert::feed::is_enabled;
use crate::upsert::file::Files;
use crate::vectors;
use crate::write::{discard, discard_paths};

/// Files that are copied at a time.
const COPIED_AT_ONCE: usize = 4;
/// What says of which columns files have statistics.
const STATS_COLUMNS: &str = "delta.dataSkippingStatsColumns";

/// Makes a table of its own of the open version of another one: columns, partitions, rows and the properties that the
/// program does not keep for itself.
///
/// # Errors
/// [`ErrorKind::Spec`] when there is a table of that name, [`ErrorKind::Table`] when its columns have other names in files,
/// [`ErrorKind::Store`] when a file cannot be copied.
pub async fn copy_as(lake: &Lake, table: &Table, name: &TableName) -> Result<Table> {
    if lake.table(name).await?.is_some() {
        return Err(Error::spec(format!("there is a table {name} already")).hint("give the copy another name"));
    }
    // Refused before anything is copied.
    Files::of(table)?;
    let to = lake.store_of(name)?;
    let files = copies(table, to.as_ref()).await?;
    match lake.create_of(name, table, files.clone()).await {
        Ok(copy) => Ok(copy),
        // Another may have made it meanwhile, with files of its own.
        Err(error) => {
            for file in &files {
                let path = Path::parse(&file.path).map_err(object_store::Error::from)?;
                drop(to.delete(&path).await);
            }
            Err(error)
        }
    }
}

/// Makes `table` what another one is, in one commit: its columns, partitions and rows. The table keeps its id, its
/// properties, its constraints, which the new rows must meet, and its transactions: the rows stand for what it has come to,
/// but for what `along` says.
///
/// # Errors
/// [`ErrorKind::Data`] when rows do not meet a constraint, [`ErrorKind::Store`] when a file cannot be copied,
/// [`ErrorKind::Conflict`] when another writer came first.
pub async fn take_over(
    lake: &Lake,
    table: &mut Table,
    with: &Table,
    keys: &[String],
    along: &Along,
    run: &RunId,
) -> Result<Outcome> {
    Files::of(with)?;
    let held: Vec<Rule> = Rule::of(table)?.into_iter().filter(|rule| rule.kind == Kind::Check).collect();
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(with).await?)?;
    let what = format!("rows of {}", with.name());
    rules::hold(&held, &rows, keys, &with.partition_columns()?, &what).await?;
    let (own, theirs) = (table.delta().snapshot()?, with.delta().snapshot()?);
    let metadata = metadata(own.metadata(), theirs.metadata(), &along.properties)?;
    let mut actions = vec![Action::Metadata(metadata)];
    actions.extend(along.actions());
    actions.extend(joint_protocol(own.protocol(), theirs.protocol())?.map(Action::Protocol));
    actions.extend(table.removes(|_| true)?);
    let files = copies(with, table.delta().object_store().as_ref()).await?;
    actions.extend(files.iter().cloned().map(Action::Add));
    if is_enabled(table)? {
        match own_feed(table, with, &actions).await {
            Ok(feed) => actions.extend(feed),
            Err(error) => {
                discard(table, &files).await;
                return Err(error);
            }
        }
    }
    let feed = feed_files(&actions);
    let operation = DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate: None };
    let metrics = BTreeMap::from([("numFiles", files.len() as u64), ("numOutputRows", with.row_count()?.unwrap_or(0))]);
    let hand = ByHand { point: "swap_committed", operation, actions, metrics };
    let outcome = table.commit_by_hand(hand, run).await;
    if is_void(&outcome) {
        discard(table, &files).await;
        discard_paths(table, feed.into_iter()).await;
    }
    outcome
}

/// Copies the data files of a table, and those that tell which of their rows are deleted, to a store.
async fn copies(table: &Table, to: &dyn ObjectStore) -> Result<Vec<Add>> {
    let from = table.delta().object_store();
    let files: Vec<LogicalFileView> = table.delta().snapshot()?.log_data().iter().collect();
    let doing = || format!("copying the files of {}", table.name());
    let copies = files.into_iter().map(|file| {
        let from = &from;
        async move {
            let name = format!("part-{}.parquet", uuid::Uuid::new_v4());
            let below = |path: &str| match path.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/{name}"),
                None => name.clone(),
            };
            let source = file.object_store_path();
            let place = Path::parse(below(source.as_ref())).map_err(object_store::Error::from)?;
            to.put(&place, from.get(&source).await?.bytes().await?.into()).await?;
            if let Some(vector) = file.deletion_vector_descriptor() {
                if vector.storage_type == deltalake::kernel::StorageType::AbsolutePath {
                    let message = "a table with deletion vectors outside of its folder cannot be copied";
                    return Err(Error::new(ErrorKind::Table, message));
                }
                if let Some(path) = vectors::file_of(&vector)? {
                    to.put(&path, from.get(&path).await?.bytes().await?.into()).await?;
                }
            }
            Ok(Add { path: below(file.path().as_ref()), ..add_of(&file) })
        }
    });
    let copied: Vec<Result<Add>> = futures::stream::iter(copies).buffer_unordered(COPIED_AT_ONCE).collect().await;
    let (done, failed): (Vec<_>, Vec<_>) = copied.into_iter().partition(Result::is_ok);
    match failed.into_iter().find_map(Result::err) {
        None => Ok(done.into_iter().flatten().collect()),
        Some(error) => {
            for file in done.into_iter().flatten() {
                if let Ok(path) = Path::parse(&file.path) {
                    drop(to.delete(&path).await);
                }
            }
            Err(error).context(doing)
        }
    }
}

/// The metadata of a table that takes the columns of another one.
fn metadata(own: &Metadata, theirs: &Metadata, more: &[(String, String)]) -> Result<Metadata> {
    let broken =
        |error: serde_json::Error| Error::internal("what describes a table does not convert").with_source(error);
    let object = |metadata: &Metadata| serde_json::from_value::<Map<String, Value>>(serde_json::to_value(metadata)?);
    let (mut wanted, theirs) = (object(own).map_err(broken)?, object(theirs).map_err(broken)?);
    for key in ["schemaString", "partitionColumns"] {
        wanted.insert(key.to_owned(), theirs.get(key).cloned().unwrap_or_default());
    }
    if let Some(properties) = wanted.get_mut("configuration").and_then(Value::as_object_mut) {
        match theirs.get("configuration").and_then(|all| all.get(STATS_COLUMNS)) {
            Some(columns) => drop(properties.insert(STATS_COLUMNS.to_owned(), columns.clone())),
            None => drop(properties.remove(STATS_COLUMNS)),
        }
        properties.extend(more.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))));
    }
    serde_json::from_value(Value::Object(wanted)).map_err(broken)
}

/// What differs between the columns of two tables, in words.
pub fn column_differences(own: &Schema, theirs: &Schema) -> Vec<String> {
    let mut told = Vec::new();
    for field in theirs.fields() {
        match own.field_with_name(field.name()) {
            Err(_) => told.push(format!("column `{}` comes", field.name())),
            Ok(held) if held.data_type() != field.data_type() => {
                let (was, is) = (held.data_type(), field.data_type());
                told.push(format!("column `{}` was {was} and is {is}", field.name()));
            }
            Ok(_) => {}
        }
    }
    let gone = own.fields().iter().filter(|field| theirs.field_with_name(field.name()).is_err());
    told.extend(gone.map(|field| format!("column `{}` goes", field.name())));
    told
}
