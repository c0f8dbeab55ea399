//! What is remembered beside a silver table counts only with the rows that it goes with: what an attempt remembered that
//! was never finished is as if it had never been, whatever becomes of its records.

use crate::support::parallel;
use crate::support::program;
use crate::support::project::Project;

/// Times are written so that day and month can be taken for each other.
const SPEC: &str = "
name: facts
storage: ./lakehouse
landing: ./landing
bronze:
  feed: {path: changes/, format: csv, settle: 0s}
  files: {path: files/, format: csv, settle: 0s}
silver:
  now: {TABLE}
  kept: {TABLE, delete_mode: soft}
  past: {TABLE, stored_as_scd_type: 2}
  whole: {source: files, keys: [id], sequence_by: [at], columns: {id: bigint, value: string, at: date}, formats: {at: FORMAT}, from_snapshot: true}
tasks:
  silver.now: {max_retries: 0}
  silver.kept: {max_retries: 0}
  silver.past: {max_retries: 0}
  silver.whole: {max_retries: 0}
";
const TABLE: &str = "source: feed, cdc: plain, keys: [id], sequence_by: [at], columns: {id: bigint, value: string, at: date}, formats: {at: FORMAT}, op: {column: op, insert: [I], update: [U], delete: [D]TRUNCATE}";

const WRONG: &str = "'%m/%d/%Y'";
const RIGHT: &str = "'%d/%m/%Y'";

/// What is there, what an attempt reads wrongly (the fifth of April as the fourth of May), and what comes later: between
/// the two days.
const CHANGES: [&str; 3] = [
    "op,id,value,at\nI,1,a,01/01/2024\nI,2,a,01/01/2024\n",
    "op,id,value,at\nD,1,,05/04/2024\nD,3,,05/04/2024\nI,4,a,05/04/2024\n",
    "op,id,value,at\nI,1,b,12/04/2024\nI,3,b,12/04/2024\nU,4,b,12/04/2024\n",
];
const TRUNCATES: [&str; 3] =
    [CHANGES[0], "op,id,value,at\nT,,,05/04/2024\n", "op,id,value,at\nI,1,b,12/04/2024\nI,3,b,12/04/2024\n"];
const FILES: [&str; 3] =
    ["id,value,at\n1,a,01/01/2024\n2,a,01/01/2024\n", "id,value,at\n1,b,05/04/2024\n", "id,value,at\n1,c,12/04/2024\n"];

const TABLES: [(&str, &[&str]); 4] = [
    ("silver.now", &["id", "value", "at"]),
    ("silver.kept", &["id", "value", "at", "_is_deleted", "_deleted_sequence_1"]),
    ("silver.past", &["id", "value", "__START_AT", "__END_AT"]),
    ("silver.whole", &["id", "value", "at"]),
];

fn spec(format: &str) -> String {
    SPEC.replace("TABLE", &TABLE.replace("TRUNCATE", ", truncate: [T]")).replace("FORMAT", format)
}

fn land(project: &Project, number: usize, changes: &str) {
    project.land(format!("changes/{number}.csv"), changes.as_bytes(), None);
    project.land(format!("files/{number}.csv"), FILES[number].as_bytes(), None);
}

/// The tables when nothing ever failed.
fn undisturbed(changes: &[&str; 3]) -> Vec<String> {
    let project = Project::new(&spec(RIGHT));
    for (number, changes) in changes.iter().enumerate() {
        land(&project, number, changes);
        project.run();
    }
    project.content(&TABLES)
}

