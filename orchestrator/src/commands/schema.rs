//! `orchestrator schema`: the spec as a JSON Schema, for editors.

use lake::report::EXIT_DONE;

use crate::spec::schema;
use cli::{Failure, Printer};

/// Print the JSON Schema of the spec, for editors
///
/// Write it to a file and name that in the first line of the spec: the YAML support of most editors then completes keys and
/// values, explains them, and marks what is wrong. `orchestrator init` does both.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator schema > pipelines.schema.json

First line of the spec:
  # yaml-language-server: $schema=./pipelines.schema.json")]
pub(super) struct Args {}

pub(super) fn run(_: &Args, printer: &Printer) -> Result<u8, Failure> {
    printer.data(&schema::text())?;
    Ok(EXIT_DONE)
}
