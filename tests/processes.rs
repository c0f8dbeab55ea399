//! A run of silver and another writer of its table, from two processes at the same time and in both orders: the right
//! rows, or an error of the other and the right rows all the same.
//!
//! The run is held right before its commit, or the other has the version open from before the run, or the run commits,
//! the other comes then, and the answer to the run's commit is lost. The same with `table optimize` in place of the run.

use std::collections::BTreeMap;
use std::net::TcpListener;

use chrono::Duration;
use deltalake::DeltaTable;
use lake::fault::POINTS;

use crate::support::parallel;
use crate::support::program::{self, Running};
use crate::support::project::{Project, summary_of};

/// Rows by key: their sequence.
type Rows = BTreeMap<i64, i64>;

/// Keys 1 to 6 in three files of the table, one version each; then a batch that updates 1, deletes 3 and inserts 9.
const FILES: [&str; 4] = ["I,1,1\nI,2,1\n", "I,3,2\nI,4,2\n", "I,5,3\nI,6,3\n", "U,1,10\nD,3,10\nI,9,10\n"];
const POINT: &str = "silver_committed";
const RUN: [&str; 3] = ["run", "--output", "json"];

fn spec(write_mode: &str) -> String {
    format!(
        "
name: processes
storage: ./lakehouse
landing: ./landing
bronze:
  rows: {{path: rows/, format: csv, settle: 0s}}
silver:
  t:
    source: rows
    cdc: plain
    op: {{column: op, insert: [I], update: [U], delete: [D]}}
    keys: [id]
    sequence_by: [seq]
    columns: {{id: bigint not null, seq: bigint not null}}
    deletion_vectors: true
    write_mode: {write_mode}
"
    )
}

#[derive(Debug, Clone, Copy)]
enum Other {
    /// The program of silver once more: the same batch.
    Run,
    /// Rows without a transaction.
    Append,
    /// A row with the key that the run inserts, but newer.
    AppendTheNew,
    /// The library's.
    Optimize,
    /// Our own commands.
    OptimizeHere,
    DeleteHere,
    RestoreHere,
    SetHere,
    /// A copy of the table without a row takes its place.
    SwapHere,
    DeleteOurs,
    DeleteElsewhere,
    DeleteAll,
    /// To the version before.
    Restore,
    Vacuum,
}

const OTHERS: [Other; 13] = [
    Other::Run,
    Other::Append,
    Other::Optimize,
    Other::OptimizeHere,
    Other::DeleteHere,
    Other::RestoreHere,
    Other::SetHere,
    Other::SwapHere,
    Other::DeleteOurs,
    Other::DeleteElsewhere,
    Other::DeleteAll,
    Other::Restore,
    Other::Vacuum,
];

/// Who commits when.
#[derive(Debug, Clone, Copy)]
enum Order {
    OtherFirst,
    RunFirst,
    AnswerLost,
}

impl Other {
    /// What it does to rows.
    fn fold(self, rows: &mut Rows) {
        match self {
            Self::Append => drop(rows.insert(7, 9)),
            Self::AppendTheNew => drop(rows.insert(9, 11)),
            Self::DeleteOurs | Self::DeleteHere => drop(rows.remove(&1)),
            Self::DeleteElsewhere | Self::SwapHere => drop(rows.remove(&6)),
            Self::DeleteAll => rows.clear(),
            Self::Restore | Self::RestoreHere => *rows = rows_of(&FILES[..2]),
            Self::Run | Self::Optimize | Self::OptimizeHere | Self::SetHere | Self::Vacuum => {}
        }
    }

