//! `orchestrator table checkpoint`: checkpoints, and logs without what no version needs.

use lake::log::{LogFiles, checkpoint, clean, look};
use lake::report::grid::{Align, Grid};
use lake::report::{EXIT_DONE, WIDTH, size, thousands};
use lake::{Error, Lake, TableName};
use serde_json::{Value, json};

use super::chosen;
use cli::{Failure, Output, Printer};

/// Write checkpoints, and remove files of the log that no version within `delta.logRetentionDuration` needs
///
/// A checkpoint holds the whole state of a table, so that readers need not go through its log. Writers write one every
/// `delta.checkpointInterval` versions by themselves.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table checkpoint
  orchestrator table checkpoint silver.orders --dry-run")]
pub(super) struct Args {
    /// The tables: `silver.orders`; none is every table of the lake
    pub(super) tables: Vec<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let mut told = Vec::new();
    for name in chosen(lake, &args.tables).await? {
        if let Some(files) = one(lake, &name, args.dry_run).await? {
            told.push((name, files));
        }
    }
    match args.output {
        Output::Json => {
            let object = |(name, files): &(TableName, LogFiles)| {
                json!({
                    "table": name.to_string(),
                    "entries": files.entries,
                    "since_checkpoint": files.since_checkpoint,
                    "expired": files.expired.len(),
                    "expired_bytes": files.expired_bytes(),
                })
            };
            let tables: Vec<Value> = told.iter().map(object).collect();
            printer.data(&format!("{}\n", json!({"dry_run": args.dry_run, "tables": tables})))?;
        }
        Output::Table => printer.data(&text(&told))?,
    }
    Ok(EXIT_DONE)
}

async fn one(lake: &Lake, name: &TableName, dry_run: bool) -> Result<Option<LogFiles>, Error> {
    let Some(table) = lake.table(name).await? else { return Ok(None) };
    let files = look(lake, &table).await?;
    if !dry_run {
        if files.since_checkpoint > 0 {
            checkpoint(&table).await?;
        }
        clean(lake, &table, &files).await?;
    }
    Ok(Some(files))
}

fn text(told: &[(TableName, LogFiles)]) -> String {
    let mut grid = Grid::new();
    let count = |number: usize| thousands(u64::try_from(number).unwrap_or(u64::MAX));
    grid.column("table", None, Align::Left, told.iter().map(|(name, _)| name.to_string()));
    grid.column("versions in the log", None, Align::Right, told.iter().map(|(_, files)| thousands(files.entries)));
    let since = told.iter().map(|(_, files)| thousands(files.since_checkpoint));
    grid.column("since a checkpoint", None, Align::Right, since);
    grid.column("not needed", None, Align::Right, told.iter().map(|(_, files)| count(files.expired.len())));
    grid.column("size", None, Align::Right, told.iter().map(|(_, files)| size(files.expired_bytes())));
    grid.render(WIDTH)
}
