//! Upkeep of tables: what is removed is needed by nothing, and what is needed is not removed.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::processes::start_held;
use crate::support::program;
use crate::support::project::{Project, files_below};

const SPEC: &str = "
name: upkeep
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: ./, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    keys: [id]
    sequence_by: [ts]
    columns: {id: bigint not null, status: string, ts: timestamp}
";
const TABLES: [(&str, &[&str]); 2] =
    [("bronze.orders_cdc", &["id", "_file_path", "_row_number"]), ("silver.orders", &["id", "status", "ts"])];

fn vacuum(project: &Project, args: &[&str]) -> Value {
    let args: Vec<&str> = ["table", "vacuum", "--output", "json"].into_iter().chain(args.iter().copied()).collect();
    serde_json::from_str(&project.orchestrator(&args).expect(0).stdout).expect("JSON")
}

/// Moves a file's time back.
fn age(path: &Path, days: u64) {
    #[expect(clippy::disallowed_methods, reason = "files have the time of the machine")]
    let time = SystemTime::now() - Duration::from_hours(24 * days);
    File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("a time");
}

fn data_files(project: &Project, table: &str) -> usize {
    let files = files_below(&project.table_folder(table));
    files
        .iter()
        .filter(|file| file.to_string_lossy().contains(".parquet") && !file.to_string_lossy().contains("_delta_log"))
        .count()
}

#[test]
fn what_a_killed_run_left_is_removed_once_it_is_old() {
    let project = Project::new(SPEC);
    project.land("1.csv", b"id,status,ts\n1,new,2024-05-01T10:00:00Z\n2,new,2024-05-01T10:00:00Z\n", None);
    project.run_with(Some("bronze_data_written:kill")).expect_killed();
    let left = files_below(&project.table_folder("bronze.orders_cdc"));
    let left: Vec<_> = left.into_iter().filter(|file| file.extension().is_some_and(|end| end == "parquet")).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // As a local store names a file that a killed process was still writing.
    let unfinished = left[0].with_extension("parquet#1");
    fs::write(&unfinished, b"PAR1").expect("a file");
    project.run();
    let tables = project.content(&TABLES);

    assert_eq!(vacuum(&project, &[])["tables"], serde_json::json!({}), "a writer may still be at work");
    [&left[0], &unfinished].into_iter().for_each(|file| age(file, 8));
    let told = vacuum(&project, &["--dry-run"]);
    let bronze = &told["tables"]["bronze.orders_cdc"];
    assert_eq!((bronze["files"].as_u64(), bronze["unfinished"].as_u64()), (Some(2), Some(1)), "{told}");
    assert!(left[0].exists() && unfinished.exists(), "a dry run removes nothing");
    assert_eq!(vacuum(&project, &["silver.orders"])["tables"], serde_json::json!({}));
    assert_eq!(vacuum(&project, &["bronze.orders_cdc"])["tables"]["bronze.orders_cdc"]["files"], 2);
    assert!(!left[0].exists() && !unfinished.exists());
    assert_eq!(vacuum(&project, &[])["tables"], serde_json::json!({}));
    assert_eq!(project.content(&TABLES), tables);
    let recorded = project.query("SELECT details FROM state.event_log WHERE kind = 'vacuum'");
    assert_eq!(recorded.len(), 1, "{recorded:?}");
}

#[test]
fn versions_go_only_when_asked_twice() {
    let project = Project::new(SPEC);
    for (file, status) in [("1.csv", "new"), ("2.csv", "paid"), ("3.csv", "sent")] {
        let row = format!("id,status,ts\n1,{status},2024-05-0{}T10:00:00Z\n", &file[..1]);
        project.land(file, row.as_bytes(), None);
        project.run();
    }
    let tables = project.content(&TABLES);
    let files = data_files(&project, "silver.orders");
    assert!(files >= 3, "{files} data files");
    let outcome = project.orchestrator(&["table", "vacuum", "--retain", "1h"]).expect(2);
    assert!(outcome.stderr.contains("less than 7 days") && outcome.stderr.contains("--force"), "{}", outcome.story());
    let outcome = project.orchestrator(&["table", "vacuum", "silver.order"]).expect(2);
    assert!(outcome.stderr.contains("did you mean `silver.orders`"), "{}", outcome.story());
    vacuum(&project, &["--retain", "0s", "--force"]);
    assert_eq!(data_files(&project, "silver.orders"), 1);
    assert_eq!(project.content(&TABLES), tables);
    project.land("4.csv", b"id,status,ts\n1,back,2024-05-04T10:00:00Z\n", None);
    project.run();
    assert_eq!(project.query("SELECT status FROM silver.orders")[0]["status"], "back");
}

