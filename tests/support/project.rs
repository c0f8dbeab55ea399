//! A project in a folder of its own: a spec, a landing zone, and the lake that the programs make of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Timelike, Utc};
use serde_json::{Map, Value};

use super::program::{self, Outcome, Running, workspace};
use super::rows::{Rows, Types, text_of};
use super::summary::Summary;

/// Layers whose tables no run may touch when there is nothing to do.
const LAYERS: [&str; 4] = ["bronze", "silver", "gold", "quarantine"];

/// A temporary project; its folder goes when it is dropped.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// A project with this spec and an empty landing zone.
    pub(crate) fn new(spec: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("lake-test-").tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("landing")).expect("a landing zone");
        let project = Self { dir };
        project.respec(spec);
        project
    }

    /// The worked example of this repository with its sample files, on a day that does not end soon.
    pub(crate) fn example() -> Self {
        let project = Self::new(&example_spec());
        project.land_folder(&workspace().join("landing"), Some(DateTime::UNIX_EPOCH));
        project
    }

    /// A copy of a project on disk: its spec and its landing zone.
    pub(crate) fn of(folder: &Path) -> Self {
        let project = Self::new(&fs::read_to_string(folder.join("pipelines.yaml")).expect("a spec"));
        project.land_folder(&folder.join("landing"), Some(DateTime::UNIX_EPOCH));
        project
    }

    /// A copy of all that the project has, its tables too.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new("");
        for file in files_below(self.path()) {
            let to = copy.path().join(file.strip_prefix(self.path()).expect("a file of the project"));
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            fs::copy(&file, &to).expect("a copy");
        }
        copy
    }

    /// The project's folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The landing zone.
    pub(crate) fn landing(&self) -> PathBuf {
        self.path().join("landing")
    }

    /// Copies a folder's content into the landing zone, with its subfolders.
    pub(crate) fn land_folder(&self, folder: &Path, mtime: Option<DateTime<Utc>>) {
        for file in files_below(folder) {
            let to = file.strip_prefix(folder).expect("a file of the folder").to_owned();
            self.land_file(&file, &to, mtime);
        }
    }

    /// Copies one file to a path below landing.
    pub(crate) fn land_file(&self, from: &Path, to: &Path, mtime: Option<DateTime<Utc>>) {
        self.land(to, &fs::read(from).expect("an input file"), mtime);
    }

    /// Writes one file below landing.
    pub(crate) fn land(&self, to: impl AsRef<Path>, content: &[u8], mtime: Option<DateTime<Utc>>) {
        let path = self.landing().join(to);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a landing folder");
        fs::write(&path, content).expect("a landed file");
        if let Some(at) = mtime {
            let since = Duration::from_micros(u64::try_from(at.timestamp_micros()).expect("a time after 1970"));
            let file = File::options().write(true).open(&path).expect("the landed file");
            file.set_modified(SystemTime::UNIX_EPOCH + since).expect("its time");
        }
    }

    /// Runs `orchestrator` with these arguments.
    pub(crate) fn orchestrator(&self, args: &[&str]) -> Outcome {
        program::run("orchestrator", self.path(), args, None)
    }

    /// `orchestrator run`, whatever its end.
    pub(crate) fn run_with(&self, fault: Option<&str>) -> Outcome {
        program::run("orchestrator", self.path(), &["run", "--output", "json"], fault)
    }

    /// `orchestrator run` that must end with 0.
    pub(crate) fn run(&self) -> Summary {
        let outcome = self.run_with(None).expect(0);
        let summary = summary_of(&outcome);
        summary.assert_accounted();
        summary
    }

    /// Starts `orchestrator run` and does not wait for it. Several of them work at the same time: turns are politeness, and
    /// tables are right without.
    pub(crate) fn start_run(&self) -> Running {
        let spec = fs::read_to_string(self.path().join("pipelines.yaml")).expect("a spec");
        if !spec.contains("max_concurrent_runs") {
            self.respec(&format!("{spec}\nmax_concurrent_runs: 64\n"));
        }
        program::start("orchestrator", self.path(), &["run", "--output", "json"], None)
    }

    /// Starts `orchestrator watch`.
    pub(crate) fn start_watch(&self, args: &[&str]) -> std::process::Child {
        self.watch(args, None)
    }

    /// Starts `orchestrator watch` with an armed fault point.
    pub(crate) fn start_watch_with(&self, fault: &str, args: &[&str]) -> std::process::Child {
        self.watch(args, Some(fault))
    }

    fn watch(&self, args: &[&str], fault: Option<&str>) -> std::process::Child {
        let args: Vec<&str> = std::iter::once("watch").chain(args.iter().copied()).collect();
        program::start("orchestrator", self.path(), &args, fault).into_child()
    }

    /// Runs `bronze` with these arguments.
    pub(crate) fn bronze(&self, args: &[&str], fault: Option<&str>) -> Outcome {
        program::run("bronze", self.path(), args, fault)
    }

    /// Runs `silver` with these arguments.
    pub(crate) fn silver(&self, args: &[&str]) -> Outcome {
        program::run("silver", self.path(), args, None)
    }

    /// `bronze`, `silver` or `gold`, run for its whole layer; must end with 0.
    pub(crate) fn run_layer(&self, layer: &str) -> Summary {
        let summary = summary_of(&program::run(layer, self.path(), &["run", "--output", "json"], None).expect(0));
        summary.assert_accounted();
        summary
    }

    /// The rows that a query prints.
    pub(crate) fn query(&self, sql: &str) -> Vec<Map<String, Value>> {
        let outcome = self.orchestrator(&["query", sql, "--output", "json"]).expect(0);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {}", outcome.story()))
    }

    /// The folder of a table.
    pub(crate) fn table_folder(&self, table: &str) -> PathBuf {
        self.path().join("lakehouse").join(table.replacen('.', "/", 1))
    }

    /// Whether the table was made.
    pub(crate) fn exists(&self, table: &str) -> bool {
        self.table_folder(table).join("_delta_log").is_dir()
    }

    /// Columns and types of a table, read from its Delta log; empty when there is no such table.
    pub(crate) fn types(&self, table: &str) -> Types {
        let mut types = Types::new();
        for commit in commits(&self.table_folder(table)) {
            let text = fs::read_to_string(&commit).expect("a commit");
            for action in text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an action")) {
                if let Some(schema) = action["metaData"]["schemaString"].as_str() {
                    types = types_of(schema);
                }
            }
        }
        types
    }

    /// How many rows a table has; 0 when there is no such table.
    pub(crate) fn count(&self, table: &str) -> i64 {
        if !self.exists(table) {
            return 0;
        }
        let rows = self.query(&format!("SELECT count(*) AS n FROM {}", quoted(table)));
        rows[0]["n"].as_i64().expect("a count")
    }

    /// Some columns of all rows of a table; no rows when there is no such table.
    pub(crate) fn rows(&self, table: &str, columns: &[&str]) -> Rows {
        let types = self.types(table);
        if types.is_empty() {
            return Rows::new(columns, [], &types);
        }
        for column in columns {
            assert!(types.contains_key(*column), "`{table}` has no column `{column}`, only {types:?}");
        }
        let list: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
        let rows = self.query(&format!("SELECT {} FROM {}", list.join(", "), quoted(table)));
        let values = |row: &Map<String, Value>| columns.iter().map(|column| text_of(&row[*column])).collect();
        Rows::new(columns, rows.iter().map(values), &types)
    }

    /// Writes a new spec over the one that is there.
    pub(crate) fn respec(&self, spec: &str) {
        fs::write(self.path().join("pipelines.yaml"), spec).expect("a spec");
    }

    /// Rows of several tables as text, in one query: `table: value | value`, sorted. Tables that do not exist are none,
    /// and a column that a table does not have says so in each row.
    pub(crate) fn content(&self, tables: &[(&str, &[&str])]) -> Vec<String> {
        let select = |(table, columns): &(&str, &[&str])| {
            let types = self.types(table);
            let texts = columns.iter().map(|column| match types.contains_key(*column) {
                true => format!("coalesce(CAST(\"{column}\" AS VARCHAR), '\\N')"),
                false => format!("'no {column}'"),
            });
            let text = texts.collect::<Vec<_>>().join(" || ' | ' || ");
            format!("SELECT '{table}: ' || {text} AS line FROM {}", quoted(table))
        };
        let made: Vec<String> = tables.iter().filter(|(table, _)| self.exists(table)).map(select).collect();
        if made.is_empty() {
            return Vec::new();
        }
        let rows = self.query(&made.join(" UNION ALL "));
        let mut lines: Vec<String> = rows.iter().map(|row| row["line"].as_str().expect("a line").to_owned()).collect();
        lines.sort();
        lines
    }

    /// The number of commits of every table that users see, by `layer/table`.
    pub(crate) fn versions(&self) -> BTreeMap<String, usize> {
        let mut versions = BTreeMap::new();
        for layer in LAYERS {
            let Ok(tables) = fs::read_dir(self.path().join("lakehouse").join(layer)) else { continue };
            for table in tables.map(|entry| entry.expect("a table").path()) {
                let name = format!("{layer}/{}", table.file_name().expect("a name").to_string_lossy());
                versions.insert(name, commits(&table).len());
            }
        }
        versions
    }

    /// Fails unless one more run finds nothing to do and adds no version to any table.
    pub(crate) fn assert_settled(&self) {
        let before = self.versions();
        let summary = self.run();
        assert_eq!(summary.status, "up_to_date", "{summary:#?}");
        assert_eq!(self.versions(), before, "a run with nothing to do changed a table");
    }
}

