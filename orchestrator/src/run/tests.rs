//! Runs of made-up tasks: order, side by side, retries, skips, stops and timeouts, without a lake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use lake::report::{TaskOutcome, TaskReport, TaskState, TaskStatus};
use lake::run::{Meter, RunContext};
use lake::{Clock, Error, ErrorKind, Lake, Result, Root, TableName};
use tokio::sync::{Barrier, mpsc};

use super::dispatcher::{Observer, dispatch};
use super::executor::{Unit, Work};
use super::policy::Policy;
use super::room::{Room, Share};
use super::run_if::RunIf;

/// Writes down what it sees.
#[derive(Default)]
struct Diary(Vec<String>);

impl Observer for Diary {
    fn started(&mut self, task: &TableName, _: &Meter) {
        self.0.push(format!("start {task}"));
    }

    fn retrying(&mut self, task: &TableName, attempt: u32, _: Duration, error: &Error) {
        self.0.push(format!("retry {task} after {attempt}: {error}"));
    }

    fn ended(&mut self, outcome: &TaskOutcome) {
        self.0.push(format!("{} {}", outcome.status.as_str(), outcome.task));
    }

    fn stopping(&mut self, running: usize) {
        self.0.push(format!("stopping with {running}"));
    }
}

fn name(text: &str) -> TableName {
    TableName::parse(text).expect("a table")
}

fn report(table: &TableName) -> TaskReport {
    TaskReport { state: TaskState::Changed, ..TaskReport::up_to_date(table.clone(), Some(1)) }
}

fn work(of: impl Fn(u32) -> Result<TaskReport> + Send + Sync + 'static) -> Work {
    let calls = AtomicUsize::new(0);
    Arc::new(move |_| {
        let call = u32::try_from(calls.fetch_add(1, Ordering::SeqCst) + 1).expect("few calls");
        std::future::ready(of(call)).boxed_local()
    })
}

fn unit(task: &str, needs: &[&str], work: Work) -> Unit {
    let needs = needs.iter().map(|need| name(need)).collect();
    let (disabled_needs, run_if, share) = (0, RunIf::default(), Share::ONE);
    let (policy, written) = (Policy::default(), Meter::default());
    Unit { name: name(task), needs, disabled_needs, run_if, share, policy, work, written }
}

fn good(task: &str, needs: &[&str]) -> Unit {
    let table = name(task);
    unit(task, needs, work(move |_| Ok(report(&table))))
}

fn failing(task: &str, needs: &[&str], times: u32, kind: ErrorKind) -> Unit {
    let table = name(task);
    let attempt = move |call| if call <= times { Err(Error::new(kind, "no luck")) } else { Ok(report(&table)) };
    unit(task, needs, work(attempt))
}

struct Ran {
    outcomes: Vec<TaskOutcome>,
    diary: Vec<String>,
    context: RunContext,
    waited: i64,
}

impl Ran {
    fn status(&self, task: &str) -> &TaskOutcome {
        self.outcomes.iter().find(|outcome| outcome.task == name(task)).expect("an outcome")
    }
}

/// Runs with a manual clock that stands at the epoch.
fn run(units: Vec<Unit>, limit: usize) -> Ran {
    let (_stop, stops) = mpsc::unbounded_channel();
    run_with(units, limit, stops)
}

fn run_with(units: Vec<Unit>, limit: usize, mut stops: mpsc::UnboundedReceiver<()>) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Clock::manual(chrono::DateTime::UNIX_EPOCH);
    let root = Root::open(folder.path().to_str().expect("UTF-8"), folder.path()).expect("a root");
    let context = RunContext::new(&Lake::new(root, clock.clone(), Default::default()));
    let mut diary = Diary::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let room = Room::new(Share { threads: limit, memory: 0 });
    let outcomes = runtime.block_on(dispatch(units, room, &context, &clock, &mut stops, &mut [&mut diary]));
    Ran { outcomes, diary: diary.0, context, waited: clock.now_micros() / 1_000_000 }
}