#[test]
fn a_file_that_came_back_stays_for_the_whole_retention_once_it_goes_again() {
    let project = Project::new(SPEC);
    let land = |file: &str, status: &str| {
        let row = format!("id,status,ts\n1,{status},2024-05-0{}T10:00:00Z\n", &file[..1]);
        project.land(file, row.as_bytes(), None);
        project.run();
    };
    land("1.csv", "new");
    land("2.csv", "paid");
    let restore = ["table", "restore", "silver.orders", "--version", "1", "--keep-offset", "--yes"];
    project.orchestrator(&restore).expect(0);
    land("3.csv", "sent");
    // The first time that the file went is long ago.
    let entry = project.table_folder("silver.orders").join("_delta_log/00000000000000000002.json");
    let text = fs::read_to_string(&entry).expect("an entry");
    let lines = text.lines().map(|line| {
        let mut action: Value = serde_json::from_str(line).expect("an action");
        for (kind, member) in [("remove", "deletionTimestamp"), ("commitInfo", "timestamp")] {
            if let Some(time) = action.get_mut(kind).and_then(|of| of.get_mut(member)) {
                *time = (time.as_i64().expect("a time") - 10 * 24 * 3_600_000).into();
            }
        }
        action.to_string()
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    fs::write(&entry, lines).expect("written");
    assert_eq!(vacuum(&project, &["silver.orders"])["tables"], serde_json::json!({}), "it went again just now");
    let before = project.query("SELECT status FROM silver.orders VERSION AS OF 3");
    assert_eq!(before[0]["status"], "new");
    vacuum(&project, &["silver.orders", "--retain", "0s", "--force"]);
    assert_eq!(data_files(&project, "silver.orders"), 1);
}

#[test]
fn vectors_that_a_version_within_the_retention_needs_stay() {
    let columns = "columns: {id: bigint not null, status: string, ts: timestamp}";
    let marked = format!("{columns}\n    deletion_vectors: true\n    write_mode: merge_on_read");
    let project = Project::new(&SPEC.replace(columns, &marked));
    let rows: String = (0..12).map(|id| format!("{id},new,2024-05-01T10:00:00Z\n")).collect();
    project.land("1.csv", format!("id,status,ts\n{rows}").as_bytes(), None);
    project.run();
    // The second vector of the file takes the place of the first.
    for (file, id) in [("2.csv", 1), ("3.csv", 2)] {
        project.land(file, format!("id,status,ts\n{id},paid,2024-05-02T10:00:00Z\n").as_bytes(), None);
        project.run();
    }
    let vectors = || {
        let files = files_below(&project.table_folder("silver.orders"));
        files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "bin")).collect::<Vec<_>>()
    };
    assert_eq!(vectors().len(), 2);
    let paid = |version: &str| {
        let sql =
            format!("SELECT count(*) AS n, count(CASE status WHEN 'paid' THEN 1 END) AS p FROM silver.orders{version}");
        let rows = project.query(&sql);
        (rows[0]["n"].as_i64(), rows[0]["p"].as_i64())
    };
    vectors().iter().for_each(|file| age(file, 8));
    assert_eq!(vacuum(&project, &["silver.orders"])["tables"], serde_json::json!({}), "it went just now");
    assert_eq!(paid(" VERSION AS OF 2"), (Some(12), Some(1)));
    assert_eq!(paid(""), (Some(12), Some(2)));
    vacuum(&project, &["silver.orders", "--retain", "0s", "--force"]);
    assert_eq!((vectors().len(), paid("")), (1, (Some(12), Some(2))));
}

