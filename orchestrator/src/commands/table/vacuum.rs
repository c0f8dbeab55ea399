//! `orchestrator table vacuum`: files that nothing needs any more.

use lake::lease::Lease;
use lake::report::grid::{Align, Grid};
use lake::report::{EXIT_DONE, EXIT_FAILED, WIDTH, counted, error_text, size, thousands};
use lake::run::RunContext;
use lake::spec::Duration;
use lake::vacuum::{Leftover, leftovers, remove, retention};
use lake::{Error, Lake, TableName};
use serde_json::{Value, json};

use super::chosen;
use cli::{Failure, Output, Printer};

/// What was removed. Details: `files` and `bytes`, by table.
const VACUUMED: &str = "vacuum";
/// Versions younger than this are what people go back to; writers of others may be that old.
const RETAIN_UNASKED: Duration = Duration::from_days(7);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The tables: `silver.orders`; none is every table of the lake
    pub(super) tables: Vec<String>,
    /// How long files that no version needs are kept. Older versions cannot be read any more. Default: what the table
    /// says in `delta.deletedFileRetentionDuration`, or else 7 days
    #[arg(long, value_name = "TIME")]
    retain: Option<Duration>,
    /// Also with less than 7 days. Refused while a run is at work; what no version names stays for a day all the same,
    /// since another program may be about to commit it
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

impl Args {
    /// True when files may go that versions of the last days need.
    pub(super) fn is_forced(&self) -> bool {
        self.force && !self.dry_run
    }
}

impl Free {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn unfinished(&self) -> usize {
        self.files.iter().filter(|file| file.unfinished).count()
    }
}

pub(super) async fn run(lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    if let Some(retain) = args.retain {
        check(retain, args.force, "`--retain`")?;
    }
    if args.is_forced() {
        alone(lake).await?;
    }
    let (mut freed, mut failure) = (Vec::new(), None);
    for name in chosen(lake, &args.tables).await? {
        match free(lake, &name, args).await {
            Ok(Some(free)) => freed.push(free),
            Ok(None) => {}
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let told = details(&freed);
    match args.output {
        Output::Json => printer.data(&format!("{}\n", with_files(&told, &freed, args.dry_run)))?,
        Output::Table => printer.data(&text(&freed, args.dry_run))?,
    }
    if !args.dry_run && freed.iter().any(|free| !free.files.is_empty()) {
        let context = RunContext::new(lake);
        context.events.record(None, VACUUMED, lake::events::Level::Info, summary(&freed), told);
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("the files are removed, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(EXIT_DONE),
    }
}

/// Removes what is free of a table, or only says what is; `None` when there is no such table.
async fn free(lake: &Lake, name: &TableName, args: &Args) -> Result<Option<Free>, Error> {
    let Some(table) = lake.table(name).await? else { return Ok(None) };
    let retain = match args.retain {
        Some(retain) => retain.as_std(),
        None => {
            let retain = retention(&table)?;
            let millis = u64::try_from(retain.as_millis()).unwrap_or(u64::MAX);
            check(
                Duration::from_millis(millis),
                args.force,
                &format!("`delta.deletedFileRetentionDuration` of {name}"),
            )?;
            retain
        }
    };
    let mut files = leftovers(lake, &table, retain).await?;
    if !args.dry_run {
        if args.force {
            // A run may have begun while the files were looked for.
            alone(lake).await?;
        }
        files = remove(lake, &table, &files).await?;
    }
    Ok(Some(Free { table: name.clone(), files }))
}

/// Refuses while a run is at work: it may read versions that would go.
async fn alone(lake: &Lake) -> Result<(), Error> {
    match Lease::holders(lake).await?.first() {
        None => Ok(()),
        Some(holder) => {
            let error = Error::spec(format!("{holder} is at work: what it reads might go"));
            Err(error.hint("wait for its end, or leave out `--force`"))
        }
    }
}

/// Refuses a short retention that was not asked for twice.
fn check(retain: Duration, force: bool, what: &str) -> Result<(), Error> {
    if retain >= RETAIN_UNASKED || force {
        return Ok(());
    }
    let message = format!("{what} is {retain}, less than 7 days: versions that people go back to would go");
    Err(Error::spec(message)
        .hint("add `--force` when nothing else writes to the tables and no reader needs older versions"))
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
