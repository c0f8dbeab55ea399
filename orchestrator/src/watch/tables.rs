//! Delta tables that others write: which of them have a new version since the last run of everything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lake::log::{self, Newest};
use lake::report::RunSummary;
use lake::spec::{TableUpdate, UpdateCondition, WatchedTable};
use lake::{Lake, Result, Root};

use super::agenda::delta;

/// The tables of `trigger.table_update`.
#[derive(Debug)]
pub(super) struct Tables {
    update: TableUpdate,
    /// The folder of the spec; relative paths start there.
    folder: PathBuf,
    every: TimeDelta,
    /// The newest version of each that was seen.
    seen: Vec<Option<Newest>>,
    /// The newest version that a run of this watch has made of each, until it is seen.
    made: Vec<Option<u64>>,
    /// Those with a version that no run has begun after.
    updated: BTreeSet<usize>,
    /// Those that could not be looked at.
    troubled: BTreeSet<usize>,
    looked_at: Option<DateTime<Utc>>,
    changed_at: Option<DateTime<Utc>>,
    last_start: Option<DateTime<Utc>>,
}

impl Tables {
    /// Tables that are looked at so often.
    pub(super) fn new(update: TableUpdate, folder: PathBuf, every: Duration) -> Self {
        let (seen, made) = (vec![None; update.tables.len()], vec![None; update.tables.len()]);
        let (updated, troubled) = (BTreeSet::new(), BTreeSet::new());
        let (looked_at, changed_at, last_start) = (None, None, None);
        Self { update, folder, every: delta(every), seen, made, updated, troubled, looked_at, changed_at, last_start }
    }

    /// When they are looked at next, or a run is due.
    pub(super) fn next(&self) -> DateTime<Utc> {
        let look = self.looked_at.map_or(DateTime::UNIX_EPOCH, |at| at + self.every);
        self.due_at().map_or(look, |due| due.min(look))
    }

    /// Looks at their versions, when it is time to; what could not be looked at is told once.
    pub(super) async fn look(&mut self, lake: &Lake) -> Vec<String> {
        let now = lake.clock().now();
        if self.looked_at.is_some_and(|at| now < at + self.every) {
            return Vec::new();
        }
        let is_first = self.looked_at.is_none();
        self.looked_at = Some(now);
        let mut told = Vec::new();
        for index in 0..self.seen.len() {
            let table = &self.update.tables[index];
            match self.newest(lake, table, self.seen[index]).await {
                Ok(newest) => {
                    self.troubled.remove(&index);
                    if newest == self.seen[index] {
                        continue;
                    }
                    self.seen[index] = newest;
                    // A table that is gone is none that was updated.
                    let Some(newest) = newest else { continue };
                    let is_own = self.made[index].take_if(|made| *made <= newest.version) == Some(newest.version);
                    // What is there at the begin is taken by the run with which the watch begins.
                    if !is_first && !is_own {
                        self.updated.insert(index);
                        self.changed_at = Some(now);
                    }
                }
                Err(error) => {
                    if self.troubled.insert(index) {
                        told.push(format!("{table} cannot be looked at: {error}; it is tried again"));
                    }
                }
            }
        }
        told
    }

    /// The tables whose new versions start a run now.
    pub(super) fn take(&self, now: DateTime<Utc>) -> Option<Vec<String>> {
        self.due_at().filter(|due| *due <= now)?;
        Some(self.updated.iter().map(|index| self.update.tables[*index].to_string()).collect())
    }

    /// A run of everything begins now: it takes what was seen.
    pub(super) fn started(&mut self, now: DateTime<Utc>) {
        self.updated.clear();
        self.last_start = Some(now);
    }

    /// The clock went back to `now`: what has happened did so by then.
    pub(super) fn clock_went_back(&mut self, now: DateTime<Utc>) {
        for at in [&mut self.looked_at, &mut self.changed_at, &mut self.last_start] {
            *at = at.map(|at| at.min(now));
        }
    }

    /// A run is over: the versions that it has made itself are no news.
    pub(super) fn ended(&mut self, summary: &RunSummary) {
        for report in summary.tasks.iter().filter_map(|task| task.report.as_ref()) {
            let is_it = |table: &WatchedTable| *table == WatchedTable::OfLake(report.table.clone());
            if let Some(index) = self.update.tables.iter().position(is_it) {
                let seen = self.seen[index].map(|seen| seen.version);
                self.made[index] = report.version.filter(|made| seen.is_none_or(|seen| seen < *made));
            }
        }
    }

    /// The moment at which a run is due, as far as is known by now.
    fn due_at(&self) -> Option<DateTime<Utc>> {
        let is_enough = match self.update.condition {
            UpdateCondition::AnyUpdated => !self.updated.is_empty(),
            UpdateCondition::AllUpdated => self.updated.len() == self.seen.len(),
        };
        let quiet = self.changed_at.filter(|_| is_enough)? + delta(self.update.wait_after_last_change.as_std());
        let apart = self.last_start.map(|start| start + delta(self.update.min_time_between_triggers.as_std()));
        Some(apart.map_or(quiet, |apart| apart.max(quiet)))
    }

