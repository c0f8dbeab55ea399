//! The only way to change a table.
//!
//! Every commit carries application transactions (`txn`) that say how far the work of one application has come, and
//! is strict: if the table moved since it was read, the library's own conflict checker is never asked (it lets
//! overlapping rewrites through), but the log is read again and one of three things happens:
//!
//! 1. the table already holds these transactions — another run did the same work, or our own answer was lost on its
//!    way: nothing is left to do;
//! 2. the commit is a blind append and the schema stands — the same files are committed on top of the newer version;
//! 3. anything else — the caller gets [`ErrorKind::Conflict`] and does the work again from the newer version.
//!
//! After *any* error the transactions are read again before anything is tried, because a commit can succeed and
//! still report an error (a failed checkpoint, a lost answer). Upkeep, which changes no row, carries none: what it has
//! committed is known by its run and its files.

mod create;
mod described;
mod files;
mod hand;
mod metadata;
mod redefine;
mod rules;
mod settings;
mod stamp;
mod swap;
mod vectors;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use deltalake::DeltaTableError;
use deltalake::kernel::transaction::CommitBuilder;
use deltalake::kernel::{Action, CommitInfo};
use deltalake::protocol::DeltaOperation;

use crate::clock::Clock;
use crate::durable;
use crate::error::{Context, Error, ErrorKind, Result, Retry};
use crate::fault;
use crate::names::RunId;
use crate::table::Table;

pub(crate) use create::{create, create_of};
pub(crate) use described::{descriptions, plain};
pub(crate) use files::is_void;
pub(crate) use hand::{BY_HAND, ByHand};
pub use metadata::evolve;
pub use redefine::redefine;
pub use rules::Rules;
pub use settings::{Feature, check_property};
use stamp::{dated, properties};
pub use swap::Swap;
pub(crate) use swap::joint_protocol;

/// How often one commit is tried before the error is given to the caller.
const ATTEMPTS_MAX: u32 = 30;
/// The longest pause between two tries.
const BACKOFF_MS_MAX: u64 = 500;

/// How far the work of one application has come in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// The application: a bronze source, `silver table:bronze source`, …
    pub app: String,
    /// A number that only rises.
    pub version: i64,
}

impl Txn {
    /// A transaction of `app`.
    pub fn new(app: impl Into<String>, version: i64) -> Self {
        Self { app: app.into(), version }
    }
}

/// One change of a table, with all that is needed to try it again.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The fault point of this commit, one of [`fault::POINTS`].
    pub point: &'static str,
    /// The transactions that make it happen once. None for upkeep, which is done again without harm.
    pub txns: Vec<Txn>,
    /// What `history` shows.
    pub operation: DeltaOperation,
    /// Files and metadata.
    pub actions: Vec<Action>,
    /// True when the commit only adds rows whose presence depends on nothing that the table holds: it may be put on
    /// top of a newer version of the same schema. False for all that follows from what was read.
    pub blind_append: bool,
    /// Figures that `history` shows.
    pub metrics: BTreeMap<&'static str, u64>,
    /// The run that commits, shown by `history`.
    pub run: RunId,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the table, by our hand.
    Committed {
        /// The version it made.
        version: u64,
    },
    /// The table held its transactions already.
    AlreadyApplied {
        /// The newest version of the table.
        version: u64,
    },
}

impl Outcome {
    /// The version of the table that holds the work.
    pub fn version(self) -> u64 {
        match self {
            Self::Committed { version } | Self::AlreadyApplied { version } => version,
        }
    }
}

impl Table {
    /// Commits a change and moves the table to the version that holds it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the work must be done again from the newer version; [`ErrorKind::Store`] when the
    /// store keeps failing. After a conflict nothing of the change is in the table; after a failing store the
    /// transactions tell, and the same commit may be tried again. [`ErrorKind::Table`] when the change is in the table and
    /// the disk does not confirm it, where that is asked for.
    pub async fn commit(&mut self, commit: Commit) -> Result<Outcome> {
        for attempt in 1.. {
            if holds(self, &commit.txns).await? {
                return Ok(Outcome::AlreadyApplied { version: self.version() });
            }
            let error = match try_once(self, &commit).await {
                Ok(Done { version, on_disk }) => {
                    self.reload().await?;
                    on_disk.map_err(|error| unconfirmed(self, version, error))?;
                    return Ok(Outcome::Committed { version: self.version() });
                }
                Err(error) => error,
            };
            let before = (self.version(), Standing::of(self)?);
            self.reload().await?;
            if commit.txns.is_empty() {
                if is_in_log(self, before.0, &commit).await? {
                    return Ok(Outcome::Committed { version: self.version() });
                }
            } else if holds(self, &commit.txns).await? {
                return Ok(settled(self, before.0, &commit).await);
            }
            let moved = before.0 != self.version();
            // What describes a table was made from what it said before.
            let is_rows = !commit.actions.iter().any(|action| matches!(action, Action::Metadata(_)));
            let fits = commit.blind_append && is_rows && before.1 == Standing::of(self)?;
            let (error, again) = match error.retry() {
                Retry::Redo => (error, fits),
                Retry::AfterBackoff if moved && !fits => {
                    let message = "another writer came first while the store failed";
                    (Error::new(ErrorKind::Conflict, message).with_source(error), false)
                }
                Retry::AfterBackoff => (error, true),
                Retry::Never => (error, false),
            };
            if !again || attempt >= ATTEMPTS_MAX {
                return Err(error.context(format!("committing to {}", self.name())));
            }
            tracing::debug!(table = %self.name(), attempt, %error, "the commit is tried again");
            self.clock().sleep(backoff(attempt)).await;
        }
        Err(Error::internal("the commit loop ended without an answer"))
    }
}

