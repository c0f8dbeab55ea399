//! `orchestrator validate`: everything that is wrong with the spec.

use std::path::Path;

use lake::report::{EXIT_DONE, EXIT_USAGE, counted};
use serde_json::json;

use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Check the spec: all problems at once, each with its line and what was probably meant
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(spec: &Path, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let loaded = Project::load_with_tables(spec).await;
    match (args.output, loaded) {
        (Output::Table, loaded) => {
            let project = loaded?;
            printer.data(&format!("{}: {}, no problems\n", spec.display(), counted(project.tasks.len(), "task")))?;
            Ok(EXIT_DONE)
        }
        (Output::Json, Ok(project)) => {
            let tasks: Vec<String> = project.graph.order().map(ToString::to_string).collect();
            let valid = json!({"file": spec.display().to_string(), "valid": true, "problems": [], "tasks": tasks});
            printer.data(&format!("{valid}\n"))?;
            Ok(EXIT_DONE)
        }
        (Output::Json, Err(Failure::Problems(problems))) => {
            let mut invalid = problems.to_json();
            if let Some(object) = invalid.as_object_mut() {
                object.insert("valid".to_owned(), json!(false));
            }
            printer.data(&format!("{invalid}\n"))?;
            Ok(EXIT_USAGE)
        }
        (Output::Json, Err(failure)) => Err(failure),
    }
}
