//! A pipeline that runs again and again, by a clock that is moved from run to run: its files, its log and what the program
//! keeps for itself stay within bounds, and its tables are those of a pipeline that took everything at once.
//!
//! `SOAK_RUNS=2000` runs that often, `SOAK_STEP=60` has as many seconds between two runs (default: a day).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};

use crate::support::parallel;
use crate::support::program;
use crate::support::project::{Project, files_below};

const RUNS: u64 = 36;
const STEP_SECONDS: u64 = 24 * 3600;

const SPEC: &str = "
name: soak
storage: ./lakehouse
landing: ./landing
maintenance: {optimize: {small_files: 8}, log: {expired_files: 10}}
bronze:
  feed: {path: ./, format: csv, settle: 0s}
silver:
  now: {TABLE, deletion_vectors: true, tombstone_retention: 3 days}
  past: {TABLE, stored_as_scd_type: 2, tombstone_retention: 3 days}
gold:
  by_name: {query: 'SELECT name, count(*) AS n, sum(amount) AS amount FROM silver.now GROUP BY name'}
  daily: {snapshot_of: silver.now, strategy: full, retention: 3 days}
";
const TABLE: &str = "source: feed, op: {column: op, insert: [I], update: [U], delete: [D]}, keys: [id], sequence_by: [seq], columns: {id: bigint, seq: bigint, name: string, amount: bigint}, properties: {delta.logRetentionDuration: interval 7 days}";
const QUERIES: [&str; 3] = [
    "SELECT id, seq, name, amount FROM silver.now ORDER BY id",
    "SELECT id, seq, name, amount, \"__START_AT\", \"__END_AT\" FROM silver.past ORDER BY id, seq",
    "SELECT name, n, amount FROM gold.by_name ORDER BY name",
];

/// The changes of a run: updates of old rows, a new one, a delete, now and then a late change and one that is refused.
fn changes(run: u64) -> String {
    let seq = run * 10;
    let mut lines = format!(
        "op,id,seq,name,amount\nU,{},{seq},n{},{run}\nI,{},{seq},n{},1\n",
        run % 7,
        run % 3,
        100 + run % 40,
        run % 4
    );
    lines.push_str(&format!("D,{},{seq},,\n", 100 + (run * 7) % 40));
    if run.is_multiple_of(5) {
        lines.push_str(&format!("U,{},{},late,9\nU,1,{seq},n1,many\n", run % 7, seq.saturating_sub(25)));
    }
    lines
}

/// Files of a table's folder: data and what goes with it, and those of the log.
type Sizes = BTreeMap<String, [usize; 2]>;

fn sizes(project: &Project) -> Sizes {
    let mut sizes = Sizes::new();
    let root = project.path().join("lakehouse");
    for file in files_below(&root) {
        let path = file.strip_prefix(&root).expect("a file of the lake").to_string_lossy().into_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let depth = match parts[..] {
            ["_state", "event_log", ..] => 2,
            ["_state", ..] => 3,
            _ => 2,
        };
        let is_log = path.contains("/_delta_log/");
        sizes.entry(parts[..depth.min(parts.len() - 1)].join("/")).or_default()[usize::from(is_log)] += 1;
    }
    sizes
}

/// Gives the files that were written since the machine's time `since` the time of the pipeline's clock.
fn date(folder: &Path, since: SystemTime, at: DateTime<Utc>) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.timestamp()).expect("after 1970"));
    for path in files_below(folder) {
        let Ok(about) = fs::metadata(&path) else { continue };
        if about.modified().is_ok_and(|modified| modified >= since) {
            let dated = File::options().write(true).open(&path).and_then(|file| file.set_modified(at));
            dated.expect("a time");
        }
    }
}

#[test]
fn a_pipeline_that_runs_for_long_stays_within_bounds() {
    let (runs, step) = (parallel::number("SOAK_RUNS", RUNS), parallel::number("SOAK_STEP", STEP_SECONDS));
    let spec = SPEC.replace("TABLE", TABLE);
    let (project, at_once) = (Project::new(&spec), Project::new(&spec));
    let begin: DateTime<Utc> = "2020-01-01T00:10:00Z".parse().expect("a time");
    let mut most: [Sizes; 2] = Default::default();
    #[expect(clippy::disallowed_methods, reason = "files have the time of the machine")]
    let started = SystemTime::now() - Duration::from_secs(2);
    for run in 0..runs {
        let at = begin + TimeDelta::seconds(i64::try_from(run * step).expect("a time"));
        for project in [&project, &at_once] {
            project.land(format!("{run:06}.csv"), changes(run).as_bytes(), Some(at));
        }
        let text = at.to_rfc3339();
        program::run_at("orchestrator", project.path(), &["run"], &text).expect(0);
        fs::remove_file(project.landing().join(format!("{run:06}.csv"))).expect("a landed file");
        date(&project.path().join("lakehouse"), started, at);
        if run == 0 {
            for table in ["bronze.feed", "gold.by_name", "gold.daily"] {
                let args = ["table", "set", table, "delta.logRetentionDuration=interval 7 days"];
                program::run_at("orchestrator", project.path(), &args, &text).expect(0);
            }
        }
        // The second and the last third.
        if let Some(most) = (run * 3 / runs).checked_sub(1).and_then(|third| most.get_mut(third as usize)) {
            for (table, [data, log]) in sizes(&project) {
                let most = most.entry(table).or_default();
                *most = [most[0].max(data), most[1].max(log)];
            }
        }
    }
    let [before, after] = most;
    println!("files in the second third, and in the last, of data and log:");
    for (table, after) in &after {
        let before = before.get(table).copied().unwrap_or_default();
        println!("{table}: {before:?} {after:?}");
        for (before, after) in before.iter().zip(after) {
            assert!(*after <= before + before / 4 + 40, "{table} grows: {before} files, then {after}");
        }
    }
    at_once.run();
    for sql in QUERIES {
        assert_eq!(project.query(sql), at_once.query(sql), "{sql}");
        assert!(!project.query(sql).is_empty(), "{sql}");
    }
    project.silver(&["verify", "--rebuild"]).expect(0);
    program::run("gold", project.path(), &["verify"], None).expect(0);
    project.orchestrator(&["table", "verify"]).expect(0);
    let done =
        project.query("SELECT task FROM state.event_log WHERE kind = 'maintenance' AND task = 'state.event_log'");
    assert!(!done.is_empty(), "the event log was looked after");
}
