//! `orchestrator query`: SQL over the tables of the lake.

use clap::ValueEnum;
use lake::Clock;
use lake::report::EXIT_DONE;

use crate::spec::Project;
use crate::tools::query;
use crate::tools::rows::{Csv, Json, Sink, Table};
use cli::{Failure, Printer};

/// Ask the tables of the lake: `bronze.x`, `silver.y`, `gold.z`, `quarantine.x`
///
/// Read-only: queries, EXPLAIN and DESCRIBE. Names keep their case; put others than plain lower-case ones in double
/// quotes. A table as it was: `silver.orders VERSION AS OF 3` or `silver.orders@v3`, `silver.orders TIMESTAMP AS OF
/// '2024-05-01 10:00:00'` (in the pipeline's zone unless it has an offset).
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
    /// At most so many rows; 0 is no limit. Default: 1000 for a table, no limit for csv and json
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowOutput {
    /// For people
    Table,
    /// RFC 4180 with a header; null is bare, an empty text is ""
    Csv,
    /// An array of objects, one a line; decimals, dates and times as text
    Json,
}

/// A table is held in memory to line its columns up, so it has a limit when none is given.
const TABLE_ROWS_MAX: usize = 1_000;

pub(super) async fn run(project: &Project, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let lake = project.header.lake(&project.folder, clock)?;
    let limit = match (args.limit, args.output) {
        (Some(0), _) | (None, RowOutput::Csv | RowOutput::Json) => None,
        (Some(limit), _) => Some(limit),
        (None, RowOutput::Table) => Some(TABLE_ROWS_MAX),
    };
    let mut sink: Box<dyn Sink> = match args.output {
        RowOutput::Table => Box::new(Table::default()),
        RowOutput::Csv => Box::new(Csv),
        RowOutput::Json => Box::new(Json::default()),
    };
    let planned: Vec<String> = project.tasks.iter().map(|task| task.name.to_string()).collect();
    // One more than is shown, to know whether there are more.
    let (zone, rows) = (project.header.timezone, limit.map(|limit| limit.saturating_add(1)));
    let mut answer = query::query(&lake, &planned, zone, &args.sql, rows).await?;
    printer.data(&sink.begin(&answer.schema()))?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut more = false;
    while let Some(batch) = answer.next().await? {
        more = batch.num_rows() > left;
        let shown = batch.slice(0, batch.num_rows().min(left));
        left -= shown.num_rows();
        printer.data(&sink.rows(&shown)?)?;
        if more {
            break;
        }
    }
    printer.data(&sink.end())?;
    if more && args.limit.is_none() {
        printer.note(&format!("only the first {TABLE_ROWS_MAX} rows; `--limit 0` shows all\n"));
    }
    Ok(EXIT_DONE)
}