#[test]
fn maintenance_is_done_when_it_is_due_and_not_before() {
    let spec = format!("{SPEC}maintenance:\n  optimize: {{small_files: 4}}\n");
    let project = Project::new(&spec);
    let live = |table: &str| {
        let told = project.orchestrator(&["table", "files", table, "--output", "json"]).expect(0);
        serde_json::from_str::<Vec<Value>>(&told.stdout).expect("JSON").len()
    };
    let mut most = 0;
    for number in 1..=10 {
        let row = format!("id,status,ts\n{number},new,2024-05-01T10:00:00Z\n");
        project.land(format!("{number}.csv"), row.as_bytes(), None);
        project.run();
        most = most.max(live("bronze.orders_cdc")).max(live("silver.orders"));
        if number == 3 {
            assert_eq!(live("bronze.orders_cdc"), 3, "three files are not four");
        }
    }
    assert!(most < 4, "{most} files");
    assert_eq!(project.count("silver.orders"), 10);
    let done = project.query("SELECT task FROM state.event_log WHERE kind = 'maintenance' AND task LIKE 'bronze%'");
    assert!(done.len() >= 2, "{done:?}");
    project.orchestrator(&["table", "verify"]).expect(0);
    project.assert_settled();
    let off = spec.replace("maintenance:", "maintenance:\n  after_runs: false");
    project.respec(&off);
    for number in 11..=15 {
        let row = format!("id,status,ts\n{number},new,2024-05-01T10:00:00Z\n");
        project.land(format!("{number}.csv"), row.as_bytes(), None);
        project.run();
    }
    assert!(live("silver.orders") > 4);
    let told = project.orchestrator(&["maintain", "silver.orders", "--dry-run"]).expect(0).stdout;
    assert!(told.contains("due    optimize: ") && !told.contains("done"), "{told}");
    assert!(live("silver.orders") > 4, "a dry run does nothing");
    let told = project.orchestrator(&["maintain", "silver.orders"]).expect(0).stdout;
    assert!(told.contains("done   ") && live("silver.orders") == 1, "{told}");
    let told = project.orchestrator(&["maintain", "silver.orders"]).expect(0).stdout;
    assert_eq!(told, "nothing is due in 1 table\n");
    assert_eq!(project.count("silver.orders"), 15);
    let wrong = spec.replace("maintenance:", "maintenance:\n  vacuum: {retain: 1h}");
    project.respec(&wrong);
    let outcome = project.orchestrator(&["validate"]).expect(2);
    assert!(
        outcome.stderr.contains("1h is less than 7 days") || outcome.stdout.contains("1h is less than 7 days"),
        "{}",
        outcome.story()
    );
}

#[test]
fn every_version_reads_as_it_did_after_each_kind_of_upkeep() {
    let columns = "columns: {id: bigint not null, status: string, ts: timestamp}";
    let marked = format!("{columns}\n    deletion_vectors: true\n    write_mode: merge_on_read\n    zorder_by: [id]");
    for spec in [SPEC.to_owned(), SPEC.replace(columns, &marked)] {
        let project = Project::new(&spec);
        for (file, rows) in [
            ("1.csv", "1,new,2024-05-01\n2,new,2024-05-01\n"),
            ("2.csv", "2,paid,2024-05-02\n3,new,2024-05-02\n"),
            ("3.csv", "1,sent,2024-05-03\n"),
        ] {
            project.land(file, format!("id,status,ts\n{rows}").as_bytes(), None);
            project.run();
        }
        let newest = |project: &Project| {
            let told = project.orchestrator(&["table", "history", "silver.orders", "--output", "json"]).expect(0);
            serde_json::from_str::<Vec<Value>>(&told.stdout).expect("JSON")[0]["version"].as_u64().expect("a version")
        };
        let read = |version: u64| {
            project.query(&format!("SELECT id, status FROM silver.orders VERSION AS OF {version} ORDER BY id"))
        };
        let mut known: Vec<_> = (0..=newest(&project)).map(read).collect();
        let upkeep: [&[&str]; 8] = [
            &["table", "optimize", "silver.orders"],
            &["table", "vacuum", "silver.orders"],
            &["table", "checkpoint", "silver.orders"],
            &["table", "set", "silver.orders", "owner=us"],
            &["table", "delete", "silver.orders", "--where", "id = 3", "--yes"],
            &["table", "restore", "silver.orders", "--version", "2", "--yes"],
            &["maintain"],
            &["run"],
        ];
        for args in upkeep {
            project.orchestrator(args).expect(0);
            for (version, rows) in known.iter().enumerate() {
                assert_eq!(&read(version as u64), rows, "version {version} after {args:?}");
            }
            known.extend((known.len() as u64..=newest(&project)).map(read));
        }
        assert_eq!(known.last().map(Vec::len), Some(3), "what came since was applied again");
        project.orchestrator(&["table", "verify"]).expect(0);
    }
}

