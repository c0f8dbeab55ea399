//! `orchestrator maintain`: upkeep of the tables when it is due.

use lake::report::{EXIT_DONE, EXIT_FAILED, counted, error_text};
use lake::run::RunContext;
use lake::{Clock, TableName};
use serde_json::{Value, json};

use super::table::chosen;
use crate::maintain::{Depth, Maintained, maintain, object, record};
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Look after the tables: join small files, purge deleted rows, remove what nothing needs, clean logs, where it is due
///
/// `maintenance` of the spec says when it is. What is due follows from the tables as they are, so this may be started as
/// often as one likes, beside runs, and goes on where it ended when the budget of time is over. A `window` of the spec is for
/// runs: whoever calls this wants it now.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator maintain --dry-run
  orchestrator maintain
  orchestrator maintain silver.orders --output json")]
pub(super) struct Args {
    /// The tables: `silver.orders`; none is every table of the lake
    tables: Vec<String>,
    /// Only say what is due and why
    #[arg(long)]
    dry_run: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    let tables: Vec<TableName> = chosen(&lake, &args.tables).await?;
    let context = RunContext::new(&lake);
    let told = maintain(project, &lake, &tables, Depth::Folder, args.dry_run, &context).await;
    match args.output {
        Output::Json => {
            let all: Vec<Value> = told.iter().map(object).collect();
            printer.data(&format!("{}\n", json!({"dry_run": args.dry_run, "tables": all})))?;
        }
        Output::Table => printer.data(&text(&told, tables.len()))?,
    }
    let window = project.header.maintenance.as_ref().and_then(|wanted| wanted.window.as_ref());
    if let Some(window) = window.filter(|window| !window.is_open(lake.clock().now(), project.header.timezone)) {
        printer.note(&format!("outside of {window}, the `window` of the spec: runs leave the tables alone now\n"));
    }
    record(&told, &context);
    if let Err(error) = context.events.flush(&lake).await {
        printer.note(&error_text(&error.context("it is done, but that was not recorded")));
        return Ok(EXIT_FAILED);
    }
    let failed: Vec<_> = told.iter().filter_map(|one| one.error.as_ref()).collect();
    failed.iter().for_each(|error| printer.note(&error_text(error)));
    Ok(if failed.is_empty() { EXIT_DONE } else { EXIT_FAILED })
}

fn text(told: &[Maintained], tables: usize) -> String {
    if told.is_empty() {
        return format!("nothing is due in {}\n", counted(tables, "table"));
    }
    let mut text = String::new();
    for one in told {
        text.push_str(&format!("{}\n", one.name));
        one.why.iter().for_each(|why| text.push_str(&format!("  due    {why}\n")));
        one.done.iter().for_each(|done| text.push_str(&format!("  done   {done}\n")));
        if one.is_left {
            text.push_str("  left   the budget of time is over: it is looked at the next time\n");
        }
        if one.error.is_some() {
            text.push_str("  failed\n");
        }
    }
    text
}
