//! The commands, one per file.

mod backfill;
mod completions;
mod dry_run;
mod graph;
mod health;
mod init;
mod maintain;
mod quarantine;
mod query;
mod repair;
mod run;
mod runs;
mod sample;
mod schema;
mod status;
mod table;
mod test;
mod validate;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use cli::{Failure, LogArgs, Printer};
use lake::Clock;
use lake::report::EXIT_USAGE;

use crate::spec::Project;

/// Turns files of changes into right Delta tables: bronze keeps every record, silver the current state, gold the
/// answers.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 80, after_help = EXAMPLES)]
struct Cli {
    /// The spec
    #[arg(long, global = true, env = "PIPELINES_SPEC", default_value = "pipelines.yaml", value_name = "FILE")]
    spec: PathBuf,
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  orchestrator init --from ./landing                 a spec about files that are there
  orchestrator run                                   everything that is new, through all layers
  orchestrator run --select +gold.daily_sales        one task and all that it needs
  orchestrator watch                                 the same whenever files arrive
  orchestrator status                                how fresh the tables are, and what waits
  orchestrator repair latest                         what failed in the last run
  orchestrator validate                              what is wrong with the spec
  orchestrator query \"SELECT * FROM gold.daily_sales ORDER BY 1\"
  orchestrator --spec shop/pipelines.yaml graph      who reads whom

Exit codes: 0 done, 1 a task failed or a file was refused, 2 the request or the spec is wrong";

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Run(run::Args),
    Watch(watch::Args),
    Health(health::Args),
    Validate(validate::Args),
    DryRun(dry_run::Args),
    Graph(graph::Args),
    Query(query::Args),
    Quarantine(quarantine::Args),
    Backfill(backfill::Args),
    Repair(repair::Args),
    Runs(runs::Args),
    Status(status::Args),
    Table(table::Args),
    Maintain(maintain::Args),
    Sample(sample::Args),
    Test(test::Args),
    Schema(schema::Args),
    Completions(completions::Args),
}

/// Reads the arguments, does what they say, and prints what went wrong.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| not_ours(&error));
    cli.log.begin();
    let printer = Printer;
    cli::run_process(dispatch(&cli, &printer))
}

/// Commands that only the program of a layer has.
const OF_LAYERS: [(&str, &str); 8] = [
    ("account", "silver account"),
    ("rebuild", "silver rebuild` or `gold rebuild"),
    ("verify", "silver verify`, `gold verify` or `orchestrator table verify"),
    ("reingest", "bronze reingest"),
    ("explain", "gold explain"),
    ("as-of", "gold as-of"),
    ("check", "gold check"),
    ("snapshot", "gold snapshot"),
];

/// Says what is wrong with the arguments, and which program has a command that this one has not; ends the process.
fn not_ours(error: &clap::Error) -> ! {
    let named = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => name.as_str(),
        _ => error.exit(),
    };
    // There is nowhere left to say that stderr is closed.
    let _ = error.print();
    if let Some((_, program)) = OF_LAYERS.iter().find(|(name, _)| *name == named) {
        Printer.note(&format!("hint: `{program}` does that, by the same spec\n"));
    }
    std::process::exit(i32::from(EXIT_USAGE))
}

async fn dispatch(cli: &Cli, printer: &Printer) -> Result<u8, Failure> {
    let project = || Project::load(&cli.spec);
    let clock = Clock::of_program();
    match &cli.command {
        Command::Run(args) if args.dry_run => {
            run::run(&Project::load_with_tables(&cli.spec).await?, args, clock, printer).await
        }
        Command::Init(args) => init::run(&cli.spec, args, printer),
        Command::Run(args) => run::run(&project()?, args, clock, printer).await,
        Command::Watch(args) => watch::run(&cli.spec, args, clock, printer).await,
        Command::Health(args) => health::run(args, printer).await,
        Command::Validate(args) => validate::run(&cli.spec, args, printer).await,
        Command::DryRun(args) => dry_run::run(&Project::load_with_tables(&cli.spec).await?, args, clock, printer).await,
        Command::Graph(args) => graph::run(&project()?, args, printer),
        Command::Query(args) if args.is_by_path() && !cli.spec.exists() => {
            query::run(&Project::none()?, args, clock, printer).await
        }
        Command::Query(args) => query::run(&project()?, args, clock, printer).await,
        Command::Quarantine(args) => quarantine::run(&project()?, args, clock, printer).await,
        Command::Backfill(args) => backfill::run(&project()?, args, clock, printer).await,
        Command::Repair(args) => repair::run(&project()?, args, clock, printer).await,
        Command::Status(args) => status::run(&project()?, args, clock, printer).await,
        Command::Runs(args) => runs::run(&project()?, args, clock, printer).await,
        Command::Table(args) if args.is_by_path() => table::run_at_path(args, clock, printer).await,
        Command::Table(args) => table::run(&project()?, args, clock, printer).await,
        Command::Maintain(args) => maintain::run(&project()?, args, clock, printer).await,
        Command::Sample(args) => sample::run(args, printer),
        Command::Test(args) => test::run(project()?, args, printer).await,
        Command::Schema(args) => schema::run(args, printer),
        Command::Completions(args) => completions::run(args, printer),
    }
}
