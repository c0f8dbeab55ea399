//! What people do to tables by hand, and ask of them: deletes, properties, features and constraints; files, rows, changes, and
//! whether a table is sound.

use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::program;
use crate::support::project::{Project, files_below};

const SPEC: &str = "
name: hand
storage: ./lakehouse
landing: ./landing
bronze:
  rows: {path: ./, format: csv, settle: 0s}
silver:
  t:
    source: rows
    keys: [id]
    sequence_by: [seq]
    columns: {id: bigint not null, seq: bigint, name: string}
    OPTIONS
gold:
  names:
    query: SELECT name, count(*) AS n FROM silver.t GROUP BY name
";
const VECTORS: &str = "deletion_vectors: true\n    write_mode: merge_on_read";

fn made(options: &str) -> Project {
    let project = Project::new(&SPEC.replace("OPTIONS", options));
    // Random texts, so that a file is large enough to be marked.
    let text = |id: u64| {
        (0..40_u64)
            .map(|n| {
                format!(
                    "{:x}",
                    (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(n as u32 * 7).wrapping_mul(n + 3)
                )
            })
            .collect::<String>()
    };
    let rows: String = (0..1_500).map(|id| format!("{id},1,{}\n", text(id))).collect();
    project.land("1.csv", format!("id,seq,name\n{rows}").as_bytes(), None);
    project.run();
    project.land("2.csv", b"id,seq,name\n1,2,one\n2,2,two\n9000,2,new\n", None);
    project.run();
    project
}

fn json_of(project: &Project, args: &[&str]) -> Value {
    let args: Vec<&str> = ["table"].into_iter().chain(args.iter().copied()).chain(["--output", "json"]).collect();
    let outcome = project.orchestrator(&args).expect(0);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {}", outcome.story()))
}

fn fails(project: &Project, code: i32, args: &[&str], says: &[&str]) {
    let args: Vec<&str> = ["table"].into_iter().chain(args.iter().copied()).collect();
    let outcome = project.orchestrator(&args).expect(code);
    for text in says {
        assert!(outcome.stderr.contains(text) || outcome.stdout.contains(text), "`{text}`: {}", outcome.story());
    }
}

#[test]
fn rows_are_deleted_once_and_the_feed_tells_which() {
    for options in ["", VECTORS] {
        let project = made(options);
        let condition = "id IN (1, 7, 8) OR name = 'new'";
        let told = json_of(&project, &["delete", "silver.t", "--where", condition, "--dry-run"]);
        assert_eq!((told["rows"].as_u64(), told["rows_before"].as_u64()), (Some(4), Some(1_501)), "{told}");
        assert_eq!(told["examples"].as_array().map(Vec::len), Some(4));
        fails(
            &project,
            2,
            &["delete", "silver.t", "--where", condition],
            &["4 of 1,501 rows would be deleted", "--yes"],
        );
        let told = json_of(&project, &["delete", "silver.t", "--where", condition, "--yes"]);
        assert_eq!(project.count("silver.t"), 1_497);
        let version = told["version"].as_u64().expect("a version");
        let from = (version - 1).to_string();
        let feed = json_of(&project, &["changes", "silver.t", "--from", &from]);
        let mut gone: Vec<(i64, &str)> = feed
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| (row["id"].as_i64().expect("an id"), row["_change_type"].as_str().expect("a type")))
            .collect();
        gone.sort();
        assert_eq!(gone, [(1, "delete"), (7, "delete"), (8, "delete"), (9000, "delete")], "{options}");
        project.run();
        assert_eq!(project.count("gold.names"), 1_497, "a model follows");
        program::run("gold", project.path(), &["verify"], None).expect(0);
        project.orchestrator(&["table", "verify"]).expect(0);
        project.assert_settled();
        let none = json_of(&project, &["delete", "silver.t", "--where", condition, "--yes"]);
        assert_eq!((none["rows"].as_u64(), none["version"].as_u64()), (Some(0), None));
        // All of a table; the next change of a key writes it again.
        json_of(&project, &["delete", "silver.t", "--where", "true", "--yes"]);
        assert_eq!(project.count("silver.t"), 0);
        project.land("3.csv", b"id,seq,name\n1,3,back\n", None);
        project.run();
        assert_eq!(project.query("SELECT name FROM silver.t"), [json!({"name": "back"}).as_object().unwrap().clone()]);
    }
}

