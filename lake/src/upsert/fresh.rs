//! Rows that go to new files: new keys, and the new values of rows that are marked as deleted where they were.

use std::ops::Range;
use std::sync::Arc;

use futures::future::try_join_all;

use super::apply::{Plan, is_fresh};
use super::feed::{ChangeType, FeedWriter};
use super::rewrite::Output;
use super::{Probed, Verdict, rows};
use crate::error::{Error, Result};
use crate::lakehouse::Lake;
use crate::stage::Staged;
use crate::table::Table;
use crate::write::TableWriter;

/// Rows for which another encoder is worth another file.
const ROWS_PER_FILE: usize = 256 * 1024;

/// Some of the changes, for one encoder.
struct Part {
    changes: Staged,
    rows: Range<usize>,
    is_wanted: Arc<[bool]>,
    table: Table,
    change_type: ChangeType,
    with_feed: bool,
}

pub(super) async fn write(lake: &Lake, table: &Table, probed: &Probed, plan: &Plan<'_>) -> Result<Output> {
    let fresh = is_fresh(probed, plan);
    let mut parts = Vec::new();
    // New keys and old ones go to files of their own: new keys often follow the old ones, and their files stay apart.
    for (verdict, change_type) in [(Verdict::Insert, ChangeType::Insert), (Verdict::Update, ChangeType::After)] {
        let is_wanted = |change: usize| fresh[change] && probed.verdicts[change] == verdict;
        let is_wanted: Arc<[bool]> = (0..fresh.len()).map(is_wanted).collect();
        let rows = is_wanted.iter().filter(|is_wanted| **is_wanted).count();
        let encoders = rows.div_ceil(ROWS_PER_FILE).min(lake.engine().threads());
        parts.extend((0..encoders).map(|number| Part {
            changes: probed.changes.clone(),
            rows: share(fresh.len(), number, encoders),
            is_wanted: Arc::clone(&is_wanted),
            table: table.clone(),
            change_type,
            with_feed: plan.with_feed,
        }));
    }
    let outputs = try_join_all(parts.into_iter().map(|part| async move {
        let output = tokio::spawn(part.write()).await;
        output.map_err(|error| Error::internal("a writer ended early").with_source(error))?
    }));
    Ok(outputs.await?.into_iter().fold(Output::default(), Output::and))
}

/// The `number`-th of `parts` equal parts of a range.
fn share(rows: usize, number: usize, parts: usize) -> Range<usize> {
    number * rows / parts..(number + 1) * rows / parts
}

impl Part {
    async fn write(self) -> Result<Output> {
        let mut writer = TableWriter::new(&self.table);
        let mut feed = self.with_feed.then(|| FeedWriter::new(&self.table));
        let written = self.write_to(&mut writer, feed.as_mut()).await;
        if let Err(error) = written {
            writer.abort().await;
            if let Some(feed) = feed {
                feed.abort().await;
            }
            return Err(error);
        }
        let feed = match feed {
            Some(feed) => feed.close().await?,
            None => Vec::new(),
        };
        Ok(Output { written: writer.close().await?, feed, copied: 0 })
    }

    async fn write_to(&self, writer: &mut TableWriter, mut feed: Option<&mut FeedWriter>) -> Result<()> {
        let is_wanted = Arc::clone(&self.is_wanted);
        let rows = rows::of_table(&self.changes, self.rows.clone(), move |change| is_wanted[change], &self.table)?;
        for rows in rows {
            let rows = rows?;
            writer.write(&rows).await?;
            if let Some(feed) = &mut feed {
                feed.write(&rows, self.change_type).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_the_whole() {
        let shares: Vec<_> = (0..3).map(|number| share(10, number, 3)).collect();
        assert_eq!(shares, [0..3, 3..6, 6..10]);
    }
}
