//! `orchestrator table`: what tables are and were, and their upkeep.

mod changes;
mod checkpoint;
mod content;
mod copy;
mod delete;
mod diff;
mod look;
mod optimize;
mod restore;
mod settings;
mod tag;
mod vacuum;
mod verify;

use std::path::Path;

use lake::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER, SNAPSHOT_DATE};
use lake::session::Engine;
use lake::spec::did_you_mean;
use lake::tags::PROPERTY as TAGS;
use lake::{Clock, Error, Lake, Table, TableName};

use crate::spec::{Job, Project};
use cli::{Failure, Printer};

/// Look at tables, and look after them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table list
  orchestrator table history silver.orders
  orchestrator table describe silver.orders --output json
  orchestrator table optimize --dry-run
  orchestrator table vacuum --dry-run
  orchestrator table vacuum silver.orders --retain '14 days'
  orchestrator table diff silver.orders --from 4
  orchestrator table restore silver.orders --version 4
  orchestrator table verify
  orchestrator table describe exports/orders         any Delta table, by its path")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Every table of the lake: version, rows, files, size, last change
    List(look::List),
    /// The versions of a table, newest first: when, what, by which run
    History(look::History),
    /// One table: columns, partitions, properties, protocol, size
    Describe(look::Describe),
    /// The data files of a table, with their statistics
    Files(content::Files),
    /// Some rows of a table
    Sample(content::Sample),
    Diff(diff::Args),
    Changes(changes::Args),
    Verify(verify::Args),
    Restore(restore::Args),
    Clone(copy::Clone),
    Swap(copy::Swap),
    Delete(delete::Args),
    /// Set properties of a table: how long its log and files are kept, or keys of your own
    Set(settings::Set),
    /// Unset properties of a table
    Unset(settings::Unset),
    /// Give a table a feature
    Enable(settings::Switch),
    /// Have a table make no more use of a feature
    Disable(settings::Switch),
    /// Put a condition on the rows of a table, whoever writes them; those that are there must meet it
    AddConstraint(settings::AddConstraint),
    /// Take a condition away that was put by hand
    DropConstraint(settings::DropConstraint),
    Tag(tag::Tag),
    Untag(tag::Untag),
    Optimize(optimize::Args),
    Checkpoint(checkpoint::Args),
    /// Remove files that no version inside the retention needs, and what killed runs left
    Vacuum(vacuum::Args),
}

impl Args {
    /// True when a table is named by its path: no spec is needed for that.
    pub(super) fn is_by_path(&self) -> bool {
        self.command.tables().iter().any(|name| is_path(name))
    }
}

/// True for what is no `layer.table`.
fn is_path(name: &str) -> bool {
    name.contains('/') || name.starts_with('.')
}

impl Command {
    /// The tables that are named.
    fn tables(&self) -> Vec<&String> {
        match self {
            Self::List(_) => Vec::new(),
            Self::History(args) => vec![&args.table],
            Self::Describe(args) => vec![&args.table],
            Self::Files(args) => vec![&args.table],
            Self::Sample(args) => vec![&args.table],
            Self::Diff(args) => vec![&args.table],
            Self::Changes(args) => vec![&args.table],
            Self::Verify(args) => args.tables.iter().collect(),
            Self::Restore(args) => vec![&args.table],
            Self::Clone(args) => vec![&args.table],
            Self::Swap(args) => vec![&args.table],
            Self::Delete(args) => vec![&args.table],
            Self::Set(args) => vec![&args.table],
            Self::Unset(args) => vec![&args.table],
            Self::Enable(args) | Self::Disable(args) => vec![&args.table],
            Self::AddConstraint(args) => vec![&args.table],
            Self::DropConstraint(args) => vec![&args.table],
            Self::Tag(args) => vec![&args.table],
            Self::Untag(args) => vec![&args.table],
            Self::Optimize(args) => args.tables.iter().collect(),
            Self::Checkpoint(args) => args.tables.iter().collect(),
            Self::Vacuum(args) => args.tables.iter().collect(),
        }
    }

    /// True for what only looks, or only keeps a table up: rows, columns, properties and versions of the last days stay.
    fn is_harmless(&self) -> bool {
        if let Self::Vacuum(args) = self {
            return !args.is_forced();
        }
        matches!(
            self,
            Self::History(_)
                | Self::Describe(_)
                | Self::Files(_)
                | Self::Sample(_)
                | Self::Diff(_)
                | Self::Changes(_)
                | Self::Verify(_)
                | Self::Optimize(_)
                | Self::Checkpoint(_)
        )
    }
}

/// The same for a table that is named by its path.
pub(super) async fn run_at_path(args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let project = Project::none()?;
    let paths = args.command.tables();
    let (path, is_possible) = match paths[..] {
        [path] => (path, !matches!(args.command, Command::Clone(_) | Command::Swap(_))),
        _ => (paths[0], false),
    };
    if !is_possible {
        let error = Error::spec(format!("`{path}` is a path, and this takes tables of a lake"));
        return Err(error.hint("name one table by its path, and nothing else").into());
    }
    let (lake, name) = Lake::of_table(path, Path::new("."), clock, Engine::default())?;
    let table = lake.table(&name).await?;
    let table = table.ok_or_else(|| Error::spec(format!("there is no Delta table at `{path}`")))?;
    if !args.command.is_harmless() && is_of_pipeline(&lake, &table)? {
        let error =
            Error::spec(format!("the table at `{path}` belongs to a pipeline, which must know what is done to it"));
        return Err(error.hint("name it as the spec does: `silver.orders`").into());
    }
    on(&project, &lake, args, printer).await
}

