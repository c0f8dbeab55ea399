//! The bronze table of a source, which need not exist yet.

use std::sync::Arc;

use arrow::datatypes::Schema;
use lake::columns::bronze_leading;
use lake::table::Definition;
use lake::{Lake, Result, Table, TableName};

use crate::evolve::{SchemaRules, check_hints};

/// The table of a source at the version that was read last.
#[derive(Debug)]
pub(crate) struct Target {
    lake: Lake,
    name: TableName,
    table: Option<Table>,
}

impl Target {
    /// Opens the table if it is there.
    ///
    /// # Errors
    /// As [`Lake::table`].
    pub(crate) async fn open(lake: &Lake, name: &TableName) -> Result<Self> {
        Ok(Self { lake: lake.clone(), name: name.clone(), table: lake.table(name).await? })
    }

    /// Makes sure that the table can be what its source wants of it.
    ///
    /// # Errors
    /// As [`check_hints`].
    pub(crate) fn check(&self, rules: &SchemaRules) -> Result<()> {
        self.table.as_ref().map_or(Ok(()), |table| check_hints(&self.name, &table.schema(), rules))
    }

    /// Moves to the newest version.
    ///
    /// # Errors
    /// As [`Table::reload`].
    pub(crate) async fn refresh(&mut self) -> Result<()> {
        match &mut self.table {
            Some(table) => table.reload().await,
            None => {
                self.table = self.lake.table(&self.name).await?;
                Ok(())
            }
        }
    }

    /// The last batch that the open version holds; 0 before the first.
    ///
    /// # Errors
    /// As [`Table::txn_version`].
    pub(crate) async fn done(&self) -> Result<i64> {
        match &self.table {
            Some(table) => Ok(table.txn_version(&self.name.name).await?.unwrap_or(0)),
            None => Ok(0),
        }
    }

    /// When the newest data file was written, in microseconds since the epoch.
    ///
    /// # Errors
    /// As [`Table::newest_file_us`].
    pub(crate) fn newest_file_us(&self) -> Result<Option<i64>> {
        self.table.as_ref().map_or(Ok(None), Table::newest_file_us)
    }

    /// The version that is open.
    pub(crate) fn version(&self) -> Option<u64> {
        self.table.as_ref().map(Table::version)
    }

    /// The table, made when it is missing.
    ///
    /// # Errors
    /// As [`Lake::create_or_open`].
    pub(crate) async fn made(&mut self) -> Result<&mut Table> {
        let table = match self.table.take() {
            Some(table) => table,
            None => {
                let definition = Definition {
                    description: Some("raw records, every one as it came".into()),
                    ..Definition::new(Arc::new(Schema::new(bronze_leading())))
                };
                self.lake.create_or_open(&self.name, &definition).await?
            }
        };
        Ok(self.table.insert(table))
    }
}