#[test]
fn what_an_unfinished_attempt_remembered_does_not_count_when_its_records_are_read_otherwise() {
    let points: [(&str, &[&str]); 4] = [
        ("tombstones_committed", &["now", "whole"]),
        ("truncate_committed", &["now", "kept", "past"]),
        ("versions_committed", &["kept", "past"]),
        ("extracts_committed", &["whole"]),
    ];
    let all: Vec<_> = points.iter().flat_map(|point| [(*point, 1), (*point, 2)]).collect();
    let expected = [undisturbed(&CHANGES), undisturbed(&TRUNCATES)];
    assert!(expected[0].iter().any(|line| line == "silver.now: 1 | b | 2024-04-12"), "{expected:#?}");
    parallel::all(
        "facts",
        &all,
        |case| format!("{case:?}"),
        |((point, tables), times)| {
            let truncates = *point == "truncate_committed";
            let changes = if truncates { TRUNCATES } else { CHANGES };
            let project = Project::new(&spec(RIGHT));
            land(&project, 0, changes[0]);
            project.run();
            land(&project, 1, changes[1]);
            project.respec(&spec(WRONG));
            program::run("bronze", project.path(), &["run"], None).expect(0);
            for _ in 0..*times {
                for table in *tables {
                    let fault = format!("{point}:kill");
                    program::run("silver", project.path(), &["run", "--select", table], Some(&fault)).expect_killed();
                }
            }
            project.respec(&spec(RIGHT));
            project.run();
            land(&project, 2, changes[2]);
            project.run();
            assert_eq!(project.content(&TABLES), expected[usize::from(truncates)], "{point}");
            project.assert_settled();
            program::run("silver", project.path(), &["verify", "--rebuild"], None).expect(0);
        },
    );
}

#[test]
fn what_an_unfinished_replay_remembered_does_not_count_when_its_records_are_discarded() {
    let points = [
        ("tombstones_committed", "now"),
        ("truncate_committed", "now"),
        ("truncate_committed", "kept"),
        ("truncate_committed", "past"),
        ("versions_committed", "kept"),
        ("versions_committed", "past"),
    ];
    parallel::all(
        "facts of a replay",
        &points,
        |case| format!("{case:?}"),
        |(point, table)| {
            // No format has a dot: the records are refused.
            let refused = if *point == "truncate_committed" { "T,,,05.04.2024" } else { "D,1,,05.04.2024" };
            let run = |with_refused: bool| {
                let project = Project::new(&spec(RIGHT));
                land(&project, 0, CHANGES[0]);
                if with_refused {
                    project.land("changes/0-refused.csv", format!("op,id,value,at\n{refused}\n").as_bytes(), None);
                }
                project.run();
                project
            };
            let later = |project: &Project| {
                land(project, 1, "op,id,value,at\nI,1,b,12/03/2024\nI,5,b,12/03/2024\n");
                project.run();
                project.content(&TABLES)
            };
            let project = run(true);
            project.respec(&spec("'%d.%m.%Y'"));
            let (name, fault) = (format!("silver.{table}"), format!("{point}:kill"));
            let args = ["quarantine", "replay", "--table", &name];
            program::run("orchestrator", project.path(), &args, Some(&fault)).expect_killed();
            project.respec(&spec(RIGHT));
            project.run();
            project.orchestrator(&["quarantine", "discard", "--all"]).expect(0);
            assert_eq!(later(&project), later(&run(false)));
        },
    );
}

/// Files of what is remembered beside a table, and the rows in them.
#[tokio::main(flavor = "current_thread")]
async fn beside(project: &Project, layer: lake::Layer, table: &str) -> (usize, u64) {
    let storage = project.path().join("lakehouse").display().to_string();
    let (clock, engine) = (lake::Clock::system(), lake::session::Engine::default());
    let lake = lake::Lake::open(&storage, std::path::Path::new("."), clock, engine).expect("a lake");
    let table = lake.existing(&lake::TableName::new(layer, table)).await.expect("the table");
    (table.file_count().expect("files"), table.row_count().expect("rows").expect("counted"))
}

