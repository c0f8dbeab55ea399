//! `orchestrator table files | sample`: what a table is made of.

use chrono::SecondsFormat;
use futures::StreamExt;
use lake::listing::ListedFile;
use lake::report::grid::{Align, Grid, NOTHING};
use lake::report::{EXIT_DONE, WIDTH, counted, size, thousands};
use lake::{Error, Lake};
use serde_json::{Value, json};

use super::{at_version, one_name};
use crate::tools::diff::plain;
use cli::rows::RowOutput;
use cli::{Failure, Output, Printer};

/// Characters of a path or value in a table for people.
const CELL_WIDTH: usize = 22;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table files silver.orders
  orchestrator table files silver.orders --column order_date
  orchestrator table files silver.orders --version 3 --output json")]
pub(super) struct Files {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The files of this version. Default: the newest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// The column whose least and greatest value is shown. Default: the first with statistics. JSON has all
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,
    /// How they are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table sample silver.orders
  orchestrator table sample silver.orders --limit 100 --output csv
  orchestrator table sample silver.orders --version 3")]
pub(super) struct Sample {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// As it was at this version. Default: the newest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// At most so many rows
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "table")]
    output: RowOutput,
}

pub(super) async fn files(lake: &Lake, args: &Files, printer: &Printer) -> Result<u8, Failure> {
    let newest = lake.existing(&one_name(lake, &args.table).await?).await?;
    let table = at_version(lake, &newest, args.version.unwrap_or_else(|| newest.version())).await?;
    let files = table.listed_files()?;
    if args.output == Output::Json {
        printer.data(&format!("{}\n", files.iter().map(object).collect::<Value>()))?;
        return Ok(EXIT_DONE);
    }
    let schema = table.schema();
    let has_stats = |name: &&str| files.iter().any(|file| file.columns.contains_key(*name));
    let mut names = schema.fields().iter().map(|field| field.name().as_str());
    let column = match &args.column {
        Some(column) if schema.index_of(column).is_err() => {
            let error = Error::spec(format!("{} has no column `{column}`", table.name()));
            let hint = lake::spec::did_you_mean(column, names);
            return Err(error
                .hint(hint.unwrap_or_else(|| "`orchestrator table describe` shows them".to_owned()))
                .into());
        }
        Some(column) => Some(column.as_str()),
        None => names.find(has_stats),
    };
    printer.data(&text(&files, column))?;
    Ok(EXIT_DONE)
}

fn text(files: &[ListedFile], column: Option<&str>) -> String {
    let mut grid = Grid::new();
    let at = |file: &ListedFile| file.written_at.map(|at| at.format("%Y-%m-%d %H:%M").to_string()).unwrap_or_default();
    let count = |rows: Option<u64>| rows.map_or("-".to_owned(), thousands);
    let deleted = |file: &ListedFile| if file.deleted == 0 { NOTHING.to_owned() } else { thousands(file.deleted) };
    grid.column("file", None, Align::Left, files.iter().map(|file| end(&file.path)));
    grid.column("written (UTC)", None, Align::Left, files.iter().map(at));
    grid.column("size", None, Align::Right, files.iter().map(|file| size(file.bytes)));
    grid.column("rows", None, Align::Right, files.iter().map(|file| count(file.rows)));
    grid.column("deleted", None, Align::Right, files.iter().map(deleted));
    if let Some(column) = column {
        let bound =
            |file: &ListedFile, place: usize| file.columns.get(column).map_or(String::new(), |of| plain(&of[place]));
        grid.column("from", None, Align::Left, files.iter().map(|file| start(&bound(file, 0))));
        grid.column("to", None, Align::Left, files.iter().map(|file| start(&bound(file, 1))));
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    let bounds = column.map(|column| format!("; from and to: values of `{column}`")).unwrap_or_default();
    format!("{}{}, {}{bounds}\n", grid.render(WIDTH), counted(files.len(), "file"), size(bytes))
}

/// The end of a path, by which files differ.
fn end(path: &str) -> String {
    let count = path.chars().count();
    match count > CELL_WIDTH {
        true => std::iter::once('…').chain(path.chars().skip(count - CELL_WIDTH + 1)).collect(),
        false => path.to_owned(),
    }
}

fn start(text: &str) -> String {
    match text.chars().count() > CELL_WIDTH {
        true => text.chars().take(CELL_WIDTH - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn object(file: &ListedFile) -> Value {
    let column = |(name, [least, greatest, nulls]): (&String, &[Value; 3])| {
        (name.clone(), json!({"min": least, "max": greatest, "nulls": nulls}))
    };
    json!({
        "path": file.path,
        "bytes": file.bytes,
        "rows": file.rows,
        "deleted": file.deleted,
        "written_at": file.written_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)),
        "partition": file.partition,
        "columns": file.columns.iter().map(column).collect::<serde_json::Map<_, _>>(),
        "tags": file.tags,
    })
}

pub(super) async fn sample(lake: &Lake, args: &Sample, printer: &Printer) -> Result<u8, Failure> {
    let newest = lake.existing(&one_name(lake, &args.table).await?).await?;
    let table = at_version(lake, &newest, args.version.unwrap_or_else(|| newest.version())).await?;
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(&table).await?).map_err(Error::from)?;
    let rows = rows.limit(0, Some(args.limit)).map_err(Error::from)?;
    let stream = rows.execute_stream().await.map_err(Error::from)?;
    let schema = stream.schema();
    let rows = stream.map(|batch| batch.map_err(Error::from));
    args.output.print(&schema, rows, None, *printer).await?;
    Ok(EXIT_DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_the_ends_of_their_names() {
        assert_eq!(
            end("part-00000-61d16c75-6994-46b7-a15b-8b538852e50e-c000.snappy.parquet").chars().count(),
            CELL_WIDTH
        );
        let file = ListedFile {
            path: "day=1/a.parquet".to_owned(),
            rows: Some(1_000),
            columns: [("id".to_owned(), [json!(1), json!("x".repeat(40)), json!(0)])].into(),
            ..ListedFile::default()
        };
        let text = text(&[file], Some("id"));
        assert!(text.contains("day=1/a.parquet") && text.contains("1,000") && text.contains("xxx…"), "{text}");
    }
}