    /// Runs it on the version that `delta` has open.
    fn run(self, project: &Project, delta: DeltaTable) -> Result<(), String> {
        if matches!(self, Self::Run) {
            summary_of(&project.silver(&["run", "--output", "json"]).expect(0)).assert_accounted();
            return Ok(());
        }
        let version = (delta.version().expect("a version") - 1).to_string();
        let here: Option<&[&str]> = match self {
            Self::OptimizeHere => Some(&["optimize", "silver.t"]),
            Self::DeleteHere => Some(&["delete", "silver.t", "--where", "id = 1", "--yes"]),
            Self::RestoreHere => Some(&["restore", "silver.t", "--version", &version, "--keep-offset", "--yes"]),
            Self::SetHere => Some(&["set", "silver.t", "owner=us"]),
            Self::SwapHere => {
                let table = |args: &[&str]| project.orchestrator(&[&["table"], args].concat()).expect(0);
                table(&["clone", "silver.t", "--as", "silver.other"]);
                table(&["delete", "silver.other", "--where", "id = 6", "--yes"]);
                Some(&["swap", "silver.other", "silver.t", "--yes"])
            }
            _ => None,
        };
        if let Some(args) = here {
            let args: Vec<&str> = ["table"].into_iter().chain(args.iter().copied()).collect();
            project.orchestrator(&args).expect(0);
            return Ok(());
        }
        let done = block_on(async {
            match self {
                Self::Append => append(delta, 7, 9).await,
                Self::AppendTheNew => append(delta, 9, 11).await,
                Self::Optimize => delta.optimize().await.map(drop),
                Self::DeleteOurs => delta.delete().with_predicate("id = 1").await.map(drop),
                Self::DeleteElsewhere => delta.delete().with_predicate("id = 6").await.map(drop),
                Self::DeleteAll => delta.delete().await.map(drop),
                Self::Restore => {
                    let version = delta.version().expect("a version") - 1;
                    delta.restore().with_version_to_restore(version).await.map(drop)
                }
                Self::Vacuum => {
                    let vacuum = delta.vacuum().with_retention_period(Duration::zero());
                    vacuum.with_enforce_retention_duration(false).await.map(drop)
                }
                Self::Run
                | Self::OptimizeHere
                | Self::DeleteHere
                | Self::RestoreHere
                | Self::SetHere
                | Self::SwapHere => unreachable!("they are programs"),
            }
        });
        done.map_err(|error| error.to_string())
    }
}

#[test]
fn a_run_and_another_writer_in_both_orders() {
    assert!(POINTS.contains(&POINT));
    for mode in ["copy_on_write", "merge_on_read"] {
        let base = base(mode);
        let mut pairs = vec![(Other::AppendTheNew, Order::OtherFirst)];
        for order in [Order::OtherFirst, Order::RunFirst, Order::AnswerLost] {
            pairs.extend(OTHERS.map(|other| (other, order)));
        }
        let name = |pair: &(Other, Order)| format!("{mode} {pair:?}");
        parallel::all("processes", &pairs, name, |(other, order)| {
            let project = base.copy();
            match order {
                Order::OtherFirst => other_first(&project, *other),
                Order::RunFirst => run_first(&project, *other),
                Order::AnswerLost => answer_lost(&project, *other),
            }
        });
    }
}

#[test]
fn files_are_put_together_beside_another_writer() {
    for mode in ["copy_on_write", "merge_on_read"] {
        let base = base(mode);
        let pairs = [true, false].map(|is_lost| OTHERS.map(|other| (other, is_lost))).concat();
        let name = |pair: &(Other, bool)| format!("{mode} {pair:?}");
        parallel::all("optimize", &pairs, name, |(other, is_lost)| {
            let project = base.copy();
            let delta = open(&project);
            let args = ["table", "optimize", "silver.t"];
            let action = if *is_lost { "lost" } else { "hold" };
            let (running, held) = start_held(&project, "orchestrator", &args, &format!("optimize_committed:{action}"));
            let (mut rows, is_run) = (rows_of(&FILES[..3]), matches!(other, Other::Run));
            let done = other.run(&project, if *is_lost { open(&project) } else { delta });
            done.unwrap_or_else(|error| panic!("{error}"));
            drop(held);
            running.wait().expect(0);
            match other {
                Other::Run => rows = rows_of(&FILES),
                // To the version before: that is the table as it was.
                Other::Restore | Other::RestoreHere if *is_lost => {}
                _ => other.fold(&mut rows),
            }
            if !is_run {
                project.silver(&["run"]).expect(0);
                apply(&mut rows, FILES[3]);
            }
            assert_holds(&project, &rows);
        });
    }
}

