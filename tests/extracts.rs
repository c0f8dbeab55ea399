//! Full extracts in any batching, with repetitions and crashes: the table is the last extract, its history that of all,
//! and what does not change is not written.
//!
//! Histories come from a seed; a failure prints it. `EXTRACTS=50` runs that many, `SEED=…` starts elsewhere.

use std::collections::BTreeMap;

use crate::support::history::Dice;
use crate::support::parallel;
use crate::support::program;
use crate::support::project::Project;
use crate::support::rows::{Rows, Types, text_of};

const PROJECTS: u64 = 6;
const SEED: u64 = 7;

const SPEC: &str = "
name: extracts
storage: ./lakehouse
landing: ./landing
bronze:
  feed: {path: ./, format: csv, settle: 0s, max_files_per_batch: FILES}
silver:
  current: {source: feed, keys: [k1, k2], sequence_by: [], columns: {k1: bigint, k2: string, value: string}, from_snapshot: true}
  kept: {source: feed, keys: [k1, k2], sequence_by: [], columns: {k1: bigint, k2: string, value: string}, from_snapshot: true, delete_mode: soft}
  history: {source: feed, keys: [k1, k2], sequence_by: [_file_path string], columns: {k1: bigint, k2: string, value: string}, from_snapshot: true, stored_as_scd_type: 2}
";

