//! Files of a table put together anew, with the same rows: small ones joined, rows that are marked as deleted left out,
//! and rows that lie near each other in some columns put near each other in files.
//!
//! `bins` decides which files gain from it, `join` writes the files of a bin one after the other, `cluster` sorts them
//! (`curve` says in what order). Nothing changes for who reads the table, and the commits say so (`dataChange` is false):
//! a feed of changes shows nothing. A commit takes away only files that are live, so that another writer's work is never
//! undone and no row comes twice: files that another has taken meanwhile are left to the next time, with the rest of
//! their bin.

mod bins;
mod cluster;
mod commit;
mod curve;
mod join;

use std::collections::BTreeMap;

use deltalake::kernel::LogicalFileView;
use futures::{StreamExt, TryStreamExt, stream};

pub(crate) use self::bins::tags_of;
use self::bins::{Facts, Kind};
use crate::commit::Standing;
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::spec::did_you_mean;
use crate::table::Table;
use crate::write::Written;

/// The size of data files in bytes, unless another is asked for.
pub const FILE_SIZE_BYTES: u64 = 128 * 1024 * 1024;
const BINS_PER_COMMIT: usize = 64;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Optimize {
    /// The columns whose near values are put near each other; none joins files alone.
    pub zorder_by: Vec<String>,
    /// Also what is clustered by these columns already.
    pub full: bool,
    /// Only partitions that have these values, as the log writes them; `None` is null.
    pub partitions: Vec<(String, Option<String>)>,
    /// Bytes that a file should have.
    pub file_size: u64,
    /// Leave out a file that is larger than all others that it would be joined with: so a row is written again only as
    /// often as what is joined doubles, however often that is done.
    pub tiered: bool,
    /// Groups of files that one commit takes away at most: what is done by then stays done.
    pub bins_per_commit: usize,
}

impl Default for Optimize {
    fn default() -> Self {
        Self {
            zorder_by: Vec::new(),
            full: false,
            partitions: Vec::new(),
            file_size: FILE_SIZE_BYTES,
            tiered: false,
            bins_per_commit: BINS_PER_COMMIT,
        }
    }
}

/// What is to be done, or was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Files that go.
    pub files_removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
    /// Files that come.
    pub files_added: u64,
    /// Their bytes.
    pub bytes_added: u64,
    /// Rows that are written again.
    pub rows: u64,
    /// Rows that were marked as deleted and are gone from the files.
    pub rows_purged: u64,
    /// Groups of files that another writer has touched meanwhile, left as they are.
    pub bins_skipped: u64,
}

impl Figures {
    fn and(self, more: Self) -> Self {
        Self {
            files_removed: self.files_removed + more.files_removed,
            bytes_removed: self.bytes_removed + more.bytes_removed,
            files_added: self.files_added + more.files_added,
            bytes_added: self.bytes_added + more.bytes_added,
            rows: self.rows + more.rows,
            rows_purged: self.rows_purged + more.rows_purged,
            bins_skipped: self.bins_skipped + more.bins_skipped,
        }
    }
}

/// Files that are put together.
struct Bin {
    files: Vec<LogicalFileView>,
    kind: Kind,
}

impl Bin {
    /// What was written of files that were clustered with each other stays so: each keeps its order.
    fn tagged(&self, written: Written) -> Written {
        let Some(tags) = self.files.first().map(tags_of).filter(|tags| tags.contains_key(bins::CUBE)) else {
            return written;
        };
        let files = written.files.into_iter();
        let files = files.map(|file| deltalake::kernel::Add { tags: Some(tags.clone()), ..file });
        Written { files: files.collect(), ..written }
    }

    /// Fails unless the rows that were written are those that the log says the files have.
    fn check(&self, written: &Written) -> Result<()> {
        let rows = |file: &LogicalFileView| {
            let deleted = file.deletion_vector_descriptor().map_or(0, |vector| vector.cardinality);
            Some((file.num_records()? as u64).saturating_sub(u64::try_from(deleted).unwrap_or(0)))
        };
        match self.files.iter().map(rows).sum::<Option<u64>>() {
            Some(rows) if rows != written.rows => {
                let message = format!("{rows} rows were to be written anew and {} were", written.rows);
                Err(Error::internal(message))
            }
            _ => Ok(()),
        }
    }

    /// What going through with it takes away.
    fn figures(&self) -> Figures {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        self.files.iter().fold(Figures::default(), |sum, file| {
            let purged = file.deletion_vector_descriptor().map_or(0, |vector| number(vector.cardinality));
            let one = Figures {
                files_removed: 1,
                bytes_removed: number(file.size()),
                rows_purged: purged,
                ..Figures::default()
            };
            sum.and(one)
        })
    }
}