/// What must not have changed for added files to fit on top of a newer version.
#[derive(Debug, PartialEq)]
pub(crate) struct Standing {
    schema: arrow::datatypes::SchemaRef,
    properties: std::collections::HashMap<String, String>,
    partition_columns: Vec<String>,
}

impl Standing {
    pub(crate) fn of(table: &Table) -> Result<Self> {
        Ok(Self {
            schema: table.schema(),
            properties: table.properties()?.clone(),
            partition_columns: table.partition_columns()?,
        })
    }
}

/// Does work again from the newest state for as long as other writers get in between.
///
/// # Errors
/// What `work` returns, except conflicts that pass within the limit of tries.
pub async fn redoing<T>(clock: &Clock, mut work: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let mut redo = Redo::default();
    loop {
        match work().await {
            Err(error) if redo.again(clock, &error).await => {}
            answer => return answer,
        }
    }
}

/// Counts how often work is done again; for work that does not fit into the closure of [`redoing`].
#[derive(Debug, Default)]
pub struct Redo {
    attempts: u32,
}

impl Redo {
    /// Waits and says yes when work that failed so is to be done again.
    pub async fn again(&mut self, clock: &Clock, error: &Error) -> bool {
        self.attempts += 1;
        if error.retry() != Retry::Redo || self.attempts >= ATTEMPTS_MAX {
            return false;
        }
        tracing::debug!(attempt = self.attempts, %error, "another writer came first, the work is done again");
        clock.sleep(backoff(self.attempts)).await;
        true
    }
}

/// True when the open version of the table holds all of the transactions, and there are some.
async fn holds(table: &Table, txns: &[Txn]) -> Result<bool> {
    for txn in txns {
        if table.txn_version(&txn.app).await?.is_none_or(|held| held < txn.version) {
            return Ok(false);
        }
    }
    Ok(!txns.is_empty())
}

/// The transactions are there after an error: by our hand when a version above `before` names one of our files, else by
/// another's. Who cannot be told is us, for the files of another's are nobody's to remove, and ours are found by
/// `vacuum`.
async fn settled(table: &Table, before: u64, commit: &Commit) -> Outcome {
    let version = table.version();
    let ours: HashSet<FileId> = commit.actions.iter().filter_map(added).collect();
    for number in before + 1..=version {
        match actions_of(table, number).await {
            Ok(actions) if !actions.iter().filter_map(added).any(|file| ours.contains(&file)) => {}
            _ => return Outcome::Committed { version },
        }
    }
    Outcome::AlreadyApplied { version }
}