#[test]
fn a_version_with_a_name_stays_readable_until_the_name_goes() {
    let project = Project::new(SPEC);
    for (file, status) in [("1.csv", "new"), ("2.csv", "paid"), ("3.csv", "sent")] {
        let row = format!("id,status,ts\n1,{status},2024-05-0{}T10:00:00Z\n", &file[..1]);
        project.land(file, row.as_bytes(), None);
        project.run();
    }
    let table = |args: &[&str]| {
        let args: Vec<&str> = ["table"].into_iter().chain(args.iter().copied()).collect();
        project.orchestrator(&args)
    };
    let history = table(&["history", "silver.orders", "--output", "json"]).expect(0).stdout;
    let newest = serde_json::from_str::<Value>(&history).expect("JSON")[0]["version"].as_u64().expect("a version");
    let (first, second) = ((newest - 2).to_string(), (newest - 1).to_string());
    table(&["tag", "silver.orders", "first", "--version", &first]).expect(0);
    let outcome = table(&["tag", "silver.orders", "first", "--version", &second]).expect(2);
    assert!(outcome.stderr.contains("untag silver.orders first"), "{}", outcome.story());
    let status = |version: &str| {
        let sql = format!("SELECT status FROM silver.orders VERSION AS OF {version}");
        project.orchestrator(&["query", &sql, "--output", "csv"])
    };
    vacuum(&project, &["silver.orders", "--retain", "0s", "--force"]);
    assert!(status(&first).expect(0).stdout.contains("new"));
    assert_ne!(status(&second).code, Some(0), "nobody needed it");
    // A restore is no version's name.
    table(&["restore", "silver.orders", "--version", &first, "--keep-offset", "--yes"]).expect(0);
    let told = table(&["describe", "silver.orders", "--output", "json"]).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["tags"]["first"].to_string(), first);
    assert!(told["maintenance"]["vacuumed_at"].is_string(), "{told}");
    let outcome = table(&["untag", "silver.orders", "frist"]).expect(2);
    assert!(outcome.stderr.contains("did you mean `first`"), "{}", outcome.story());
    table(&["untag", "silver.orders", "first"]).expect(0);
    project.run();
    project.orchestrator(&["table", "verify"]).expect(0);
}

#[test]
fn a_version_that_gets_a_name_while_files_are_looked_for_stays_readable() {
    let project = Project::new(SPEC);
    for (file, status) in [("1.csv", "new"), ("2.csv", "paid"), ("3.csv", "sent")] {
        project.land(file, format!("id,status,ts\n1,{status},2024-05-0{}T10:00:00Z\n", &file[..1]).as_bytes(), None);
        project.run();
    }
    let newest = project.versions()["silver/orders"] - 1;
    let (first, second) = ((newest - 2).to_string(), (newest - 1).to_string());
    let force = ["table", "vacuum", "silver.orders", "--retain", "0s", "--force"];
    let (vacuum, held) = start_held(&project, "orchestrator", &force, "leftovers_found:hold");
    project.orchestrator(&["table", "tag", "silver.orders", "first", "--version", &first]).expect(0);
    drop(held);
    vacuum.wait().expect(0);
    let status = |version: &str| {
        let sql = format!("SELECT status FROM silver.orders VERSION AS OF {version}");
        project.orchestrator(&["query", &sql, "--output", "csv"])
    };
    assert!(status(&first).expect(0).stdout.contains("new"));
    assert_ne!(status(&second).code, Some(0), "nobody needed it");
    // A name for what cannot be read any more is refused, and not kept.
    let outcome = project.orchestrator(&["table", "tag", "silver.orders", "second", "--version", &second]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.story());
    let told = project.orchestrator(&["table", "describe", "silver.orders", "--output", "json"]).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["tags"], serde_json::json!({"first": newest - 2}));
}

