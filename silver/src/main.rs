//! The `silver` program: brings silver tables up to date with bronze, against the same spec as the orchestrator.

use std::process::ExitCode;

use cli::{Layer, Place};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problems};
use lake::{Result, TableName};
use silver::TablePlan;

struct Silver;

impl Layer for Silver {
    type Plan = TablePlan;
    type Extra = cli::NoExtra;

    const NAME: &'static str = "silver";
    const ABOUT: &'static str = "Brings silver tables up to date: the newest change of each key, from bronze";

    fn compile(document: &Document, header: &Header, problems: &mut Problems) -> Vec<TablePlan> {
        let sources = document.names("bronze");
        let entries = document.section("silver", problems);
        entries.iter().filter_map(|entry| silver::compile(entry, &sources, header.timezone, problems)).collect()
    }

    fn table(plan: &TablePlan) -> TableName {
        plan.table.clone()
    }

    async fn run(plan: &TablePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        silver::run(&place.lake, plan, context).await
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Silver>()
}
