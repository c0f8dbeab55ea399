//! Named fault points around every commit, so that tests can stop a run exactly there.
//!
//! `LAKE_FAULT=point:action` arms one point for the whole process: `kill` ends the process at once without any
//! cleaning up, `fail` returns an error before the work, `lost` lets a commit succeed and then reports a failure, as
//! a store does whose answer never arrives. `hold-PORT` waits before the work until another process, which listens on
//! that port of this machine, ends the connection; `lost-PORT` waits after it, and is lost then. `point:action:N` acts at
//! the N-th crossing only (default: the first), `point:action:N-M` at all from the N-th to the M-th.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The environment variable that arms a point.
pub const VARIABLE: &str = "LAKE_FAULT";

/// Every point of a run, in the order in which a run crosses them. Those of replays are [`REPLAY_POINTS`],
/// those of rebuilds [`REBUILD_POINTS`], those of upkeep [`UPKEEP_POINTS`], those of changes by hand [`HAND_POINTS`], those of
/// the disk [`DISK_POINTS`].
pub const POINTS: &[&str] = &[
    "table_created",
    "ledger_committed",
    "bronze_data_written",
    "files_failed_committed",
    "bronze_quarantine_committed",
    "bronze_committed",
    "files_settled_committed",
    "file_cleaning",
    "ledger_packed",
    "columns_committed",
    "silver_staged",
    "silver_quarantine_committed",
    "tombstones_committed",
    "versions_committed",
    "extracts_committed",
    "truncate_committed",
    "silver_committed",
    "gold_data_written",
    "gold_committed",
    "events_committed",
];

/// Points of upkeep.
pub const UPKEEP_POINTS: &[&str] = &["optimize_committed", "leftovers_found", "round_committed"];

/// Points of what people do to tables by hand.
pub const HAND_POINTS: &[&str] = &["restore_committed", "delete_committed", "settings_committed", "swap_committed"];

/// Points of the disk, crossed where commits wait for it.
pub const DISK_POINTS: &[&str] = &["log_synced"];

/// Points of decisions about refused records, in the order in which a replay crosses them; the last three are crossed
/// only where another run is in the way, or by another command.
pub const REPLAY_POINTS: &[&str] = &[
    "replay_claimed",
    "replay_planned",
    "replay_reopened",
    "bronze_replayed",
    "silver_replayed",
    "replay_finished",
    "replay_fenced",
    "replay_released",
    "quarantine_discarded",
];

/// Points of a rebuild of a silver table, in the order in which it crosses them, beside those of the run by which the table
/// is made aside.
pub const REBUILD_POINTS: &[&str] =
    &["rebuild_made", "rebuild_published", "rebuild_committed", "rebuild_refused_committed"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Fail,
    Lost,
    Hold(u16),
    HoldThenLose(u16),
}

struct Armed {
    point: String,
    action: Action,
    at: RangeInclusive<usize>,
    crossed: AtomicUsize,
}

/// Passes a point that is not a commit: kills, fails or waits when it is armed.
///
/// # Errors
/// A [`ErrorKind::Store`] error when the point is armed with `fail` or `lost`, or nobody listens to one that waits.
pub fn cross(point: &'static str) -> Result<()> {
    let all = [POINTS, REPLAY_POINTS, REBUILD_POINTS, UPKEEP_POINTS, HAND_POINTS, DISK_POINTS];
    let is_listed = all.iter().any(|points| points.contains(&point));
    debug_assert!(is_listed, "fault point {point} is not listed");
    match due(point) {
        None => Ok(()),
        Some(Action::Kill) => kill(),
        Some(Action::Fail | Action::Lost) => Err(injected(point)),
        Some(Action::Hold(port)) => hold(point, port),
        Some(Action::HoldThenLose(port)) => hold(point, port).and(Err(injected(point))),
    }
}

/// Passes the point after a commit that succeeded: `kill` ends the process, `fail` and `lost` hide the success.
///
/// # Errors
/// A [`ErrorKind::Store`] error that stands for the answer that never arrived.
pub(crate) fn after_commit(point: &'static str) -> Result<()> {
    cross(point)
}

/// Passes the point before a commit is tried: only `fail` and `hold` act here.
///
/// # Errors
/// A [`ErrorKind::Store`] error when the point is armed with `fail`, or nobody listens to one that waits.
pub(crate) fn before_commit(point: &'static str) -> Result<()> {
    match armed() {
        Some(fault) if fault.point == point && matches!(fault.action, Action::Fail | Action::Hold(_)) => cross(point),
        _ => Ok(()),
    }
}

fn due(point: &str) -> Option<Action> {
    let fault = armed().filter(|fault| fault.point == point)?;
    let nth = fault.crossed.fetch_add(1, Ordering::SeqCst) + 1;
    fault.at.contains(&nth).then_some(fault.action)
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?)).as_ref()
}

fn parse(text: &str) -> Option<Armed> {
    let mut parts = text.split(':');
    let point = parts.next()?.to_owned();
    let action = match parts.next()? {
        "kill" => Action::Kill,
        "fail" => Action::Fail,
        "lost" => Action::Lost,
        other => match other.split_once('-')? {
            ("hold", port) => Action::Hold(port.parse().ok()?),
            ("lost", port) => Action::HoldThenLose(port.parse().ok()?),
            _ => return None,
        },
    };
    let at = match parts.next() {
        None => 1..=1,
        Some(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            first.parse().ok()?..=last.parse().ok()?
        }
    };
    Some(Armed { point, action, at, crossed: AtomicUsize::new(0) })
}

fn injected(point: &str) -> Error {
    Error::new(ErrorKind::Store, format!("injected fault at `{point}`"))
}

/// Tells the listener that the point is reached, and waits for it.
fn hold(point: &str, port: u16) -> Result<()> {
    let waited =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|mut other| other.read_to_end(&mut Vec::new()));
    waited.map(drop).map_err(|error| injected(point).with_source(error))
}

fn kill() -> ! {
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_point_action_and_crossing() {
        let fault = parse("silver_committed:lost:3").expect("a fault");
        assert_eq!((fault.point.as_str(), fault.action, fault.at), ("silver_committed", Action::Lost, 3..=3));
        assert_eq!(parse("silver_committed:kill").map(|fault| fault.at), Some(1..=1));
        assert_eq!(parse("silver_committed:fail:2-4").map(|fault| fault.at), Some(2..=4));
        assert_eq!(parse("silver_committed:hold-4000").map(|fault| fault.action), Some(Action::Hold(4000)));
        assert_eq!(parse("silver_committed:lost-4000").map(|fault| fault.action), Some(Action::HoldThenLose(4000)));
        assert!(parse("silver_committed:explode").is_none());
    }
}
