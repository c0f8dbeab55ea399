//! The sample keeps its promises: the same bytes for the same options, every kind of trouble, and ties that no order
//! of the files can change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::generate::Written;
use super::*;

/// Every file's content by its path below the folder.
fn sample(rows: u64, seed: u64) -> (Written, BTreeMap<String, String>) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options { dir: dir.path().to_owned(), rows, seed, days: DEFAULT_DAYS };
    let written = generate(&options).expect("a sample");
    (written, read(dir.path()))
}

fn read(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for folder in fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        for file in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = file.strip_prefix(root).expect("a path below").to_string_lossy().into_owned();
            files.insert(name, fs::read_to_string(&file).expect("a text"));
        }
    }
    files
}

/// An event of a file, as far as ordering is concerned: its key, its time, the line.
struct Line {
    file: String,
    number: usize,
    key: String,
    at: String,
    text: String,
}

/// The undamaged events of all order files.
fn lines(files: &BTreeMap<String, String>) -> Vec<Line> {
    let mut all = Vec::new();
    for (file, content) in files.iter().filter(|(file, _)| !file.starts_with("products")) {
        for (number, text) in content.lines().enumerate() {
            let parsed = if file.ends_with(".csv") { csv(text) } else { json(text) };
            if let Some((key, at)) = parsed {
                all.push(Line { file: file.clone(), number, key, at, text: text.to_owned() });
            }
        }
    }
    all
}

fn csv(text: &str) -> Option<(String, String)> {
    let fields: Vec<&str> = text.split(',').collect();
    let is_whole = fields.len() >= 7 && fields[0] != "op" && !text.contains('"') && !text.contains("13-45");
    is_whole.then(|| (fields[1].to_owned(), fields[6].to_owned()))
}

fn json(text: &str) -> Option<(String, String)> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let field = |name: &str| value[name].as_str().map(str::to_owned);
    if value["amount"].is_string() { None } else { Some((field("order_id")?, field("updated_at")?)) }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    assert_eq!(sample(500, 7), sample(500, 7));
    assert_ne!(sample(500, 7).1, sample(500, 8).1);
}

#[test]
fn every_row_that_was_asked_for_is_written() {
    for rows in [0, 1, 9, 100, 1_234] {
        let (written, files) = sample(rows, 3);
        let events = files
            .iter()
            .filter(|(file, _)| !file.starts_with("products"))
            .flat_map(|(_, content)| content.lines())
            .filter(|line| !line.starts_with("op,"))
            .count() as u64;
        assert_eq!((written.events, events), (rows, rows));
        assert_eq!(written.files, files.len() as u64);
        assert_eq!(written.bytes, files.values().map(|content| content.len() as u64).sum::<u64>());
    }
}

#[test]
fn nothing_is_mixed_with_files_that_are_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options { dir: dir.path().to_owned(), rows: 10, seed: 1, days: 2 };
    generate(&options).expect("a first sample");
    let error = generate(&options).expect_err("a second sample in one folder");
    assert!(error.to_string().contains("orders` is not empty"), "{error}");
}

#[test]
fn events_of_one_instant_stand_together_and_are_never_torn() {
    let (_, files) = sample(20_000, 11);
    let mut by_instant: HashMap<(String, String), Vec<Line>> = HashMap::new();
    for line in lines(&files) {
        by_instant.entry((line.key.clone(), line.at.clone())).or_default().push(line);
    }
    let mut pairs = 0;
    for lines in by_instant.values() {
        // Lines of one instant are either one event, repeated, or a pair, of which only the second is ever repeated.
        let first = &lines[0];
        if lines.iter().all(|line| same_event(&first.text, &line.text)) {
            continue;
        }
        pairs += 1;
        let second = &lines[1];
        assert_eq!((&first.file, first.number + 1), (&second.file, second.number), "{} {}", first.text, second.text);
        assert!(lines[2..].iter().all(|line| same_event(&second.text, &line.text)), "{}", first.text);
    }
    assert!(pairs > 100, "only {pairs} pairs of one instant");
}

