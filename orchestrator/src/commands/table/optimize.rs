//! `orchestrator table optimize`: files of tables put together anew.

use lake::optimize::{FILE_SIZE_BYTES, Figures, Optimize};
use lake::report::grid::{Align, Grid};
use lake::report::{EXIT_DONE, EXIT_FAILED, WIDTH, counted, error_text, size, thousands};
use lake::run::RunContext;
use lake::spec::ByteSize;
use lake::{Error, Lake, TableName};
use serde_json::{Value, json};

use super::chosen;
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// Files were put together. Details: the figures, by table.
const OPTIMIZED: &str = "optimize";

/// Small files become one, rows that are marked as deleted go from the files; with `--zorder-by` rows that are near each
/// other in these columns come to lie near each other
///
/// No row changes, older versions stay as they are, and other writers may go on meanwhile: files that they touch are left
/// to the next time. Only files that gain are written again; of clustered tables that is what has come since.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table optimize
  orchestrator table optimize silver.orders --zorder-by customer_id,order_date
  orchestrator table optimize gold.products_daily_copy --where snapshot_date=2024-05-01")]
pub(super) struct Args {
    /// The tables: `silver.orders`; none is every table of the lake
    pub(super) tables: Vec<String>,
    /// The columns, separated by commas, that queries filter by. Default: `zorder_by` of the spec
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    zorder_by: Vec<String>,
    /// Also files that are clustered already
    #[arg(long)]
    full: bool,
    /// Only partitions with this value: `day=2024-05-01`; `day=` is null. May be given several times
    #[arg(long = "where", value_name = "COLUMN=VALUE", value_parser = partition)]
    partitions: Vec<(String, Option<String>)>,
    /// How large files should be
    #[arg(long, value_name = "SIZE")]
    target_file_size: Option<ByteSize>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

fn partition(text: &str) -> Result<(String, Option<String>), String> {
    let (column, value) = text.split_once('=').ok_or("write it as `column=value`")?;
    Ok((column.trim().to_owned(), Some(value.to_owned()).filter(|value| !value.is_empty())))
}

pub(super) async fn run(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let asked = Optimize {
        zorder_by: args.zorder_by.clone(),
        full: args.full,
        partitions: args.partitions.clone(),
        file_size: args.target_file_size.map_or(FILE_SIZE_BYTES, ByteSize::as_bytes),
        ..Optimize::default()
    };
    if asked.file_size == 0 {
        return Err(Error::spec("`--target-file-size` is 0").hint("write for example `128MiB`").into());
    }
    let needs_a_name = !asked.zorder_by.is_empty() || !asked.partitions.is_empty();
    if args.tables.is_empty() && needs_a_name {
        let error = Error::spec("name the tables whose columns are meant");
        return Err(error.hint("`orchestrator table optimize silver.orders --zorder-by …`").into());
    }
    let context = RunContext::new(lake);
    let (mut told, mut failure) = (Vec::new(), None);
    for name in chosen(lake, &args.tables).await? {
        let mut asked = asked.clone();
        if asked.zorder_by.is_empty() {
            asked.zorder_by = project.task(&name).map(|task| task.job.zorder_by().to_vec()).unwrap_or_default();
        }
        match one(lake, &name, asked, args.dry_run, &context).await {
            Ok(Some(figures)) => told.push((name, figures)),
            Ok(None) => {}
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let details: Value = told.iter().map(|(name, figures)| (name.to_string(), object(*figures))).collect();
    match args.output {
        Output::Json => printer.data(&format!("{}\n", json!({"dry_run": args.dry_run, "tables": details})))?,
        Output::Table => printer.data(&text(&told, args.dry_run))?,
    }
    if !args.dry_run && told.iter().any(|(_, figures)| figures.files_removed > 0) {
        let files = told.iter().map(|(_, figures)| figures.files_removed).sum::<u64>();
        let message = format!("{} files written anew", thousands(files));
        context.events.record(None, OPTIMIZED, lake::events::Level::Info, message, json!({"tables": details}));
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("the tables are optimized, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(EXIT_DONE),
    }
}

/// Optimizes a table, or only says what there is to do; `None` when there is no such table.
async fn one(
    lake: &Lake,
    name: &TableName,
    asked: Optimize,
    dry_run: bool,
    context: &RunContext,
) -> Result<Option<Figures>, Error> {
    let Some(mut table) = lake.table(name).await? else { return Ok(None) };
    if dry_run {
        return asked.plan(&table).map(Some);
    }
    let figures = lake::commit::redoing(lake.clock(), async || {
        table.reload().await?;
        asked.run(lake, &mut table, &context.run).await
    });
    figures.await.map(Some)
}

fn object(figures: Figures) -> Value {
    json!({
        "files_removed": figures.files_removed,
        "bytes_removed": figures.bytes_removed,
        "files_added": figures.files_added,
        "bytes_added": figures.bytes_added,
        "rows": figures.rows,
        "rows_purged": figures.rows_purged,
        "bins_skipped": figures.bins_skipped,
    })
}

fn text(told: &[(TableName, Figures)], dry_run: bool) -> String {
    let some: Vec<&(TableName, Figures)> =
        told.iter().filter(|(_, figures)| figures.files_removed + figures.bins_skipped > 0).collect();
    let tables = counted(told.len(), "table");
    if some.is_empty() {
        return format!("nothing to gain in {tables}\n");
    }
    let mut grid = Grid::new();
    grid.column("table", None, Align::Left, some.iter().map(|(name, _)| name.to_string()));
    let mut column = |title: &str, of: &dyn Fn(&Figures) -> String| {
        grid.column(title, None, Align::Right, some.iter().map(|(_, figures)| of(figures)));
    };
    let number = |number: u64| if number == 0 { "-".to_owned() } else { thousands(number) };
    column("files", &|figures| number(figures.files_removed));
    column("size", &|figures| size(figures.bytes_removed));
    if !dry_run {
        column("files now", &|figures| number(figures.files_added));
        column("size now", &|figures| size(figures.bytes_added));
    }
    column("purged rows", &|figures| number(figures.rows_purged));
    column("left to next time", &|figures| number(figures.bins_skipped));
    let files = some.iter().map(|(_, figures)| figures.files_removed).sum::<u64>();
    let word = if dry_run { "would be written anew" } else { "written anew" };
    format!("{}{} files of {tables} {word}\n", grid.render(WIDTH), thousands(files))
}
