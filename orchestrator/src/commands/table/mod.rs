//! `orchestrator table`: what tables are and were, and their upkeep.

mod look;
mod optimize;
mod vacuum;

use lake::spec::did_you_mean;
use lake::{Clock, Error, Lake, TableName};

use crate::spec::Project;
use cli::{Failure, Printer};

/// Look at tables, and look after them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table list
  orchestrator table history silver.orders
  orchestrator table describe silver.orders --output json
  orchestrator table optimize --dry-run
  orchestrator table vacuum --dry-run
  orchestrator table vacuum silver.orders --retain '14 days'")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Every table of the lake: version, rows, files, size, last change
    List(look::List),
    /// The versions of a table, newest first: when, what, by which run
    History(look::History),
    /// One table: columns, partitions, properties, protocol, size
    Describe(look::Describe),
    Optimize(optimize::Args),
    /// Remove files that no version inside the retention needs, and what killed runs left
    Vacuum(vacuum::Args),
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    match &args.command {
        Command::List(args) => look::list(&lake, args, printer).await,
        Command::History(args) => look::history(&lake, args, printer).await,
        Command::Describe(args) => look::describe(&lake, args, printer).await,
        Command::Optimize(args) => optimize::run(project, &lake, args, printer).await,
        Command::Vacuum(args) => vacuum::run(&lake, args, printer).await,
    }
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
