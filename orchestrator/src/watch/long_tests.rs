//! A watch over weeks in which nothing happens: what it holds of the machine does not grow.

use std::fs;
use std::process::Command;

use bronze::watch::Intervals;
use lake::Clock;
use lake::report::RunSummary;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;

/// Says that this process is the one whose memory and handles are counted.
const ALONE: &str = "WATCH_ALONE";
const SPEC: &str = "
name: quiet
storage: ./lakehouse
landing: ./landing
schedule: {cron: '0 */6 * * *'}
bronze:
  s: {path: ./, format: csv, settle: 0s}
silver:
  t: {source: s, keys: [id], sequence_by: [id], columns: {id: bigint not null}}
";
/// Runs in a week.
const WEEK: usize = 7 * 4;
/// `WATCH_WEEKS=12` watches for so many.
const WEEKS: usize = 4;
/// What the second half may add at most, in MiB: the allocator keeps pages, more of them until all threads have worked.
const GROWTH_MAX: u64 = 16;

fn weeks_watched() -> usize {
    std::env::var("WATCH_WEEKS").ok().and_then(|weeks| weeks.parse().ok()).unwrap_or(WEEKS)
}

/// Counts what the process holds at the end of each week, and stops the watch after the last one.
struct Weeks {
    /// The event log, which grows with every run: what is read of it is no leak.
    log: std::path::PathBuf,
    runs: usize,
    held: Vec<(u64, usize)>,
    stop: UnboundedSender<()>,
}

impl Listener for Weeks {
    fn say(&mut self, _: &str) {}

    fn ran(&mut self, summary: &RunSummary) {
        assert_eq!(summary.exit_code(), 0, "{}", summary.to_json());
        self.runs += 1;
        if self.runs.is_multiple_of(WEEK) {
            self.held.push((resident_mib(), handles()));
            fs::remove_dir_all(&self.log).expect("an event log");
        }
        if self.runs == WEEK * weeks_watched() {
            self.stop.send(()).expect("a watch");
        }
    }
}

fn resident_mib() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("what Linux says of this process");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4_096 / (1 << 20)
}

fn handles() -> usize {
    fs::read_dir("/proc/self/fd").expect("handles").count()
}

#[cfg(target_os = "linux")]
#[test]
fn weeks_with_nothing_to_do_hold_no_more_than_the_first() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return runtime.block_on(weeks());
    }
    // Other tests of this process would be counted as well.
    let name = concat!(module_path!(), "::weeks_with_nothing_to_do_hold_no_more_than_the_first");
    let name = name.split_once("::").expect("a crate").1;
    let program = std::env::current_exe().expect("this program");
    let alone = Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("started");
    let told = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success() && told.contains("1 passed"), "{told}\n{}", String::from_utf8_lossy(&alone.stderr));
}

async fn weeks() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("landing")).expect("a landing zone");
    fs::write(folder.path().join("landing/1.csv"), "id\n1\n2\n").expect("a file");
    let file = folder.path().join("pipelines.yaml");
    fs::write(&file, SPEC).expect("a spec");
    let clock = Clock::manual("2024-05-01T00:30:00Z".parse().expect("a time"));
    let mut spec = SpecFile::of(&file);
    let project = Project::load(&file).expect("a spec");
    let wanted = Wanted { select: Vec::new(), landing: None, intervals: Intervals::default() };
    let prepared = Prepared::new(project, &wanted, clock.clone()).await.expect("a watch");
    let (stop, mut heard) = unbounded_channel();
    let mut listener = Weeks { log: folder.path().join("lakehouse/_state/event_log"), runs: 0, held: Vec::new(), stop };
    let health = Health::new(clock.clone());
    let stop = &mut heard;
    let outside = Outside { wanted: &wanted, spec: &mut spec, health: &health, stop, listener: &mut listener };
    watch(prepared, outside).await;
    let weeks = weeks_watched();
    assert_eq!((listener.runs, listener.held.len()), (WEEK * weeks, weeks));
    let ((early, handles), (late, handles_late)) = (listener.held[weeks / 2 - 1], listener.held[weeks - 1]);
    assert!(late <= early + GROWTH_MAX, "MiB and handles by week: {:?}", listener.held);
    assert!(handles_late <= handles + 2, "MiB and handles by week: {:?}", listener.held);
}
