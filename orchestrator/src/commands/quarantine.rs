//! `orchestrator quarantine`: records that could not go on, and what becomes of them.

use lake::quarantine::{Quarantine, Status};
use lake::report::{EXIT_DONE, EXIT_FAILED, counted, error_text, wrapped};
use lake::run::RunContext;
use lake::{Clock, Error, Lake};
use serde_json::{Map, Value, json};

use crate::run::Place;
use crate::spec::{Job, Project};
use crate::tools::quarantine::{Choice, Wish, groups, replay, show};
use cli::rows::{Csv, Json, Text};
use cli::{Failure, Output, Printer};

/// A decision that no replay made. Details: `records`, by table.
const DISCARDED: &str = "quarantine_discarded";

/// Look at records that could not go on, send them through the spec again, or close them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator quarantine list
  orchestrator quarantine show orders_cdc --reason cast --limit 5
  orchestrator quarantine replay --table silver.orders
  orchestrator quarantine discard orders_cdc --file 'orders_2024-05-01*'")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What there is, by source, table and reason, with an example and what to do
    List(List),
    /// The records one by one, as they came
    Show(Show),
    /// Send open records through the present spec, once; those that are refused again stay, with the new reason
    Replay(Replay),
    /// Close open records for good; they can still be shown
    Discard(Discard),
}

