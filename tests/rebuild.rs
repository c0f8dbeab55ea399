//! `silver rebuild`: a table made anew in its place is what it would be had the spec always been as it is, with all that
//! is kept beside it, whatever it was before, whoever works at the same time, and wherever the program dies.

use lake::fault::REBUILD_POINTS;

use crate::processes::start_held;
use crate::support::parallel;
use crate::support::program::{self, Outcome};
use crate::support::project::{Project, summary_of};

/// `OPTIONS` of the tables; see below.
const SPEC: &str = "
name: rebuild
storage: ./lakehouse
landing: ./landing
timezone: UTC
bronze:
  feed: {path: changes/, format: csv, settle: 0s, max_files_per_batch: 1}
  files: {path: files/, format: csv, settle: 0s, max_files_per_batch: 1}
silver:
  now: {SOURCE, op: {column: op, insert: [I], update: [U], delete: [D], truncate: [T]}, OPTIONS}
  kept: {SOURCE, op: {column: op, insert: [I], update: [U], delete: [D], ignore: [T]}, OPTIONS, delete_mode: soft}
  past: {SOURCE, op: {column: op, insert: [I], update: [U], delete: [D], ignore: [T]}, OPTIONS, stored_as_scd_type: 2}
  whole: {source: files, keys: [id], sequence_by: [at], columns: {id: TYPE, value: string, at: timestamp}, from_snapshot: true}
gold:
  totals: {query: 'SELECT value, count(*) AS n FROM silver.now GROUP BY value'}
";
const SOURCE: &str = "source: feed, cdc: plain, keys: [id], sequence_by: [at]";
const OLD: &str = "columns: {id: bigint not null, value: string, amount: bigint, at: timestamp}";
/// Another type of the key, a column that is gone, one that comes, other partitions; what was refused goes through, and
/// what went through is refused.
const NEW: &str = "columns: {id: string not null, value: string, more: string, at: timestamp}, partition_by: [value], expectations: {seven: {check: \"id <> '7'\", action: quarantine}}";

const TABLES: [&str; 4] = ["now", "kept", "past", "whole"];

/// Three rounds of changes, the third with changes that are older than deletes and truncates of the others.
const CHANGES: [&str; 3] = [
    "op,id,value,amount,more,at\nI,1,a,1,x,2024-01-01\nI,2,a,2,x,2024-01-01\nI,3,a,soon,x,2024-01-01\nI,7,a,7,x,2024-01-01\nD,9,,,,2024-01-20\n",
    "op,id,value,amount,more,at\nD,1,,,,2024-02-01\nU,2,b,2,y,2024-02-01\nT,,,,,2023-12-01\nD,4,,,,2024-02-01\nI,5,c,x,y,2024-02-01\n",
    "op,id,value,amount,more,at\nU,1,late,1,z,2024-01-15\nI,4,late,4,z,2024-01-15\nI,6,old,6,z,2023-11-01\nI,8,new,8,z,2024-03-01\nI,9,late,9,z,2024-01-10\nU,2,late,2,z,2024-01-15\n",
];
const FILES: [&str; 3] = [
    "id,value,at\n1,a,2024-01-01\n2,a,2024-01-01\n",
    "id,value,at\n1,b,2024-02-01\n3,b,2024-02-01\n",
    "id,value,at\n1,late,2024-01-15\n",
];

const CONTENT: [(&str, &[&str]); 7] = [
    ("silver.now", &["id", "value", "more", "amount", "at"]),
    ("silver.kept", &["id", "value", "more", "amount", "at", "_is_deleted", "_deleted_sequence_1"]),
    ("silver.past", &["id", "value", "more", "amount", "__START_AT", "__END_AT"]),
    ("silver.whole", &["id", "value", "at"]),
    ("gold.totals", &["value", "n"]),
    ("quarantine.feed", &["_file_path", "_row_number", "refused_by", "reason", "status"]),
    ("quarantine.files", &["_file_path", "_row_number", "refused_by", "reason", "status"]),
];

fn spec(options: &str) -> String {
    let kind = if options == OLD { "bigint" } else { "string" };
    SPEC.replace("SOURCE", SOURCE).replace("OPTIONS", options).replace("TYPE", kind)
}

fn land(project: &Project, round: usize) {
    project.land(format!("changes/{round}.csv"), CHANGES[round].as_bytes(), None);
    project.land(format!("files/{round}.csv"), FILES[round].as_bytes(), None);
}

/// A project after some rounds by one spec.
fn after(rounds: usize, options: &str) -> Project {
    let project = Project::new(&spec(options));
    for round in 0..rounds {
        land(&project, round);
        project.run();
    }
    project
}

fn rebuild(project: &Project, table: &str, fault: Option<&str>) -> Outcome {
    program::run("silver", project.path(), &["rebuild", table, "--output", "json"], fault)
}

/// The tables as they are when the spec has always been the new one, after two rounds and after three.
fn expected() -> [Vec<String>; 2] {
    [2, 3].map(|rounds| after(rounds, NEW).content(&CONTENT))
}

