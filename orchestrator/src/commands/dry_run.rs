//! `orchestrator dry-run`: what a run would do, without doing it.

use std::collections::BTreeSet;

use lake::report::EXIT_DONE;
use lake::{Clock, TableName};

use super::run::full_refresh;
use crate::run::Place;
use crate::spec::{Project, Selection};
use crate::tools::forecast;
use cli::{Failure, Output, Printer};

/// Show what a run would do: which files wait, which tasks would run, and why
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// As if the tables of these tasks were made anew
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    full_refresh: Vec<String>,
    /// Look for files here instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let mut chosen = project.choose(&args.selection)?;
    let anew = full_refresh(project, &args.full_refresh)?;
    chosen.extend(anew.iter().cloned());
    let place = Place::open(project, args.landing.as_deref(), clock)?;
    show(project, &place, &chosen, &anew, args.output, printer).await
}

/// Shows what a run of these tasks would do.
pub(super) async fn show(
    project: &Project,
    place: &Place,
    chosen: &BTreeSet<TableName>,
    anew: &BTreeSet<TableName>,
    output: Output,
    printer: &Printer,
) -> Result<u8, Failure> {
    let forecast = forecast::forecast(project, place, chosen, anew).await?;
    printer.data(&match output {
        Output::Table => forecast.to_text(),
        Output::Json => format!("{}\n", forecast.to_json()),
    })?;
    Ok(EXIT_DONE)
}
