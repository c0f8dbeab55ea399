//! `orchestrator graph`: the tasks and who needs whom.

use lake::report::EXIT_DONE;

use crate::graph::Format;
use crate::spec::Project;
use cli::{Failure, Printer};

/// Draw the tasks and who needs whom
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator graph
  orchestrator graph --format dot | dot -Tsvg > pipeline.svg")]
pub(super) struct Args {
    /// How it is drawn
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(project: &Project, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    printer.data(&project.graph.draw(args.format))?;
    Ok(EXIT_DONE)
}
