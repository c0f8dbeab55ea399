//! One run of a watch, from what started it to what follows of it.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use lake::report::{RunSummary, TaskOutcome, TaskStatus};
use lake::{Retry, TableName};
use tokio::sync::mpsc;

use super::because::Because;
use super::{SPEC_LOOKED_AT, Watch};
use crate::run::{Finished, Request, Silent, run};

impl Watch<'_> {
    /// One run. True when the watch was stopped meanwhile.
    pub(super) async fn run(&mut self, because: Because) -> bool {
        let started = self.now();
        // Runs that follow one another are told of when they have done something.
        let is_told = because != Because::Continuous;
        if is_told {
            let line = self.story.run_starts(started, &because);
            self.listener.say(&line);
            self.is_idle = false;
        }
        self.agenda.started(started);
        let (sources, chosen) = self.work_of(&because);
        self.ran_at.extend(sources.into_iter().map(|source| (source, started)));
        if let Some(tables) = self.tables.as_mut().filter(|_| because.is_whole()) {
            tables.started(started);
        }
        self.health.runs(true);
        let (Finished { summary, recorded }, stopped) = self.carry_out(&because, &chosen).await;
        let now = self.now();
        self.health.ran(&summary);
        if is_told || summary.status() != TaskStatus::UpToDate {
            let line = self.story.run_ends(now, &summary, stopped);
            tracing::error_span!("run", run_id = summary.run).in_scope(|| self.listener.say(&line));
            self.listener.ran(&summary);
        }
        if let Err(error) = recorded {
            let line = self.story.not_recorded(now, &error);
            self.listener.say(&line);
        }
        if let Some(tables) = &mut self.tables {
            tables.ended(&summary);
        }
        if because.is_whole() {
            self.pace.ended(started, now, &summary);
        }
        if !stopped && !self.pace.is_continuous() {
            self.follow_up(&because, &summary, now);
        }
        stopped
    }

    /// Runs, and listens meanwhile; also whether the watch was stopped.
    async fn carry_out(&mut self, because: &Because, chosen: &BTreeSet<TableName>) -> (Finished, bool) {
        let (tell, heard) = mpsc::unbounded_channel();
        // A watch tells of a run by its end; of failed attempts in the log.
        let mut quiet = Silent;
        let mut stopped = false;
        let request = Request { always_waits: true, trigger: because.to_json(), ..Request::of(chosen) };
        let clock = self.place.lake.clock().clone();
        let mut running = std::pin::pin!(run(self.project, &self.place, request, heard, &mut quiet));
        loop {
            tokio::select! {
                biased;
                finished = &mut running => return (finished, stopped),
                Some(()) = self.stop.recv() => {
                    stopped = true;
                    self.health.stops();
                    // The run listens until its end.
                    let _ = tell.send(());
                }
                () = clock.beat(self.health.turns_within(SPEC_LOOKED_AT)) => self.health.turned(),
            }
        }
    }

    /// The sources that a run looks at, and its tasks.
    fn work_of(&self, because: &Because) -> (BTreeSet<TableName>, BTreeSet<TableName>) {
        let sources = match because {
            Because::Files(sources) | Because::Again(sources, _) => sources.clone(),
            Because::Cleaning(source) => [source.clone()].into(),
            _ => {
                let all = self.sources.iter().map(|source| source.table.clone()).collect();
                return (all, self.chosen.clone());
            }
        };
        let with_dependents = self.project.graph.with_dependents(&sources);
        let chosen = with_dependents.intersection(self.chosen).cloned().collect();
        (sources, chosen)
    }

    /// Tries again later what may pass; the rest waits for what starts the next run.
    fn follow_up(&mut self, because: &Because, summary: &RunSummary, now: DateTime<Utc>) {
        let may_pass = |task: &&TaskOutcome| {
            task.status == TaskStatus::Failed && task.error.as_ref().is_some_and(|error| error.retry() != Retry::Never)
        };
        let failed: BTreeSet<TableName> = summary.tasks.iter().filter(may_pass).map(|task| task.task.clone()).collect();
        if failed.is_empty() {
            self.agenda.succeeded();
            self.owed = None;
            return;
        }
        self.owed = because.tick().or(self.owed);
        let wait = self.agenda.failed(&failed, now);
        let line = self.story.again_in(now, wait);
        self.listener.say(&line);
    }
}
