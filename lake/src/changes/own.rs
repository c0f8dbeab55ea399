//! The feed of a commit that replaces files as a whole: a table taken back, or one that becomes what another is.
//!
//! Readers tell such changes from the files. But of a file with a deletion vector that comes or goes as a whole, delta-rs
//! takes the rows that were deleted before for those that change. Where such files are among them, the commit says itself
//! which rows went and which came.

use deltalake::kernel::Action;
use futures::TryStreamExt;

use super::log::of_commit;
use super::read::{Kept, changed_rows};
use super::{Changed, Rows};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::upsert::feed::{ChangeType, FeedWriter};
use crate::upsert::file::{Files, is_mapped};
use crate::write::conform;

/// The feed of a commit to `table` with these actions, by which it gets the columns and partitions of `becomes`; nothing
/// where readers can do without. All files are in the folder of `table`.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store) when a file cannot be read or written.
pub(crate) async fn own_feed(table: &Table, becomes: &Table, actions: &[Action]) -> Result<Vec<Action>> {
    let has_vector = |action: &Action| match action {
        Action::Add(file) => file.deletion_vector.is_some(),
        Action::Remove(file) => file.deletion_vector.is_some(),
        _ => false,
    };
    if !actions.iter().any(has_vector) || is_mapped(table)? || is_mapped(becomes)? || has_other_types(table, becomes) {
        return Ok(Vec::new());
    }
    let changed = of_commit(actions.to_vec())
        .ok_or_else(|| Error::internal(format!("a file of {} has no size or partition", table.name())))?;
    let (old, new) = (Files::of(table)?.copied_to(table), Files::of(becomes)?.copied_to(table));
    let mut writer = FeedWriter::becoming(table, new.schema(), becomes.partition_columns()?);
    for file in changed {
        if let Err(error) = write(&mut writer, file, &old, &new, table).await {
            writer.abort().await;
            return Err(error.context(format!("writing which rows of {} change", table.name())));
        }
    }
    writer.close().await
}

/// The files of the feed that actions bring.
pub(crate) fn feed_files(actions: &[Action]) -> Vec<String> {
    let feed = actions.iter().filter_map(|action| match action {
        Action::Cdc(file) => Some(file.path.clone()),
        _ => None,
    });
    feed.collect()
}

async fn write(writer: &mut FeedWriter, file: Changed, old: &Files, new: &Files, table: &Table) -> Result<()> {
    let Rows::These { is_new, .. } = &file.rows else {
        return Err(Error::internal("files that come and go have a feed already"));
    };
    let (files, kind) = if *is_new { (new, ChangeType::Insert) } else { (old, ChangeType::Delete) };
    let kept = Kept::of(&file.rows, files).await?;
    let columns = files.schema().fields().iter().map(|field| field.name().clone());
    let columns = columns.filter(|name| new.schema().field_with_name(name).is_ok()).collect();
    let mut rows = changed_rows(files.clone(), columns, file, kept).await?;
    while let Some(batch) = rows.try_next().await? {
        writer.write(&conform(&batch, new.schema(), table.name())?, kind).await?;
    }
    Ok(())
}

/// True when a column has another type in the other table: rows of one are none of the other then.
fn has_other_types(table: &Table, other: &Table) -> bool {
    let (held, others) = (table.schema(), other.schema());
    held.fields()
        .iter()
        .any(|field| others.field_with_name(field.name()).is_ok_and(|theirs| theirs.data_type() != field.data_type()))
}
