//! `orchestrator status`: how fresh the tables are, and what they wait for.

use lake::Clock;
use lake::report::EXIT_DONE;

use crate::run::Place;
use crate::spec::Project;
use crate::tools::status;
use cli::{Failure, Output, Printer};

/// Show how the tables stand: how fresh they are, what waits, what is in quarantine, how they were last run
///
/// `waiting` is what a table has not taken yet: files in the landing zone for bronze, rows of bronze for silver, versions
/// of its sources for gold. `quarantined` are the records that it refused and that nothing was decided about.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator status
  orchestrator status --output json | jq '.tables[] | select(.waiting.rows > 0)'")]
pub(super) struct Args {
    /// Look for files here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    let status = status::status(project, &place).await?;
    printer.data(&match args.output {
        Output::Table => status.to_text(),
        Output::Json => format!("{}\n", status.to_json()),
    })?;
    Ok(EXIT_DONE)
}
