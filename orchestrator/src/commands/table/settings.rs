//! `orchestrator table set | unset | enable | disable | add-constraint | drop-constraint`: what a table is kept by.

use lake::commit::{Feature, check_property, redoing};
use lake::report::{EXIT_DONE, EXIT_FAILED, error_text};
use lake::run::RunContext;
use lake::{Error, Lake, Layer, TableName};
use serde_json::{Value, json};

use super::{keys_of, one_name};
use crate::spec::{Job, Project};
use cli::{Failure, Output, Printer};

/// Something of a table was set by hand. Details: the table and what.
const SET: &str = "table_settings";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table set silver.orders 'delta.logRetentionDuration=interval 60 days'
  orchestrator table set silver.orders delta.checkpointInterval=50 owner=finance")]
pub(super) struct Set {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// Properties and their values
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    properties: Vec<(String, String)>,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table unset silver.orders delta.logRetentionDuration")]
pub(super) struct Unset {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// Properties
    #[arg(required = true, value_name = "KEY")]
    properties: Vec<String>,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table enable gold.daily_sales change-data-feed
  orchestrator table disable gold.daily_sales deletion-vectors")]
pub(super) struct Switch {
    /// The table: `gold.daily_sales`
    pub(super) table: String,
    /// What it is given, or makes no more use of
    #[arg(value_enum)]
    feature: Named,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// The features by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Named {
    /// Versions say which rows they changed
    ChangeDataFeed,
    /// Rows may be marked as deleted; readers must know that
    DeletionVectors,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table add-constraint gold.daily_sales positive 'revenue >= 0'")]
pub(super) struct AddConstraint {
    /// The table: `gold.daily_sales`
    pub(super) table: String,
    /// The name of the constraint
    name: String,
    /// SQL over the columns that is true for every row
    check: String,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table drop-constraint gold.daily_sales positive")]
pub(super) struct DropConstraint {
    /// The table: `gold.daily_sales`
    pub(super) table: String,
    /// The name of the constraint
    name: String,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as `key=value`")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub(super) async fn set(project: &Project, lake: &Lake, args: &Set, printer: &Printer) -> Result<u8, Failure> {
    let changes = args.properties.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    by_name(project, lake, &args.table, changes, args.output, printer).await
}

pub(super) async fn unset(project: &Project, lake: &Lake, args: &Unset, printer: &Printer) -> Result<u8, Failure> {
    let changes = args.properties.iter().map(|key| (key.clone(), None)).collect();
    by_name(project, lake, &args.table, changes, args.output, printer).await
}

async fn by_name(
    project: &Project,
    lake: &Lake,
    table: &str,
    changes: Vec<(String, Option<String>)>,
    output: Output,
    printer: &Printer,
) -> Result<u8, Failure> {
    let name = own_table(lake, table).await?;
    for (key, value) in &changes {
        check_property(key, value.as_deref())?;
        if let Some(Job::Silver(plan)) = project.task(&name).map(|task| &task.job)
            && let Some((_, wanted)) =
                plan.properties.iter().find(|(held, wanted)| held == key && Some(wanted) != value.as_ref())
        {
            let error =
                Error::spec(format!("the spec sets `{key}` of {name} to `{wanted}`, as the next run would again"));
            return Err(error.hint("change it there").into());
        }
    }
    let context = RunContext::new(lake);
    let done = redoing(lake.clock(), async || {
        let mut table = lake.existing(&name).await?;
        table.set_by_name(&changes, &context.run).await
    });
    let version = done.await?.map(|outcome| outcome.version());
    let what = changes.iter().map(|(key, value)| match value {
        Some(value) => format!("{key} = {value}"),
        None => format!("{key} is not set"),
    });
    let what: Vec<String> = what.collect();
    tell(lake, &context, Told { name, version, what }, output, printer).await
}

pub(super) async fn switch(
    project: &Project,
    lake: &Lake,
    args: &Switch,
    on: bool,
    printer: &Printer,
) -> Result<u8, Failure> {
    let name = own_table(lake, &args.table).await?;
    let (feature, option, word) = match args.feature {
        Named::ChangeDataFeed => (Feature::ChangeDataFeed, "change_data_feed", "change data feed"),
        Named::DeletionVectors => (Feature::DeletionVectors, "deletion_vectors", "deletion vectors"),
    };
    if let Some(Job::Silver(plan)) = project.task(&name).map(|task| &task.job) {
        let wanted = match feature {
            Feature::ChangeDataFeed => plan.change_data_feed,
            Feature::DeletionVectors => plan.deletion_vectors,
        };
        if wanted != on {
            let error = Error::spec(format!("the spec says `{option}: {wanted}` of {name}"));
            return Err(error.hint(format!("write `{option}: {on}` there")).into());
        }
    }
    let context = RunContext::new(lake);
    let done = redoing(lake.clock(), async || {
        let mut table = lake.existing(&name).await?;
        table.set_feature(feature, on, &context.run).await
    });
    let version = done.await?.map(|outcome| outcome.version());
    let what = vec![format!("{word} {}", if on { "on" } else { "off" })];
    tell(lake, &context, Told { name, version, what }, args.output, printer).await
}

pub(super) async fn add_constraint(
    project: &Project,
    lake: &Lake,
    args: &AddConstraint,
    printer: &Printer,
) -> Result<u8, Failure> {
    let name = own_table(lake, &args.table).await?;
    if name.layer == Layer::Bronze {
        let error = Error::spec(format!("{name} keeps every record as it came, whatever a constraint says"));
        return Err(error.hint("put the condition on its silver table, as an expectation or a constraint").into());
    }
    if !lake::names::is_plain_name(&args.name) {
        let error = Error::spec(format!("`{}` is no name of a constraint", args.name));
        return Err(error.hint("letters, digits, `_` and `-`, a letter first").into());
    }
    let context = RunContext::new(lake);
    let done = redoing(lake.clock(), async || {
        let mut table = lake.existing(&name).await?;
        table.add_check(lake, &args.name, &args.check, &keys_of(project, &name), &context.run).await
    });
    let version = Some(done.await?.version());
    let what = vec![format!("constraint `{}`: {}", args.name, args.check)];
    tell(lake, &context, Told { name, version, what }, args.output, printer).await
}

pub(super) async fn drop_constraint(lake: &Lake, args: &DropConstraint, printer: &Printer) -> Result<u8, Failure> {
    let name = own_table(lake, &args.table).await?;
    let context = RunContext::new(lake);
    let done = redoing(lake.clock(), async || {
        let mut table = lake.existing(&name).await?;
        table.drop_check(&args.name, &context.run).await
    });
    let version = Some(done.await?.version());
    let what = vec![format!("without constraint `{}`", args.name)];
    tell(lake, &context, Told { name, version, what }, args.output, printer).await
}

/// A table that users may set something of.
async fn own_table(lake: &Lake, table: &str) -> Result<TableName, Failure> {
    let name = one_name(lake, table).await?;
    match name.layer {
        Layer::Bronze | Layer::Silver | Layer::Gold | Layer::Quarantine | Layer::Delta => Ok(name),
        _ => Err(Error::spec(format!("{name} is the program's own")).into()),
    }
}

/// What was set.
struct Told {
    name: TableName,
    /// The version that says so; `None` when the table said so already.
    version: Option<u64>,
    what: Vec<String>,
}

async fn tell(lake: &Lake, context: &RunContext, told: Told, output: Output, printer: &Printer) -> Result<u8, Failure> {
    let Told { name, version, what } = told;
    let object: Value =
        json!({"table": name.to_string(), "version": version, "changed": version.is_some(), "what": what});
    match (output, version) {
        (Output::Json, _) => printer.data(&format!("{object}\n"))?,
        (Output::Table, Some(version)) => printer.data(&format!("{name} version {version}: {}\n", what.join(", ")))?,
        (Output::Table, None) => printer.data(&format!("{name} says so already: {}\n", what.join(", ")))?,
    }
    if version.is_some() {
        let task = name.to_string();
        context.events.record(Some(&task), SET, lake::events::Level::Info, what.join(", "), object);
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("it is done, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_DONE)
}
