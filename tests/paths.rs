//! Tables that are named by their paths: any Delta table, without a spec.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use serde_json::{Value, json};

use crate::support::program::{self, Outcome};
use crate::support::project::Project;

/// A table that the library alone has made, of a version for each list of rows.
fn made(folder: &Path, versions: &[&[(i64, &str)]]) {
    fs::create_dir_all(folder).expect("a folder");
    let url = deltalake::ensure_table_uri(folder.to_str().expect("UTF-8")).expect("a URL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for rows in versions {
        let ids: ArrayRef = Arc::new(rows.iter().map(|(id, _)| *id).collect::<Int64Array>());
        let names: ArrayRef = Arc::new(rows.iter().map(|(_, name)| Some(*name)).collect::<StringArray>());
        let rows = RecordBatch::try_from_iter([("id", ids), ("name", names)]).expect("rows");
        let write = async { deltalake::DeltaTable::try_from_url(url.clone()).await?.write(vec![rows]).await };
        runtime.block_on(write).expect("a version");
    }
}

fn orchestrator(folder: &Path, args: &[&str]) -> Outcome {
    program::run("orchestrator", folder, args, None)
}

fn json_of(folder: &Path, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
    let outcome = orchestrator(folder, &args).expect(0);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {}", outcome.story()))
}

#[test]
fn a_table_of_another_program_is_looked_at_and_mended_by_its_path() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path();
    made(&folder.join("exports/some orders"), &[&[(1, "a"), (2, "b")], &[(3, "c")], &[(4, "d")]]);
    let path = "exports/some orders";
    assert_eq!(json_of(folder, &["table", "describe", path])["rows"], 4);
    assert_eq!(json_of(folder, &["table", "history", path]).as_array().map(Vec::len), Some(3));
    assert_eq!(json_of(folder, &["table", "files", &format!("./{path}/")]).as_array().map(Vec::len), Some(3));
    assert_eq!(json_of(folder, &["table", "sample", path, "--version", "0"]).as_array().map(Vec::len), Some(2));
    let diff = json_of(folder, &["table", "diff", path, "--from", "0", "--keys", "id"]);
    assert_eq!([&diff["added"], &diff["removed"], &diff["changed"]], [2, 0, 0], "{diff}");
    orchestrator(folder, &["table", "verify", path]).expect(0);
    let count = |version: &str| {
        let sql = format!("SELECT count(*) AS n FROM delta.\"{path}\"{version}");
        json_of(folder, &["query", &sql])[0]["n"].clone()
    };
    assert_eq!((count(""), count(" VERSION AS OF 1")), (json!(4), json!(3)));

    orchestrator(folder, &["table", "restore", path, "--version", "1", "--yes"]).expect(0);
    assert_eq!(count(""), 3);
    orchestrator(folder, &["table", "delete", path, "--where", "id = 3", "--yes"]).expect(0);
    orchestrator(folder, &["table", "set", path, "owner=us"]).expect(0);
    orchestrator(folder, &["table", "tag", path, "mended"]).expect(0);
    orchestrator(folder, &["table", "untag", path, "mended"]).expect(0);
    orchestrator(folder, &["table", "optimize", path]).expect(0);
    orchestrator(folder, &["table", "checkpoint", path]).expect(0);
    orchestrator(folder, &["table", "vacuum", path, "--retain", "0s", "--force"]).expect(0);
    let told = json_of(folder, &["table", "describe", path]);
    assert_eq!((&told["rows"], &told["properties"]["owner"]), (&json!(2), &json!("us")), "{told}");
    assert_eq!(
        json_of(folder, &["query", &format!("SELECT name FROM delta.\"{path}\" ORDER BY id")]),
        json!([{"name": "a"}, {"name": "b"}])
    );
    let beside: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a name").file_name()).collect();
    assert_eq!(beside, ["exports"], "nothing is made beside it");
    assert_eq!(fs::read_dir(folder.join("exports")).expect("a folder").count(), 1);
}

#[test]
fn what_cannot_be_done_by_a_path_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path();
    made(&folder.join("t"), &[&[(1, "a")]]);
    let fails = |code: i32, args: &[&str], says: &str| {
        let outcome = orchestrator(folder, args).expect(code);
        assert!(outcome.stderr.contains(says), "`{says}`: {}", outcome.story());
    };
    fails(2, &["table", "describe", "./nothing"], "there is no table at `./nothing`");
    fs::create_dir(folder.join("empty")).expect("a folder");
    fails(2, &["table", "describe", "./empty"], "there is no Delta table at `./empty`");
    fails(2, &["table", "optimize", "./t", "silver.orders"], "is a path");
    fails(2, &["table", "clone", "./t", "--as", "gold.t"], "takes tables of a lake");
    fails(2, &["table", "describe", "silver.orders"], "pipelines.yaml");
    // A feature that nobody knows is told by its name.
    let log = folder.join("t/_delta_log").join(format!("{:020}.json", 1));
    let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["fancyFeature"], "writerFeatures": ["fancyFeature"]}});
    fs::write(log, format!("{protocol}\n")).expect("a commit");
    fails(1, &["table", "sample", "./t"], "fancyFeature");

    // A table of a pipeline is looked at, and left to it.
    let spec = "name: p\nbronze:\n  s: {path: ./, format: csv, settle: 0s}\nsilver:\n  t: {source: s, keys: [id], sequence_by: [], columns: {id: bigint}}\n";
    let project = Project::new(spec);
    project.land("1.csv", b"id\n1\n", None);
    project.run();
    assert_eq!(json_of(project.path(), &["table", "describe", "lakehouse/silver/t"])["rows"], 1);
    orchestrator(project.path(), &["table", "optimize", "lakehouse/silver/t"]).expect(0);
    for table in ["silver/t", "bronze/s"] {
        let path = format!("lakehouse/{table}");
        let outcome = orchestrator(project.path(), &["table", "delete", &path, "--where", "true", "--yes"]).expect(2);
        assert!(outcome.stderr.contains("belongs to a pipeline"), "{}", outcome.story());
    }
    assert_eq!(project.count("silver.t"), 1);
}
