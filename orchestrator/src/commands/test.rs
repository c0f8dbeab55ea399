//! `orchestrator test`: the tests beside the spec, through the real engine.

use std::path::PathBuf;

use lake::report::{EXIT_DONE, EXIT_FAILED, counted};
use serde_json::json;

use crate::fixture::{self, How, Verdict};
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Run the tests beside the spec: files that land, and the tables that must come of them
///
/// A test is a folder `tests/NAME/` with `given/` (the landing zone, or a numbered folder for each delivery) and `expect/`
/// (`silver.orders.csv`, `gold.daily_sales.json`, `quarantine.orders.yaml`; columns that a file does not name are not
/// compared, quarantines without a file must be empty). `test.yaml` may say `now: 2024-05-01T08:00:00Z` (the clock of the
/// first run), `every: 1h` (from run to run), `shuffle: false`, `refused_files: […]`. Each test runs in a lake of its own, then
/// with its files in other orders, batches and repetitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator test
  orchestrator test late-delete --shuffles 20 --seed 7
  orchestrator test new-test --update                write expect/ from what comes out

Exit codes: 0 all passed, 1 a test failed, 2 a test or the spec is wrong")]
pub(super) struct Args {
    /// Only these tests; all without names
    names: Vec<String>,
    /// The folder of the tests. Default: `tests` beside the spec
    #[arg(long, value_name = "DIR")]
    tests: Option<PathBuf>,
    /// In how many other orders each test is run
    #[arg(long, value_name = "N", default_value_t = 3)]
    shuffles: u32,
    /// The seed of the first of these orders; the same seed is the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write what comes out to `expect/` instead of comparing; read it before you keep it
    #[arg(long)]
    update: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(mut project: Project, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let cases = fixture::load(&fixture::folder(&project, args.tests.as_deref()), &args.names)?;
    let how = How { shuffles: args.shuffles, seed: args.seed, update: args.update };
    let mut verdicts: Vec<Verdict> = Vec::new();
    for case in &cases {
        let verdict = fixture::check(&mut project, case, how).await?;
        if args.output == Output::Table {
            printer.data(&verdict.to_text())?;
        }
        verdicts.push(verdict);
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
    match args.output {
        Output::Table if args.update => {}
        Output::Table => {
            printer.data(&format!("{}, {} failed\n", counted(verdicts.len(), "test"), failed))?;
        }
        Output::Json => {
            let tests: Vec<_> = verdicts.iter().map(Verdict::to_json).collect();
            printer.data(&format!("{}\n", json!({"tests": tests, "failed": failed})))?;
        }
    }
    Ok(if failed == 0 { EXIT_DONE } else { EXIT_FAILED })
}