#[test]
fn needs_come_first_and_outcomes_keep_the_order() {
    let ran = run(vec![good("bronze.a", &[]), good("silver.a", &["bronze.a"]), good("bronze.b", &[])], 1);
    let expected = [
        "start bronze.a",
        "succeeded bronze.a",
        "start silver.a",
        "succeeded silver.a",
        "start bronze.b",
        "succeeded bronze.b",
    ];
    assert_eq!(ran.diary, expected);
    let order: Vec<String> = ran.outcomes.iter().map(|outcome| outcome.task.to_string()).collect();
    assert_eq!(order, ["bronze.a", "silver.a", "bronze.b"]);
    assert_eq!(ran.context.pins.get(&name("silver.a")), Some(1), "later tasks read what the run wrote");
}

#[test]
fn independent_tasks_run_side_by_side_up_to_the_limit() {
    // Both wait for each other: one after the other would never end.
    let barrier = Arc::new(Barrier::new(2));
    let meeting = |task: &str| {
        let (table, barrier) = (name(task), Arc::clone(&barrier));
        let work: Work = Arc::new(move |_| {
            let (table, barrier) = (table.clone(), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                Ok(report(&table))
            }
            .boxed_local()
        });
        unit(task, &[], work)
    };
    let ran = run(vec![meeting("bronze.a"), meeting("bronze.b"), good("bronze.c", &[])], 2);
    assert_eq!(ran.diary[..2], ["start bronze.a", "start bronze.b"]);
    assert!(ran.outcomes.iter().all(|outcome| outcome.status == TaskStatus::Succeeded));
}

#[test]
fn a_failure_skips_what_needs_it_and_nothing_else() {
    let ran = run(
        vec![
            failing("bronze.a", &[], 99, ErrorKind::Data),
            good("silver.a", &["bronze.a"]),
            good("gold.a", &["silver.a"]),
            good("bronze.b", &[]),
        ],
        4,
    );
    assert_eq!(ran.status("bronze.a").attempts, 1, "wrong data is not tried again");
    assert_eq!(ran.status("silver.a").skipped_because.as_deref(), Some("bronze.a failed"));
    assert_eq!(ran.status("gold.a").skipped_because.as_deref(), Some("silver.a was skipped"));
    assert_eq!(ran.status("bronze.b").status, TaskStatus::Succeeded);
    assert!(!ran.diary.contains(&"start silver.a".to_owned()));
}

#[test]
fn what_may_pass_is_tried_again_after_a_wait() {
    let ran = run(vec![failing("bronze.a", &[], 2, ErrorKind::Store)], 1);
    assert_eq!((ran.status("bronze.a").status, ran.status("bronze.a").attempts), (TaskStatus::Succeeded, 3));
    assert_eq!(ran.diary[1], "retry bronze.a after 1: no luck");
    assert!((15..=18).contains(&ran.waited), "5 s and 10 s, and up to a quarter more: {}", ran.waited);
    let ran = run(vec![failing("bronze.a", &[], 3, ErrorKind::Store)], 1);
    assert_eq!((ran.status("bronze.a").status, ran.status("bronze.a").attempts), (TaskStatus::Failed, 3));
}

#[test]
fn a_timeout_fails_the_task_and_is_not_tried_again() {
    let work: Work = Arc::new(|_| std::future::pending().boxed_local());
    let limit = Some(Duration::from_secs(1_800));
    let slow = Unit { policy: Policy { timeout: limit, ..Policy::default() }, ..unit("silver.a", &[], work) };
    let ran = run(vec![slow], 1);
    let error = ran.status("silver.a").error.as_ref().expect("an error");
    assert_eq!(error.to_string(), "took longer than its timeout of 30m");
    assert_eq!(ran.status("silver.a").attempts, 1);
}

#[test]
fn a_timeout_is_tried_again_when_that_is_asked_for() {
    let work: Work = Arc::new(|_| std::future::pending().boxed_local());
    let policy = Policy { timeout: Some(Duration::from_secs(60)), retry_on_timeout: true, ..Policy::default() };
    let ran = run(vec![Unit { policy, ..unit("silver.a", &[], work) }], 1);
    assert_eq!((ran.status("silver.a").status, ran.status("silver.a").attempts), (TaskStatus::Failed, 3));
    assert!((195..=198).contains(&ran.waited), "3 × 60 s, 5 s and 10 s, and up to a quarter more: {}", ran.waited);
}

