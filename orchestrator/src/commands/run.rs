//! `orchestrator run`: everything that is new, through the layers.

use lake::Clock;
use lake::report::EXIT_FAILED;

use crate::run::{Place, for_stderr, run as run_tasks, stops};
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Run the pipeline: what is new, through all layers
///
/// Prints a table of what became of each task. Progress goes to stderr. A second run without new files changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Only these tasks: `silver.orders`; may be given several times, or separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    select: Vec<String>,
    /// Read files from here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

const EXAMPLES: &str = "Examples:
  orchestrator run
  orchestrator run --select bronze.orders_cdc,silver.orders
  orchestrator run --landing ./archive/2024-05 --output json";

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let chosen = project.select(&args.select)?;
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    let finished = run_tasks(project, &place, &chosen, stops(), for_stderr().as_mut()).await;
    let summary = &finished.summary;
    printer.data(&match args.output {
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
