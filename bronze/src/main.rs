//! The `bronze` program: brings what has landed into bronze tables, against the same spec as the orchestrator.

use std::process::ExitCode;

use bronze::SourcePlan;
use cli::{Layer, Place};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problems};
use lake::{Result, TableName};

struct Bronze;

impl Layer for Bronze {
    type Plan = SourcePlan;

    const NAME: &'static str = "bronze";
    const ABOUT: &'static str = "Brings what has landed into bronze tables: every record of every file, once";

    fn compile(document: &Document, header: &Header, problems: &mut Problems) -> Vec<SourcePlan> {
        let entries = document.section("bronze", problems);
        let plans = entries.iter().filter_map(|entry| bronze::compile(entry, problems));
        plans.map(|plan| plan.in_zone(header.timezone)).collect()
    }

    fn table(plan: &SourcePlan) -> TableName {
        plan.table.clone()
    }

    async fn run(plan: &SourcePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        let landing = place.header.landing_root(&place.folder)?;
        bronze::run(&place.lake, &landing, plan, context).await
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Bronze>()
}
