//! The wrong specs of `tests/wrong-specs`: what is said of each stands beside it, and is written anew with
//! `UPDATE_WRONG_SPECS=1 cargo test -p bronze -p orchestrator wrong_specs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use lake::spec::Document;

use super::Project;

/// At least so many; fewer means that this test does not find them.
const SPECS_MIN: usize = 100;

#[test]
fn wrong_specs_are_told_as_it_stands_beside_them() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/wrong-specs");
    let update = std::env::var_os("UPDATE_WRONG_SPECS").is_some();
    let mut specs: Vec<PathBuf> =
        fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    specs.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    specs.sort();
    assert!(specs.len() >= SPECS_MIN, "{} wrong specs", specs.len());
    let mut differences = Vec::new();
    let mut told_by_file = BTreeMap::new();
    for file in &specs {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        let document = Document::parse(name, &fs::read_to_string(file).expect("a spec"));
        let told = match Project::compile(&document, &BTreeMap::new()) {
            Ok(_) => panic!("{name} is right"),
            Err(problems) => problems.to_string(),
        };
        let beside = file.with_extension("txt");
        if update {
            fs::write(&beside, &told).expect("written");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if expected != told {
            differences.push(format!("{name}: expected\n{expected}\nfound\n{told}"));
        }
        told_by_file.insert(name.to_owned(), told);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // What every message has: the place in the file, and where it is in the spec a line and a caret.
    for (name, told) in &told_by_file {
        let problems = told.matches("\nerror: ").count();
        assert_eq!(told.matches("\n  --> ").count(), problems, "{name}: {told}");
        let is_nowhere = told.matches("`name` is missing").count();
        assert!(told.matches('^').count() >= problems - is_nowhere, "{name} has no caret: {told}");
    }
    let texts: BTreeSet<&String> = told_by_file.values().collect();
    assert_eq!(texts.len(), specs.len(), "two wrong specs are the same one");
}
