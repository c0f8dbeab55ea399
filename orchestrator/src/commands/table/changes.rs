//! `orchestrator table changes`: the change data feed of a table.

use lake::Lake;
use lake::changes::feed;
use lake::report::EXIT_DONE;

use super::{at_version, one_name};
use cli::rows::RowOutput;
use cli::{Failure, Printer};

/// The changes of a table, row by row: `insert`, `delete`, and an update as it was and as it is
///
/// Where a version tells which rows changed (`change_data_feed: true`, the default of silver), these are shown; where rows
/// were marked as deleted an update is a delete and an insert. Of other tables every row of a file that was written anew is
/// told as gone and come.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table changes silver.orders --from 4
  orchestrator table changes silver.orders --from 4 --to 7 --output parquet > changes.parquet")]
pub(super) struct Args {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The changes after this version
    #[arg(long, value_name = "N")]
    from: u64,
    /// The changes up to this version, with its own. Default: the newest
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "table")]
    output: RowOutput,
    /// At most so many rows; 0 is no limit. Default: 1000 for a table, no limit for the others
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub(super) async fn run(lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let newest = lake.existing(&one_name(lake, &args.table).await?).await?;
    let table = at_version(lake, &newest, args.to.unwrap_or_else(|| newest.version())).await?;
    if args.from > table.version() {
        let error = lake::Error::spec(format!("version {} comes after version {}", args.from, table.version()));
        return Err(error.hint("`--from` is the older one").into());
    }
    let feed = feed(&table, args.from).await?;
    if let (Some(first), Some(last)) = (feed.untold.first(), feed.untold.last()) {
        printer.note(&format!(
            "note: versions {first} to {last} do not all tell which rows of a file changed: where they do not, rows that \
             stayed are shown as well\n"
        ));
    }
    let limit = args.output.limit(args.limit);
    let more = args.output.print(&feed.schema(), feed.rows(), limit, *printer).await?;
    if more && args.limit.is_none() {
        args.output.note_limit(*printer);
    }
    Ok(EXIT_DONE)
}
