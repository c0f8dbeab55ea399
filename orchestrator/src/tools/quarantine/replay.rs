//! Records of quarantine through the present spec: claimed in one commit per source, then taken table by table.

use std::collections::BTreeMap;

use lake::quarantine::{Claim, Quarantine, Status};
use lake::report::{RunSummary, TaskOutcome, TaskReport, record};
use lake::run::RunContext;
use lake::{Error, Result, TableName};
use tracing::Instrument;

use super::Choice;
use crate::run::Place;
use crate::spec::{Job, Project};

/// What a replay came to.
pub(crate) struct Replayed {
    /// Each table that took records, as a task of a run.
    pub(crate) summary: RunSummary,
    /// Open records that were meant and left alone, with the reason.
    pub(crate) left: Vec<String>,
    /// Whether its events are in the event log.
    pub(crate) recorded: Result<()>,
}

/// Sends the records that are meant through the spec, and finishes what earlier replays of their sources have begun.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when a quarantine cannot be read or written. What a table fails with is in its outcome.
pub(crate) async fn replay(project: &Project, place: &Place, choice: &Choice) -> Result<Replayed> {
    let context = RunContext::new(&place.lake);
    let started_at = place.lake.clock().now();
    let spec = project.file.display().to_string();
    record::run_started(&context.events, "quarantine replay", &project.header.name, &spec, &choice.sources);
    let mut replay = Replay { project, place, context: &context, tasks: Vec::new(), left: Vec::new() };
    let done = replay.sources(choice).instrument(context.span()).await;
    let (tasks, left) = (replay.tasks, replay.left);
    let elapsed = (place.lake.clock().now() - started_at).to_std().unwrap_or_default();
    let summary = RunSummary { run: context.run.to_string(), spec, started_at, elapsed, tasks };
    let recorded = match summary.tasks.is_empty() {
        // Nothing was done, and nothing is told of it later.
        true => Ok(()),
        false => {
            record::run_ended(&context.events, &summary);
            context.events.flush(&place.lake).await
        }
    };
    done.map(|()| Replayed { summary, left, recorded })
}

struct Replay<'a> {
    project: &'a Project,
    place: &'a Place,
    context: &'a RunContext,
    tasks: Vec<TaskOutcome>,
    left: Vec<String>,
}

impl Replay<'_> {
    async fn sources(&mut self, choice: &Choice) -> Result<()> {
        for source in &choice.sources {
            let Some(mut quarantine) = Quarantine::open(&self.place.lake, source).await? else { continue };
            for table in quarantine.tables(Status::Replaying)? {
                match self.project.task(&table) {
                    Some(_) => self.table(&table, &[]).await,
                    None => self.orphan(&mut quarantine, &table).await?,
                }
            }
            let reach = self.reach(&quarantine, choice).await?;
            let claims = quarantine.claim(&choice.filter, &reach, &self.context.run).await?;
            let claims: Vec<Claim> = claims.into_iter().map(|(claim, _)| claim).collect();
            for claim in &claims {
                self.table(&claim.table, &claims).await;
            }
        }
        Ok(())
    }

    /// The tables that can take their records back, and up to which batch.
    async fn reach(&mut self, quarantine: &Quarantine, choice: &Choice) -> Result<BTreeMap<TableName, i64>> {
        let mut reach = BTreeMap::new();
        for table in quarantine.tables(Status::Open)? {
            if choice.filter.refused_by.as_ref().is_some_and(|wanted| *wanted != table) {
                continue;
            }
            match self.project.task(&table).map(|task| &task.job) {
                Some(Job::Bronze(_)) => {
                    reach.insert(table, i64::MAX);
                }
                Some(Job::Silver(plan)) => match silver::reach(&self.place.lake, plan).await? {
                    Some(upto) => {
                        reach.insert(table, upto);
                    }
                    None => self.left.push(format!(
                        "{table} is not made yet: `orchestrator run` makes it from every record, also from those it refused"
                    )),
                },
                Some(Job::Gold(_)) | None => {
                    self.left.push(format!("{table} is not in the spec: its records stay; `quarantine discard` closes them"));
                }
            }
        }
        Ok(reach)
    }

    /// Sends the claimed records of a table.
    async fn table(&mut self, table: &TableName, claims: &[Claim]) {
        let clock = self.place.lake.clock();
        let started = clock.now();
        let context = self.context.for_task();
        let answer: Result<TaskReport> = match self.project.task(table).map(|task| &task.job) {
            Some(Job::Silver(plan)) => silver::replay(&self.place.lake, plan, &context, claims).await,
            Some(Job::Bronze(plan)) => {
                bronze::replay(&self.place.lake, &self.place.landing, plan, &context, claims).await
            }
            _ => Err(Error::internal(format!("{table} takes no records"))),
        };
        let elapsed = (clock.now() - started).to_std().unwrap_or_default();
        let outcome = match answer {
            Ok(report) => TaskOutcome::done(report, 1, elapsed),
            Err(error) => TaskOutcome::failed(table.clone(), error, 1, elapsed),
        };
        record::task_ended(&self.context.events, &outcome);
        self.tasks.push(outcome);
    }

    /// Opens the claimed records of a table again that the spec does not have any more.
    async fn orphan(&mut self, quarantine: &mut Quarantine, table: &TableName) -> Result<()> {
        while let Some((claim, _)) = quarantine.claimed(table).await? {
            let taken = match self.place.lake.table(table).await? {
                Some(mut held) => claim.fence(&mut held, &self.context.run).await?,
                None => false,
            };
            match taken {
                true => quarantine.finish(&claim, &self.context.run).await?,
                false => quarantine.release(&claim, &self.context.run).await?,
            };
        }
        Ok(())
    }
}