/// What people do by hand: the command, its fault point, and the ids that are left of 1 to 6.
const BY_HAND: [(&str, &[&str], &str); 5] = [
    ("delete", &["delete", "silver.t", "--where", "id = 1", "--yes"], "delete_committed"),
    ("delete another", &["delete", "silver.t", "--where", "id = 5", "--yes"], "delete_committed"),
    ("restore", &["restore", "silver.t", "--version", "2", "--keep-offset", "--yes"], "restore_committed"),
    ("set", &["set", "silver.t", "owner=us"], "settings_committed"),
    ("swap", &["swap", "silver.other", "silver.t", "--yes"], "swap_committed"),
];

#[test]
fn two_changes_by_hand_happen_one_after_the_other() {
    for mode in ["copy_on_write", "merge_on_read"] {
        let base = base(mode);
        let table = |project: &Project, args: &[&str]| project.orchestrator(&[&["table"], args].concat()).expect(0);
        table(&base, &["clone", "silver.t", "--as", "silver.other"]);
        table(&base, &["delete", "silver.other", "--where", "id = 6", "--yes"]);
        let mut pairs = Vec::new();
        for first in 0..BY_HAND.len() {
            pairs.extend((0..BY_HAND.len()).flat_map(|second| [(first, second, false), (first, second, true)]));
        }
        // In the order in which they are committed.
        let fold = |rows: &mut Rows, place: usize| match BY_HAND[place].0 {
            "delete" => drop(rows.remove(&1)),
            "delete another" => drop(rows.remove(&5)),
            "restore" => *rows = rows_of(&FILES[..2]),
            "swap" => {
                *rows = rows_of(&FILES[..3]);
                rows.remove(&6);
            }
            _ => {}
        };
        let name = |(held, other, is_lost): &(usize, usize, bool)| {
            format!("{mode} {} held, {} (lost {is_lost})", BY_HAND[*held].0, BY_HAND[*other].0)
        };
        parallel::all("by hand", &pairs, name, |(held, other, is_lost)| {
            let project = base.copy();
            let (_, args, point) = BY_HAND[*held];
            let args = [&["table"], args].concat();
            // One waits before its commit, or has committed and does not hear of it; the other comes then.
            let action = if *is_lost { "lost" } else { "hold" };
            let (running, waits) = start_held(&project, "orchestrator", &args, &format!("{point}:{action}"));
            table(&project, BY_HAND[*other].1);
            drop(waits);
            running.wait().expect(0);
            let mut rows = rows_of(&FILES[..3]);
            let order = if *is_lost { [*held, *other] } else { [*other, *held] };
            order.into_iter().for_each(|place| fold(&mut rows, place));
            project.silver(&["run"]).expect(0);
            apply(&mut rows, FILES[3]);
            assert_holds(&project, &rows);
            project.orchestrator(&["table", "verify", "silver.t"]).expect(0);
        });
    }
}

/// A project whose table waits for its last batch.
fn base(mode: &str) -> Project {
    let base = Project::new(&spec(mode));
    for (number, lines) in FILES.iter().enumerate() {
        base.land(format!("rows/{number}.csv"), format!("op,id,seq\n{lines}").as_bytes(), None);
        summary_of(&program::run("bronze", base.path(), &["run", "--output", "json"], None).expect(0));
        if number + 1 < FILES.len() {
            base.silver(&["run"]).expect(0);
        }
    }
    base
}

/// The other commits while the run waits to.
fn other_first(project: &Project, other: Other) {
    let delta = open(project);
    let (running, held) = start_held(project, "silver", &RUN, &format!("{POINT}:hold"));
    other.run(project, delta).expect("the first of two");
    drop(held);
    summary_of(&running.wait().expect(0)).assert_accounted();
    let mut rows = rows_of(&FILES[..3]);
    other.fold(&mut rows);
    apply(&mut rows, FILES[3]);
    assert_holds(project, &rows);
}

