//! `orchestrator dry-run`: what a run would do, without doing it.

use lake::Clock;
use lake::report::EXIT_DONE;

use crate::run::Place;
use crate::spec::Project;
use crate::tools::forecast;
use cli::{Failure, Output, Printer};

/// Show what a run would do: which files wait, which tasks would run, and why
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these tasks: `silver.orders`; may be given several times, or separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    select: Vec<String>,
    /// Look for files here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let chosen = project.select(&args.select)?;
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    let forecast = forecast::forecast(project, &place, &chosen).await?;
    printer.data(&match args.output {
        Output::Table => forecast.to_text(),
        Output::Json => format!("{}\n", forecast.to_json()),
    })?;
    Ok(EXIT_DONE)
}
