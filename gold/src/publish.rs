//! Rows into a gold table, in one commit: files first, which nobody sees, then the commit that takes the old ones away
//! and names the new ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};
use lake::commit::{Commit, Outcome, Txn, redefine};
use lake::run::RunContext;
use lake::table::Definition;
use lake::write::discard;
use lake::{Error, ErrorKind, Lake, Result, Table, TableName, fault};
use tokio::sync::OnceCell;

use crate::write::{Rows, write};

/// The table that rows go to: the one that the run has decided about, or one that is made when the first file is
/// written. A query that fails before leaves no empty table behind.
#[derive(Debug)]
pub(crate) struct Target {
    lake: Lake,
    name: TableName,
    table: OnceCell<Table>,
    /// What the table is from now on.
    definition: Definition,
}

/// A change of a gold table.
pub(crate) struct Publication {
    /// Where the rows go.
    pub(crate) target: Target,
    /// The properties of the table that come with the rows, by name and value.
    pub(crate) properties: Vec<(String, String)>,
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

impl Target {
    /// `held`, or a table to be made under `name`.
    pub(crate) fn new(lake: &Lake, name: &TableName, held: Option<Table>, definition: Definition) -> Self {
        Self { lake: lake.clone(), name: name.clone(), table: OnceCell::new_with(held), definition }
    }

    /// The name of the table.
    pub(crate) fn name(&self) -> &TableName {
        &self.name
    }

    /// What the table is from now on.
    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The table. One that appeared since the run looked is a conflict: what was decided may not fit it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another run has made the table and written to it, and as [`Lake::create_or_open`].
    pub(crate) async fn table(&self) -> Result<&Table> {
        let make = async || {
            let table = self.lake.create_or_open(&self.name, &self.definition).await?;
            match table.version() {
                0 => Ok(table),
                _ => Err(Error::new(ErrorKind::Conflict, format!("another run has made {} just now", self.name))),
            }
        };
        self.table.get_or_try_init(make).await
    }
}

impl Publication {
    /// Writes the rows and commits.
    ///
    /// # Errors
    /// As the query and [`Table::commit`]. Files that no commit will name are gone again.
    pub(crate) async fn publish(self, rows: Rows, ctx: &RunContext) -> Result<Published> {
        let target = Arc::new(self.target);
        let written = write(rows, &target, ctx).await?;
        let mut table = target.table().await?.clone();
        if let Err(error) = fault::cross("gold_data_written").and_then(|()| ctx.stop.check()) {
            discard(&table, &written.files).await;
            return Err(error);
        }

        let mut definition = target.definition().clone();
        definition.properties.extend(self.properties);
        let mut actions: Vec<Action> = redefine(&table, &definition)?.into_iter().collect();
        let removed = self.removes.len() as u64;
        actions.extend(self.removes);
        actions.extend(written.files.iter().cloned().map(Action::Add));
        let commit = Commit {
            point: "gold_committed",
            txns: self.txns,
            operation: DeltaOperation::Write {
                mode: SaveMode::Overwrite,
                partition_by: Some(definition.partition_by),
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
        let outcome = table.commit_files(commit, &written.files).await?;
        Ok(Published { outcome, rows: written.rows })
    }
}
