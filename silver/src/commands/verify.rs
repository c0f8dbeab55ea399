//! `silver verify`: whether tables keep their promises.

use cli::{Failure, Output, Place, Printer};
use lake::{Error, ErrorKind};
use silver::TablePlan;
use silver::verify::{Verdict, verify};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The tables, with or without `silver.`; none is every table of the spec
    pub(crate) tables: Vec<String>,
    /// Also make every table anew from the whole of bronze, aside, and compare row by row
    #[arg(long)]
    rebuild: bool,
    /// How the answers are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

impl Verify {
    /// Asks, prints the answers, and fails when one is no.
    pub(crate) async fn answer(&self, plans: Vec<TablePlan>, place: &Place, printer: Printer) -> Result<(), Failure> {
        let mut verdicts = Vec::new();
        for plan in plans {
            if self.tables.is_empty() && place.lake.table(&plan.table).await?.is_none() {
                printer.note(&format!("{} does not exist yet\n", plan.table));
                continue;
            }
            verdicts.push(verify(&place.lake, &plan, self.rebuild).await?);
        }
        match self.output {
            Output::Json => {
                let verdicts: Vec<_> = verdicts.iter().map(Verdict::to_json).collect();
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
            return Ok(());
        }
        let error = Error::new(ErrorKind::Data, format!("{} does not keep its promises", broken.join(", ")));
        Err(error
            .hint(
                "a key that comes twice is always a fault. A difference from bronze need not be one: a change may have \
                 come after `tombstone_retention`, and the spec may take by now what it refused. `silver rebuild` makes \
                 the table anew",
            )
            .into())
    }
}