type Key = (Option<u64>, Option<&'static str>);
type Extract = BTreeMap<Key, Option<String>>;

#[test]
fn extracts_are_compared_one_after_the_other() {
    let seeds = parallel::seeds(parallel::number("EXTRACTS", PROJECTS), SEED);
    parallel::all("extracts", &seeds, |seed| format!("SEED={seed} EXTRACTS=1"), |seed| drive(*seed));
}

fn drive(seed: u64) {
    let mut dice = Dice::new(seed);
    let files = 1 + dice.below(3);
    let project = Project::new(&SPEC.replace("FILES", &files.to_string()));
    let mut extracts: Vec<(String, Extract)> = Vec::new();
    let land = |dice: &mut Dice, extracts: &mut Vec<(String, Extract)>| {
        let name = format!("{:03}.csv", extracts.len());
        let before = extracts.last().map(|(_, extract)| extract.clone()).unwrap_or_default();
        let extract = next(dice, before);
        project.land(&name, content(&extract).as_bytes(), None);
        extracts.push((name, extract));
    };
    for _ in 0..3 {
        for _ in 0..1 + dice.below(3) {
            land(&mut dice, &mut extracts);
        }
        if dice.chance(40) {
            let point = lake::fault::POINTS[dice.below(lake::fault::POINTS.len() as u64) as usize];
            project.run_with(Some(&format!("{point}:kill:{}", 1 + dice.below(3))));
        }
        project.run();
        assert_folded(&project, &extracts);
    }
    // The last one once more: nothing of it is written.
    let batches = "SELECT _batch_id, count(*) AS n FROM silver.current GROUP BY _batch_id ORDER BY _batch_id";
    let before = project.query(batches);
    let last = extracts[extracts.len() - 1].1.clone();
    project.land("999.csv", content(&last).as_bytes(), None);
    project.run();
    assert_eq!(project.query(batches), before);
    extracts.push(("999.csv".to_owned(), last));
    assert_folded(&project, &extracts);
    project.assert_settled();
    program::run("silver", project.path(), &["verify", "--rebuild", "--output", "json"], None).expect(0);
}

/// An extract a while later; it has one row at least.
fn next(dice: &mut Dice, mut extract: Extract) -> Extract {
    for _ in 0..1 + dice.below(4) {
        let key =
            ([None, Some(1), Some(2)][dice.below(3) as usize], [None, Some(""), Some("B")][dice.below(3) as usize]);
        // A key that is null as a whole is no key.
        let key = if key == (None, None) { (Some(3), None) } else { key };
        if dice.chance(30) && extract.len() > 1 {
            extract.remove(&key);
        } else {
            extract.insert(key, [None, Some("a".to_owned()), Some("b".to_owned())][dice.below(3) as usize].clone());
        }
    }
    extract
}

fn content(extract: &Extract) -> String {
    let text = |value: Option<&str>| value.map_or_else(String::new, |text| format!("\"{text}\""));
    let line = |((k1, k2), value): (&Key, &Option<String>)| {
        format!("{},{},{}\n", k1.map(|k1| k1.to_string()).unwrap_or_default(), text(*k2), text(value.as_deref()))
    };
    let lines = extract.iter().map(line);
    "k1,k2,value\n".to_owned() + &lines.collect::<String>()
}

fn assert_folded(project: &Project, extracts: &[(String, Extract)]) {
    let values = |(k1, k2): &Key, value: &Option<String>| {
        vec![k1.map(|k1| k1.to_string()), k2.map(str::to_owned), value.clone()]
    };
    let (_, last) = &extracts[extracts.len() - 1];
    let current: Vec<_> = last.iter().map(|(key, value)| values(key, value)).collect();
    compare(project, "current", &["k1", "k2", "value"], current);

    let mut kept: BTreeMap<Key, Option<String>> = BTreeMap::new();
    extracts.iter().for_each(|(_, extract)| kept.extend(extract.clone()));
    let kept = kept.iter().map(|(key, value)| {
        let mut row = values(key, value);
        row.push(Some((!last.contains_key(key)).to_string()));
        row
    });
    compare(project, "kept", &["k1", "k2", "value", "_is_deleted"], kept.collect());

    let mut history: Vec<(Key, Option<String>, &str, Option<&str>)> = Vec::new();
    for (name, extract) in extracts {
        for (key, value, _, end) in history.iter_mut().filter(|(_, _, _, end)| end.is_none()) {
            if extract.get(key) != Some(value) {
                *end = Some(name);
            }
        }
        for (key, value) in extract {
            if !history.iter().any(|(held, _, _, end)| held == key && end.is_none()) {
                history.push((*key, value.clone(), name, None));
            }
        }
    }
    let history = history.into_iter().map(|(key, value, start, end)| {
        let mut row = values(&key, &value);
        row.extend([Some(start.to_owned()), end.map(str::to_owned)]);
        row
    });
    compare(project, "history", &["k1", "k2", "value", "__START_AT", "__END_AT"], history.collect());
}

fn compare(project: &Project, table: &str, columns: &[&str], expected: Vec<Vec<Option<String>>>) {
    let list: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    let rows = project.query(&format!("SELECT {} FROM silver.{table}", list.join(", ")));
    let texts = rows.iter().map(|row| columns.iter().map(|column| text_of(&row[*column])).collect());
    let types = Types::from([("k1".to_owned(), "long".to_owned())]);
    if let Some(difference) = Rows::new(columns, texts, &types).difference(&Rows::new(columns, expected, &types)) {
        panic!("silver.{table}: {difference}");
    }
}

const EMPTY: &str = "
name: taken-out
storage: ./lakehouse
landing: ./landing
bronze:
  feed: {path: ./, format: csv, settle: 0s}
silver:
  current: {source: feed, keys: [id], sequence_by: [], columns: {id: bigint, value: string}, from_snapshot: true, allow_empty_snapshot: true}
";

#[test]
fn an_extract_that_is_taken_out_of_bronze_is_no_empty_one() {
    let project = Project::new(EMPTY);
    let land = |name: &str, rows: &str| project.land(name, format!("id,value\n{rows}").as_bytes(), None);
    let newest = |table: &str| {
        let told = project.orchestrator(&["table", "history", table, "--limit", "1", "--output", "json"]).expect(0);
        serde_json::from_str::<serde_json::Value>(&told.stdout).expect("JSON")[0]["version"].to_string()
    };
    let values = || project.content(&[("silver.current", &["id", "value"])]);
    let expected = |rows: &[&str]| rows.iter().map(|row| format!("silver.current: {row}")).collect::<Vec<_>>();
    land("1.csv", "1,a\n2,b\n");
    project.run();
    let before = [("bronze.feed", newest("bronze.feed")), ("silver.current", newest("silver.current"))];
    land("2.csv", "1,wrong\n");
    project.run();
    assert_eq!(values(), expected(&["1 | wrong"]));
    for (table, version) in &before {
        project.orchestrator(&["table", "restore", table, "--version", version, "--yes"]).expect(0);
    }
    project.run();
    assert_eq!(values(), expected(&["1 | a", "2 | b"]), "the wrong extract is gone, and no row with it");

    // One that is still to be applied goes as a whole or not at all.
    land("3.csv", "1,a\n2,b\n3,c\n");
    project.run_layer("bronze");
    let delete =
        |condition: &str| project.orchestrator(&["table", "delete", "bronze.feed", "--where", condition, "--yes"]);
    let outcome = delete("id = '2'").expect(2);
    assert!(
        outcome.stderr.contains("`3.csv` (batch 3) is a full extract that silver.current has still to apply"),
        "{}",
        outcome.story()
    );
    delete("_file_path = '3.csv'").expect(0);
    project.run();
    assert_eq!(values(), expected(&["1 | a", "2 | b"]));
    project.silver(&["verify", "--rebuild"]).expect(0);

    // Of one that was applied rows may go, and a file without a record still deletes all.
    land("4.csv", "1,a\n2,b\n4,d\n");
    project.run();
    delete("id = '4' AND _batch_id = 4").expect(0);
    project.run();
    assert_eq!(values(), expected(&["1 | a", "2 | b", "4 | d"]));
    let outcome = project.orchestrator(&["table", "swap", "bronze.feed_copy", "bronze.feed", "--yes"]).expect(2);
    assert!(outcome.stderr.contains("bronze.feed_copy"), "{}", outcome.story());
    project.orchestrator(&["table", "clone", "bronze.feed", "--as", "bronze.feed_copy"]).expect(0);
    let outcome = project.orchestrator(&["table", "swap", "bronze.feed_copy", "bronze.feed", "--yes"]).expect(2);
    assert!(outcome.stderr.contains("are full extracts for silver.current"), "{}", outcome.story());
    land("5.csv", "");
    project.run();
    assert_eq!(values(), expected(&[]), "an empty extract is one");
}

#[test]
fn a_discarded_record_makes_its_own_file_alone_incomplete() {
    let spec = "
name: extracts
bronze:
  feed: {path: feed/, format: csv, settle: 0s}
silver:
  t: {source: feed, keys: [id], sequence_by: [], columns: {id: bigint, v: bigint}, from_snapshot: true}
";
    let project = Project::new(spec);
    project.land("feed/1.csv", b"id,v\n1,1\n2,2\n3,much\n", None);
    project.land("feed/2.csv", b"id,v\n1,1\n", None);
    assert_eq!(project.run().task("silver.t").quarantined, 1);
    let ids =
        || project.query("SELECT id FROM silver.t ORDER BY id").iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(), [1]);
    project.orchestrator(&["quarantine", "discard", "feed"]).expect(0);
    program::run("silver", project.path(), &["rebuild", "t"], None).expect(0);
    assert_eq!(ids(), [1], "made anew");
}
