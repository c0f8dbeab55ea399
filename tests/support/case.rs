//! The shape of a `case.yaml`, as `tests/cases/README.md` describes it. What it does not know, it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_yaml::Value;

use super::rows::instant;

/// A case: steps, a spec, and what must come out; a variant of it is a case of its own.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) steps: Vec<Step>,
    pub(crate) spec: Value,
    pub(crate) expect: Expect,
}

/// Files that land, and the run after them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) land: Land,
    pub(crate) mtime: Option<Mtime>,
    pub(crate) run: bool,
    #[serde(default)]
    pub(crate) action: Option<Action>,
    pub(crate) expect: Option<Expect>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Land {
    Folder(String),
    Files(Vec<Move>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Move {
    pub(crate) from: String,
    pub(crate) to: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Mtime {
    All(String),
    ByFile(BTreeMap<String, String>),
}

impl Mtime {
    /// The time of a file below landing.
    pub(crate) fn of(&self, file: &str) -> Option<DateTime<Utc>> {
        let text = match self {
            Self::All(text) => Some(text),
            Self::ByFile(times) => times.get(file),
        };
        text.map(|text| instant(text).unwrap_or_else(|| panic!("`{text}` is no time")))
    }
}

/// What happens instead of a plain run.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Action {
    Watch,
    ConcurrentRuns(usize),
    KillAfter(String),
    Commands(Vec<String>),
}

impl TryFrom<Value> for Action {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Known {
            concurrent_runs: Option<usize>,
            kill_after: Option<String>,
            commands: Option<Vec<String>>,
        }
        if value.as_str() == Some("watch") {
            return Ok(Self::Watch);
        }
        let known: Known = serde_yaml::from_value(value).map_err(|error| error.to_string())?;
        match (known.concurrent_runs, known.kill_after, known.commands) {
            (Some(runs), None, None) => Ok(Self::ConcurrentRuns(runs)),
            (None, Some(point), None) => Ok(Self::KillAfter(point)),
            (None, None, Some(commands)) => Ok(Self::Commands(commands)),
            _ => Err("an action is one of watch, concurrent_runs, kill_after, commands".to_owned()),
        }
    }
}

/// What must come out. In the `expect` of a step, only what is named is checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) exit: Option<i32>,
    pub(crate) tables: BTreeMap<String, String>,
    pub(crate) counts: BTreeMap<String, i64>,
    pub(crate) quarantined: Option<BTreeMap<String, i64>>,
    pub(crate) message: Vec<String>,
    pub(crate) absent_columns: BTreeMap<String, Vec<String>>,
    pub(crate) file_errors: Option<Vec<String>>,
}

/// The file as a whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    case: String,
    steps: Vec<Step>,
    spec: Value,
    expect: Value,
    variants: Vec<Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    spec: Value,
    expect: Value,
}

/// The case of a folder and all its variants.
pub(crate) fn load(folder: &Path) -> Vec<Case> {
    let text = fs::read_to_string(folder.join("case.yaml")).expect("a case.yaml");
    let raw: Raw = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    assert_eq!(
        Some(raw.case.as_str()),
        folder.file_name().and_then(|name| name.to_str()),
        "a case has its folder's name"
    );
    let case = |name: String, spec: Value, expect: Value| Case {
        name,
        folder: folder.to_owned(),
        steps: raw.steps.clone(),
        spec,
        expect: serde_yaml::from_value(expect).unwrap_or_else(|error| panic!("{}: {error}", folder.display())),
    };
    let mut cases = vec![case(raw.case.clone(), raw.spec.clone(), raw.expect.clone())];
    for variant in raw.variants {
        let name = format!("{}/{}", raw.case, variant.name);
        cases.push(case(name, merged(&raw.spec, variant.spec), merged(&raw.expect, variant.expect)));
    }
    cases
}

/// Mappings merge, all else replaces.
fn merged(base: &Value, change: Value) -> Value {
    match (base, change) {
        (Value::Mapping(base), Value::Mapping(change)) => {
            let mut merged_map = base.clone();
            for (key, value) in change {
                let value = base.get(&key).map_or_else(|| value.clone(), |before| merged(before, value.clone()));
                merged_map.insert(key, value);
            }
            Value::Mapping(merged_map)
        }
        (_, change) => change,
    }
}

#[test]
fn a_variant_merges_mappings_and_replaces_the_rest() {
    let yaml = |text: &str| serde_yaml::from_str::<Value>(text).expect("YAML");
    let base = yaml("{a: {b: 1, c: [1, 2]}, d: 'NULL'}");
    assert_eq!(merged(&base, yaml("{a: {c: [3]}, e: {f: x}}")), yaml("{a: {b: 1, c: [3]}, d: 'NULL', e: {f: x}}"));
    let text = serde_yaml::to_string(&yaml("{nulls: ['NULL', 'null', '~', '1', 'true']}")).expect("YAML");
    assert_eq!(yaml(&text), yaml("{nulls: ['NULL', 'null', '~', '1', 'true']}"));
}

#[test]
fn a_case_that_says_what_nobody_knows_is_refused() {
    let step = |text: &str| serde_yaml::from_str::<Step>(text).map_err(|error| error.to_string());
    assert!(step("{land: run1, mtime: null, run: true, expect: null}").is_ok());
    assert!(step("{land: [], mtime: {a.csv: '2024-05-01T10:00:00Z'}, run: true, expect: {exit: 1}}").is_ok());
    assert!(step("{land: run1, mtime: null, run: true, expect: {rows: 3}}").is_err());
    assert!(step("{land: run1, mtime: null, run: true, action: {explode: 1}, expect: null}").is_err());
    assert!(step("{land: run1, mtime: null, run: true, action: {kill_after: x, commands: []}, expect: null}").is_err());
}
