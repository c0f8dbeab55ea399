//! `orchestrator table list | history | describe`: what tables are, and what they were.

use std::collections::BTreeMap;

use arrow::datatypes::{FieldRef, SchemaRef};
use chrono::{DateTime, SecondsFormat, Utc};
use lake::history::Version;
use lake::report::grid::{Align, Grid, NOTHING};
use lake::report::{EXIT_DONE, WIDTH, size, thousands, wrapped};
use lake::schema::type_name;
use lake::{Lake, Table};
use serde_json::{Value, json};

use super::chosen;
use super::diff::cut;
use crate::tools::maintained::last;
use cli::{Failure, Output, Printer};

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// How they are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(super) struct History {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// At most so many versions; 0 is no limit
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// How they are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(super) struct Describe {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn list(lake: &Lake, args: &List, printer: &Printer) -> Result<u8, Failure> {
    let mut tables = Vec::new();
    for name in chosen(lake, &[]).await? {
        let Some(table) = lake.table(&name).await? else { continue };
        let newest = lake::history::history(&table, 1).await?.into_iter().next().unwrap_or_default();
        tables.push((table, newest));
    }
    let size_of = |table: &Table| table.files_size().unwrap_or_default();
    if args.output == Output::Json {
        let object = |(table, newest): &(Table, Version)| -> Result<Value, lake::Error> {
            Ok(json!({
                "table": table.name().to_string(),
                "version": table.version(),
                "rows": table.row_count()?,
                "files": table.file_count()?,
                "bytes": size_of(table),
                "changed_at": newest.at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)),
                "operation": newest.operation,
            }))
        };
        let list = tables.iter().map(object).collect::<Result<Vec<_>, _>>()?;
        printer.data(&format!("{}\n", Value::from(list)))?;
        return Ok(EXIT_DONE);
    }
    if tables.is_empty() {
        printer.data("no tables yet: `orchestrator run` makes them\n")?;
        return Ok(EXIT_DONE);
    }
    let mut grid = Grid::new();
    let count = |number: Option<u64>| number.map_or("-".to_owned(), thousands);
    grid.fitted("table", 24, tables.iter().map(|(table, _)| table.name().to_string()));
    grid.column("version", Some("ver."), Align::Right, tables.iter().map(|(table, _)| table.version().to_string()));
    grid.column("rows", None, Align::Right, tables.iter().map(|(table, _)| count(table.row_count().ok().flatten())));
    let files = |table: &Table| count(table.file_count().ok().and_then(|files| u64::try_from(files).ok()));
    grid.column("files", None, Align::Right, tables.iter().map(|(table, _)| files(table)));
    grid.column("size", None, Align::Right, tables.iter().map(|(table, _)| size(size_of(table))));
    grid.column("changed (UTC)", None, Align::Left, tables.iter().map(|(_, newest)| moment(newest.at)));
    printer.data(&grid.render(WIDTH))?;
    Ok(EXIT_DONE)
}

pub(super) async fn history(lake: &Lake, args: &History, printer: &Printer) -> Result<u8, Failure> {
    let table = one(lake, &args.table).await?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let versions = lake::history::history(&table, limit).await?;
    if args.output == Output::Json {
        printer.data(&format!("{}\n", versions.iter().map(Version::to_json).collect::<Value>()))?;
        return Ok(EXIT_DONE);
    }
    let text = [true, false].map(|with_size| versions_text(&versions, with_size));
    let is_narrow = |text: &&String| text.lines().all(|line| line.chars().count() <= WIDTH);
    printer.data(text.iter().find(is_narrow).unwrap_or(&text[1]))?;
    match versions.last().map(|oldest| oldest.version) {
        Some(oldest) if oldest > 0 && versions.len() == limit => {
            printer.note(&format!("{} older; `--limit 0` shows all\n", thousands(oldest)));
        }
        Some(oldest) if oldest > 0 => printer.note(&format!("the log does not reach back before version {oldest}\n")),
        _ => {}
    }
    Ok(EXIT_DONE)
}

/// Versions line by line; what came in bytes only where there is room.
fn versions_text(versions: &[Version], with_size: bool) -> String {
    let mut grid = Grid::new();
    let files = |one: &Version| match (one.files_added, one.files_removed) {
        (0, 0) => NOTHING.to_owned(),
        (come, 0) => format!("+{}", thousands(come)),
        (0, gone) => format!("-{}", thousands(gone)),
        (come, gone) => format!("+{} -{}", thousands(come), thousands(gone)),
    };
    grid.column("version", Some("ver."), Align::Right, versions.iter().map(|one| one.version.to_string()));
    grid.column("at (UTC)", None, Align::Left, versions.iter().map(|one| moment(one.at)));
    grid.fitted("operation", 9, versions.iter().map(|one| one.operation.clone()));
    grid.column("run", None, Align::Left, versions.iter().map(|one| one.run.clone().unwrap_or_default()));
    grid.column("rows +", None, Align::Right, versions.iter().map(|one| thousands(one.rows_added)));
    grid.column("files", None, Align::Right, versions.iter().map(files));
    if with_size {
        grid.column("size +", None, Align::Right, versions.iter().map(|one| size(one.bytes_added)));
    }
    grid.render(WIDTH)
}

