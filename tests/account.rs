//! The account of a table by its source files: every record is somewhere, wherever the batches were cut and in whatever
//! order the files came.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::Project;

const SPEC: &str = "
name: account
storage: ./lakehouse
landing: ./landing
bronze:
  s: {path: ./, format: csv, settle: 0s}
silver:
  t:
    source: s
    keys: [id]
    op: {column: op, insert: [I], update: [U], delete: [D], truncate: [T], ignore: [X]}
    sequence_by: [\"seq bigint\"]
    columns: {id: bigint not null, amount: bigint}
    expectations:
      kept: {check: 'amount <> 13', action: drop}
      small: {check: 'amount < 1000', action: quarantine}
";

/// Files in the order of their names, each with what became of it when all are there: records, in effect, superseded,
/// quarantined, dropped, ignored, unexplained.
const FILES: [(&str, &str, [u64; 7]); 4] = [
    // The truncate at 5 takes away 1 and 2; the record of 3 comes once more in the last file, and of equals the last
    // to arrive counts.
    ("a.csv", "op,seq,id,amount\nI,1,1,10\nI,2,2,20\nI,9,3,30\nX,3,4,40\n", [4, 0, 3, 0, 0, 1, 0]),
    // The update of 3 is late; a value that cannot be cast, one too large, one to be dropped.
    ("b.csv", "op,seq,id,amount\nU,4,3,31\nI,6,5,many\nI,6,6,5000\nI,6,7,13\n", [4, 0, 1, 2, 1, 0, 0]),
    // The truncate, a delete that is the last of its key, and a row that the last file updates.
    ("c.csv", "op,seq,id,amount\nT,5,,\nD,7,8,\nI,8,9,90\n", [3, 2, 1, 0, 0, 0, 0]),
    ("d.csv", "op,seq,id,amount\nI,9,3,30\nU,10,9,91\n", [2, 2, 0, 0, 0, 0, 0]),
];

fn account(project: &Project, code: i32) -> Vec<(String, [u64; 7])> {
    let outcome = project.silver(&["account", "t", "--output", "json"]).expect(code);
    let tables: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let names = ["records", "in_effect", "superseded", "quarantined", "dropped", "ignored", "unexplained"];
    let figures = |file: &Value| names.map(|name| file[name].as_u64().expect("a figure"));
    let files = tables[0]["files"].as_array().expect("files").iter();
    let mut files: Vec<_> =
        files.map(|file| (file["file"].as_str().expect("a path").to_owned(), figures(file))).collect();
    files.sort();
    files
}

fn expected() -> Vec<(String, [u64; 7])> {
    FILES.iter().map(|(name, _, figures)| ((*name).to_owned(), *figures)).collect()
}

#[test]
fn every_record_of_every_file_is_somewhere_whatever_the_batches() {
    let together = Project::new(SPEC);
    for (name, content, _) in FILES {
        together.land(name, content.as_bytes(), None);
    }
    together.run();
    assert_eq!(account(&together, 0), expected());

    let one_by_one = Project::new(SPEC);
    for (name, content, _) in FILES {
        one_by_one.land(name, content.as_bytes(), None);
        one_by_one.run();
    }
    assert_eq!(account(&one_by_one, 0), expected());

    let text = one_by_one.silver(&["account", "t", "--file", "b*"]).expect(0).stdout;
    assert!(text.starts_with("silver.t version ") && text.contains("4 records of 1 file\n"), "{text}");
    assert!(!text.contains("a.csv"), "{text}");
}

#[test]
fn what_is_discarded_is_dropped_and_what_waits_is_said() {
    let project = Project::new(SPEC);
    for (name, content, _) in &FILES[..2] {
        project.land(name, content.as_bytes(), None);
    }
    project.run();
    project.orchestrator(&["quarantine", "discard", "s", "--reason", "cast"]).expect(0);
    let files = account(&project, 0);
    assert_eq!(files[1], ("b.csv".to_owned(), [4, 0, 1, 1, 2, 0, 0]));

    project.land("e.csv", b"op,seq,id,amount\nI,20,20,1\n", None);
    project.run_layer("bronze");
    let text = project.silver(&["account", "t"]).expect(0).stdout;
    assert!(text.contains("1 record of later batches wait"), "{text}");
}

#[test]
fn a_record_that_is_nowhere_is_an_error() {
    let project = Project::new(SPEC);
    for (name, content, _) in FILES {
        project.land(name, content.as_bytes(), None);
    }
    project.run();
    fs::remove_dir_all(project.table_folder("quarantine.s")).expect("a quarantine table");
    let outcome = project.silver(&["account", "t"]).expect(1);
    assert!(outcome.stderr.contains("b.csv of silver.t: 2 unexplained"), "{}", outcome.story());
    let files = account(&project, 1);
    assert_eq!(json!(files[1].1), json!([4, 0, 1, 2, 1, 0, 2]));
}