#[test]
fn what_is_no_condition_or_no_table_of_the_user_is_refused() {
    let project = made("");
    fails(&project, 2, &["delete", "silver.t", "--where", "nam = 'x'", "--yes"], &["nam"]);
    fails(&project, 2, &["delete", "silver.t", "--where", "id + 1", "--yes"], &["is Int64 and no condition"]);
    fails(
        &project,
        1,
        &["delete", "silver.t", "--where", "1 / (id - 7) > 0", "--yes"],
        &["cannot be computed for row"],
    );
    fails(&project, 2, &["delete", "gold.names", "--where", "true", "--yes"], &["is what its query gives"]);
    fails(&project, 2, &["delete", "files.rows", "--where", "true", "--yes"], &["the program's own"]);
    assert_eq!(project.count("silver.t"), 1_501);
}

#[test]
fn a_delete_is_done_once_wherever_it_is_killed() {
    for options in ["", VECTORS] {
        let base = made(options);
        for (fault, code) in [("delete_committed:kill", None), ("delete_committed:lost", Some(0))] {
            let project = base.copy();
            let args = ["table", "delete", "silver.t", "--where", "id < 3", "--yes"];
            let outcome = program::run("orchestrator", project.path(), &args, Some(fault));
            assert_eq!(outcome.code, code, "{}", outcome.story());
            assert_eq!(project.count("silver.t"), 1_498);
            project.orchestrator(&["table", "verify", "silver.t"]).expect(0);
        }
    }
}

#[test]
fn properties_are_set_and_unset_and_only_those_that_may() {
    let project = made("properties: {delta.logRetentionDuration: interval 60 days}");
    let property = |key: &str| json_of(&project, &["describe", "silver.t"])["properties"][key].clone();
    let told = json_of(&project, &["set", "silver.t", "owner=finance", "delta.checkpointInterval=50"]);
    assert_eq!(told["changed"], true);
    assert_eq!((property("owner"), property("delta.checkpointInterval")), (json!("finance"), json!("50")));
    assert_eq!(json_of(&project, &["set", "silver.t", "owner=finance"])["changed"], false);
    json_of(&project, &["unset", "silver.t", "owner"]);
    assert_eq!(property("owner"), Value::Null);
    project.run();
    project.assert_settled();
    fails(&project, 2, &["set", "silver.t", "delta.logRetentionDuration=60 days"], &["interval 30 days"]);
    fails(&project, 2, &["set", "silver.t", "delta.logRetentionDuration=interval 5 days"], &["the spec sets"]);
    fails(&project, 2, &["unset", "silver.t", "delta.logRetentionDuration"], &["the spec sets"]);
    fails(&project, 2, &["set", "silver.t", "delta.appendOnly=true"], &["cannot be set", "delta.logRetentionDuration"]);
    fails(&project, 2, &["set", "silver.t", "lakehouse.changes=x"], &["the program's own"]);
    fails(&project, 2, &["set", "silver.t", "owner"], &["key=value"]);
}

#[test]
fn features_go_on_and_off_and_tables_stay_readable() {
    let project = made("");
    fails(
        &project,
        2,
        &["enable", "silver.t", "deletion-vectors"],
        &["deletion_vectors: false", "deletion_vectors: true"],
    );
    assert_eq!(json_of(&project, &["enable", "gold.names", "change-data-feed"])["changed"], true);
    assert_eq!(json_of(&project, &["enable", "gold.names", "deletion-vectors"])["changed"], true);
    assert_eq!(json_of(&project, &["enable", "gold.names", "deletion-vectors"])["changed"], false);
    let features = json_of(&project, &["describe", "gold.names"])["protocol"]["features"].clone();
    for feature in ["changeDataFeed", "deletionVectors"] {
        assert!(features.as_array().is_some_and(|all| all.contains(&json!(feature))), "{features}");
    }
    project.land("3.csv", b"id,seq,name\n1,3,uno\n", None);
    project.run();
    program::run("gold", project.path(), &["verify"], None).expect(0);
    assert_eq!(json_of(&project, &["disable", "gold.names", "change-data-feed"])["changed"], true);
    project.orchestrator(&["table", "verify"]).expect(0);
    project.assert_settled();
}

