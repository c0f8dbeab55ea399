//! `orchestrator graph`: the tasks and who needs whom.

use lake::report::EXIT_DONE;

use serde_json::json;

use crate::graph::Format;
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Draw the tasks and who needs whom
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator graph
  orchestrator graph --format dot | dot -Tsvg > pipeline.svg
  orchestrator graph --output json")]
pub(super) struct Args {
    /// How it is drawn
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// `json` gives the tasks in an order that can be run, each with what it needs
    #[arg(long, value_enum, default_value = "table", conflicts_with = "format")]
    output: Output,
}

pub(super) fn run(project: &Project, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    printer.data(&match args.output {
        Output::Table => project.graph.draw(args.format),
        Output::Json => format!("{}\n", to_json(project)),
    })?;
    Ok(EXIT_DONE)
}

fn to_json(project: &Project) -> serde_json::Value {
    let tasks: Vec<_> = project
        .graph
        .order()
        .map(|task| {
            let needs: Vec<String> = project.graph.needs(task).into_iter().map(ToString::to_string).collect();
            let disabled = project.task(task).is_some_and(|task| task.disabled);
            json!({"task": task.to_string(), "layer": task.layer.as_str(), "needs": needs, "disabled": disabled})
        })
        .collect();
    json!({"name": project.header.name, "spec": project.file.display().to_string(), "tasks": tasks})
}
