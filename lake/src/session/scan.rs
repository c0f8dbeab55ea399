//! A table as a plan reads it: files with deleted rows apart from the others.
//!
//! Files without deletion vectors are scanned by the library, those with one by a scan of our own (`marked`). Where the
//! log does not tell enough for it, the library scans them too, in as many scans as there are threads, because each of
//! them is one partition.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::dataframe::DataFrame;
use deltalake::kernel::LogicalFileView;

use super::Session;
use super::marked::{can_be_scanned, has_required_parts};
use super::parquet::dealt;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::upsert::file::is_mapped;

impl Session {
    /// A scan of a table at the version that is open, readable by this session.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the scan cannot be planned.
    pub async fn provider(&self, table: &Table) -> Result<Arc<dyn TableProvider>> {
        if table.has_deletion_vectors()? { self.apart(table, None).await } else { self.scan(table, None).await }
    }

    /// The same of some data files of the table alone, by their paths.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the scan cannot be planned.
    pub async fn part(&self, table: &Table, paths: Vec<String>) -> Result<Arc<dyn TableProvider>> {
        match table.has_deletion_vectors()? {
            true => self.apart(table, Some(paths.into_iter().collect())).await,
            false => self.scan(table, Some(paths)).await,
        }
    }

    /// A scan of some data files of a table alone, by their paths in the log.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the scan cannot be planned.
    pub async fn files(&self, table: &Table, paths: Vec<String>) -> Result<Arc<dyn TableProvider>> {
        self.scan(table, Some(paths)).await
    }

    /// The files without deleted rows in one scan, the others dealt out over several.
    async fn apart(&self, table: &Table, only: Option<HashSet<String>>) -> Result<Arc<dyn TableProvider>> {
        let log = table.delta().snapshot()?.log_data();
        let wanted = |file: &LogicalFileView| only.as_ref().is_none_or(|only| only.contains(file.path().as_ref()));
        let (marked, whole): (Vec<LogicalFileView>, Vec<LogicalFileView>) =
            log.iter().filter(wanted).partition(|file| file.deletion_vector_descriptor().is_some());
        let (marked, untold): (Vec<_>, Vec<_>) = match is_mapped(table)? || has_required_parts(&table.schema()) {
            true => (Vec::new(), marked),
            false => marked.into_iter().partition(can_be_scanned),
        };
        let mut scans = vec![paths(whole)];
        let size_of = |file: &LogicalFileView| u64::try_from(file.size()).unwrap_or(0);
        scans.extend(dealt(untold, size_of, self.ctx.state().config().target_partitions()).into_iter().map(paths));
        let mut parts = Vec::new();
        for paths in scans.into_iter().filter(|paths| !paths.is_empty()) {
            parts.push(self.scan(table, Some(paths)).await?);
        }
        if !marked.is_empty() {
            let schema = match parts.first() {
                Some(part) => part.schema(),
                None => self.scan(table, Some(Vec::new())).await?.schema(),
            };
            parts.push(self.marked(table, marked, &schema).await?);
        }
        let mut all: Option<DataFrame> = None;
        for part in parts {
            let part = self.ctx.read_table(part)?;
            all = Some(match all {
                Some(all) => all.union(part)?,
                None => part,
            });
        }
        match all {
            Some(all) => Ok(Arc::new(ViewTable::new(all.into_unoptimized_plan(), None))),
            None => self.scan(table, only.map(|_| Vec::new())).await,
        }
    }

    async fn scan(&self, table: &Table, paths: Option<Vec<String>>) -> Result<Arc<dyn TableProvider>> {
        table.delta().update_datafusion_session(&self.ctx.state())?;
        let mut provider = table.delta().table_provider().with_session(Arc::new(self.ctx.state()));
        if let Some(paths) = paths {
            provider = provider.with_file_paths(paths.iter().map(|path| in_url(path)));
        }
        provider.await.map_err(|error| Error::from(error).context(format!("reading table {}", table.name())))
    }
}

/// A path as part of a URL, which is how the library takes it: folders of partitions have escaped values in their names.
fn in_url(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

fn paths(files: Vec<LogicalFileView>) -> Vec<String> {
    files.iter().map(|file| file.path().into_owned()).collect()
}