    /// The newest version as it is now; `None` where there is no table.
    async fn newest(&self, lake: &Lake, table: &WatchedTable, known: Option<Newest>) -> Result<Option<Newest>> {
        match table {
            WatchedTable::OfLake(name) => log::newest_version(&lake.root().store(), &name.folder(), known).await,
            WatchedTable::Elsewhere(place) => {
                let root = Root::open_existing(place, &self.folder)?;
                log::newest_version(&root.store(), "", known).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use lake::spec::Duration as Span;
    use lake::{Clock, TableName};

    use super::*;

    fn commit(folder: &Path, table: &str, version: u64) {
        let log = folder.join(table).join("_delta_log");
        fs::create_dir_all(&log).expect("a log");
        fs::write(log.join(format!("{version:020}.json")), "{}").expect("an entry");
    }

    fn tables(folder: &Path, condition: UpdateCondition, wait: u64, apart: u64) -> Tables {
        let update = TableUpdate {
            tables: vec![
                WatchedTable::OfLake(TableName::silver("orders")),
                WatchedTable::Elsewhere("./other/x".into()),
            ],
            condition,
            wait_after_last_change: Span::from_secs(wait),
            min_time_between_triggers: Span::from_secs(apart),
        };
        Tables::new(update, folder.to_owned(), Duration::from_secs(5))
    }

    /// Waits for the next look, and looks.
    async fn again(tables: &mut Tables, lake: &Lake) -> Vec<String> {
        lake.clock().sleep((tables.next() - lake.clock().now()).to_std().unwrap_or_default()).await;
        tables.look(lake).await
    }

    #[tokio::test]
    async fn a_new_version_starts_a_run_when_the_tables_are_quiet() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual("2024-05-01T00:00:00Z".parse().expect("a time"));
        let lake = Lake::open("./lakehouse", folder.path(), clock.clone(), Default::default()).expect("a lake");
        commit(folder.path(), "lakehouse/silver/orders", 3);
        let mut tables = tables(folder.path(), UpdateCondition::AnyUpdated, 7, 60);
        let told = tables.look(&lake).await;
        assert!(told.len() == 1 && told[0].contains("./other/x cannot be looked at"), "{told:?}");
        assert_eq!(tables.take(clock.now()), None, "the run with which the watch begins takes what is there");
        tables.started(clock.now());
        let begun = clock.now();
        commit(folder.path(), "lakehouse/silver/orders", 4);
        assert_eq!(again(&mut tables, &lake).await, Vec::<String>::new(), "what is wrong is told once");
        commit(folder.path(), "other/x", 0);
        again(&mut tables, &lake).await;
        assert_eq!(tables.take(clock.now()), None);
        while tables.take(clock.now()).is_none() {
            again(&mut tables, &lake).await;
        }
        assert_eq!((clock.now() - begun).num_seconds(), 60, "runs keep apart");
        assert_eq!(tables.take(clock.now()), Some(vec!["silver.orders".to_owned(), "./other/x".to_owned()]));
        tables.started(clock.now());
        again(&mut tables, &lake).await;
        assert_eq!(tables.take(clock.now()), None, "a version starts one run");
        fs::remove_dir_all(folder.path().join("other/x")).expect("removed");
        commit(folder.path(), "other/x", 0);
        while tables.take(clock.now()).is_none() {
            again(&mut tables, &lake).await;
        }
        assert_eq!(tables.take(clock.now()), Some(vec!["./other/x".to_owned()]), "a table that is made anew");
        tables.started(clock.now());
        clock.set(clock.now() - TimeDelta::days(1));
        tables.clock_went_back(clock.now());
        let begun = clock.now();
        commit(folder.path(), "other/x", 1);
        while tables.take(clock.now()).is_none() {
            again(&mut tables, &lake).await;
        }
        assert_eq!((clock.now() - begun).num_seconds(), 60, "and not a day");
    }

    #[tokio::test]
    async fn all_of_them_are_waited_for_and_own_versions_are_no_news() {
        use lake::report::{TaskOutcome, TaskReport};
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual("2024-05-01T00:00:00Z".parse().expect("a time"));
        let lake = Lake::open("./lakehouse", folder.path(), clock.clone(), Default::default()).expect("a lake");
        let mut tables = tables(folder.path(), UpdateCondition::AllUpdated, 0, 0);
        commit(folder.path(), "other/x", 0);
        tables.look(&lake).await;
        commit(folder.path(), "lakehouse/silver/orders", 0);
        again(&mut tables, &lake).await;
        assert_eq!(tables.take(clock.now()), None, "one of two");
        commit(folder.path(), "other/x", 1);
        again(&mut tables, &lake).await;
        assert!(tables.take(clock.now()).is_some());
        tables.started(clock.now());
        commit(folder.path(), "lakehouse/silver/orders", 1);
        commit(folder.path(), "other/x", 2);
        let report = TaskReport::up_to_date(TableName::silver("orders"), Some(1));
        let tasks = vec![TaskOutcome::done(report, 1, Duration::ZERO)];
        let (run, spec) = ("r".to_owned(), "p.yaml".to_owned());
        tables.ended(&RunSummary { run, spec, started_at: clock.now(), elapsed: Duration::ZERO, tasks });
        again(&mut tables, &lake).await;
        assert_eq!(tables.take(clock.now()), None, "its own version is no news");
    }
}