/// Fails unless the tables are right, and stay right when more comes.
fn assert_right(project: &Project, expected: &[Vec<String>; 2]) {
    project.run();
    assert_eq!(project.content(&CONTENT), expected[0]);
    project.assert_settled();
    land(project, 2);
    project.run();
    assert_eq!(project.content(&CONTENT), expected[1], "after more has come");
    project.assert_settled();
    program::run("silver", project.path(), &["verify", "--rebuild"], None).expect(0);
}

#[test]
fn a_table_made_anew_is_what_the_present_spec_makes_of_all() {
    let expected = expected();
    let project = after(2, OLD);
    let before = project.query("SELECT id, amount FROM silver.now ORDER BY id");
    let version = project.versions()["silver/now"] - 1;
    project.respec(&spec(NEW));
    // A run says what to do.
    for table in TABLES {
        let told = program::run("silver", project.path(), &["run", "--select", table], None).expect(1);
        assert!(told.story().contains(&format!("silver rebuild {table}")), "{}", told.story());
    }
    let dry = program::run("silver", project.path(), &["rebuild", "now", "whole", "--dry-run"], None).expect(0);
    assert!(dry.stdout.contains("the keys are others"), "{}", dry.stdout);
    assert_eq!(project.versions()["silver/now"] - 1, version, "a dry run changes nothing");
    for table in TABLES {
        let summary = summary_of(&rebuild(&project, table, None).expect(0));
        summary.assert_accounted();
    }
    assert_right(&project, &expected);
    // In one commit, and what was there before can be read.
    let old = project.query(&format!("SELECT id, amount FROM silver.now VERSION AS OF {version} ORDER BY id"));
    assert_eq!(old, before);
}

#[test]
fn a_rebuild_that_dies_anywhere_is_finished_by_the_next_run_or_rebuild() {
    let expected = expected();
    // Those of the run by which the table is made aside, and its own.
    let aside = ["table_created", "silver_quarantine_committed", "tombstones_committed", "silver_committed"];
    let own = REBUILD_POINTS
        .iter()
        .flat_map(|point| [(*point, "kill", false), (*point, "kill", true), (*point, "lost", false)]);
    let cases: Vec<_> = aside.iter().map(|point| (*point, "kill", false)).chain(own).collect();
    parallel::all(
        "rebuild",
        &cases,
        |case| format!("{case:?}"),
        |(point, action, again)| {
            let project = after(2, OLD);
            project.respec(&spec(NEW));
            let mut met = 0;
            for table in TABLES {
                let outcome = rebuild(&project, table, Some(&format!("{point}:{action}")));
                met += u32::from(outcome.code.is_none());
                // What has been swapped in is finished by a run; what has not must be made anew.
                let is_swapped =
                    program::run("silver", project.path(), &["run", "--select", table], None).code == Some(0);
                if *again || !is_swapped {
                    rebuild(&project, table, None).expect(0);
                }
            }
            assert!(met > 0 || *action == "lost", "the point was never crossed");
            assert_right(&project, &expected);
        },
    );
}

#[test]
fn a_rebuild_and_runs_at_once_never_mix() {
    let expected = expected();
    let rounds: Vec<u32> = (0..3).collect();
    parallel::all(
        "rebuild and runs",
        &rounds,
        |round| format!("{round}"),
        |_| {
            let project = after(1, OLD);
            project.respec(&spec(NEW));
            TABLES.iter().for_each(|table| drop(rebuild(&project, table, None).expect(0)));
            land(&project, 1);
            project.run_layer("bronze");
            let start = |args: &[&str]| program::start("silver", project.path(), args, None);
            let running = [
                start(&["rebuild", "now", "kept", "past", "whole"]),
                start(&["run"]),
                start(&["rebuild", "whole", "past", "kept", "now"]),
                start(&["run"]),
            ];
            for one in running {
                one.wait().expect(0);
            }
            assert_right(&project, &expected);
        },
    );
}

/// The tables that are refined from changes; each rebuild and run of the test below is of one of them.
const REFINED: [&str; 3] = ["now", "kept", "past"];

#[test]
fn of_two_rebuilds_the_later_stays_wherever_the_earlier_waits() {
    let expected = expected();
    // With a third that removes what lies beside tables of earlier ones.
    let cases = [("rebuild_published", 2), ("rebuild_committed", 1), ("rebuild_refused_committed", 1)];
    parallel::all(
        "two rebuilds",
        &cases,
        |case| format!("{case:?}"),
        |(point, later)| {
            let project = after(2, OLD);
            // By the old spec until the later one is there.
            let held =
                REFINED.map(|table| start_held(&project, "silver", &["rebuild", table], &format!("{point}:hold")));
            project.respec(&spec(NEW));
            for table in TABLES {
                (0..*later).for_each(|_| drop(rebuild(&project, table, None).expect(0)));
            }
            for (running, connection) in held {
                drop(connection);
                running.wait().expect(0);
            }
            assert_right(&project, &expected);
        },
    );
}

