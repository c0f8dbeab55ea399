//! `orchestrator runs`: what earlier runs did, from the event log.

use lake::report::EXIT_DONE;
use lake::{Clock, Error};

use crate::spec::Project;
use crate::tools::history;
use cli::{Failure, Output, Printer};

/// List earlier runs, newest first, or show one with its tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator runs
  orchestrator runs show 20240501T101500-1f2e3d4c
  orchestrator runs show latest --output json")]
pub(super) struct Args {
    #[command(subcommand)]
    show: Option<Show>,
    /// How many runs
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// How they are printed
    #[arg(long, value_enum, default_value = "table", global = true)]
    output: Output,
}

#[derive(Debug, clap::Subcommand)]
enum Show {
    /// One run with its tasks
    Show {
        /// The run's id, the beginning of it, or `latest`
        run: String,
    },
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    match &args.show {
        None => {
            let runs = history::runs(&lake, args.limit).await?;
            printer.data(&match args.output {
                Output::Table => history::list_text(&runs),
                Output::Json => format!("{}\n", history::list_json(&runs)),
            })?;
        }
        Some(Show::Show { run }) => {
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