/// Which records; all conditions must be met.
#[derive(Debug, clap::Args)]
struct Which {
    /// The bronze source
    source: Option<String>,
    /// The table that refused them: `silver.orders`
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// The kind of reason, as `list` names it: `cast`
    #[arg(long, value_name = "KIND")]
    reason: Option<String>,
    /// Their files; a glob without `/` is one of file names
    #[arg(long, value_name = "GLOB")]
    file: Option<String>,
    /// First seen since a day (2024-05-01), a moment (2024-05-01T10:00:00Z), or so long ago (2 days)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    which: Which,
    /// Only records in this state
    #[arg(long, value_enum)]
    status: Option<Standing>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    which: Which,
    /// Only records in this state
    #[arg(long, value_enum)]
    status: Option<Standing>,
    /// At most so many records; 0 is no limit. Default: 20 for a table, no limit for csv and json
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, clap::Args)]
struct Replay {
    #[command(flatten)]
    which: Which,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Discard {
    #[command(flatten)]
    which: Which,
    /// Every open record of every source
    #[arg(long)]
    all: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON array
    Json,
    /// RFC 4180 with a header; null is bare, an empty text is ""
    Csv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Standing {
    Open,
    Replaying,
    Replayed,
    Discarded,
}

impl Which {
    fn wish(&self) -> Wish<'_> {
        Wish {
            source: self.source.as_deref(),
            table: self.table.as_deref(),
            reason: self.reason.as_deref(),
            file: self.file.as_deref(),
            since: self.since.as_deref(),
        }
    }
}

impl Standing {
    fn status(self) -> Status {
        match self {
            Self::Open => Status::Open,
            Self::Replaying => Status::Replaying,
            Self::Replayed => Status::Replayed,
            Self::Discarded => Status::Discarded,
        }
    }
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    match &args.command {
        Command::List(list) => list_groups(project, list, clock, printer).await,
        Command::Show(show) => show_records(project, show, clock, printer).await,
        Command::Replay(replay) => replay_records(project, replay, clock, printer).await,
        Command::Discard(discard) => discard_records(project, discard, clock, printer).await,
    }
}

async fn list_groups(project: &Project, args: &List, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    let status = args.status.map(Standing::status).into_iter().collect();
    let choice = Choice::of(project, &lake, &args.which.wish(), status).await?;
    let mut groups = groups::groups(&lake, &choice).await?;
    groups::note_needed(&mut groups, |table, column| {
        let task = lake::TableName::parse(table).and_then(|table| project.task(&table));
        task.is_some_and(|task| matches!(&task.job, Job::Silver(plan) if plan.needs(column)))
    });
    match args.output {
        Format::Table if groups.is_empty() => printer.data(&nothing(&lake, &args.which, args.status).await?)?,
        Format::Table => printer.data(&groups::text(&groups))?,
        Format::Json => printer.data(&format!("{}\n", groups::json(&groups)))?,
        Format::Csv => print_rows(&mut Csv, &groups::rows(&groups)?, printer)?,
    }
    Ok(EXIT_DONE)
}

async fn show_records(project: &Project, args: &Show, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    /// A person reads some.
    const SHOWN: usize = 20;
    let lake = project.header.lake(&project.folder, clock)?;
    let status = args.status.map(Standing::status).into_iter().collect();
    let choice = Choice::of(project, &lake, &args.which.wish(), status).await?;
    let limit = match (args.limit, args.output) {
        (Some(0), _) | (None, Format::Json | Format::Csv) => usize::MAX,
        (Some(limit), _) => limit,
        (None, Format::Table) => SHOWN,
    };
    let (records, all) = show::records(&lake, &choice, limit).await?;
    match args.output {
        Format::Table if records.is_empty() => printer.data(&nothing(&lake, &args.which, args.status).await?)?,
        Format::Table => printer.data(&show::text(&records))?,
        Format::Json => print_rows(&mut Json::default(), &show::rows(&records)?, printer)?,
        Format::Csv => print_rows(&mut Csv, &show::rows(&records)?, printer)?,
    }
    if records.len() < all && args.limit.is_none() {
        printer.note(&format!("{} of {}; `--limit 0` shows all\n", records.len(), counted(all, "record")));
    }
    Ok(EXIT_DONE)
}

async fn replay_records(project: &Project, args: &Replay, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let place = Place::open(project, None, clock)?;
    let choice = Choice::of(project, &place.lake, &args.which.wish(), Vec::new()).await?;
    let done = replay::replay(project, &place, &choice).await?;
    let summary = &done.summary;
    let (sent, again): (u64, u64) = (
        summary.tasks.iter().map(|task| task.figures().read).sum(),
        summary.tasks.iter().map(|task| task.figures().quarantined).sum(),
    );
    let is_in_vain = sent > 0 && again >= sent;
    let code = if is_in_vain { EXIT_FAILED } else { summary.exit_code() };
    match args.output {
        Output::Json => {
            let mut told = summary.to_json();
            told["exit_code"] = code.into();
            printer.data(&format!("{told}\n"))?;
        }
        Output::Table if summary.tasks.is_empty() => {
            printer.data(&nothing(&place.lake, &args.which, Some(Standing::Open)).await?)?;
        }
        Output::Table => printer.data(&summary.to_text())?,
    }
    for left in &done.left {
        printer.note(&(wrapped("", 2, left) + "\n"));
    }
    if is_in_vain {
        let told = "every record was refused again: `orchestrator quarantine list` says what to mend";
        printer.note(&(wrapped("", 2, told) + "\n"));
    }
    if summary.tasks.iter().any(|task| task.figures().applied + task.figures().appended > 0) {
        printer.note("`orchestrator run` brings what went through to the tables behind\n");
    }
    if let Err(error) = done.recorded {
        printer.note(&error_text(&error.context("the replay is done, but its events were not recorded")));
        return Ok(code.max(EXIT_FAILED));
    }
    Ok(code)
}

async fn discard_records(project: &Project, args: &Discard, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let wish = args.which.wish();
    if wish.is_empty() != args.all {
        let message = if args.all { "`--all` and a choice of records" } else { "which records are to be discarded?" };
        let hint = "name a source, --table, --reason, --file or --since; or `--all` for every open record";
        return Err(Error::spec(message).hint(hint).into());
    }
    let lake = project.header.lake(&project.folder, clock)?;
    let choice = Choice::of(project, &lake, &wish, Vec::new()).await?;
    let context = RunContext::new(&lake);
    let mut tables: Map<String, Value> = Map::new();
    let mut all = 0;
    for source in &choice.sources {
        let Some(mut quarantine) = Quarantine::open(&lake, source).await? else { continue };
        for (table, records) in quarantine.discard(&choice.filter, &context.run).await? {
            tables.insert(table.to_string(), records.into());
            all += records;
        }
    }
    let counted = counted(usize::try_from(all).unwrap_or(usize::MAX), "record");
    let told = json!({"run_id": context.run.as_str(), "discarded": all, "tables": tables});
    match args.output {
        Output::Json => printer.data(&format!("{told}\n"))?,
        Output::Table if all == 0 => printer.data(&nothing(&lake, &args.which, Some(Standing::Open)).await?)?,
        Output::Table => {
            let each: Vec<String> = tables.iter().map(|(table, records)| format!("{records} of {table}")).collect();
            let told = format!("discarded {counted}: {}", each.join(", "));
            printer.data(&(wrapped("", 2, &told) + "\n"))?;
        }
    }
    if all > 0 {
        let message = format!("{counted} discarded");
        context.events.record(None, DISCARDED, lake::events::Level::Info, message, told);
        if let Err(error) = context.events.flush(&lake).await {
            printer.note(&error_text(&error.context("the records are discarded, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_DONE)
}

fn print_rows(sink: &mut dyn Text, rows: &arrow::array::RecordBatch, printer: &Printer) -> Result<(), Failure> {
    let begin = sink.begin(&rows.schema());
    let text = sink.rows(rows)?;
    printer.data(&format!("{begin}{text}{}", sink.end()))
}

/// What is said when no record is meant.
async fn nothing(lake: &Lake, which: &Which, status: Option<Standing>) -> Result<String, Failure> {
    let everything = Choice::everything(lake).await?;
    let there = groups::groups(lake, &everything).await?;
    if there.is_empty() {
        return Ok("nothing is in quarantine: no record was ever refused\n".to_owned());
    }
    let open = groups::groups(lake, &everything.only(Status::Open)).await?;
    if which.wish().is_empty() && status == Some(Standing::Open) && open.is_empty() {
        let told = "no open record is in quarantine; `orchestrator quarantine list` tells of the others";
        return Ok(wrapped("", 2, told) + "\n");
    }
    let mut kinds: Vec<&str> = there.iter().map(groups::Group::reason_kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let told = format!(
        "no record meets the conditions; `orchestrator quarantine list` tells what there is (reasons: {})",
        kinds.join(", ")
    );
    Ok(wrapped("", 2, &told) + "\n")
}
