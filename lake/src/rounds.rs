//! Work that is done once a period, by whichever run comes first in it. The event log remembers the last period of each kind
//! as a transaction, so that it is neither forgotten nor grows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use deltalake::protocol::{DeltaOperation, SaveMode};

use crate::commit::{Commit, Outcome, Txn, redoing};
use crate::error::Result;
use crate::lakehouse::Lake;
use crate::names::{RunId, TableName};
use crate::table::Table;

/// How often something is done.
#[derive(Debug, Clone, Copy)]
pub enum Each {
    /// Once from `begin` on; the next period begins later than `now`.
    Period {
        /// When the present period has begun.
        begin: DateTime<Utc>,
        /// The present moment.
        now: DateTime<Utc>,
    },
    /// Once in so many versions of the event log, to which each run adds some.
    Versions(u64),
}

/// A round that is due.
#[derive(Debug)]
pub struct Round {
    txn: Txn,
}

impl Round {
    /// The round of a kind, when it was not done in the present period. Without an event log nothing is remembered, and it
    /// is due.
    ///
    /// # Errors
    /// As [`Lake::table`] and [`Table::txn_version`].
    pub async fn due(lake: &Lake, kind: &str, each: Each) -> Result<Option<Self>> {
        let Some(log) = lake.table(&TableName::event_log()).await? else {
            return Ok(Some(Self { txn: Txn::new(app(kind, 0), each.bounds(0).0) }));
        };
        let (begin, now) = each.bounds(log.version());
        let (app, held) = last(&log, kind, now).await?;
        let is_done = held.or(each.before_the_first()).is_some_and(|held| held >= begin);
        Ok((!is_done).then(|| Self { txn: Txn::new(app, begin) }))
    }

    /// Remembers that it was done. Nothing happens without an event log.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn done(self, lake: &Lake, run: &RunId) -> Result<()> {
        let done = async || {
            let Some(mut log) = lake.table(&TableName::event_log()).await? else { return Ok(()) };
            let commit = Commit {
                point: "round_committed",
                txns: vec![self.txn.clone()],
                operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
                actions: Vec::new(),
                blind_append: true,
                metrics: BTreeMap::new(),
                run: run.clone(),
            };
            log.commit(commit).await.map(|_: Outcome| ())
        };
        redoing(lake.clock(), done).await
    }
}

impl Each {
    /// Where the present period begins and what it has come to: seconds, or versions.
    fn bounds(self, version: u64) -> (i64, i64) {
        let number = |version: u64| i64::try_from(version).unwrap_or(i64::MAX);
        match self {
            Self::Period { begin, now } => (begin.timestamp(), now.timestamp()),
            Self::Versions(every) => (number(version - version % every.max(1)), number(version)),
        }
    }

    /// What counts as done before anything was: the first versions of the log need no round.
    fn before_the_first(self) -> Option<i64> {
        match self {
            Self::Period { .. } => None,
            Self::Versions(_) => Some(0),
        }
    }
}

/// What was remembered last, and the application that remembers it: the first one that is not ahead of `now`, as a clock
/// that was wrong, or a log that was removed, may have left it. A transaction only rises.
async fn last(log: &Table, kind: &str, now: i64) -> Result<(String, Option<i64>)> {
    let mut again = 0;
    loop {
        let app = app(kind, again);
        let held = log.txn_version(&app).await?;
        if held.is_none_or(|held| held <= now) {
            return Ok((app, held));
        }
        again += 1;
    }
}

fn app(kind: &str, again: u32) -> String {
    match again {
        0 => format!("round:{kind}"),
        again => format!("round:{kind}:{again}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::Clock;
    use crate::events::{Events, Level};
    use crate::session::Engine;

    #[tokio::test]
    async fn a_period_has_one_round_whatever_the_clock_said_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let lake = Lake::open("lake", folder.path() as &Path, Clock::system(), Engine::default()).expect("a lake");
        let run = RunId::new(lake.clock());
        let at = |text: &str| text.parse::<DateTime<Utc>>().expect("a time");
        let round = async |begin: &str, now: &str| {
            let each = Each::Period { begin: at(begin), now: at(now) };
            let due = Round::due(&lake, "tables", each).await.expect("a log");
            let is_due = due.is_some();
            if let Some(due) = due {
                due.done(&lake, &run).await.expect("remembered");
            }
            is_due
        };
        let day = "2024-05-02T00:00:00Z";
        assert!(round(day, "2024-05-02T10:00:00Z").await, "nothing is remembered without an event log");
        let events = Events::new(run.clone(), lake.clock().clone());
        events.record(None, "run", Level::Info, "a run", serde_json::Value::Null);
        events.flush(&lake).await.expect("an event log");
        assert!(round(day, "2024-05-02T10:00:00Z").await && !round(day, "2024-05-02T10:01:00Z").await);
        // A window that begins later in the day has its own; without it the day is done, and so is the day before.
        assert!(round("2024-05-02T11:00:00Z", "2024-05-02T11:30:00Z").await);
        assert!(
            !round(day, "2024-05-02T12:00:00Z").await && !round("2024-05-01T22:00:00Z", "2024-05-02T12:00:00Z").await
        );
        // A clock that was wrong for a while.
        assert!(round("2031-05-02T00:00:00Z", "2031-05-02T00:00:00Z").await);
        assert!(round(day, "2024-05-02T13:00:00Z").await && !round(day, "2024-05-02T13:01:00Z").await);
        assert!(round("2024-05-03T00:00:00Z", "2024-05-03T00:00:00Z").await);
        assert!(!round("2024-05-03T00:00:00Z", "2024-05-03T00:01:00Z").await);
    }
}
