//! One upsert of a Parquet file of changes into a table of a lake, timed by phase: what `tests/bench/upsert.py` runs.
//!
//! `upsert STORAGE TABLE CHANGES KEY SEQUENCE [auto|copy_on_write|merge_on_read]`: the table is `STORAGE/silver/TABLE`,
//! the changes have its columns and perhaps `op`, which is `D` for a delete. It commits, and prints one line of JSON.
//! `upsert query STORAGE TABLE SQL` computes a query over the table, which it calls `silver.TABLE`, and says how long that
//! took.

#![expect(clippy::print_stdout, reason = "what it measured is its output")]

use std::path::Path;

use datafusion::logical_expr::{ident, lit};
use datafusion::prelude::ParquetReadOptions;
use lake::commit::Txn;
use lake::session::Engine;
use lake::stage::Staged;
use lake::upsert::{DELETE, Upsert, WriteMode};
use lake::{Clock, Error, Lake, Result, RunId, TableName};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [query, storage, table, sql] = arguments.as_slice()
        && query == "query"
    {
        return read(storage, table, sql).await;
    }
    let [storage, table, changes, key, sequence, mode @ ..] = arguments.as_slice() else {
        return Err(Error::spec("usage: upsert STORAGE TABLE CHANGES KEY SEQUENCE [MODE]"));
    };
    let mode = match mode.first().map(String::as_str) {
        None | Some("auto") => WriteMode::Auto,
        Some("copy_on_write") => WriteMode::CopyOnWrite,
        Some("merge_on_read") => WriteMode::MergeOnRead,
        Some(other) => return Err(Error::spec(format!("`{other}` is no mode"))),
    };
    let clock = Clock::system();
    let started = clock.now_micros();
    let lake = Lake::open(storage, Path::new("."), clock.clone(), Engine::default())?;
    let mut table = lake.existing(&TableName::silver(table)).await?;
    let opened = clock.now_micros();

    let session = lake.session()?;
    let rows = session.context().read_parquet(changes, ParquetReadOptions::default()).await?;
    let has_op = rows.schema().has_column_with_unqualified_name("op");
    let delete = if has_op { ident("op").eq(lit("D")) } else { lit(false) };
    let names: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let columns = names.into_iter().map(ident).chain([delete.alias(DELETE)]);
    let staged = Staged::write(rows.select(columns.collect::<Vec<_>>())?).await?;
    let put_aside = clock.now_micros();

    let upsert = Upsert { keys: vec![key.clone()], sequence: vec![sequence.clone()] };
    let probed = upsert.probe(&lake, &table, &staged).await?.with_mode(mode);
    let found = clock.now_micros();
    let run = RunId::new(&clock);
    let txn = Txn::new("example", i64::try_from(table.version()).unwrap_or(0));
    upsert.apply(&lake, &mut table, &probed, vec![txn], &run, "silver_committed").await?;
    let committed = clock.now_micros();

    let figures = probed.figures;
    let phases = [
        ("open", opened - started),
        ("stage", put_aside - opened),
        ("probe", found - put_aside),
        ("write", committed - found),
    ];
    let phases = phases.map(|(name, micros)| format!("\"{name}\": {:.3}", micros as f64 / 1e6)).join(", ");
    println!(
        "{{\"updated\": {}, \"inserted\": {}, \"deleted\": {}, \"stale\": {}, \"phases\": {{{phases}}}}}",
        figures.updated, figures.inserted, figures.deleted, figures.stale
    );
    Ok(())
}

/// Computes a query five times, and prints the median of the seconds with the last answer.
async fn read(storage: &str, table: &str, sql: &str) -> Result<()> {
    let clock = Clock::system();
    let lake = Lake::open(storage, Path::new("."), clock.clone(), Engine::default())?;
    let table = lake.existing(&TableName::silver(table)).await?;
    let mut taken = Vec::new();
    let mut answer = String::new();
    for _ in 0..5 {
        let started = clock.now_micros();
        let session = lake.session()?;
        session.register(&table).await?;
        let rows = session.sql(sql).await?.collect().await?;
        taken.push(clock.now_micros() - started);
        answer = arrow::util::pretty::pretty_format_batches(&rows)?.to_string();
    }
    taken.sort_unstable();
    println!("{:.3} s\n{answer}", taken[2] as f64 / 1e6);
    Ok(())
}