/// The run commits while the other has the version before open.
fn run_first(project: &Project, other: Other) {
    let delta = open(project);
    summary_of(&project.silver(&["run", "--output", "json"]).expect(0)).assert_accounted();
    let mut rows = rows_of(&FILES);
    if other.run(project, delta).is_ok() {
        other.fold(&mut rows);
    }
    assert_holds(project, &rows);
}

/// The run commits, the other comes on top of that, and the run never hears that it has committed.
fn answer_lost(project: &Project, other: Other) {
    let (running, held) = start_held(project, "silver", &RUN, &format!("{POINT}:lost"));
    other.run(project, open(project)).expect("the second of two");
    drop(held);
    summary_of(&running.wait().expect(0)).assert_accounted();
    let mut rows = rows_of(&FILES);
    match other {
        // What it undoes is the run's own work.
        Other::Restore | Other::RestoreHere => rows = rows_of(&FILES[..3]),
        _ => other.fold(&mut rows),
    }
    assert_holds(project, &rows);
}

/// A program that waits at its commit; it goes on when the connection is dropped.
pub(crate) fn start_held(project: &Project, name: &str, args: &[&str], fault: &str) -> (Running, std::net::TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    listener.set_nonblocking(true).expect("a listener");
    let mut running = program::start(name, project.path(), args, Some(&format!("{fault}-{port}")));
    loop {
        let is_over = running.is_over();
        match listener.accept() {
            Ok((held, _)) => return (running, held),
            Err(_) if is_over => panic!("it never came to its commit: {}", running.wait().story()),
            Err(_) => std::thread::park_timeout(std::time::Duration::from_millis(5)),
        }
    }
}

/// The table holds these rows, each key once, and a later run has nothing to do.
fn assert_holds(project: &Project, rows: &Rows) {
    let held = project.rows("silver.t", &["id", "seq"]);
    let expected = rows.iter().map(|(id, seq)| [id, seq].map(|value| Some(value.to_string())).to_vec());
    let expected = crate::support::rows::Rows::new(&["id", "seq"], expected, &project.types("silver.t"));
    assert_eq!(held, expected);
    let versions = project.versions();
    assert_eq!(summary_of(&project.silver(&["run", "--output", "json"]).expect(0)).status, "up_to_date");
    assert_eq!(project.versions(), versions);
    project.silver(&["verify"]).expect(0);
}

fn rows_of(files: &[&str]) -> Rows {
    let mut rows = Rows::new();
    files.iter().for_each(|lines| apply(&mut rows, lines));
    rows
}

/// What the lines of a file do to rows: the newer sequence wins.
fn apply(rows: &mut Rows, lines: &str) {
    for line in lines.lines() {
        let [op, id, seq] = line.split(',').collect::<Vec<_>>()[..] else { panic!("`{line}`") };
        let (id, seq) = (id.parse().expect("a key"), seq.parse().expect("a sequence"));
        if rows.get(&id).is_some_and(|held| *held > seq) {
            continue;
        }
        match op {
            "D" => rows.remove(&id),
            _ => rows.insert(id, seq),
        };
    }
}

/// A row of another program, with all columns of the table.
async fn append(delta: DeltaTable, id: i64, seq: i64) -> deltalake::DeltaResult<()> {
    let context: datafusion::prelude::SessionContext = deltalake::delta_datafusion::create_session().into();
    delta.update_datafusion_session(&context.state())?;
    context.register_table("t", delta.table_provider().await?)?;
    let sql = format!("SELECT * REPLACE ({id} AS id, {seq} AS seq, {seq} AS _sequence_1) FROM t LIMIT 1");
    let row = context.sql(&sql).await?.collect().await?;
    delta.write(row).await.map(drop)
}

fn open(project: &Project) -> DeltaTable {
    let folder = project.table_folder("silver.t");
    let url = deltalake::ensure_table_uri(folder.to_str().expect("UTF-8")).expect("a URL");
    block_on(deltalake::open_table(url)).expect("a table")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
