//! The house is built as docs/ARCHITECTURE.md draws it: arrows between crates, one place for commits and sessions,
//! files of a size that can be read, one version of each library that tables depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::support::program::workspace;
use crate::support::project::files_below;

const CRATES: [&str; 6] = ["lake", "cli", "bronze", "silver", "gold", "orchestrator"];

/// Files over the length that is a warning sign, each with the reason why it is one subject all the same.
const LONG_FILES: [(&str, &str); 0] = [];
const LINES_MAX: usize = 500;

#[test]
fn crates_depend_downwards_only() {
    for name in CRATES {
        let allowed: &[&str] = match name {
            "lake" => &[],
            "cli" => &["lake"],
            "orchestrator" => &["lake", "cli", "bronze", "silver", "gold"],
            _ => &["lake", "cli"],
        };
        let manifest = fs::read_to_string(workspace().join(name).join("Cargo.toml")).expect("a manifest");
        let used = dependencies(&manifest);
        assert!(used.contains("tokio"), "the dependencies of {name} are not where this test reads them");
        for other in CRATES.iter().filter(|other| used.contains(**other)) {
            assert!(allowed.contains(other), "{name} depends on {other}");
        }
    }
}

/// The names under `[dependencies]`, also as tables of their own, for any target.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = section == "dependencies" || section.ends_with(".dependencies");
            names.extend(section.split_once("dependencies.").map(|(_, name)| name.to_owned()));
        } else if is_inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn commits_are_made_in_one_place() {
    let words = ["CommitBuilder", "CommitProperties", "with_commit_properties"];
    assert_only_in(&words, &["lake/src/commit"]);
}

#[test]
fn sessions_are_built_in_one_place() {
    let words = ["SessionContext::new", "create_session", "SessionStateBuilder", "SessionState::new"];
    assert_only_in(&words, &["lake/src/session"]);
}

#[test]
fn the_landing_zone_is_read_by_bronze_alone() {
    for (path, code) in sources().iter().filter(|(path, _)| path.starts_with("silver/") || path.starts_with("gold/")) {
        assert!(!code.contains("Root::open"), "{path} opens a root of its own");
    }
}

/// Fails when one of the words stands in code outside of these places, or in none of them.
fn assert_only_in(words: &[&str], places: &[&str]) {
    let sources = sources();
    let is_home = |path: &str| places.iter().any(|place| path.starts_with(place));
    for (path, code) in &sources {
        if let Some(word) = words.iter().find(|word| !is_home(path) && code.contains(**word)) {
            panic!("{path} uses {word}; that belongs to {}", places.join(" or "));
        }
    }
    let at_home = sources.iter().any(|(path, code)| is_home(path) && words.iter().any(|word| code.contains(word)));
    assert!(at_home, "none of {words:?} is in {places:?}: this test looks for the wrong words");
}

/// The code of every source file of the crates by its path, without comment lines.
fn sources() -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    for file in CRATES.iter().flat_map(|name| rust_files(&workspace().join(name).join("src"))) {
        let text = fs::read_to_string(workspace().join(&file)).expect("a source file");
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        sources.insert(file, code.join("\n"));
    }
    sources
}

/// Paths of the Rust files below a folder, from the root of the workspace.
fn rust_files(folder: &Path) -> Vec<String> {
    let files = files_below(folder).into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let name =
        |file: &Path| file.strip_prefix(workspace()).expect("a file of ours").to_str().expect("UTF-8").to_owned();
    files.map(|file| name(&file)).collect()
}

#[test]
fn files_have_a_size_that_can_be_read() {
    let folders = CRATES.iter().map(|name| workspace().join(name).join("src")).chain([workspace().join("tests")]);
    let lengths: BTreeMap<String, usize> = folders
        .flat_map(|folder| rust_files(&folder))
        .map(|file| (file.clone(), fs::read_to_string(workspace().join(&file)).expect("a file").lines().count()))
        .collect();
    let reasons: BTreeMap<&str, &str> = LONG_FILES.into_iter().collect();
    for (file, lines) in &lengths {
        let is_explained = reasons.get(file.as_str()).is_some_and(|reason| !reason.is_empty());
        assert!(*lines <= LINES_MAX || is_explained, "{file} has {lines} lines: is it one subject?");
    }
    for file in reasons.keys() {
        assert!(lengths.get(*file).is_some_and(|lines| *lines > LINES_MAX), "{file} needs no reason any more");
    }
}

#[test]
fn every_file_opens_with_what_it_owns() {
    let files = CRATES.iter().flat_map(|name| rust_files(&workspace().join(name).join("src")));
    // A `tests.rs` says what it is by its name and its place.
    for file in files.filter(|file| !file.ends_with("/tests.rs")) {
        let text = fs::read_to_string(workspace().join(&file)).expect("a source file");
        assert!(text.starts_with("//! "), "{file} does not open with a sentence that says what it owns");
    }
}

#[test]
fn there_is_one_version_of_the_libraries_that_tables_depend_on() {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).expect("a lock file");
    for library in ["arrow", "parquet", "datafusion", "object_store", "deltalake-core"] {
        let versions = lock.lines().filter(|line| *line == format!("name = \"{library}\"")).count();
        assert_eq!(versions, 1, "versions of {library} in Cargo.lock");
    }
}

#[test]
fn every_file_of_the_tests_is_a_module() {
    let root = workspace().join("tests");
    for (folder, list) in [("", "main.rs"), ("support", "support/mod.rs")] {
        let modules = fs::read_to_string(root.join(list)).expect("the list of modules");
        for entry in fs::read_dir(root.join(folder)).expect("tests").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_stem().and_then(|name| name.to_str()).expect("a name");
            let is_module = entry.extension().is_some_and(|end| end == "rs") && name != "main" && name != "mod";
            let is_listed = modules.lines().any(|line| line.ends_with(&format!("mod {name};")));
            assert!(!is_module || is_listed, "{} is in no module list, so it is never run", entry.display());
        }
    }
}