#[test]
fn conditions_are_asked_when_all_needs_have_ended() {
    let on = |run_if, unit: Unit| Unit { run_if, ..unit };
    let ran = run(
        vec![
            failing("bronze.a", &[], 99, ErrorKind::Data),
            good("bronze.b", &[]),
            on(RunIf::AllDone, good("silver.done", &["bronze.a", "bronze.b"])),
            on(RunIf::AllFailed, good("silver.none", &["bronze.a", "bronze.b"])),
            on(RunIf::AtLeastOneFailed, good("silver.told", &["bronze.a", "bronze.b"])),
            good("gold.after", &["silver.done", "silver.none"]),
            Unit { disabled_needs: 1, ..on(RunIf::AllFailed, good("gold.off", &[])) },
        ],
        1,
    );
    let statuses: Vec<&str> = ran.outcomes.iter().map(|outcome| outcome.status.as_str()).collect();
    assert_eq!(statuses, ["failed", "succeeded", "succeeded", "excluded", "succeeded", "succeeded", "excluded"]);
    let because = ran.status("silver.none").skipped_because.as_deref();
    assert_eq!(because, Some("not all that it depends on failed"));
    let position = |line: &str| ran.diary.iter().position(|told| told == line).expect("a line");
    assert!(position("succeeded bronze.b") < position("start silver.told"), "{:?}", ran.diary);
}

#[test]
fn a_task_waits_for_room_and_lets_lighter_ones_pass() {
    let heavy = |unit: Unit| Unit { share: Share { threads: 2, memory: 0 }, ..unit };
    let ran = run(vec![good("bronze.a", &[]), heavy(good("bronze.b", &[])), good("bronze.c", &[])], 2);
    assert_eq!(ran.diary[..2], ["start bronze.a", "start bronze.c"]);
    assert_eq!(ran.diary[ran.diary.len() - 2..], ["start bronze.b", "succeeded bronze.b"]);
}

#[test]
fn a_task_that_breaks_down_is_a_failure_like_others() {
    let broken: Work = Arc::new(|_| async { panic!("out of range") }.boxed_local());
    let ran = run(vec![unit("bronze.a", &[], broken), good("silver.a", &["bronze.a"]), good("bronze.b", &[])], 2);
    let error = ran.status("bronze.a").error.as_ref().expect("an error");
    assert!(error.to_string().contains("out of range"), "{error}");
    assert_eq!(ran.status("silver.a").status, TaskStatus::Skipped);
    assert_eq!(ran.status("bronze.b").status, TaskStatus::Succeeded);
}

#[test]
fn a_stop_lets_running_tasks_end_and_starts_no_others() {
    let (stop, stops) = mpsc::unbounded_channel();
    let table = name("bronze.a");
    let first: Work = Arc::new(move |context| {
        let (stop, table) = (stop.clone(), table.clone());
        async move {
            stop.send(()).expect("a dispatcher");
            while !context.stop.is_raised() {
                tokio::task::yield_now().await;
            }
            Ok(report(&table))
        }
        .boxed_local()
    });
    let ran = run_with(vec![unit("bronze.a", &[], first), good("bronze.b", &[])], 1, stops);
    assert_eq!(ran.status("bronze.a").status, TaskStatus::Succeeded);
    assert_eq!(ran.status("bronze.b").skipped_because.as_deref(), Some("the run was stopped"));
    assert!(ran.diary.contains(&"stopping with 1".to_owned()));
}

#[test]
fn what_fails_after_a_stop_is_not_tried_again() {
    let (stop, stops) = mpsc::unbounded_channel();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let work: Work = Arc::new(move |context| {
        counted.fetch_add(1, Ordering::SeqCst);
        let stop = stop.clone();
        async move {
            stop.send(()).expect("a dispatcher");
            while !context.stop.is_raised() {
                tokio::task::yield_now().await;
            }
            Err(Error::new(ErrorKind::Store, "no luck"))
        }
        .boxed_local()
    });
    let ran = run_with(vec![unit("bronze.a", &[], work)], 1, stops);
    assert_eq!((ran.status("bronze.a").status, attempts.load(Ordering::SeqCst)), (TaskStatus::Failed, 1));
}