/// The summary that a run printed.
pub(crate) fn summary_of(outcome: &Outcome) -> Summary {
    let summary: Summary = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("the summary is not what the tests read: {error}: {}", outcome.story()));
    assert_eq!(Some(summary.exit_code), outcome.code, "{}", outcome.story());
    summary
}

/// The worked example's spec, on a day that does not end soon.
fn example_spec() -> String {
    let spec = fs::read_to_string(workspace().join("pipelines.yaml")).expect("the worked example");
    assert!(spec.contains("timezone: Europe/Lisbon"), "the worked example has another zone");
    spec.replace("timezone: Europe/Lisbon", &format!("timezone: {}", midday_zone()))
}

/// A zone where it was about noon when it was first asked for: the snapshots of all tests belong to one day.
pub(crate) fn midday_zone() -> &'static str {
    static ZONE: LazyLock<String> = LazyLock::new(|| {
        let hour = i64::from(lake::Clock::system().now().hour());
        // The sign of these zones is turned around: Etc/GMT+5 is five hours behind UTC.
        format!("Etc/GMT{:+}", hour - 12)
    });
    &ZONE
}

/// Every file below a folder, sorted by its path.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// The commit files of a Delta table, oldest first.
fn commits(table: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(table.join("_delta_log")) else { return Vec::new() };
    let mut commits: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    commits.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    commits.sort();
    commits
}

fn types_of(schema: &str) -> Types {
    let schema: Value = serde_json::from_str(schema).expect("a Delta schema");
    let fields = schema["fields"].as_array().expect("fields").iter();
    fields.map(|field| (text_of(&field["name"]).expect("a name"), text_of(&field["type"]).expect("a type"))).collect()
}

/// `layer.table` as SQL writes it.
fn quoted(table: &str) -> String {
    let (layer, name) = table.split_once('.').expect("a layer and a name");
    format!("{layer}.\"{name}\"")
}