#[test]
fn a_run_that_waits_while_the_table_is_made_anew_refuses_nothing_twice() {
    let cases: [(&str, &[&str]); 2] = [("all", &[]), ("one", &["--as-of", "batch 1"])];
    let expected = after(3, OLD).content(&CONTENT);
    parallel::all(
        "a run and a rebuild",
        &cases,
        |case| case.0.to_owned(),
        |(_, as_of)| {
            let project = after(1, OLD);
            land(&project, 1);
            project.run_layer("bronze");
            let args = |table| ["run", "--select", table];
            let held =
                REFINED.map(|table| start_held(&project, "silver", &args(table), "silver_quarantine_committed:hold"));
            for table in REFINED {
                let args: Vec<&str> = ["rebuild", table].iter().chain(*as_of).copied().collect();
                program::run("silver", project.path(), &args, None).expect(0);
            }
            for (running, connection) in held {
                drop(connection);
                running.wait().expect(0);
            }
            project.run();
            land(&project, 2);
            project.run();
            assert_eq!(project.content(&CONTENT), expected);
            project.assert_settled();
        },
    );
}

#[test]
fn a_table_goes_back_to_a_batch_and_on_from_there() {
    let project = after(3, OLD);
    let (all, two) = (project.content(&CONTENT), after(2, OLD).content(&CONTENT));
    let silver = |args: &[&str], code| program::run("silver", project.path(), args, None).expect(code);
    let dry = silver(&["rebuild", "now", "--as-of", "batch 2", "--dry-run", "--output", "json"], 0);
    let told: serde_json::Value = serde_json::from_str(&dry.stdout).expect("JSON");
    assert_eq!((told[0]["upto_batch"].as_i64(), told[0]["removed"].as_i64()), (Some(2), Some(1)), "{told}");
    for table in TABLES {
        silver(&["rebuild", table, "--as-of", "batch 2"], 0);
    }
    let only = |lines: Vec<String>| lines.into_iter().filter(|line| line.starts_with("silver")).collect::<Vec<_>>();
    assert_eq!(only(project.content(&CONTENT)), only(two));
    project.run();
    assert_eq!(project.content(&CONTENT), all);
    project.assert_settled();
    // By a version of bronze, and by a time.
    silver(&["rebuild", "now", "--as-of", "version 1"], 0);
    assert_eq!(project.query("SELECT count(*) AS n FROM silver.now")[0]["n"], 3);
    project.run();
    assert_eq!(project.content(&CONTENT), all);
    silver(&["rebuild", "now", "--as-of", "2001-01-01"], 1);
    silver(&["rebuild", "now", "--as-of", "batch two"], 2);
    silver(&["rebuild", "nobody"], 2);
    assert_eq!(project.content(&CONTENT), all);
}

#[test]
fn a_late_extract_finds_its_place_in_the_past() {
    let spec = "name: late\nstorage: ./lakehouse\nlanding: ./landing\ntimezone: UTC\nbronze:\n  \
                feed: {path: ./, format: csv, settle: 0s}\nsilver:\n  \
                past: {OPTIONS, stored_as_scd_type: 2}\n  kept: {OPTIONS, delete_mode: soft}\n";
    let options =
        "source: feed, keys: [id], sequence_by: [\"day date\"], columns: {id: bigint, stock: int}, from_snapshot: true";
    let extracts = [
        "id,stock,day\n1,5,2024-05-01\n2,5,2024-05-01\n3,5,2024-05-01\n",
        "id,stock,day\n1,6,2024-05-02\n3,7,2024-05-02\n",
        "id,stock,day\n1,6,2024-05-03\n2,5,2024-05-03\n3,5,2024-05-03\n",
    ];
    let land = |project: &Project, number: usize, code| {
        project.land(format!("{number}.csv"), extracts[number].as_bytes(), None);
        assert_eq!(project.run_with(None).code, Some(code));
    };
    let content = |project: &Project| {
        project.content(&[
            ("silver.past", &["id", "stock", "__START_AT", "__END_AT"]),
            ("silver.kept", &["id", "stock", "_sequence_1", "_is_deleted", "_deleted_sequence_1"]),
            ("quarantine.feed", &["_file_path", "_row_number", "refused_by"]),
        ])
    };
    let (ordered, late) =
        (Project::new(&spec.replace("OPTIONS", options)), Project::new(&spec.replace("OPTIONS", options)));
    [0, 1, 2].into_iter().for_each(|number| land(&ordered, number, 0));
    [0, 2].into_iter().for_each(|number| land(&late, number, 0));
    late.land("1.csv", extracts[1].as_bytes(), None);
    let told = late.run_with(None).expect(1).story();
    for said in ["is older than an extract that was applied", "silver rebuild past", "silver rebuild kept"] {
        assert!(told.contains(said), "{told}");
    }
    assert_ne!(content(&late), content(&ordered));
    program::run("silver", late.path(), &["rebuild", "past", "kept"], None).expect(0);
    assert_eq!(content(&late), content(&ordered));
    late.assert_settled();
    // One that comes again is stale, and no run fails for it.
    late.land("0-again.csv", extracts[0].as_bytes(), None);
    late.run();
    assert_eq!(content(&late), content(&ordered));
}
