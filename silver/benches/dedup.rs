//! How fast the last change of each key is found: `cargo bench -p silver --bench dedup -- [EVENTS] [KEYS]`.
//!
//! Reads events from a Parquet file and puts the last of each key aside, as a silver run does, beside DataFusion's own
//! `row_number()` window over the same file.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a benchmark is a program of its own that measures and prints"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::ParquetReadOptions;
use lake::session::Session;
use lake::stage::Staged;

const BATCH: i64 = 65_536;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<i64>().ok());
    let (events, keys) = (numbers.next().unwrap_or(10_000_000), numbers.next().unwrap_or(2_000_000));
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), events, keys).await;
    let session = Session::detached().expect("a session");
    let read = async || {
        let path = format!("{}/", folder.path().display());
        session.context().read_parquet(path, ParquetReadOptions::default()).await.expect("events")
    };
    let started = Instant::now();
    let (last, others) =
        silver::dedup::last(read().await, &["k".to_owned()], &["ts".to_owned()], None).await.expect("the last changes");
    println!("by hash:   {:6.2} s, {} kept, {others} others", started.elapsed().as_secs_f64(), last.rows());
    session.register_as("events", read().await.into_view()).expect("a table");
    let order = silver::order::names(&["ts".to_owned()]).into_iter().map(|name| format!("\"{name}\" DESC"));
    let order = order.collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY {order}) AS n FROM events) WHERE n = 1"
    );
    let started = Instant::now();
    let window = Staged::write(session.sql(&sql).await.expect("a plan")).await.expect("the last changes");
    println!("by window: {:6.2} s, {} kept", started.elapsed().as_secs_f64(), window.rows());
}

/// Events with a key, a sequence, the columns of arrival and two of data, in four files.
async fn write(folder: &Path, events: i64, keys: i64) {
    use parquet::arrow::ArrowWriter;
    for part in 0..4 {
        let file = std::fs::File::create(folder.join(format!("{part}.parquet"))).expect("a file");
        let mut writer: Option<ArrowWriter<std::fs::File>> = None;
        let (begin, end) = (events / 4 * part, events / 4 * (part + 1));
        let mut file = Some(file);
        for start in (begin..end).step_by(BATCH as usize) {
            let rows = (start..(start + BATCH).min(end)).collect::<Vec<_>>();
            let batch = batch(&rows, keys);
            if let Some(file) = file.take() {
                writer = Some(ArrowWriter::try_new(file, batch.schema(), None).expect("a writer"));
            }
            writer.as_mut().expect("a writer").write(&batch).expect("written");
        }
        writer.expect("rows").close().expect("closed");
    }
}

fn batch(rows: &[i64], keys: i64) -> RecordBatch {
    let scattered = |row: i64| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 20).rem_euclid(keys);
    let column = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| of(*row))))
    };
    let text = |of: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| of(*row))))
    };
    let none = || -> ArrayRef { Arc::new(Int32Array::from(vec![0; rows.len()])) };
    RecordBatch::try_from_iter([
        ("k", column(&scattered)),
        ("status", text(&|row| ["new", "paid", "sent"][row as usize % 3].to_owned())),
        ("note", text(&|row| format!("order {row} of many"))),
        ("ts", column(&|row| 1_700_000_000_000_000 + row / 3 * 1_000)),
        ("__op_rank", none()),
        ("_batch_id", column(&|_| 1)),
        ("__file_rank", none()),
        ("__file_time", column(&|_| 0)),
        ("_file_path", text(&|row| format!("orders/{:04}.csv", row / 100_000))),
        ("__rank_in_file", none()),
        ("_row_number", column(&|row| row % 100_000 + 1)),
        ("__change_number", none()),
    ])
    .expect("a batch")
}