#[test]
fn a_constraint_is_asked_of_the_rows_that_are_there_and_of_those_that_come() {
    let project = made("");
    fails(
        &project,
        1,
        &["add-constraint", "silver.t", "early", "seq < 2"],
        &["3 rows do not meet constraint `early`", "id 1, seq 2"],
    );
    fails(&project, 2, &["add-constraint", "silver.t", "bad name", "true"], &["no name of a constraint"]);
    fails(&project, 2, &["add-constraint", "bronze.rows", "x", "true"], &["keeps every record"]);
    json_of(&project, &["add-constraint", "silver.t", "known", "id < 10000"]);
    fails(&project, 2, &["add-constraint", "silver.t", "known", "id < 5"], &["already"]);
    project.run();
    project.assert_settled();
    project.land("3.csv", b"id,seq,name\n5,3,fine\n20000,3,wrong\n", None);
    project.run_with(None);
    let held = project.query("SELECT count(*) AS n FROM silver.t WHERE id >= 10000");
    assert_eq!(held[0]["n"], 0, "nothing that does not meet it is written");
    fails(&project, 2, &["drop-constraint", "silver.t", "knwon"], &["did you mean `known`"]);
    json_of(&project, &["drop-constraint", "silver.t", "known"]);
    project.run();
    assert_eq!(project.query("SELECT count(*) AS n FROM silver.t WHERE id >= 10000")[0]["n"], 1);
}

#[test]
fn files_rows_and_changes_are_shown() {
    let project = made("");
    let files = json_of(&project, &["files", "silver.t"]);
    let files = files.as_array().expect("files");
    let rows: u64 = files
        .iter()
        .map(|file| file["rows"].as_u64().expect("a count") - file["deleted"].as_u64().expect("a count"))
        .sum();
    assert_eq!(rows, 1_501);
    assert!(files.iter().all(|file| file["columns"]["id"]["min"].is_number()), "{files:?}");
    let text = project.orchestrator(&["table", "files", "silver.t"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.contains("values of `id`"), "{text}");
    for args in [&["list"] as &[&str], &["history", "silver.t"], &["describe", "silver.t"], &["history", "gold.names"]]
    {
        let args: Vec<&str> = ["table"].into_iter().chain(args.iter().copied()).collect();
        let text = project.orchestrator(&args).expect(0).stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{args:?}\n{text}");
    }
    let text = project.orchestrator(&["table", "delete", "silver.t", "--where", "id = 7"]).expect(2).stdout;
    assert!(text.contains("\n  id 7, seq 1, name "), "what a person knows a row by comes first: {text}");
    assert_eq!(json_of(&project, &["sample", "silver.t", "--limit", "3"]).as_array().map(Vec::len), Some(3));
    let all = json_of(&project, &["changes", "silver.t", "--from", "0", "--to", "2"]);
    let (mut folded, mut types) = (0_i64, std::collections::BTreeSet::new());
    for row in all.as_array().expect("rows") {
        let kind = row["_change_type"].as_str().expect("a type");
        types.insert(kind.to_owned());
        folded += match kind {
            "insert" => 1,
            "delete" => -1,
            _ => 0,
        };
    }
    assert_eq!(folded, 1_501);
    assert!(types.contains("update_postimage") && types.contains("update_preimage"), "{types:?}");
    fails(&project, 2, &["changes", "silver.t", "--from", "99"], &["comes after"]);
    fails(&project, 2, &["sample", "silver.t", "--version", "99"], &["no version 99"]);
    fails(&project, 2, &["files", "silver.t", "--column", "nam"], &["did you mean `name`"]);
}

fn data_files(project: &Project, table: &str) -> Vec<PathBuf> {
    let files = files_below(&project.table_folder(table)).into_iter();
    files
        .filter(|file| {
            file.extension().is_some_and(|end| end == "parquet")
                && !file.to_string_lossy().contains("_delta_log")
                && !file.to_string_lossy().contains("_change_data")
        })
        .collect()
}

#[test]
fn a_table_that_is_not_sound_is_told_with_what_is_wrong() {
    let base = made("");
    base.orchestrator(&["table", "verify"]).expect(0);
    let live: Vec<String> = json_of(&base, &["files", "silver.t"])
        .as_array()
        .expect("files")
        .iter()
        .map(|file| file["path"].as_str().expect("a path").to_owned())
        .collect();
    let file = |project: &Project| project.table_folder("silver.t").join(&live[0]);

    let project = base.copy();
    fs::remove_file(file(&project)).expect("a file");
    fails(&project, 1, &["verify"], &["BROKEN  silver.t", "is gone", "not sound: silver.t", "table restore"]);

    let project = base.copy();
    let size = fs::metadata(file(&project)).expect("a file").len();
    File::options().write(true).open(file(&project)).and_then(|file| file.set_len(size - 1)).expect("a cut file");
    fails(&project, 1, &["verify", "silver.t"], &[&format!("has {} bytes, and the log says {size}", size - 1)]);

    // Bytes that are no Parquet, of the right length.
    let project = base.copy();
    fs::write(file(&project), vec![0_u8; usize::try_from(size).expect("a size")]).expect("a file");
    fails(&project, 1, &["verify", "silver.t", "--quick"], &["cannot be read"]);

    // The log says something else than the files.
    for (from, to, says) in [
        ("\\\"numRecords\\\":", "\\\"numRecords\\\":1", "rows, and the log counts 1"),
        ("\\\"id\\\":1499", "\\\"id\\\":7", "and the log says that the greatest is 7"),
    ] {
        let project = base.copy();
        let logs = files_below(&project.table_folder("silver.t").join("_delta_log"));
        for log in logs.iter().filter(|log| log.extension().is_some_and(|end| end == "json")) {
            let text = fs::read_to_string(log).expect("a log");
            fs::write(log, text.replace(from, to)).expect("a log");
        }
        fails(&project, 1, &["verify", "silver.t"], &["BROKEN  silver.t", says]);
    }

    // A key twice: a file once more, under another name.
    let project = base.copy();
    let copy = file(&project).with_file_name("copy.parquet");
    fs::copy(file(&project), &copy).expect("a copy");
    let logs = project.table_folder("silver.t").join("_delta_log");
    let last =
        files_below(&logs).into_iter().rfind(|log| log.extension().is_some_and(|end| end == "json")).expect("a log");
    let number: u64 =
        last.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()).expect("a number");
    let adds = files_below(&logs)
        .iter()
        .filter_map(|log| fs::read_to_string(log).ok())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .find(|line| line.contains("\"add\"") && line.contains(&live[0]))
        .expect("the file");
    fs::write(logs.join(format!("{:020}.json", number + 1)), adds.replace(&live[0], "copy.parquet")).expect("a commit");
    fails(&project, 1, &["verify", "silver.t"], &["come more than once: id "]);
    assert!(!data_files(&project, "silver.t").is_empty());
}