pub(super) async fn describe(lake: &Lake, args: &Describe, printer: &Printer) -> Result<u8, Failure> {
    let table = one(lake, &args.table).await?;
    let partitions = table.partition_columns()?;
    let schema = table.schema();
    let mut properties: Vec<(&String, &String)> = table.properties()?.iter().collect();
    properties.sort();
    let protocol = table.protocol()?;
    let (tags, maintenance) = (lake::tags::tags(&table)?, last(lake, &table).await?);
    let descriptions = table.column_descriptions()?;
    if args.output == Output::Json {
        let column = |field: &FieldRef| {
            let (name, about) = (field.name(), descriptions.get(field.name()));
            json!({"name": name, "type": type_name(field.data_type()), "nullable": field.is_nullable(), "description": about})
        };
        let told = json!({
            "table": table.name().to_string(),
            "location": table.location(),
            "id": table.id()?,
            "description": table.description()?,
            "version": table.version(),
            "rows": table.row_count()?,
            "files": table.file_count()?,
            "bytes": table.files_size()?,
            "columns": schema.fields().iter().map(column).collect::<Vec<_>>(),
            "partition_by": partitions,
            "properties": properties.into_iter().collect::<BTreeMap<_, _>>(),
            "tags": tags,
            "maintenance": maintenance.to_json(),
            "protocol": {"reader": protocol.reader, "writer": protocol.writer, "features": protocol.features},
        });
        printer.data(&format!("{told}\n"))?;
        return Ok(EXIT_DONE);
    }
    let rows = table.row_count()?.map_or("unknown".to_owned(), thousands);
    let files = thousands(u64::try_from(table.file_count()?).unwrap_or(u64::MAX));
    let mut facts = vec![
        ("location", table.location()),
        ("version", table.version().to_string()),
        ("rows", rows),
        ("files", format!("{files}, {}", size(table.files_size()?))),
        ("protocol", format!("reader {}, writer {}", protocol.reader, protocol.writer)),
    ];
    if !protocol.features.is_empty() {
        facts.push(("features", protocol.features.join(", ")));
    }
    if !partitions.is_empty() {
        facts.push(("partitioned by", partitions.join(", ")));
    }
    if !tags.is_empty() {
        let tags = tags.iter().map(|(name, version)| format!("{name} = {version}"));
        facts.push(("named versions", tags.collect::<Vec<_>>().join(", ")));
    }
    facts.extend(maintenance.to_lines());
    let facts: String =
        facts.into_iter().map(|(name, value)| wrapped(&format!("{name:<15} "), 16, &value) + "\n").collect();
    let about = table.description()?.map(|text| wrapped("", 0, &text) + "\n").unwrap_or_default();
    let mut text = format!("{}\n{about}{facts}\n{}", table.name(), columns_text(&schema, &descriptions));
    if !properties.is_empty() {
        text.push_str("\nproperties\n");
        let line = |(name, value): &(&String, &String)| format!("  {}\n", cut(&format!("{name} = {value}")));
        properties.iter().for_each(|property| text.push_str(&line(property)));
    }
    printer.data(&text)?;
    Ok(EXIT_DONE)
}

/// Columns line by line, with what is said of them where anything is.
fn columns_text(schema: &SchemaRef, descriptions: &BTreeMap<String, String>) -> String {
    let (mut grid, fields) = (Grid::new(), schema.fields());
    grid.fitted("column", 30, fields.iter().map(|field| field.name().clone()));
    grid.fitted("type", 20, fields.iter().map(|field| type_name(field.data_type())));
    let null = |nullable: bool| if nullable { "" } else { "not null" }.to_owned();
    grid.column("", None, Align::Left, fields.iter().map(|field| null(field.is_nullable())));
    if !descriptions.is_empty() {
        let about = |name: &String| descriptions.get(name).map(|text| text.replace('\n', " ")).unwrap_or_default();
        grid.fitted("description", 20, fields.iter().map(|field| about(field.name())));
    }
    grid.render(WIDTH)
}

async fn one(lake: &Lake, name: &str) -> Result<Table, Failure> {
    let names = chosen(lake, &[name.to_owned()]).await?;
    let name = names.first().ok_or_else(|| lake::Error::internal("no table was chosen"))?;
    Ok(lake.existing(name).await?)
}

/// To the second; nothing when it is not known.
fn moment(at: Option<DateTime<Utc>>) -> String {
    at.map(|at| at.format("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}