/// A bin with the files that take the place of its own.
struct Done {
    bin: Bin,
    written: Written,
}

impl Optimize {
    /// What there is to do, without doing it: the files that would go.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] for a column that the table does not have or cannot be clustered by.
    pub fn plan(&self, table: &Table) -> Result<Figures> {
        Ok(self.bins(table)?.iter().fold(Figures::default(), |sum, bin| sum.and(bin.figures())))
    }

    /// Does it, and moves the table to the version that holds it.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), [`ErrorKind::Store`] when files cannot be read or written, [`ErrorKind::Conflict`] when
    /// the table's columns or properties change meanwhile. What was committed until then stays.
    pub async fn run(&self, lake: &Lake, table: &mut Table, run: &RunId) -> Result<Figures> {
        let standing = Standing::of(table)?;
        let mut bins = self.bins(table)?.into_iter();
        let mut figures = Figures::default();
        loop {
            let some: Vec<Bin> = bins.by_ref().take(self.bins_per_commit).collect();
            if some.is_empty() {
                return Ok(figures);
            }
            let done = self.write(lake, table, some).await?;
            figures = figures.and(commit::commit(self, table, &standing, done, run).await?);
        }
    }

    async fn write(&self, lake: &Lake, table: &Table, bins: Vec<Bin>) -> Result<Vec<Done>> {
        // Sorting has the memory and the threads to itself.
        let at_once = if self.zorder_by.is_empty() { lake.engine().threads() } else { 1 };
        let tasks = stream::iter(bins.into_iter().map(|bin| {
            let (lake, table, asked) = (lake.clone(), table.clone(), self.clone());
            async move {
                let done = tokio::spawn(async move {
                    let written = match &bin.kind {
                        Kind::Join => bin.tagged(join::write(&table, &bin.files, asked.file_size).await?),
                        Kind::Cluster => cluster::write(&lake, &table, &bin.files, &asked).await?,
                    };
                    bin.check(&written)?;
                    Ok::<_, Error>(Done { bin, written })
                });
                done.await.map_err(|error| Error::internal("a writer ended early").with_source(error))?
            }
        }));
        let done: Vec<Result<Done>> = tasks.buffered(at_once).collect().await;
        if done.iter().all(Result::is_ok) {
            return done.into_iter().collect();
        }
        for one in done.iter().flatten() {
            crate::write::discard(table, &one.written.files).await;
        }
        stream::iter(done).try_collect().await
    }

    /// The files that gain from it.
    fn bins(&self, table: &Table) -> Result<Vec<Bin>> {
        let (schema, partition_by) = (table.schema(), table.partition_columns()?);
        for column in &self.zorder_by {
            let known = schema.fields().iter().map(|field| field.name().as_str());
            let Ok(field) = schema.field_with_name(column) else {
                let error = Error::new(ErrorKind::Spec, format!("{} has no column `{column}`", table.name()));
                return Err(match did_you_mean(column, known) {
                    Some(hint) => error.hint(hint),
                    None => error,
                });
            };
            if partition_by.contains(column) {
                let message = format!("`{column}` is a partition column of {}", table.name());
                return Err(Error::spec(message).hint("its values lie apart already; name another one"));
            }
            if field.data_type().is_nested() {
                let message = format!("`{column}` of {} holds several values, which have no order", table.name());
                return Err(Error::spec(message));
            }
        }
        for (column, _) in &self.partitions {
            if !partition_by.contains(column) {
                let message = format!("{} is not partitioned by `{column}`", table.name());
                return Err(Error::spec(message).hint("only partitions can be chosen"));
            }
        }
        let log = table.delta().snapshot()?.log_data();
        let wanted = |partition: &std::collections::HashMap<String, Option<String>>| {
            self.partitions.iter().all(|(column, value)| partition.get(column) == Some(value))
        };
        let files: Vec<LogicalFileView> = log.iter().filter(|file| wanted(&file.partition_values_map())).collect();
        let facts: Vec<Facts> = files.iter().map(Facts::of).collect();
        let chosen = bins::choose(&facts, self);
        let bin = |(kind, places): (Kind, Vec<usize>)| Bin {
            files: places.into_iter().map(|place| files[place].clone()).collect(),
            kind,
        };
        Ok(chosen.into_iter().map(bin).collect())
    }

    /// What the files of a clustered bin are known by, so that the next time leaves them alone.
    fn tags(&self) -> BTreeMap<String, String> {
        let columns = serde_json::Value::from(self.zorder_by.clone()).to_string();
        let cube = uuid::Uuid::new_v4().to_string();
        BTreeMap::from([(bins::CUBE.to_owned(), cube), (bins::CLUSTERED_BY.to_owned(), columns)])
    }
}
