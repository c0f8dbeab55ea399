//! A table that a program has open for long is what another one makes of it: opening it again shows each of its commits, also
//! when its log was cleaned, and when it was removed and made anew.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use lake::session::Engine;
use lake::table::Definition;
use lake::{Clock, Lake, RunId, Table, TableName};

fn lake(folder: &Path) -> Lake {
    Lake::open("lake", folder, Clock::system(), Engine::default()).expect("a lake")
}

async fn made(lake: &Lake) -> Table {
    let definition = Definition::new(Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)])));
    lake.create_or_open(&TableName::silver("t"), &definition).await.expect("a table")
}

/// Commits until the table has this version.
async fn bring_to(lake: &Lake, version: u64) {
    let mut table = made(lake).await;
    while table.version() < version {
        let next = vec![("count".to_owned(), (table.version() + 1).to_string())];
        let app = if table.version() == 0 { "first" } else { "later" };
        table.alter(&next, None, &[], app, &RunId::new(lake.clock())).await.expect("committed");
    }
}

/// The version of the table, and what it holds: a count of its commits as a property, and the transaction of the first of
/// them, which is looked for in all of its log.
async fn seen(lake: &Lake) -> Option<(u64, Option<String>, Option<i64>)> {
    let table = lake.table(&TableName::silver("t")).await.expect("a lake")?;
    let count = table.property("count").expect("properties");
    Some((table.version(), count, table.txn_version("first").await.expect("transactions")))
}

fn at(version: u64) -> Option<(u64, Option<String>, Option<i64>)> {
    Some((version, Some(version.to_string()), Some(1)))
}

#[tokio::test]
async fn each_commit_of_another_is_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (reader, writer) = (lake(folder.path()), lake(folder.path()));
    assert_eq!(seen(&reader).await, None);
    // Past two checkpoints, one by one, and several at once.
    for version in (1..=23).chain([28, 41]) {
        bring_to(&writer, version).await;
        assert_eq!(seen(&reader).await, at(version));
        assert_eq!(seen(&reader).await, at(version), "once more");
    }
}

#[tokio::test]
async fn a_log_that_was_cleaned_is_read_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let (reader, writer) = (lake(folder.path()), lake(folder.path()));
    bring_to(&writer, 17).await;
    assert_eq!(seen(&reader).await, at(17));
    // Another program writes a checkpoint of the same version, and removes what it stands in for.
    let table = writer.existing(&TableName::silver("t")).await.expect("the table");
    lake::log::checkpoint(&table).await.expect("a checkpoint");
    let log = folder.path().join("lake/silver/t/_delta_log");
    for version in 0..17 {
        std::fs::remove_file(log.join(format!("{version:020}.json"))).expect("removed");
    }
    std::fs::remove_file(log.join("00000000000000000009.checkpoint.parquet")).expect("removed");
    assert_eq!(seen(&reader).await, at(17));
    bring_to(&writer, 18).await;
    assert_eq!(seen(&reader).await, at(18));
}

#[tokio::test]
async fn a_table_that_was_made_anew_is_another() {
    for version in [3, 5, 8] {
        let folder = tempfile::tempdir().expect("a folder");
        let (reader, writer) = (lake(folder.path()), lake(folder.path()));
        bring_to(&writer, 5).await;
        let id = reader.existing(&TableName::silver("t")).await.expect("the table").id().expect("an id");
        writer.remove_table(&TableName::silver("t")).await.expect("removed");
        assert_eq!(seen(&writer).await, None);
        bring_to(&writer, version).await;
        assert_eq!(seen(&reader).await, at(version));
        let other = reader.existing(&TableName::silver("t")).await.expect("the table").id().expect("an id");
        assert_ne!(id, other);
    }
}

#[tokio::test]
async fn a_table_whose_removal_was_cut_short_is_an_older_version_of_it_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = lake(folder.path());
    bring_to(&writer, 14).await;
    let log = folder.path().join("lake/silver/t/_delta_log");
    let mut files: Vec<_> = std::fs::read_dir(&log).expect("a log").map(|file| file.expect("a file").path()).collect();
    files.sort();
    // As `remove_table` goes.
    let mut versions = Vec::new();
    while let Some(last) = files.pop() {
        std::fs::remove_file(last).expect("removed");
        versions.push(seen(&lake(folder.path())).await.map(|(version, ..)| version));
    }
    let left = versions.iter().flatten().count();
    assert!(versions.is_sorted_by(|one, next| one >= next) && left > 14, "{versions:?}");
    // What is left last is no table, nor is a pointer to a checkpoint that went.
    std::fs::write(log.join("_last_checkpoint"), br#"{"version":9,"size":3}"#).expect("a file");
    assert_eq!(seen(&lake(folder.path())).await, None);
    bring_to(&writer, 2).await;
    assert_eq!(seen(&lake(folder.path())).await, at(2));
}
