//! The `gold` program: brings gold tables up to date with what they read, against the same spec as the orchestrator.

mod commands;

use std::process::ExitCode;

use cli::{Failure, Layer, Output, Place, Printer};
use commands::{Dated, Extra};
use gold::{Keys, Plan};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problem, Problems, SpecPath};
use lake::{Result, TableName};

struct Gold;

/// What gold needs to know of a silver table.
#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(extend("x-aliases" = {"unique_key": "keys"}))]
struct Keyed {
    keys: Vec<String>,
    stored_as_scd_type: Option<u8>,
}

impl Layer for Gold {
    type Plan = Dated;
    type Extra = Extra;

    const NAME: &'static str = "gold";
    const ABOUT: &'static str = "Brings gold tables up to date: results of queries and daily history";

    fn compile(document: &Document, _: &Header, problems: &mut Problems) -> Vec<Dated> {
        // What is wrong with a silver table is told by `silver` and by the orchestrator.
        let silver = document.section::<Keyed>("silver", &mut document.problems());
        let keys_of = |table: &TableName| {
            let entry = silver.iter().find(|entry| entry.name == table.name)?;
            Some(Keys { entity: entry.raw.keys.clone(), is_row: entry.raw.stored_as_scd_type != Some(2) })
        };
        let entries = document.section("gold", problems);
        let plans: Vec<Plan> = entries.iter().filter_map(|entry| gold::compile(entry, &keys_of, problems)).collect();
        check_sources(document, &plans, problems);
        let plans = gold::in_order(plans).unwrap_or_else(|circle| {
            let names = circle.iter().map(|table| format!("`{table}`")).collect::<Vec<_>>().join(", ");
            let message = format!("these tables need one another in a circle: {names}");
            problems.add(Problem::at(&SpecPath::of(["gold"]), message));
            Vec::new()
        });
        plans.into_iter().map(|plan| Dated { plan, day: None }).collect()
    }

    fn table(dated: &Dated) -> TableName {
        dated.plan.table().clone()
    }

    async fn run(dated: &Dated, place: &Place, context: &RunContext) -> Result<TaskReport> {
        let zone = place.header.timezone;
        match (&dated.plan, dated.day) {
            (Plan::Snapshot(plan), Some(day)) => gold::record(&place.lake, plan, context, zone, day).await,
            (plan, _) => gold::run(&place.lake, plan, context, zone).await,
        }
    }

    fn output(extra: &Extra) -> Output {
        extra.output()
    }

    async fn prepare(
        extra: &Extra,
        plans: Vec<Dated>,
        place: &Place,
        _: &RunContext,
        printer: Printer,
    ) -> Result<Vec<Dated>, Failure> {
        extra.run(plans, place, printer).await
    }
}

/// Reports tables that no task of the spec writes.
fn check_sources(document: &Document, plans: &[Plan], problems: &mut Problems) {
    let layers = [("bronze", "bronze"), ("silver", "silver"), ("gold", "gold"), ("quarantine", "bronze")];
    let names = |(layer, section)| document.names(section).into_iter().map(move |name| format!("{layer}.{name}"));
    let known: Vec<String> = layers.into_iter().flat_map(names).collect();
    for plan in plans {
        let path = SpecPath::of(["gold", plan.table().name.as_str()]).key(plan.source_key());
        for source in plan.sources().iter().map(TableName::to_string).filter(|source| !known.contains(source)) {
            let problem = Problem::at(&path, format!("there is no table `{source}`"));
            problems.add(problem.did_you_mean(&source, known.iter().map(String::as_str)));
        }
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Gold>()
}
