//! Runs for a day that is over, with the real engine and a manual clock.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use chrono::NaiveDate;
use lake::report::{RunSummary, TaskStatus};
use lake::{Clock, Lake, TableName};
use tokio::sync::mpsc::unbounded_channel;

use super::*;

const SPEC: &str = "
name: days
bronze: {s: {path: ./, format: csv, settle: 0s}}
silver: {t: {source: s, keys: [id], sequence_by: [id], columns: {id: bigint not null}}}
gold:
  days: {snapshot_of: silver.t, strategy: full}
  count: {query: SELECT count(*) AS n FROM silver.t}
";

async fn ran(folder: &Path, clock: &Clock, chosen: &[&str], date: Option<&str>) -> RunSummary {
    let project = Project::load(&folder.join("pipelines.yaml")).expect("a spec");
    let place = Place::open(&project, None, clock.clone()).expect("a place");
    let all = project.tasks.iter().map(|task| task.name.clone());
    let chosen: BTreeSet<TableName> =
        all.filter(|name| chosen.is_empty() || chosen.contains(&name.to_string().as_str())).collect();
    let date = date.map(|date| date.parse::<NaiveDate>().expect("a day"));
    let (_stop, heard) = unbounded_channel();
    run(&project, &place, Request { date, ..Request::of(&chosen) }, heard, &mut Silent).await.summary
}

/// The rows of each day of the snapshot.
async fn days(lake: &Lake) -> Vec<(String, i64)> {
    let session = lake.session().expect("a session");
    session.register(&lake.existing(&TableName::gold("days")).await.expect("a table")).await.expect("registered");
    let sql = "SELECT CAST(snapshot_date AS VARCHAR) AS day, count(*) AS n FROM gold.days GROUP BY 1 ORDER BY 1";
    let batches = session.sql(sql).await.expect("a query").collect().await.expect("rows");
    let mut days = Vec::new();
    for batch in batches {
        let names = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8).expect("texts");
        let counts = batch.column(1).as_primitive::<Int64Type>();
        let names = names.as_string::<i32>();
        days.extend((0..batch.num_rows()).map(|row| (names.value(row).to_owned(), counts.value(row))));
    }
    days
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_record_the_day_that_is_asked_for_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::create_dir(folder.join("landing")).expect("a landing zone");
    fs::write(folder.join("pipelines.yaml"), SPEC).expect("a spec");
    let clock = Clock::manual("2024-05-01T12:00:00Z".parse().expect("a time"));
    fs::write(folder.join("landing/1.csv"), "id\n1\n").expect("a file");
    ran(folder, &clock, &["bronze.s", "silver.t"], None).await;
    clock.sleep(std::time::Duration::from_secs(86_400)).await;
    fs::write(folder.join("landing/2.csv"), "id\n2\n3\n").expect("a file");
    let summary = ran(folder, &clock, &[], Some("2024-05-01")).await;
    assert_eq!(summary.status(), TaskStatus::Succeeded, "{}", summary.to_json());
    let project = Project::load(&folder.join("pipelines.yaml")).expect("a spec");
    let lake = project.header.lake(&project.folder, clock.clone()).expect("a lake");
    assert_eq!(days(&lake).await, [("2024-05-01".to_owned(), 1)]);
    assert_eq!(lake.existing(&TableName::silver("t")).await.expect("a table").row_count().expect("rows"), Some(3));
    ran(folder, &clock, &[], None).await;
    assert_eq!(days(&lake).await, [("2024-05-01".to_owned(), 1), ("2024-05-02".to_owned(), 3)]);
    // A day before the table is refused, and says so.
    let refused = ran(folder, &clock, &["gold.days"], Some("2024-04-01")).await;
    assert_eq!(refused.count(TaskStatus::Failed), 1, "{}", refused.to_json());
}
