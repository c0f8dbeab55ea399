//! Rows into a gold table, in one commit: files first, which nobody sees, then the commit that takes the old ones away
//! and names the new ones.

use std::collections::BTreeMap;

use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, redefine};
use lake::run::RunContext;
use lake::table::Definition;
use lake::write::discard;
use lake::{Error, ErrorKind, Lake, Result, Table, TableName, fault};

use crate::write::{Rows, write};

/// A change of a gold table.
pub(crate) struct Publication {
    /// What the table is from now on.
    pub(crate) definition: Definition,
    /// The files that the new rows replace.
    pub(crate) removes: Vec<Action>,
    /// Which rows are replaced, for the table's history; `None` for all.
    pub(crate) predicate: Option<String>,
    /// What makes it happen once.
    pub(crate) txns: Vec<Txn>,
}

/// What became of it.
pub(crate) struct Published {
    /// Whether it was this run that committed, and the version that holds the rows.
    pub(crate) outcome: Outcome,
    /// Rows written.
    pub(crate) rows: u64,
}

/// The table to publish to: the one that the run has decided about, or a new one.
///
/// A table that appeared since then is a conflict: what was decided may not fit it.
///
/// # Errors
/// [`ErrorKind::Conflict`] when another run has made the table and written to it, and as [`Lake::create_or_open`].
pub(crate) async fn made(lake: &Lake, held: Option<Table>, name: &TableName, definition: &Definition) -> Result<Table> {
    if let Some(table) = held {
        return Ok(table);
    }
    let table = lake.create_or_open(name, definition).await?;
    match table.version() {
        0 => Ok(table),
        _ => Err(Error::new(ErrorKind::Conflict, format!("another run has made {name} at the same time"))),
    }
}

impl Publication {
    /// Writes the rows and commits.
    ///
    /// # Errors
    /// As the query and [`Table::commit`]. After a conflict the written files are gone again.
    pub(crate) async fn publish(self, rows: Rows, table: &mut Table, ctx: &RunContext) -> Result<Published> {
        let written = write(rows, table, &self.definition, ctx).await?;
        fault::cross("gold_data_written")?;
        ctx.stop.check()?;

        let mut actions: Vec<Action> = redefine(table, &self.definition)?.into_iter().collect();
        let removed = self.removes.len() as u64;
        actions.extend(self.removes);
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: "gold_committed",
            txns: self.txns,
            operation: DeltaOperation::Write {
                mode: SaveMode::Overwrite,
                partition_by: Some(self.definition.partition_by),
                predicate: self.predicate,
            },
            actions,
            blind_append: false,
            metrics: BTreeMap::from([
                ("numFiles", written.files.len() as u64),
                ("numOutputRows", written.rows),
                ("numOutputBytes", written.bytes()),
                ("numRemovedFiles", removed),
            ]),
            run: ctx.run.clone(),
        };
        match table.commit(commit).await {
            Ok(outcome) => Ok(Published { outcome, rows: written.rows }),
            Err(error) => {
                // Only a conflict says for certain that no version names the files.
                if error.kind() == ErrorKind::Conflict {
                    discard(table, &written.files).await;
                }
                Err(error)
            }
        }
    }
}
