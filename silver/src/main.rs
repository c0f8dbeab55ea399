//! The `silver` program: brings silver tables up to date with bronze, against the same spec as the orchestrator.

mod commands;

use std::process::ExitCode;

use clap::Subcommand;
use cli::{Failure, Layer, Output, Place, Printer};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problems};
use lake::{Result, TableName};
use silver::TablePlan;

use crate::commands::{account, rebuild, verify};

struct Silver;

#[derive(Debug, Subcommand)]
enum Extra {
    /// Say of each source file what became of its records
    Account(account::Account),
    /// Ask tables whether they keep their promises: no key twice, no row without a key
    Verify(verify::Verify),
    /// Make tables anew from the whole of bronze by the present spec, each swapped in by one commit
    Rebuild(rebuild::Rebuild),
}

impl Layer for Silver {
    type Plan = TablePlan;
    type Extra = Extra;

    const NAME: &'static str = "silver";
    const ABOUT: &'static str = "Brings silver tables up to date: the newest change of each key, from bronze";

    fn compile(document: &Document, header: &Header, problems: &mut Problems) -> Vec<TablePlan> {
        let sources: Vec<_> = document.names("bronze").into_iter().map(silver::Arriving::named).collect();
        let entries = document.section("silver", problems);
        entries.iter().filter_map(|entry| silver::compile(entry, &sources, header.timezone, problems)).collect()
    }

    fn table(plan: &TablePlan) -> TableName {
        plan.table.clone()
    }

    async fn run(plan: &TablePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        silver::run(&place.lake, plan, context).await
    }

    async fn run_for(extra: &Extra, plan: &TablePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        match extra {
            Extra::Account(_) | Extra::Verify(_) => Self::run(plan, place, context).await,
            Extra::Rebuild(rebuild) => rebuild.run(plan, place, context).await,
        }
    }

    fn output(extra: &Extra) -> Output {
        match extra {
            Extra::Account(_) | Extra::Verify(_) => Output::Table,
            Extra::Rebuild(rebuild) => rebuild.output,
        }
    }

    /// What only looks is done here; no table is brought up to date then.
    async fn prepare(
        extra: &Extra,
        plans: Vec<TablePlan>,
        place: &Place,
        context: &RunContext,
        printer: Printer,
    ) -> Result<Vec<TablePlan>, Failure> {
        match extra {
            Extra::Account(account) => {
                account.answer(cli::chosen::<Self>(plans, &account.tables)?, place, printer).await?;
                Ok(Vec::new())
            }
            Extra::Verify(verify) => {
                verify.answer(cli::chosen::<Self>(plans, &verify.tables)?, place, printer).await?;
                Ok(Vec::new())
            }
            Extra::Rebuild(rebuild) => {
                rebuild.prepare(cli::chosen::<Self>(plans, &rebuild.tables)?, place, context, printer).await
            }
        }
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Silver>()
}
