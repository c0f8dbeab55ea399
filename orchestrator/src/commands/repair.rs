//! `orchestrator repair`: what a run has not done.

use std::collections::BTreeSet;

use lake::report::{EXIT_DONE, counted};
use lake::{Clock, Error, RunId, TableName};
use serde_json::json;

use super::run::carry_out;
use crate::run::{Place, Repaired, Request};
use crate::spec::Project;
use crate::tools::{Recorded, history};
use cli::{Failure, Output, Printer};

/// Run again what failed in a run, what was skipped for that, and what depends on it
///
/// The tasks are run by the present spec, and recorded as another attempt of that run; nothing else is run. A run that was
/// killed is repaired as well: tasks that did not end are run, and those after them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator repair latest
  orchestrator repair 20240501T101500-1f2e3d4c --dry-run")]
pub(super) struct Args {
    /// The run's id, the beginning of it, or `latest`
    run: String,
    /// Only say which tasks would be run
    #[arg(long)]
    dry_run: bool,
    /// Read files from here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    let recorded = history::run(&place.lake, &args.run).await?;
    let recorded = recorded
        .ok_or_else(|| Error::spec(format!("there is no run `{}`", args.run)).hint("`orchestrator runs` lists them"))?;
    let Left { chosen, gone, anew } = left(project, &recorded)?;
    for name in &gone {
        printer.note(&format!("{name} is left out: the spec does not have it any more, or it is disabled\n"));
    }
    if args.dry_run || chosen.is_empty() {
        let names: Vec<String> =
            project.graph.order().filter(|name| chosen.contains(*name)).map(ToString::to_string).collect();
        printer.data(&match (args.output, names.is_empty()) {
            (Output::Json, _) => format!("{}\n", json!({"run_id": recorded.run, "tasks": names})),
            (Output::Table, true) => format!("run {} needs no repair: all its tasks ended well\n", recorded.run),
            (Output::Table, false) => {
                let tasks = counted(names.len(), "task");
                format!("a repair of run {} would run {tasks}: {}\n", recorded.run, names.join(", "))
            }
        })?;
        return Ok(EXIT_DONE);
    }
    let repaired = Repaired { run: RunId::of(&recorded.run), events: recorded.events, attempt: recorded.attempts + 1 };
    let request = Request { anew, repairs: Some(repaired), ..Request::of(&chosen) };
    carry_out(project, &place, request, args.output, printer).await
}

/// The programs whose runs are made of tasks of the spec.
const REPAIRED: [&str; 4] = ["orchestrator", "bronze", "silver", "gold"];

/// What a run has left to do.
struct Left {
    chosen: BTreeSet<TableName>,
    gone: BTreeSet<TableName>,
    anew: BTreeSet<TableName>,
}

fn left(project: &Project, recorded: &Recorded) -> Result<Left, Error> {
    if recorded.is_at_work {
        let error = Error::spec(format!("run {} is at work", recorded.run));
        return Err(error.hint("wait for its end; `orchestrator runs` tells of it"));
    }
    if !REPAIRED.contains(&recorded.program.as_str()) {
        let error = Error::spec(format!("run {} is a {}, which is not repaired", recorded.run, recorded.program));
        return Err(error.hint("the same command again goes on where it ended"));
    }
    let is_run = |name: &TableName| project.task(name).is_some_and(|task| !task.disabled);
    let (unfinished, gone): (BTreeSet<_>, BTreeSet<_>) = recorded.unfinished().into_iter().partition(is_run);
    let after = project.graph.with_dependents(&unfinished);
    let of_run = recorded.tasks();
    let chosen: BTreeSet<TableName> = after.into_iter().filter(|name| of_run.contains(name) && is_run(name)).collect();
    if chosen.is_empty() && !gone.is_empty() {
        let error = Error::spec(format!("nothing of run {} can be repaired", recorded.run));
        return Err(error.hint("what it has left, the spec does not have any more, or it is disabled"));
    }
    let anew = unfinished.into_iter().filter(|name| recorded.is_anew(name)).collect();
    Ok(Left { chosen, gone, anew })
}
