//! `orchestrator query`: SQL over the tables of the lake.

use cli::rows::RowOutput;
use cli::{Failure, Printer};
use lake::Clock;
use lake::report::EXIT_DONE;

use crate::spec::Project;
use crate::tools::query;

/// Ask the tables of the lake: `bronze.x`, `silver.y`, `gold.z`, `quarantine.x`
///
/// Read-only: queries, EXPLAIN and DESCRIBE. Names keep their case; put others than plain lower-case ones in double
/// quotes. A table as it was: `silver.orders VERSION AS OF 3` or `silver.orders@v3`, `silver.orders TIMESTAMP AS OF
/// '2024-05-01 10:00:00'` (in the pipeline's zone unless it has an offset). The state of a day from a snapshot:
/// `as_of('gold.products_daily_snapshot', DATE '2024-05-01')`. Any Delta table, by its path: `delta."exports/orders"`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator query \"SELECT * FROM gold.daily_sales ORDER BY order_date\"
  orchestrator query \"SELECT count(*) FROM silver.orders VERSION AS OF 3\"
  orchestrator query \"SELECT reason, count(*) FROM quarantine.orders_cdc GROUP BY 1\" --output csv")]
pub(super) struct Args {
    /// The query, in DataFusion SQL
    sql: String,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "table")]
    output: RowOutput,
    /// At most so many rows; 0 is no limit. Default: 1000 for a table, no limit for the others
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Args {
    /// True when tables may be named by their paths: then there need be no spec.
    pub(super) fn is_by_path(&self) -> bool {
        self.sql.contains("delta.")
    }
}

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = match project.file.as_os_str().is_empty() {
        // Without a spec there are tables by their paths alone, and nothing is made.
        true => query::nowhere(clock)?,
        false => project.header.lake(&project.folder, clock)?,
    };
    let limit = args.output.limit(args.limit);
    let planned: Vec<String> = project.tasks.iter().map(|task| task.name.to_string()).collect();
    // One more than is shown, to know whether there are more.
    let (zone, rows) = (project.header.timezone, limit.map(|limit| limit.saturating_add(1)));
    let answer = query::query(&lake, &planned, zone, &args.sql, rows).await?;
    let more = args.output.print(&answer.schema(), answer.rows(), limit, *printer).await?;
    if more && args.limit.is_none() {
        args.output.note_limit(*printer);
    }
    Ok(EXIT_DONE)
}