/// Whether two lines are one event, wherever the CSV files have one column more.
fn same_event(one: &str, other: &str) -> bool {
    one.trim_end_matches(',') == other.trim_end_matches(',')
}

#[test]
fn the_committed_sample_has_every_kind_of_trouble() {
    let (written, files) = sample(DEFAULT_ROWS, DEFAULT_SEED);
    assert!(written.events > 5_000 && written.bytes < 1_000_000, "{written:?}");
    let names = |folder: &str| files.keys().filter(|name| name.starts_with(folder)).count();
    assert!(names("orders/") + names("web_orders/") > 20 && names("products/") >= 10);

    let text: String = files.values().map(String::as_str).collect();
    for op in ["\nI,", "\nU,", "\nD,", r#"{"op":"I""#, r#"{"op":"U""#, r#"{"op":"D""#] {
        assert!(text.matches(op).count() > 10, "{op}");
    }
    for damage in ["\"12,5O\"", "2024-13-45", ",checked by hand\n", "\nU\n", r#""amount":"n/a""#] {
        assert!(text.contains(damage), "{damage}");
    }
    let web = files.iter().filter(|(name, _)| name.ends_with(".jsonl")).flat_map(|(_, content)| content.lines());
    assert!(web.filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err()).count() > 0, "no cut line");

    assert!(!files["orders/orders_2024-05-06_pm.csv"].contains("channel"));
    assert!(files["orders/orders_2024-05-07_am.csv"].lines().next().is_some_and(|line| line.ends_with(",channel")));
}

#[test]
fn events_come_late_out_of_order_and_twice() {
    let (_, files) = sample(DEFAULT_ROWS, DEFAULT_SEED);
    let lines = lines(&files);
    let day_of = |file: &str| {
        file.split('_').find_map(|part| part.get(..10).filter(|day| day.starts_with("2024"))).map(str::to_owned)
    };
    let days_late = lines.iter().filter(|line| day_of(&line.file).is_some_and(|day| line.at[..10] < *day)).count();
    assert!(days_late > 50, "{days_late} events in files of later days");
    let swapped = lines.windows(2).filter(|pair| pair[0].file == pair[1].file && pair[0].at > pair[1].at).count();
    assert!(swapped > 100, "{swapped} events before an older one");
    let mut seen = HashMap::<&str, usize>::new();
    for line in &lines {
        *seen.entry(&line.text).or_default() += 1;
    }
    assert!(seen.values().filter(|count| **count > 1).count() > 30);
    let mut deleted = HashMap::<&str, &str>::new();
    let mut stragglers = 0;
    for line in &lines {
        if line.text.starts_with("D,") || line.text.contains(r#""op":"D""#) {
            deleted.insert(&line.key, &line.at);
        } else if deleted.get(line.key.as_str()).is_some_and(|at| line.at.as_str() < *at) {
            stragglers += 1;
        }
    }
    assert!(stragglers > 10, "{stragglers} events behind the delete of their order");
}

#[test]
fn products_stand_still_change_and_vanish() {
    let (_, files) = sample(DEFAULT_ROWS, DEFAULT_SEED);
    let extracts: Vec<&String> =
        files.iter().filter(|(name, _)| name.starts_with("products")).map(|(_, c)| c).collect();
    let ids = |content: &str| {
        content.lines().skip(1).filter_map(|line| line.split(',').next()).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert!(extracts.windows(2).any(|pair| pair[0] == pair[1]), "no unchanged day");
    assert!(extracts.windows(2).any(|pair| !ids(pair[0]).is_subset(&ids(pair[1]))), "no product vanished");
    assert!(extracts.windows(2).any(|pair| !ids(pair[1]).is_subset(&ids(pair[0]))), "no product came");
    assert!(extracts.windows(2).filter(|pair| pair[0] != pair[1]).count() > 7);
}
