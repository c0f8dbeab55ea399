//! The `silver` program: brings silver tables up to date with bronze, against the same spec as the orchestrator.

use std::process::ExitCode;

use clap::Subcommand;
use cli::{Failure, Layer, Output, Place, Printer};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problems};
use lake::{Error, ErrorKind, Result, TableName};
use silver::TablePlan;

struct Silver;

#[derive(Debug, Subcommand)]
enum Extra {
    /// Ask tables whether they keep their promises: no key twice, no row without a key
    Verify {
        /// The tables, with or without `silver.`; none is every table of the spec
        tables: Vec<String>,
        /// Also make every table anew from the whole of bronze, aside, and compare row by row
        #[arg(long)]
        rebuild: bool,
        /// How the answers are printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
}

impl Layer for Silver {
    type Plan = TablePlan;
    type Extra = Extra;

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

    /// Verifies; no table is brought up to date then.
    async fn prepare(
        extra: &Extra,
        plans: Vec<TablePlan>,
        place: &Place,
        _: &RunContext,
        printer: Printer,
    ) -> Result<Vec<TablePlan>, Failure> {
        let Extra::Verify { tables, rebuild, output } = extra;
        let mut verdicts = Vec::new();
        for plan in cli::chosen::<Self>(plans, tables)? {
            if tables.is_empty() && place.lake.table(&plan.table).await?.is_none() {
                printer.note(&format!("{} does not exist yet\n", plan.table));
                continue;
            }
            verdicts.push(silver::verify::verify(&place.lake, &plan, *rebuild).await?);
        }
        match output {
            Output::Json => {
                let verdicts: Vec<_> = verdicts.iter().map(silver::verify::Verdict::to_json).collect();
                printer.data(&format!("{}\n", serde_json::Value::from(verdicts)))?;
            }
            Output::Table => {
                for verdict in &verdicts {
                    printer.data(&verdict.to_text())?;
                }
            }
        }
        let broken: Vec<_> =
            verdicts.iter().filter(|verdict| !verdict.holds()).map(|one| one.table.to_string()).collect();
        if broken.is_empty() {
            return Ok(Vec::new());
        }
        let error = Error::new(ErrorKind::Data, format!("{} does not keep its promises", broken.join(", ")));
        Err(error
            .hint(
                "a key that comes twice is always a fault. A difference from bronze need not be one: a column that joined \
                 later is null in rows applied before, a change may have come after `tombstone_retention`, and the spec \
                 may take by now what it refused. To make the table anew, delete its folder and run `silver run`",
            )
            .into())
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Silver>()
}
