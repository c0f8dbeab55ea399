//! `orchestrator repair`: what a run has not done.

use std::collections::BTreeSet;

use lake::report::{EXIT_DONE, EXIT_FAILED, counted};
use lake::{Clock, Error, ErrorKind, RunId, TableName};
use serde_json::json;

use super::run::carry_out;
use crate::run::{Place, Repaired, Request, Turn, repair_turn, stops, while_held};
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
    let recorded = read(&place, &args.run).await?;
    if args.dry_run {
        let left = told(left(project, &recorded)?, printer);
        return would_run(project, &recorded, &left.chosen, args.output, printer);
    }
    let (mut stop, run) = (stops(), RunId::of(&recorded.run));
    let waits = |others: &str| printer.note(&format!("waiting for the repair of {others}\n"));
    let lease = match repair_turn(&project.header, &place.lake, &run, &mut stop, waits).await {
        Turn::Now(lease) => lease,
        Turn::Taken(others) => {
            let error = Error::new(ErrorKind::Store, format!("{others} is being repaired, and `queue` is false"));
            return Err(error.hint("try again later").into());
        }
        Turn::Stopped => return Ok(EXIT_FAILED),
    };
    let work = async {
        // Another repair may have come first.
        let recorded = read(&place, run.as_str()).await?;
        let Left { chosen, anew, .. } = told(left(project, &recorded)?, printer);
        if chosen.is_empty() {
            return would_run(project, &recorded, &chosen, args.output, printer);
        }
        let repaired = Repaired { run: run.clone(), events: recorded.events, attempt: recorded.attempts + 1 };
        // A snapshot that was to record a day of its own records that one.
        let date = recorded.date;
        let request = Request { anew, date, repairs: Some(repaired), ..Request::of(&chosen) };
        carry_out(project, &place, request, stop, args.output, printer).await
    };
    while_held(lease, work).await
}

/// What is known of a run.
async fn read(place: &Place, run: &str) -> Result<Recorded, Error> {
    let recorded = history::run(&place.lake, run).await?;
    recorded.ok_or_else(|| Error::spec(format!("there is no run `{run}`")).hint("`orchestrator runs` lists them"))
}

/// Names the tasks that are left out.
fn told(left: Left, printer: &Printer) -> Left {
    for name in &left.gone {
        printer.note(&format!("{name} is left out: the spec does not have it any more, or it is disabled\n"));
    }
    left
}

/// Says which tasks a repair would run.
fn would_run(
    project: &Project,
    recorded: &Recorded,
    chosen: &BTreeSet<TableName>,
    output: Output,
    printer: &Printer,
) -> Result<u8, Failure> {
    let names: Vec<String> =
        project.graph.order().filter(|name| chosen.contains(*name)).map(ToString::to_string).collect();
    printer.data(&match (output, names.is_empty()) {
        (Output::Json, _) => format!("{}\n", json!({"run_id": recorded.run, "tasks": names})),
        (Output::Table, true) if recorded.refused() > 0 => format!(
            "run {} needs no repair, but it refused {}:\n\
             land mended ones in their place, or mend the spec and run\n\
             `bronze reingest --files PATH`\n",
            recorded.run,
            counted(recorded.refused(), "file")
        ),
        (Output::Table, true) => format!("run {} needs no repair: all its tasks ended well\n", recorded.run),
        (Output::Table, false) => {
            let tasks = counted(names.len(), "task");
            format!("a repair of run {} would run {tasks}: {}\n", recorded.run, names.join(", "))
        }
    })?;
    Ok(EXIT_DONE)
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