#[test]
fn a_forced_vacuum_leaves_alone_who_is_at_work() {
    let project = Project::new(SPEC);
    project.land("1.csv", b"id,status,ts\n1,new,2024-05-01T10:00:00Z\n", None);
    let (running, held) = start_held(&project, "orchestrator", &["run"], "silver_committed:hold");
    let force = ["table", "vacuum", "--retain", "0s", "--force"];
    let outcome = project.orchestrator(&force).expect(2);
    assert!(outcome.stderr.contains("is at work"), "{}", outcome.story());
    // Whoever names the table by its path does not get around that.
    let path = project.table_folder("silver.orders").display().to_string();
    let by_path = project.orchestrator(&["table", "vacuum", &path, "--retain", "0s", "--force"]).expect(2);
    assert!(by_path.stderr.contains("belongs to a pipeline"), "{}", by_path.story());
    drop(held);
    running.wait().expect(0);
    // What another program is about to commit, no version names.
    let unknown = project.table_folder("silver.orders").join("part-unknown.parquet");
    fs::write(&unknown, b"PAR1").expect("a file");
    project.orchestrator(&force).expect(0);
    assert!(unknown.exists(), "it is young");
    age(&unknown, 2);
    project.orchestrator(&force).expect(0);
    assert!(!unknown.exists());
    assert_eq!(project.count("silver.orders"), 1);
}

#[test]
fn runs_look_after_tables_in_the_window_and_as_each_table_says() {
    let spec = SPEC.replace(
        "  orders_cdc: {path: ./, format: csv, settle: 0s}",
        "  orders_cdc: {path: ./, format: csv, settle: 0s, maintenance: {after_runs: false}}",
    );
    let spec = spec.replace("    keys: [id]", "    keys: [id]\n    maintenance: {optimize: {small_files: 3}}");
    let project = Project::new(&format!("{spec}maintenance: {{window: '01:00-05:00 Europe/Lisbon'}}\n"));
    let live = |table: &str| {
        let told = project.orchestrator(&["table", "files", table, "--output", "json"]).expect(0);
        serde_json::from_str::<Vec<Value>>(&told.stdout).expect("JSON").len()
    };
    let run = |number: u64, at: &str| {
        let row = format!("id,status,ts\n{number},new,2024-05-01T10:00:00Z\n");
        project.land(format!("{number}.csv"), row.as_bytes(), None);
        program::run_at("orchestrator", project.path(), &["run"], at).expect(0)
    };
    for number in 1..=4 {
        run(number, &format!("2031-07-01T12:0{number}:00Z"));
    }
    assert_eq!((live("bronze.orders_cdc"), live("silver.orders")), (4, 4), "the window is closed");
    let told = program::run_at("orchestrator", project.path(), &["maintain", "--dry-run"], "2031-07-01T12:10:00Z");
    let told = told.expect(0);
    assert!(told.stderr.contains("outside of 01:00-05:00 Europe/Lisbon"), "{}", told.story());
    assert!(told.stdout.contains("silver.orders\n  due    optimize: 4 files would gain"), "{}", told.story());
    // Lisbon is an hour ahead in summer.
    run(5, "2031-07-02T00:30:00Z");
    assert_eq!((live("bronze.orders_cdc"), live("silver.orders")), (5, 1));
    assert_eq!(project.count("silver.orders"), 5);
}

#[test]
fn folders_are_looked_at_once_a_day_and_once_a_window() {
    let windowed = format!("{SPEC}maintenance: {{window: '01:00-05:00'}}\n");
    for (spec, looks) in [
        (
            format!("{SPEC}maintenance: {{}}\n"),
            ["2031-07-01T23:59:00Z", "2031-07-02T00:01:00Z", "2031-07-02T23:00:00Z"],
        ),
        (windowed, ["2031-07-02T00:59:00Z", "2031-07-02T01:01:00Z", "2031-07-02T04:00:00Z"]),
    ] {
        let project = Project::new(&spec);
        project.land("1.csv", b"id,status,ts\n1,new,2024-05-01T10:00:00Z\n", None);
        let table = project.path().join("lakehouse/silver/orders");
        let run = |at: &str| program::run_at("orchestrator", project.path(), &["run"], at).expect(0);
        let leave = |name: &str| {
            std::fs::write(table.join(name), b"of a run that was killed").expect("a file");
            age(&table.join(name), 30);
        };
        let there = |name: &str| table.join(name).exists();
        run("2031-07-01T10:00:00Z");
        leave("part-1.parquet");
        run(looks[0]);
        assert!(there("part-1.parquet"), "not yet: {spec}");
        run(looks[1]);
        assert!(!there("part-1.parquet"), "now: {spec}");
        leave("part-2.parquet");
        run(looks[2]);
        assert!(there("part-2.parquet"), "once: {spec}");
        assert_eq!(project.count("silver.orders"), 1);
    }
}
