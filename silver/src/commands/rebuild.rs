//! `silver rebuild`: tables made anew from bronze, each swapped in by one commit.

use chrono_tz::Tz;
use cli::{Failure, Output, Place, Printer};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::{Error, Result};
use silver::TablePlan;
use silver::rebuild::{AsOf, Difference, preview, rebuild};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebuild {
    /// The tables, with or without `silver.`
    #[arg(required = true)]
    pub(crate) tables: Vec<String>,
    /// Only up to a batch of bronze (`batch 12`), a version of it (`version 40`), or what it was at a time
    /// (2024-05-01T10:00:00Z; without an offset, in the pipeline's zone): the next run goes on from there
    #[arg(long, value_name = "WHEN")]
    as_of: Option<String>,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

impl Rebuild {
    /// The tables to make anew; none when only their differences are asked for.
    pub(crate) async fn prepare(
        &self,
        plans: Vec<TablePlan>,
        place: &Place,
        context: &RunContext,
        printer: Printer,
    ) -> Result<Vec<TablePlan>, Failure> {
        let as_of = self.when(place.header.timezone)?;
        if !self.dry_run {
            return Ok(plans);
        }
        let mut differences = Vec::new();
        for plan in plans {
            differences.push(preview(&place.lake, &plan, as_of, context).await?);
        }
        match self.output {
            Output::Json => {
                let differences: Vec<_> = differences.iter().map(Difference::to_json).collect();
                printer.data(&format!("{}\n", serde_json::Value::from(differences)))?;
            }
            Output::Table => {
                for difference in &differences {
                    printer.data(&difference.to_text())?;
                }
            }
        }
        Ok(Vec::new())
    }

    /// Makes a table anew.
    pub(crate) async fn run(&self, plan: &TablePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        rebuild(&place.lake, plan, self.when(place.header.timezone)?, context).await
    }

    fn when(&self, zone: Tz) -> Result<Option<AsOf>> {
        let Some(text) = self.as_of.as_deref().map(str::trim) else { return Ok(None) };
        let number = |word: &str| text.strip_prefix(word).map(|number| number.trim_start_matches([' ', ':', '=']));
        let wrong = |error: std::num::ParseIntError| {
            let message = format!("`--as-of {text}` has no number");
            Error::spec(message).with_source(error).hint("write `batch 12`, `version 40`, or a time")
        };
        Ok(Some(match (number("batch"), number("version")) {
            (Some(batch), _) => AsOf::Batch(batch.parse().map_err(wrong)?),
            (_, Some(version)) => AsOf::Version(version.parse().map_err(wrong)?),
            (None, None) => AsOf::Moment(lake::history::moment(text, zone)?),
        }))
    }
}
