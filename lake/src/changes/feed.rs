//! The changes of a table as rows of a feed, version by version, in the form that Delta gives to it.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Action;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use super::log::{actions, of_commit, types};
use super::read::{Kept, changed_rows, is_gone, place};
use super::{Changed, Rows};
use crate::columns::timestamp_type;
use crate::error::{Error, ErrorKind, Result};
use crate::table::Table;
use crate::upsert::feed::CHANGE_TYPE;
use crate::upsert::file::Files;
use crate::vectors;

/// The column with the version of a change.
const COMMIT_VERSION: &str = "_commit_version";
/// The column with the moment of a change, as the writer's clock said.
const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// The changes of a table between two versions.
#[derive(Debug)]
pub struct Feed {
    files: Files,
    columns: Vec<String>,
    schema: SchemaRef,
    changed: Vec<Told>,
    /// Versions that wrote files anew without saying which of their rows changed: all are told as gone and come again.
    pub untold: Vec<u64>,
}

/// A changed file and its commit.
#[derive(Debug, Clone)]
struct Told {
    file: Changed,
    version: i64,
    at_us: Option<i64>,
}

/// What changed in `table`, which is open at the newer version, since its version `from`.
///
/// # Errors
/// [`ErrorKind::Table`] when the log does not tell any more, when files are gone, or when columns changed their types.
pub async fn feed(table: &Table, from: u64) -> Result<Feed> {
    let files = Files::of(table)?;
    let held = table.schema();
    let columns: Vec<String> = held.fields().iter().map(|field| field.name().clone()).collect();
    let technical = [
        Field::new(CHANGE_TYPE, DataType::Utf8, false),
        Field::new(COMMIT_VERSION, DataType::Int64, false),
        Field::new(COMMIT_TIMESTAMP, timestamp_type(), true),
    ];
    let fields = held.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).chain(technical);
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut feed = Feed { files, columns, schema, changed: Vec::new(), untold: Vec::new() };
    let kinds = types(table.delta().snapshot()?.metadata())?;
    for version in from + 1..=table.version() {
        let actions = actions(table, version).await?.ok_or_else(|| {
            let message = format!("version {version} of {} is gone from its log", table.name());
            Error::new(ErrorKind::Table, message).hint("begin with a later version")
        })?;
        feed.take(table, version, actions, &kinds)?;
    }
    feed.check().await.map_err(|error| error.context(format!("reading the changes of {}", table.name())))?;
    Ok(feed)
}

impl Feed {
    fn take(
        &mut self,
        table: &Table,
        version: u64,
        actions: Vec<Action>,
        kinds: &std::collections::HashMap<String, serde_json::Value>,
    ) -> Result<()> {
        let fails = |what: &str| {
            let message = format!("version {version} of {} {what}", table.name());
            Err(Error::new(ErrorKind::Table, message).hint("begin with that version, or end before it"))
        };
        let mut at_us = None;
        let (mut has_feed, mut came, mut went) = (false, 0, 0);
        for action in &actions {
            match action {
                Action::CommitInfo(info) => at_us = info.timestamp.map(|millis| millis.saturating_mul(1_000)),
                Action::Metadata(metadata) => {
                    let then = types(metadata)?;
                    if then.iter().any(|(name, kind)| kinds.get(name).is_some_and(|now| now != kind)) {
                        return fails("gave a column another type");
                    }
                }
                Action::Cdc(_) => has_feed = true,
                Action::Add(file) if file.data_change && file.deletion_vector.is_none() => came += 1,
                Action::Remove(file) if file.data_change && file.deletion_vector.is_none() => went += 1,
                _ => {}
            }
        }
        if !has_feed && came > 0 && went > 0 {
            self.untold.push(version);
        }
        let Some(changed) = of_commit(actions) else { return fails("does not tell what it removed") };
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        self.changed.extend(changed.into_iter().map(|file| Told { file, version, at_us }));
        Ok(())
    }

    /// Fails when a file is gone, before any row is read.
    async fn check(&self) -> Result<()> {
        for Told { file, version, .. } in &self.changed {
            let mut wanted = vec![place(&file.path)];
            if let Rows::These { left, only, .. } = &file.rows {
                for vector in [left, only].into_iter().flatten() {
                    wanted.extend(vectors::file_of(vector)?);
                }
            }
            for path in wanted {
                if let Some(path) = is_gone(self.files.clone(), path).await? {
                    let message = format!("`{path}` is gone, which tells the changes of version {version}");
                    let hint = "`vacuum` removes what no version within the retention has; begin with a later version";
                    return Err(Error::new(ErrorKind::Table, message).hint(hint));
                }
            }
        }
        Ok(())
    }

    /// The columns of the table, and `_change_type`, `_commit_version` and `_commit_timestamp`.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The rows, in the order of the versions.
    pub fn rows(self) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { files, columns, schema, changed, .. } = self;
        let each = stream::iter(changed).then(move |told| {
            let reader = Reader { files: files.clone(), columns: columns.clone(), schema: Arc::clone(&schema) };
            reader.rows(told)
        });
        each.try_flatten().boxed()
    }
}

/// Reads changed rows.
struct Reader {
    files: Files,
    columns: Vec<String>,
    schema: SchemaRef,
}

impl Reader {
    async fn rows(self, told: Told) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Told { file, version, at_us } = told;
        let kept = Kept::of(&file.rows, &self.files).await?;
        let kind = kept.is_new().map(|is_new| if is_new { "insert" } else { "delete" });
        let schema = self.schema;
        let rows = changed_rows(self.files, self.columns, file, kept).await?;
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let rows = batch.num_rows();
            let mut columns = batch.columns().to_vec();
            if let Some(kind) = kind {
                columns.push(Arc::new(StringArray::from(vec![kind; rows])));
            }
            let at = TimestampMicrosecondArray::from(vec![at_us; rows]).with_timezone("UTC");
            columns.push(Arc::new(Int64Array::from(vec![version; rows])) as ArrayRef);
            columns.push(Arc::new(at));
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        });
        Ok(rows.boxed())
    }
}