#[test]
fn many_small_files_of_facts_become_one_without_what_is_forgotten() {
    const RUNS: usize = 36;
    let forgets = format!("{}, tombstone_retention: 0s", TABLE.replace("TRUNCATE", ", ignore: [T]"));
    let spec = spec(RIGHT).replace("  kept:", &format!("  forgets: {{{}}}\n  kept:", forgets.replace("FORMAT", RIGHT)));
    let project = Project::new(&spec);
    let changes: Vec<String> = (0..RUNS)
        .map(|run| {
            format!("I,{run},a,01/01/2024\nD,{run},,02/01/2024\nT,,,{:02}/{}/2023\n", 1 + run % 30, 11 + run / 30)
        })
        .collect();
    for (run, changes) in changes.iter().enumerate() {
        project.land(format!("changes/{run}.csv"), format!("op,id,value,at\n{changes}").as_bytes(), None);
        project.run_layer("bronze");
        project.silver(&["run", "--select", "now,forgets,past"]).expect(0);
    }
    for (layer, table, rows) in [
        (lake::Layer::Tombstones, "now", RUNS as u64),
        (lake::Layer::Tombstones, "forgets", 4),
        (lake::Layer::Truncates, "now", RUNS as u64),
        (lake::Layer::Versions, "past", RUNS as u64),
    ] {
        let (files, held) = beside(&project, layer, table);
        assert!(files < 10, "{layer:?} of {table} are {files} files");
        let is_right = if table == "forgets" { held <= rows } else { held == rows };
        assert!(is_right, "{layer:?} of {table} have {held} rows");
    }
    // Neither does the event log have a file for each run of a layer's program.
    let (files, events) = beside(&project, lake::Layer::State, "event_log");
    assert!(files < RUNS && events >= 4 * RUNS as u64, "{files} files, {events} events");
    // What is older than a delete is still late, and what is older than the newest truncate.
    let late: String = (0..RUNS).map(|run| format!("U,{run},late,{:02}/01/2024\n", 1 + run % 2)).collect();
    let late = format!("op,id,value,at\n{late}I,99,old,05/12/2023\nI,98,new,07/12/2023\n");
    project.land("changes/late.csv", late.as_bytes(), None);
    project.run();
    let rows = project.query("SELECT id FROM silver.now ORDER BY id");
    let ids: Vec<usize> = rows.iter().map(|row| row["id"].as_u64().expect("an id") as usize).collect();
    assert_eq!(ids, (1..RUNS).step_by(2).chain([98]).collect::<Vec<_>>());
    project.silver(&["verify", "now", "past", "--rebuild"]).expect(0);
}

#[test]
fn what_was_undone_is_kept_for_who_goes_back_once_more() {
    // So many commits that small files are put together on the way.
    const RUNS: usize = 34;
    let project = Project::new(&spec(RIGHT));
    let land = |file: String, line: String| {
        project.land(format!("changes/{file}.csv"), format!("op,id,value,at\n{line}\n").as_bytes(), None);
        project.run_layer("bronze");
        project.silver(&["run", "--select", "past"]).expect(0);
        let told = project.orchestrator(&["table", "history", "silver.past", "--limit", "1", "--output", "json"]);
        let told: serde_json::Value = serde_json::from_str(&told.expect(0).stdout).expect("JSON");
        told[0]["version"].as_u64().expect("a version")
    };
    let restore = |version: u64| {
        let version = version.to_string();
        let args = ["table", "restore", "silver.past", "--version", &version, "--keep-offset", "--yes"];
        project.orchestrator(&args).expect(0);
    };
    let before = land("a".to_owned(), "I,1,a,01/01/2024".to_owned());
    // No row tells of this delete.
    let deleted = land("b".to_owned(), "D,7,,10/01/2024".to_owned());
    restore(before);
    for run in 0..RUNS {
        land(format!("c{run}"), format!("D,{},,10/01/2024", 100 + run));
    }
    let (files, held) = beside(&project, lake::Layer::Versions, "past");
    assert!(files < RUNS && held == RUNS as u64 + 1, "{files} files, {held} rows");
    restore(deleted);
    land("d".to_owned(), "I,7,late,05/01/2024\nI,100,late,05/01/2024".to_owned());
    let ends = project.query("SELECT id, __END_AT AS upto FROM silver.past WHERE id > 1 ORDER BY id");
    let ends: Vec<_> = ends.iter().map(|row| (row["id"].as_i64(), row["upto"].as_str())).collect();
    assert_eq!(ends, [(Some(7), Some("2024-01-10")), (Some(100), None)], "one delete counts, the others do not");
}
