//! `orchestrator table`: upkeep of the tables of the lake.

use lake::report::grid::{Align, Grid};
use lake::report::{EXIT_DONE, EXIT_FAILED, WIDTH, counted, error_text, size, thousands};
use lake::run::RunContext;
use lake::spec::{Duration, did_you_mean};
use lake::vacuum::{Leftover, leftovers, remove};
use lake::{Clock, Error, Lake, TableName};
use serde_json::{Value, json};

use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// What was removed. Details: `files` and `bytes`, by table.
const VACUUMED: &str = "vacuum";
/// Versions younger than this are what people go back to; writers of others may be that old.
const RETAIN_UNASKED: Duration = Duration::from_days(7);

/// Look after tables
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table vacuum --dry-run
  orchestrator table vacuum silver.orders --retain '14 days'")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Remove files that no version inside the retention needs, and what killed runs left
    Vacuum(Vacuum),
}

#[derive(Debug, clap::Args)]
struct Vacuum {
    /// The tables: `silver.orders`; none is every table of the lake
    tables: Vec<String>,
    /// How long files that no version needs are kept. Older versions cannot be read any more. Default: what the table
    /// says in `delta.deletedFileRetentionDuration`, or else 7 days
    #[arg(long, value_name = "TIME")]
    retain: Option<Duration>,
    /// Also with less than 7 days. Nothing else may write to the tables meanwhile: the files of a running commit are
    /// not told from leftovers
    #[arg(long)]
    force: bool,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// What is free of one table.
struct Free {
    table: TableName,
    files: Vec<Leftover>,
}

impl Free {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn unfinished(&self) -> usize {
        self.files.iter().filter(|file| file.unfinished).count()
    }
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    match &args.command {
        Command::Vacuum(args) => vacuum(&lake, args, printer).await,
    }
}

async fn vacuum(lake: &Lake, args: &Vacuum, printer: &Printer) -> Result<u8, Failure> {
    if let Some(retain) = args.retain.filter(|retain| *retain < RETAIN_UNASKED && !args.force) {
        let message = format!("`--retain {retain}` is less than 7 days: versions that people go back to would go");
        let hint = "add `--force` when nothing else writes to the tables and no reader needs older versions";
        return Err(Error::spec(message).hint(hint).into());
    }
    let mut freed = Vec::new();
    for name in chosen(lake, &args.tables).await? {
        let Some(table) = lake.table(&name).await? else { continue };
        let files = leftovers(lake, &table, args.retain.map(Duration::as_std)).await?;
        if !args.dry_run {
            remove(lake, &table, &files).await?;
        }
        freed.push(Free { table: name, files });
    }
    let told = details(&freed);
    match args.output {
        Output::Json => printer.data(&format!("{}\n", with_files(&told, &freed, args.dry_run)))?,
        Output::Table => printer.data(&text(&freed, args.dry_run))?,
    }
    if args.dry_run || freed.iter().all(|free| free.files.is_empty()) {
        return Ok(EXIT_DONE);
    }
    let context = RunContext::new(lake);
    context.events.record(None, VACUUMED, lake::events::Level::Info, summary(&freed), told);
    if let Err(error) = context.events.flush(lake).await {
        printer.note(&error_text(&error.context("the files are removed, but that was not recorded")));
        return Ok(EXIT_FAILED);
    }
    Ok(EXIT_DONE)
}

/// The tables of these names, in the order given; none is all.
async fn chosen(lake: &Lake, names: &[String]) -> Result<Vec<TableName>, Failure> {
    let there = lake.tables().await?;
    if names.is_empty() {
        return Ok(there);
    }
    let find = |name: &String| {
        there.iter().find(|table| table.to_string() == *name).cloned().ok_or_else(|| {
            let known: Vec<String> = there.iter().map(TableName::to_string).collect();
            let hint = did_you_mean(name, known.iter().map(String::as_str));
            let error = Error::spec(format!("there is no table `{name}` in {}", lake.root()));
            error.hint(hint.unwrap_or_else(|| "tables are named by layer: `silver.orders`".to_owned()))
        })
    };
    Ok(names.iter().map(find).collect::<Result<_, _>>()?)
}

fn summary(freed: &[Free]) -> String {
    let files = freed.iter().map(|free| free.files.len()).sum();
    format!("{}, {}", counted(files, "file"), size(freed.iter().map(Free::bytes).sum()))
}

fn text(freed: &[Free], dry_run: bool) -> String {
    let some: Vec<&Free> = freed.iter().filter(|free| !free.files.is_empty()).collect();
    let tables = counted(freed.len(), "table");
    if some.is_empty() {
        return format!("nothing to remove from {tables}\n");
    }
    let mut grid = Grid::new();
    let count = |number: usize| thousands(u64::try_from(number).unwrap_or(u64::MAX));
    grid.column("table", None, Align::Left, some.iter().map(|free| free.table.to_string()));
    grid.column("files", None, Align::Right, some.iter().map(|free| count(free.files.len())));
    grid.column("of these unfinished", None, Align::Right, some.iter().map(|free| count(free.unfinished())));
    grid.column("size", None, Align::Right, some.iter().map(|free| size(free.bytes())));
    let word = if dry_run { "would be removed" } else { "removed" };
    format!("{}{} {word} from {tables}\n", grid.render(WIDTH), summary(freed))
}

/// By table: files and bytes.
fn details(freed: &[Free]) -> Value {
    let some = freed.iter().filter(|free| !free.files.is_empty());
    let each = some.map(|free| {
        let figures = json!({"files": free.files.len(), "unfinished": free.unfinished(), "bytes": free.bytes()});
        (free.table.to_string(), figures)
    });
    json!({"tables": each.collect::<serde_json::Map<_, _>>()})
}

fn with_files(told: &Value, freed: &[Free], dry_run: bool) -> Value {
    let mut told = told.clone();
    told["dry_run"] = dry_run.into();
    for free in freed.iter().filter(|free| !free.files.is_empty()) {
        let paths: Vec<&str> = free.files.iter().map(|file| file.path.as_str()).collect();
        told["tables"][free.table.to_string()]["paths"] = paths.into();
    }
    told
}
