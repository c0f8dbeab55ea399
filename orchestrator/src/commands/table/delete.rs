//! `orchestrator table delete`: rows that meet a condition out of a table.

use lake::columns::{is_silver_technical, is_technical};
use lake::report::{EXIT_DONE, EXIT_FAILED, counted, error_text, thousands};
use lake::run::RunContext;
use lake::upsert::remove::doomed;
use lake::{Error, Lake, Layer, Table, TableName};
use serde_json::{Map, Value, json};

use super::one_name;
use crate::spec::{Job, Project};
use crate::tools::diff::{objects, plain};
use crate::tools::extracts::taken_out;
use cli::{Failure, Output, Printer};

/// Rows were deleted by hand. Details: `table`, `where`, `rows`.
const DELETED: &str = "table_delete";
/// Rows that are shown before.
const SHOWN: usize = 5;

/// Delete the rows of a table that meet a condition; earlier versions still have them
///
/// What would go is told first, and nothing is changed without `--yes`. A deleted row of silver comes back with the next
/// change of its key, and with `silver rebuild` while bronze has its records. A full extract that silver has still to apply
/// goes as a whole or not at all: what it lacks would be deleted there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table delete silver.orders --where \"customer_id = 'C-17'\"
  orchestrator table delete silver.orders --where \"customer_id = 'C-17'\" --yes
  orchestrator table delete bronze.orders_cdc --where \"_file_path = 'orders/bad.csv'\" --yes")]
pub(super) struct Args {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// SQL over the columns that is true for the rows
    #[arg(long = "where", value_name = "CONDITION")]
    condition: String,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// What would go, or went.
#[derive(Default)]
struct Preview {
    rows: u64,
    all: Option<u64>,
    files: (usize, usize),
    /// In the order in which people read them.
    columns: Vec<String>,
    examples: Vec<Map<String, Value>>,
    version: Option<u64>,
}

pub(super) async fn run(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let name = one_name(lake, &args.table).await?;
    check(project, &name)?;
    let context = RunContext::new(lake);
    let done = lake::commit::redoing(lake.clock(), async || {
        let mut table = lake.existing(&name).await?;
        let doomed = doomed(lake, &table, &args.condition).await?;
        let out = match doomed.rows() {
            0 => None,
            _ => taken_out(project, lake, &table, &args.condition).await?,
        };
        let mut preview = Preview {
            rows: doomed.rows(),
            all: table.row_count()?,
            files: doomed.files(),
            columns: columns(&table),
            examples: Vec::new(),
            version: None,
        };
        if args.yes && !args.dry_run && preview.rows > 0 {
            preview.version = Some(doomed.remove(lake, &mut table, out.as_slice(), &context.run).await?.version());
        } else if preview.rows > 0 {
            preview.examples = examples(lake, &table, &args.condition).await?;
        }
        Ok(preview)
    });
    let preview = done.await?;
    match args.output {
        Output::Json => printer.data(&format!("{}\n", object(&name, args, &preview)))?,
        Output::Table => printer.data(&text(&name, &preview))?,
    }
    if preview.version.is_none() && preview.rows > 0 && !args.dry_run {
        return Err(Error::spec("nothing was changed").hint("add `--yes` to do it").into());
    }
    if preview.version.is_some() {
        let task = name.to_string();
        let message = format!("{} rows deleted by hand", thousands(preview.rows));
        let details = object(&name, args, &preview);
        context.events.record(Some(&task), DELETED, lake::events::Level::Info, message, details);
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("the rows are deleted, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_DONE)
}

fn check(project: &Project, name: &TableName) -> Result<(), Error> {
    if !matches!(name.layer, Layer::Bronze | Layer::Silver | Layer::Gold | Layer::Delta) {
        let error = Error::spec(format!("{name} is the program's own"));
        return Err(match name.layer {
            Layer::Quarantine => error.hint("`orchestrator quarantine discard` closes refused records"),
            _ => error,
        });
    }
    let is_model = match project.task(name).map(|task| &task.job) {
        Some(Job::Gold(plan)) => plan.model().is_some(),
        _ => false,
    };
    if is_model {
        let error = Error::spec(format!("{name} is what its query gives: the next run would bring the rows back"));
        return Err(error.hint("delete them from its source, or leave them out in the query"));
    }
    Ok(())
}

async fn examples(lake: &Lake, table: &Table, condition: &str) -> Result<Vec<Map<String, Value>>, Error> {
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(table).await?)?;
    let condition = rows.parse_sql_expr(condition)?;
    objects(&rows.filter(condition)?.limit(0, Some(SHOWN))?.collect().await?)
}

/// The columns of a table, those that a person knows a row by first.
fn columns(table: &Table) -> Vec<String> {
    let schema = table.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let (technical, mut own): (Vec<String>, Vec<String>) =
        names.partition(|name| is_technical(name) || is_silver_technical(name));
    own.extend(technical);
    own
}

fn object(name: &TableName, args: &Args, preview: &Preview) -> Value {
    json!({
        "table": name.to_string(),
        "where": args.condition,
        "rows": preview.rows,
        "rows_before": preview.all,
        "files": preview.files.0,
        "files_gone": preview.files.1,
        "examples": preview.examples,
        "version": preview.version,
    })
}

fn text(name: &TableName, preview: &Preview) -> String {
    let of = preview.all.map(|all| format!(" of {}", thousands(all))).unwrap_or_default();
    let (rows, files) = (thousands(preview.rows), counted(preview.files.0, "file"));
    if preview.rows == 0 {
        return format!("{name}: no row{of} meets the condition\n");
    }
    if let Some(version) = preview.version {
        return format!("{name} version {version}: {rows}{of} rows deleted, in {files}\n");
    }
    let mut text = format!("{name}: {rows}{of} rows would be deleted, in {files}\n");
    for row in &preview.examples {
        let cells = preview.columns.iter().filter_map(|name| Some(format!("{name} {}", plain(row.get(name)?))));
        let line: String = cells.collect::<Vec<_>>().join(", ").chars().take(77).collect();
        text.push_str(&format!("  {line}\n"));
    }
    text
}
