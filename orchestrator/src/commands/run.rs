//! `orchestrator run`: everything that is new, through the layers.

use std::collections::BTreeSet;

use chrono::NaiveDate;
use lake::report::EXIT_FAILED;
use lake::{Clock, Error, Layer, TableName};

use super::dry_run;
use crate::run::{Place, Request, for_stderr, run as run_tasks, stops};
use crate::spec::{Job, Project, Selection};
use cli::{Failure, Output, Printer};
use tokio::sync::mpsc::UnboundedReceiver;

/// Run the pipeline: what is new, through all layers
///
/// Prints a table of what became of each task. Progress goes to stderr. A second run without new files changes nothing.
/// Ctrl-C (or SIGTERM) starts no more tasks and lets those at work come to a safe end; a second one ends the process at
/// once, which loses nothing. While `max_concurrent_runs` others are at work on the storage, it waits for one of them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Make the tables of these tasks anew: silver from the whole of bronze, models from their whole query; written as for
    /// `--select`
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    full_refresh: Vec<String>,
    /// The day that snapshots record (default: today), with their sources as they were at the end of that day; all other
    /// tasks do what they always do
    #[arg(long, value_name = "DAY", conflicts_with = "dry_run")]
    date: Option<NaiveDate>,
    /// Read files from here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// Only show what it would do, as `dry-run` does
    #[arg(long)]
    pub(super) dry_run: bool,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

const EXAMPLES: &str = "Examples:
  orchestrator run
  orchestrator run --select +gold.daily_sales           one model and all that it needs
  orchestrator run --select silver --exclude silver.orders+
  orchestrator run --full-refresh silver.orders         made anew; what reads it follows
  orchestrator run --date 2024-05-01                    snapshots record that day
  orchestrator run --landing ./archive/2024-05 --output json";

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let mut chosen = project.choose(&args.selection)?;
    let anew = full_refresh(project, &args.full_refresh)?;
    chosen.extend(anew.iter().cloned());
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    if args.dry_run {
        return dry_run::show(project, &place, &chosen, &anew, args.output, printer).await;
    }
    let date = args.date.map(|date| day(project, &chosen, date, place.lake.clock())).transpose()?;
    carry_out(project, &place, Request { anew, date, ..Request::of(&chosen) }, stops(), args.output, printer).await
}

/// The day that the snapshots of a run are to record.
///
/// # Errors
/// [`lake::ErrorKind::Spec`] when it is to come, or there are none.
fn day(project: &Project, chosen: &BTreeSet<TableName>, date: NaiveDate, clock: &Clock) -> Result<NaiveDate, Error> {
    let is_snapshot = |name: &TableName| matches!(project.task(name).map(|task| &task.job), Some(Job::Gold(plan)) if plan.model().is_none());
    if !chosen.iter().any(is_snapshot) {
        let error = Error::spec("no snapshot is among the chosen tasks, and `--date` says which day they record");
        return Err(error.hint("a snapshot is a gold table with `snapshot_of`"));
    }
    let (zone, today) = (project.header.timezone, clock.today(project.header.timezone));
    if date > today {
        let error = Error::spec(format!("{date} is to come: in {zone} today is {today}"));
        return Err(error.hint("take a day that is over, or today"));
    }
    Ok(date)
}

/// Runs, prints the summary, and says which exit code that is.
pub(super) async fn carry_out(
    project: &Project,
    place: &Place,
    request: Request<'_>,
    stop: UnboundedReceiver<()>,
    output: Output,
    printer: &Printer,
) -> Result<u8, Failure> {
    let finished = run_tasks(project, place, request, stop, for_stderr().as_mut()).await;
    let summary = &finished.summary;
    printer.data(&match output {
        Output::Table => summary.to_text(),
        Output::Json => format!("{}\n", summary.to_json()),
    })?;
    let code = summary.exit_code();
    match finished.recorded {
        Ok(()) => Ok(code),
        Err(error) => {
            printer
                .note(&lake::report::error_text(&error.context("the run is done, but its events were not recorded")));
            Ok(code.max(EXIT_FAILED))
        }
    }
}

/// The tasks whose tables are made anew.
///
/// # Errors
/// [`lake::ErrorKind::Spec`] for those that cannot be, with the reason.
pub(super) fn full_refresh(project: &Project, terms: &[String]) -> Result<BTreeSet<TableName>, Error> {
    if terms.is_empty() {
        return Ok(BTreeSet::new());
    }
    let anew = project.select(terms)?;
    for name in &anew {
        let refuse = |why: &str| Error::spec(format!("{name} cannot be made anew: {why}"));
        let job = project.task(name).map(|task| &task.job);
        match job {
            Some(Job::Gold(plan)) if plan.model().is_none() => {
                let error = refuse("its days are history, which its source does not tell any more");
                return Err(error.hint("`orchestrator backfill` records days again"));
            }
            _ if name.layer == Layer::Bronze => {
                let error = refuse("it keeps every record for ever, also those whose files are gone");
                return Err(error.hint("`bronze reingest --taken` takes files once more"));
            }
            _ => {}
        }
    }
    Ok(anew)
}