/// True when a version above `before` is this commit: it is of the same run and names one of its files.
async fn is_in_log(table: &Table, before: u64, commit: &Commit) -> Result<bool> {
    let files = |actions: &[Action]| -> HashSet<String> {
        let paths = actions.iter().filter_map(|action| match action {
            Action::Add(add) => Some(format!("+{}", add.path)),
            Action::Remove(remove) => Some(format!("-{}", remove.path)),
            _ => None,
        });
        paths.collect()
    };
    let ours = files(&commit.actions);
    for number in before + 1..=table.version() {
        let actions = actions_of(table, number).await?;
        let is_of_run = actions.iter().any(|action| match action {
            Action::CommitInfo(info) => info.info.get("runId").is_some_and(|run| run == commit.run.as_str()),
            _ => false,
        });
        if is_of_run && !ours.is_disjoint(&files(&actions)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What version `number` of a table did.
///
/// # Errors
/// [`ErrorKind::Store`] when the log does not have it or cannot be read.
pub(crate) async fn actions_of(table: &Table, number: u64) -> Result<Vec<Action>> {
    let place = || format!("reading version {number} of {}", table.name());
    let actions = logged(table, number).await?;
    actions.ok_or_else(|| Error::new(ErrorKind::Store, "the log does not have it").context(place()))
}

/// The same; `None` when the log does not have the version any more.
///
/// # Errors
/// [`ErrorKind::Store`] when the log cannot be read.
pub(crate) async fn logged(table: &Table, number: u64) -> Result<Option<Vec<Action>>> {
    let place = || format!("reading version {number} of {}", table.name());
    let Some(bytes) = table.delta().log_store().read_commit_entry(number).await.context(place)? else {
        return Ok(None);
    };
    let actions = serde_json::Deserializer::from_slice(&bytes).into_iter();
    let actions = actions.collect::<serde_json::Result<_>>();
    let broken = |error| Error::new(ErrorKind::Store, "the log cannot be read").with_source(error).context(place());
    actions.map(Some).map_err(broken)
}

/// A file by its path and by what is deleted of it: a path comes again when rows of its file are marked.
type FileId = (String, Option<String>);

fn added(action: &Action) -> Option<FileId> {
    let Action::Add(add) = action else { return None };
    Some((add.path.clone(), add.deletion_vector.as_ref().map(|vector| vector.path_or_inline_dv.clone())))
}

/// The bytes of a file that is new; one of which rows are marked as deleted was there before.
fn new_bytes(action: &Action) -> u64 {
    match action {
        Action::Add(add) if add.deletion_vector.is_none() => u64::try_from(add.size).unwrap_or(0),
        _ => 0,
    }
}

/// A commit that is in the log.
struct Done {
    version: u64,
    /// Whether the disk has it, where that is asked for.
    on_disk: Result<()>,
}

/// The commit stands: whoever looks for it finds it, so it is not tried again. But a loss of power may take it away, and
/// whoever asked for `fsync` must know.
fn unconfirmed(table: &Table, version: u64, error: Error) -> Error {
    let message =
        format!("the disk does not confirm version {version} of {}, which may be lost with the power", table.name());
    Error::new(ErrorKind::Table, message).with_source(error).hint(
        "the version is there and what follows may build on it; look after the disk, then `orchestrator table verify`",
    )
}

async fn try_once(table: &Table, commit: &Commit) -> Result<Done> {
    fault::before_commit(commit.point)?;
    let delta = table.delta();
    let snapshot = delta.snapshot()?;
    if let Some(folder) = table.synced() {
        durable::files_of(folder, &commit.actions).await?;
    }
    // The clock of the lake, which time travel goes by.
    let timestamp = Some(table.clock().now().timestamp_millis());
    let info = Action::CommitInfo(CommitInfo { timestamp, ..commit.operation.get_commit_info() });
    let committed = CommitBuilder::from(properties(commit, timestamp))
        .with_actions(
            std::iter::once(info).chain(commit.actions.iter().map(|action| dated(action, timestamp))).collect(),
        )
        .build(Some(snapshot), delta.log_store(), commit.operation.clone())
        .await
        .map_err(|error: DeltaTableError| Error::from(error))?;
    let version = committed.version();
    let on_disk = match table.synced() {
        Some(folder) => durable::entry(folder, version).await,
        None => Ok(()),
    };
    table.written().add_bytes(commit.actions.iter().map(new_bytes).sum());
    fault::after_commit(commit.point)?;
    Ok(Done { version, on_disk })
}

/// A pause that grows with the tries, with jitter so that two runs do not stay in step.
fn backoff(attempt: u32) -> Duration {
    let ceiling = (5_u64 << attempt.min(10)).min(BACKOFF_MS_MAX);
    let jitter = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
    Duration::from_millis(ceiling / 2 + ceiling * jitter / 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        for attempt in 1..=ATTEMPTS_MAX {
            let pause = backoff(attempt);
            assert!(pause >= Duration::from_millis(5) && pause <= Duration::from_millis(BACKOFF_MS_MAX), "{pause:?}");
        }
        assert!(backoff(9) > backoff(1));
    }

    #[test]
    fn work_is_done_again_only_after_a_conflict() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let clock = Clock::manual(chrono::DateTime::UNIX_EPOCH);
        let mut tries = 0;
        let answer = runtime.block_on(redoing(&clock, async || {
            tries += 1;
            if tries < 3 { Err(Error::new(ErrorKind::Conflict, "moved")) } else { Ok(tries) }
        }));
        assert_eq!(answer.expect("an answer"), 3);

        let failed: Result<()> = runtime.block_on(redoing(&clock, async || Err(Error::data("bad"))));
        assert_eq!(failed.expect_err("an error").kind(), ErrorKind::Data);
    }
}