/// True for a table that is in a lake, or says that a pipeline made it.
fn is_of_pipeline(lake: &Lake, table: &Table) -> Result<bool, Error> {
    let is_lake = |folder: &Path| folder.join(TableName::event_log().folder()).is_dir();
    let is_in_lake = lake.root().local_path().is_some_and(|folder| folder.ancestors().any(is_lake));
    Ok(is_in_lake || table.properties()?.keys().any(|key| key.starts_with("lakehouse.") && key != TAGS))
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    on(project, &lake, args, printer).await
}

async fn on(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    match &args.command {
        Command::List(args) => look::list(lake, args, printer).await,
        Command::History(args) => look::history(lake, args, printer).await,
        Command::Describe(args) => look::describe(lake, args, printer).await,
        Command::Files(args) => content::files(lake, args, printer).await,
        Command::Sample(args) => content::sample(lake, args, printer).await,
        Command::Diff(args) => diff::run(project, lake, args, printer).await,
        Command::Changes(args) => changes::run(lake, args, printer).await,
        Command::Verify(args) => verify::run(project, lake, args, printer).await,
        Command::Restore(args) => restore::run(project, lake, args, printer).await,
        Command::Clone(args) => copy::clone(project, lake, args, printer).await,
        Command::Swap(args) => copy::swap(project, lake, args, printer).await,
        Command::Delete(args) => delete::run(project, lake, args, printer).await,
        Command::Set(args) => settings::set(project, lake, args, printer).await,
        Command::Unset(args) => settings::unset(project, lake, args, printer).await,
        Command::Enable(args) => settings::switch(project, lake, args, true, printer).await,
        Command::Disable(args) => settings::switch(project, lake, args, false, printer).await,
        Command::AddConstraint(args) => settings::add_constraint(project, lake, args, printer).await,
        Command::DropConstraint(args) => settings::drop_constraint(lake, args, printer).await,
        Command::Tag(args) => tag::tag(lake, args, printer).await,
        Command::Untag(args) => tag::untag(lake, args, printer).await,
        Command::Optimize(args) => optimize::run(project, lake, args, printer).await,
        Command::Checkpoint(args) => checkpoint::run(lake, args, printer).await,
        Command::Vacuum(args) => vacuum::run(lake, args, printer).await,
    }
}

/// The tables of these names, in the order given; none is all.
pub(super) async fn chosen(lake: &Lake, names: &[String]) -> Result<Vec<TableName>, Failure> {
    let there = lake.tables().await?;
    if names.is_empty() || lake.alone().is_some() {
        return Ok(there);
    }
    let find = |name: &String| {
        there.iter().find(|table| table.to_string() == *name).cloned().ok_or_else(|| {
            let known: Vec<String> = there.iter().map(TableName::to_string).collect();
            let hint = did_you_mean(name, known.iter().map(String::as_str));
            let error = Error::spec(format!("there is no table `{name}` in {}", lake.root()));
            error.hint(hint.unwrap_or_else(|| "tables are named by layer: `silver.orders`".to_owned()))
        })
    };
    Ok(names.iter().map(find).collect::<Result<_, _>>()?)
}

/// The one table of this name.
async fn one_name(lake: &Lake, name: &str) -> Result<TableName, Failure> {
    let name = chosen(lake, &[name.to_owned()]).await?.pop();
    Ok(name.ok_or_else(|| Error::internal("no table was chosen"))?)
}

/// A table as it was at a version.
async fn at_version(lake: &Lake, newest: &Table, version: u64) -> Result<Table, Error> {
    if version == newest.version() {
        return Ok(newest.clone());
    }
    let name = newest.name();
    if version > newest.version() {
        let error = Error::spec(format!("{name} has no version {version}"));
        return Err(error.hint(format!("its newest is {}", newest.version())));
    }
    let table = lake.table_at(name, version).await.map_err(|error| {
        error.hint(format!("what the log still has: `orchestrator table history {name} --limit 0`"))
    })?;
    lake::history::check_readable(&table, newest).await?;
    Ok(table)
}

/// The columns that tell the rows of a table apart, as far as the spec says; none when nobody knows.
fn keys_of(project: &Project, name: &TableName) -> Vec<String> {
    match project.task(name).map(|task| &task.job) {
        Some(Job::Bronze(_)) => [BATCH_ID, FILE_PATH, ROW_NUMBER].map(str::to_owned).to_vec(),
        Some(Job::Silver(plan)) => plan.row_keys(),
        Some(Job::Gold(plan)) => match plan.as_ref() {
            gold::Plan::Model(model) => model.keys.clone(),
            gold::Plan::Snapshot(snapshot) if snapshot.source_keys.is_empty() => Vec::new(),
            gold::Plan::Snapshot(snapshot) => {
                snapshot.source_keys.iter().cloned().chain([SNAPSHOT_DATE.to_owned()]).collect()
            }
        },
        None => Vec::new(),
    }
}
