//! `orchestrator runs`: what earlier runs did, from the event log.

use lake::report::EXIT_DONE;
use lake::{Clock, Error, Lake};

use crate::spec::Project;
use crate::tools::history;
use cli::{Failure, Output, Printer};

/// List earlier runs, newest first, or show one with its tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator runs
  orchestrator runs list --limit 5
  orchestrator runs show 20240501T101500-1f2e3d4c
  orchestrator runs show latest --output json")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
    /// How they are printed
    #[arg(long, value_enum, default_value = "table", global = true)]
    output: Output,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Earlier runs, newest first: the same as without a command
    List(List),
    /// One run with its tasks
    Show {
        /// The run's id, the beginning of it, or `latest`
        run: String,
    },
}

#[derive(Debug, clap::Args)]
struct List {
    /// How many runs. Default: 20
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Runs that are listed unless another number is asked for.
const LISTED: usize = 20;

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    let limit = |list: &List| list.limit.or(args.list.limit).unwrap_or(LISTED);
    match &args.command {
        None => list(&lake, limit(&args.list), args.output, printer).await?,
        Some(Command::List(named)) => list(&lake, limit(named), args.output, printer).await?,
        Some(Command::Show { run }) => {
            let found = history::run(&lake, run).await?.ok_or_else(|| {
                let error = Error::spec(format!("there is no run `{run}`"));
                error.hint("`orchestrator runs` lists them")
            })?;
            printer.data(&match args.output {
                Output::Table => found.to_text(),
                Output::Json => format!("{}\n", found.to_json()),
            })?;
        }
    }
    Ok(EXIT_DONE)
}

async fn list(lake: &Lake, limit: usize, output: Output, printer: &Printer) -> Result<(), Failure> {
    let runs = history::runs(lake, limit).await?;
    printer.data(&match output {
        Output::Table => history::list_text(&runs),
        Output::Json => format!("{}\n", history::list_json(&runs)),
    })
}
