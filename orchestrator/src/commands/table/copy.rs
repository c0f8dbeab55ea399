//! `orchestrator table clone | swap`: a version as a table of its own, and the way back.

use lake::copy::{column_differences, copy_as, take_over};
use lake::report::{EXIT_DONE, EXIT_FAILED, error_text, thousands};
use lake::run::RunContext;
use lake::{Error, Lake, Layer, TableName};
use serde_json::{Value, json};

use super::{at_version, keys_of, one_name};
use crate::spec::{Job, Project};
use crate::tools::extracts::readers;
use cli::{Failure, Output, Printer};

/// A table took over another one. Details: both, the versions, the rows.
const SWAPPED: &str = "table_swap";

/// Copy a version of a table as a table of its own, to look at it, change it, and swap it in
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table clone silver.orders --version 4 --as silver.orders_mended")]
pub(super) struct Clone {
    /// The table: `silver.orders`
    pub(super) table: String,
    /// The version. Default: the newest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// The name of the copy, in the same layer
    #[arg(long = "as", value_name = "NAME")]
    name: String,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// Make a table what another one is, in one commit: its columns, partitions and rows
///
/// The table keeps its properties and constraints, which the new rows must meet, and its offset: what it has applied stays
/// applied. Days of a snapshot are those of the new rows. The other table stays as it is. What would change is told first, and nothing is changed without `--yes`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table swap silver.orders_mended silver.orders
  orchestrator table swap silver.orders_mended silver.orders --yes")]
pub(super) struct Swap {
    /// The table that was made aside
    new: String,
    /// The table that becomes like it
    pub(super) table: String,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn clone(project: &Project, lake: &Lake, args: &Clone, printer: &Printer) -> Result<u8, Failure> {
    let newest = lake.existing(&user_table(lake, &args.table).await?).await?;
    let table = at_version(lake, &newest, args.version.unwrap_or_else(|| newest.version())).await?;
    let name = TableName::parse(&args.name).filter(|name| lake::names::is_plain_name(&name.name));
    let name = name.filter(|name| name.layer == table.name().layer).ok_or_else(|| {
        let error = Error::spec(format!("`{}` is no name of a copy of {}", args.name, table.name()));
        error.hint(format!("a table of the same layer: `{}_copy`", table.name()))
    })?;
    if project.task(&name).is_some() {
        let error = Error::spec(format!("{name} is a table of the spec"));
        return Err(error.hint("give the copy another name").into());
    }
    let copy = copy_as(lake, &table, &name).await?;
    let rows = copy.row_count()?;
    match args.output {
        Output::Json => {
            let told = json!({"table": name.to_string(), "of": table.name().to_string(), "version": table.version(), "rows": rows});
            printer.data(&format!("{told}\n"))?;
        }
        Output::Table => {
            let rows = rows.map_or("unknown".to_owned(), thousands);
            printer.data(&format!(
                "{name} is a copy of {} version {}: {rows} rows\n",
                table.name(),
                table.version()
            ))?;
        }
    }
    Ok(EXIT_DONE)
}

pub(super) async fn swap(project: &Project, lake: &Lake, args: &Swap, printer: &Printer) -> Result<u8, Failure> {
    let (new, name) = (user_table(lake, &args.new).await?, user_table(lake, &args.table).await?);
    if new == name || new.layer != name.layer {
        let error = Error::spec(format!("{name} cannot become what {new} is"));
        return Err(error.hint("name two tables of one layer").into());
    }
    if let Some(plan) = readers(project, &name).first() {
        let message = format!(
            "the files of {name} are full extracts for {}: what another table lacks would be deleted",
            plan.table
        );
        let hint = "`table delete` takes files out, `table restore` takes the table back";
        return Err(Error::spec(message).hint(hint).into());
    }
    let context = RunContext::new(lake);
    let (mut rows, mut columns) = ((None, None), Vec::new());
    let done = lake::commit::redoing(lake.clock(), async || {
        let (with, mut table) = (lake.existing(&new).await?, lake.existing(&name).await?);
        rows = (table.row_count()?, with.row_count()?);
        columns = column_differences(&table.schema(), &with.schema());
        if !args.yes {
            return Ok(None);
        }
        let along = match project.task(&name).map(|task| &task.job) {
            Some(Job::Gold(plan)) => gold::swapped(Some(plan), &table, &with).await?,
            _ => gold::swapped(None, &table, &with).await?,
        };
        let outcome = take_over(lake, &mut table, &with, &keys_of(project, &name), &along, &context.run).await?;
        Ok(Some(outcome.version()))
    });
    let version = done.await?;
    let object: Value = json!({"table": name.to_string(), "with": new.to_string(), "version": version,
        "rows": {"from": rows.0, "to": rows.1}, "columns": columns});
    match args.output {
        Output::Json => printer.data(&format!("{object}\n"))?,
        Output::Table => {
            let count = |rows: Option<u64>| rows.map_or("unknown".to_owned(), thousands);
            let first = match version {
                Some(version) => format!("{name} version {version} is what {new} is"),
                None => format!("{name} would become what {new} is"),
            };
            let columns: String = columns.iter().map(|line| format!("  {line}\n")).collect();
            printer.data(&format!("{first}\n  rows {} -> {}\n{columns}", count(rows.0), count(rows.1)))?;
        }
    }
    if version.is_none() {
        return Err(Error::spec("nothing was changed").hint("add `--yes` to do it").into());
    }
    let task = name.to_string();
    context.events.record(Some(&task), SWAPPED, lake::events::Level::Info, format!("{task} is what {new} is"), object);
    if let Err(error) = context.events.flush(lake).await {
        printer.note(&error_text(&error.context("it is done, but that was not recorded")));
        return Ok(EXIT_FAILED);
    }
    Ok(EXIT_DONE)
}

async fn user_table(lake: &Lake, table: &str) -> Result<TableName, Failure> {
    let name = one_name(lake, table).await?;
    match name.layer {
        Layer::Bronze | Layer::Silver | Layer::Gold => Ok(name),
        _ => Err(Error::spec(format!("{name} is the program's own")).into()),
    }
}
