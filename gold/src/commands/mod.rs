//! The commands of the `gold` program beside `run`.

mod days;
mod models;

use chrono::NaiveDate;
use clap::Subcommand;
use cli::rows::RowOutput;
use cli::{Failure, Output, Place, Printer};
use gold::{ModelPlan, Plan};

/// What the program does beside `run`.
#[derive(Debug, Subcommand)]
pub(crate) enum Extra {
    /// Record a day of snapshots: today, or an earlier one from the table as it was at the end of that day
    Snapshot {
        /// The snapshots, with or without `gold.`; none is every one of the spec
        tables: Vec<String>,
        /// The day, in the pipeline's zone; today without it
        #[arg(long, value_name = "DAY")]
        date: Option<NaiveDate>,
        /// How the summary is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
    /// The state of a table on a day, from a snapshot of it; the same for both strategies
    AsOf {
        /// The snapshot, with or without `gold.`
        table: String,
        /// The day, in the pipeline's zone; today without it
        #[arg(long, value_name = "DAY")]
        date: Option<NaiveDate>,
        /// How rows are printed
        #[arg(long, value_enum, default_value = "table")]
        output: RowOutput,
        /// At most so many rows; 0 is no limit. Default: 1000 for a table, no limit for the others
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// What snapshots hold day by day: rows, keys that are there twice, days without a run
    Check {
        /// The snapshots, with or without `gold.`; none is every one of the spec
        tables: Vec<String>,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Tell how models follow their sources: by which groups, or why as a whole
    Explain {
        /// The models, with or without `gold.`; none is every model of the spec
        models: Vec<String>,
        /// How the answers are printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Compare models with the full results of their queries, row by row; a difference ends with 1
    Verify {
        /// The models, with or without `gold.`; none is every model of the spec
        models: Vec<String>,
        /// How the answers are printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Compute models as a whole, whether something has changed or not
    Rebuild {
        /// The models, with or without `gold.`
        #[arg(required = true)]
        models: Vec<String>,
        /// How the summary is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
}

/// A table to be brought up to date, of a snapshot perhaps for another day than today.
pub(crate) struct Dated {
    pub(crate) plan: Plan,
    pub(crate) day: Option<NaiveDate>,
}

impl Extra {
    /// How the summary is printed when tables are brought up to date.
    pub(crate) fn output(&self) -> Output {
        match self {
            Self::Snapshot { output, .. }
            | Self::Check { output, .. }
            | Self::Explain { output, .. }
            | Self::Verify { output, .. }
            | Self::Rebuild { output, .. } => *output,
            Self::AsOf { .. } => Output::Table,
        }
    }

    /// Does what was asked for, and names the tables to bring up to date.
    ///
    /// # Errors
    /// What the command fails with.
    pub(crate) async fn run(&self, plans: Vec<Dated>, place: &Place, printer: Printer) -> Result<Vec<Dated>, Failure> {
        match self {
            Self::Snapshot { tables, date, .. } => {
                let snapshots = days::snapshots(plans, tables)?.into_iter();
                Ok(snapshots.map(|plan| Dated { plan: Plan::Snapshot(plan), day: *date }).collect())
            }
            Self::AsOf { table, date, output, limit } => {
                days::as_of(place, &days::snapshot(plans, table)?, *date, *output, *limit, printer).await?;
                Ok(Vec::new())
            }
            Self::Check { tables, output } => {
                days::check(place, &days::snapshots(plans, tables)?, *output, printer).await?;
                Ok(Vec::new())
            }
            Self::Explain { models, output } => {
                models::explain(&models::models(plans, models)?, place, *output, printer).await?;
                Ok(Vec::new())
            }
            Self::Verify { models, output } => {
                let chosen = models::models(plans, models)?;
                models::verify(&chosen, models.is_empty(), place, *output, printer).await?;
                Ok(Vec::new())
            }
            Self::Rebuild { models, .. } => {
                let chosen = models::models(plans, models)?.into_iter();
                let anew = |plan| Dated { plan: Plan::Model(ModelPlan { rebuild: true, ..plan }), day: None };
                Ok(chosen.map(anew).collect())
            }
        }
    }
}