#[test]
fn what_other_programs_made_is_read_or_refused_with_the_name_of_the_feature() {
    let project = made("");
    // A table with a feature that nobody knows here.
    let log = project.table_folder("gold.foreign").join("_delta_log");
    fs::create_dir_all(&log).expect("a folder");
    let schema =
        r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;
    let commit = |protocol: &str, configuration: &str| {
        let metadata = format!(
            "{{\"metaData\":{{\"id\":\"x\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{configuration},\"createdTime\":1}}}}"
        );
        fs::write(log.join(format!("{:020}.json", 0)), format!("{{\"protocol\":{protocol}}}\n{metadata}\n"))
            .expect("a log");
    };
    commit(
        r#"{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["fancyFeature"],"writerFeatures":["fancyFeature"]}"#,
        "{}",
    );
    for args in [&["describe", "gold.foreign"] as &[&str], &["verify", "gold.foreign"], &["sample", "gold.foreign"]] {
        fails(&project, 1, args, &["fancyFeature"]);
    }
    // Columns that have other names in files are read, and not changed.
    let mapped = project.table_folder("gold.mapped");
    fs::create_dir_all(&mapped).expect("a folder");
    let url = deltalake::ensure_table_uri(mapped.to_str().expect("UTF-8")).expect("a URL");
    let ids: arrow::array::ArrayRef = std::sync::Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3]));
    let rows = arrow::array::RecordBatch::try_from_iter([("an id", ids)]).expect("rows");
    let write = async {
        let table = deltalake::DeltaTable::try_from_url(url).await?;
        table.write(vec![rows]).with_configuration([("delta.columnMapping.mode", Some("name"))]).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(write).expect("a table with mapped columns");
    assert_eq!(json_of(&project, &["sample", "gold.mapped"]), json!([{"an id": 1}, {"an id": 2}, {"an id": 3}]));
    for args in [
        &["delete", "gold.mapped", "--where", "true", "--yes"] as &[&str],
        &["clone", "gold.mapped", "--as", "gold.copy"],
        &["changes", "gold.mapped", "--from", "0"],
    ] {
        fails(&project, 1, args, &["mapped to other names"]);
    }
    fails(
        &project,
        0,
        &["verify", "gold.mapped"],
        &["ok      gold.mapped version 0, 1 file, 3 rows", "were not opened"],
    );
    // One that writers must know, and readers need not.
    commit(r#"{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["identityColumns"]}"#, "{}");
    assert_eq!(json_of(&project, &["sample", "gold.foreign"]), json!([]));
    fails(&project, 1, &["set", "gold.foreign", "owner=us"], &["dentityColumns"]);
}

#[test]
fn a_version_is_copied_mended_and_swapped_in() {
    for options in ["", VECTORS] {
        let project = made(options);
        let told = json_of(&project, &["clone", "silver.t", "--as", "silver.t_mended"]);
        assert_eq!(told["rows"], 1_501);
        fails(&project, 2, &["clone", "silver.t", "--as", "silver.t_mended"], &["already"]);
        fails(&project, 2, &["clone", "silver.t", "--as", "gold.names"], &["no name of a copy"]);
        json_of(&project, &["delete", "silver.t_mended", "--where", "id >= 100", "--yes"]);
        assert_eq!((project.count("silver.t_mended"), project.count("silver.t")), (100, 1_501));
        fails(&project, 2, &["swap", "silver.t_mended", "silver.t"], &["would become", "rows 1,501 -> 100", "--yes"]);
        json_of(&project, &["add-constraint", "silver.t", "small", "id < 10000"]);
        json_of(&project, &["swap", "silver.t_mended", "silver.t", "--yes"]);
        assert_eq!(project.count("silver.t"), 100);
        project.land("3.csv", b"id,seq,name\n1,3,uno\n500,3,again\n", None);
        project.run();
        assert_eq!(project.count("silver.t"), 101, "what it had applied stays applied");
        program::run("gold", project.path(), &["verify"], None).expect(0);
        project.silver(&["verify"]).expect(0);
        project.orchestrator(&["table", "verify"]).expect(0);
        project.assert_settled();
        // The copy is its own: taking it back changes nothing of the table.
        json_of(&project, &["add-constraint", "silver.t", "few", "id < 1000"]);
        json_of(&project, &["restore", "silver.t_mended", "--version", "0", "--yes"]);
        fails(&project, 1, &["swap", "silver.t_mended", "silver.t", "--yes"], &["do not meet constraint `few`"]);
        assert_eq!(project.count("silver.t"), 101);
    }
}

#[test]
fn commits_may_wait_for_the_disk() {
    let spec = SPEC.replace("OPTIONS", "").replace("bronze:", "engine: {durability: fsync}\nbronze:");
    let project = Project::new(&spec);
    for number in 1..=3 {
        project.land(format!("{number}.csv"), format!("id,seq,name\n1,{number},x\n{number}0,1,y\n").as_bytes(), None);
        project.run();
    }
    project.silver(&["rebuild", "t"]).expect(0);
    project.run();
    assert_eq!(project.count("silver.t"), 4);
    // What the disk does not confirm is a failure, though it is there.
    let args = ["table", "set", "silver.t", "owner=us"];
    let outcome = program::run("orchestrator", project.path(), &args, Some("log_synced:fail")).expect(1);
    assert!(outcome.stderr.contains("the disk does not confirm version"), "{}", outcome.story());
    assert_eq!(json_of(&project, &["set", "silver.t", "owner=us"])["changed"], false);
    project.run();
    project.orchestrator(&["table", "verify"]).expect(0);
    project.assert_settled();
    project.respec(&spec.replace("fsync", "sync"));
    let outcome = project.orchestrator(&["validate"]).expect(2);
    assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains("`fsync`"), "{}", outcome.story());
}
