//! `orchestrator backfill`: days of a snapshot that no run has recorded.

use chrono::NaiveDate;
use gold::{Plan, SnapshotPlan};
use lake::report::{EXIT_DONE, EXIT_FAILED, RunSummary, TaskOutcome, TaskReport, TaskState, counted, record};
use lake::run::RunContext;
use lake::{Clock, Error, ErrorKind, Lake, Result};
use serde_json::{Value, json};
use tracing::Instrument;

use crate::run::{Turn, stops, turn, while_held};
use crate::spec::{Job, Project};
use cli::{Failure, Output, Printer};

/// What the event log calls the program of such a run.
const PROGRAM: &str = "backfill";

/// Record days of a snapshot anew or late, each from the source table as it was at the end of that day
///
/// Days are those of the pipeline's zone. A day that holds that state is left alone, so that a backfill that was
/// interrupted goes on where it ended. A day is refused when the source was made later, or `vacuum` has removed its files
/// of then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator backfill gold.products_daily_snapshot --start 2024-05-01 --end 2024-05-31
  orchestrator backfill products_daily_snapshot --start 2024-05-03 --end 2024-05-03")]
pub(super) struct Args {
    /// The snapshot, with or without `gold.`
    table: String,
    /// The first day
    #[arg(long, value_name = "DAY")]
    start: NaiveDate,
    /// The last day
    #[arg(long, value_name = "DAY")]
    end: NaiveDate,
    /// How the days are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let plan = snapshot(project, &args.table)?;
    if args.start > args.end {
        return Err(Error::spec(format!("`--start` {} is after `--end` {}", args.start, args.end)).into());
    }
    let lake = project.header.lake(&project.folder, clock)?;
    let context = RunContext::new(&lake);
    let mut stop = stops();
    let waits = |others: &str| printer.note(&format!("waiting for {others}\n"));
    match turn(&project.header, &lake, &context.run, PROGRAM, &mut stop, waits).await {
        Turn::Now(lease) => {
            let days = record_days(project, args, plan, &lake, &context, printer);
            let unless_stopped = async {
                tokio::select! {
                    biased;
                    done = days => done,
                    Some(()) = stop.recv() => {
                        printer.note("stopped; the same command goes on where it ended\n");
                        Ok(EXIT_FAILED)
                    }
                }
            };
            while_held(lease, unless_stopped).instrument(context.span()).await
        }
        Turn::Taken(others) => {
            let error = Error::new(ErrorKind::Store, format!("{others} is at work, and `queue` is false"));
            Err(error.hint("try again later").into())
        }
        Turn::Stopped => Ok(EXIT_FAILED),
    }
}

/// Records the days.
async fn record_days(
    project: &Project,
    args: &Args,
    plan: &SnapshotPlan,
    lake: &Lake,
    context: &RunContext,
    printer: &Printer,
) -> Result<u8, Failure> {
    let spec = project.file.display().to_string();
    record::run_started(&context.events, PROGRAM, &project.header.name, &spec, &[plan.table.to_string()]);
    let started_at = lake.clock().now();
    let mut days: Vec<(NaiveDate, TaskReport)> = Vec::new();
    let told = |day: NaiveDate, report: &TaskReport| {
        if args.output == Output::Table {
            // What nobody reads any more is still done.
            let _ = printer.data(&line(day, report));
        }
        days.push((day, report.clone()));
    };
    let zone = project.header.timezone;
    let done = gold::backfill(lake, plan, context, zone, args.start..=args.end, told).await;
    let elapsed = (lake.clock().now() - started_at).to_std().unwrap_or_default();
    if args.output == Output::Json {
        printer.data(&format!("{}\n", days.iter().map(|(day, report)| object(*day, report)).collect::<Value>()))?;
    }
    let report = whole(plan, &days);
    let (outcome, failure) = match done {
        Ok(()) => (TaskOutcome::done(report, 1, elapsed), None),
        Err(error) => {
            let failed =
                TaskOutcome::failed(plan.table.clone(), Error::new(error.kind(), error.to_string()), 1, elapsed);
            (TaskOutcome { report: Some(report), ..failed }, Some(error))
        }
    };
    record::task_ended(&context.events, &outcome);
    let summary = RunSummary { run: context.run.to_string(), spec, started_at, elapsed, tasks: vec![outcome] };
    record::run_ended(&context.events, &summary);
    context.events.flush(lake).await?;
    match failure {
        None => Ok(EXIT_DONE),
        Some(error) if days.is_empty() => Err(error.into()),
        Some(error) => {
            printer.note(&lake::report::error_text(&error));
            printer
                .note(&format!("{} before it are done; the same command goes on there\n", counted(days.len(), "day")));
            Ok(EXIT_FAILED)
        }
    }
}

fn snapshot<'a>(project: &'a Project, name: &str) -> Result<&'a SnapshotPlan> {
    let full = if name.contains('.') { name.to_owned() } else { format!("gold.{name}") };
    let chosen = project.select(&[full])?;
    let task = chosen.iter().next().and_then(|name| project.task(name));
    match task.map(|task| &task.job) {
        Some(Job::Gold(plan)) => match plan.as_ref() {
            Plan::Snapshot(plan) => Ok(plan),
            Plan::Model(plan) => {
                let error = Error::spec(format!("{} is a model: it has no days of its own", plan.table));
                Err(error.hint("`gold run` brings it up to date"))
            }
        },
        _ => Err(Error::spec(format!("`{name}` is not a snapshot")).hint("a snapshot has `snapshot_of` in the spec")),
    }
}

/// One day for people.
fn line(day: NaiveDate, report: &TaskReport) -> String {
    let of = report.read.iter().map(|(source, version)| format!("{source} version {version}"));
    let of = of.collect::<Vec<_>>().join(", ");
    let notes: String = report.notes.iter().map(|note| format!("; {note}")).collect();
    match report.state {
        TaskState::Changed => {
            let rows = usize::try_from(report.figures.written).unwrap_or(usize::MAX);
            format!("{day}  recorded from {of}: {}{notes}\n", counted(rows, "row"))
        }
        TaskState::UpToDate => format!("{day}  is there, from {of}{notes}\n"),
    }
}

/// One day for programs.
fn object(day: NaiveDate, report: &TaskReport) -> Value {
    let read: serde_json::Map<String, Value> =
        report.read.iter().map(|(source, version)| (source.to_string(), json!(version))).collect();
    json!({
        "day": day.to_string(),
        "state": if report.state == TaskState::Changed { "recorded" } else { "up_to_date" },
        "rows": report.figures.written,
        "read": read,
        "version": report.version,
        "notes": report.notes,
    })
}

/// All days as the report of one task.
fn whole(plan: &SnapshotPlan, days: &[(NaiveDate, TaskReport)]) -> TaskReport {
    let mut whole = TaskReport::up_to_date(plan.table.clone(), None);
    for (_, report) in days {
        whole.figures = whole.figures.and(report.figures);
        whole.version = report.version.or(whole.version);
        whole.read.clone_from(&report.read);
        if report.state == TaskState::Changed {
            whole.state = TaskState::Changed;
        }
    }
    if let (Some((first, _)), Some((last, _))) = (days.first(), days.last()) {
        whole.notes.push(format!("days from {first} to {last}"));
    }
    whole
}
