//! What a ledger knows of files, from its rows alone.

use super::write::App;
use super::*;
use lake::session::Engine;
use lake::{Clock, Root};

fn file(path: &str, modified_us: i64) -> FoundFile {
    FoundFile { path: path.into(), size: 1, modified_us, etag: None, unreadable: None }
}

fn ledger(rows: &[(Option<i64>, FoundFile, Status)]) -> Ledger {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Root::open(".", folder.path()).expect("a root");
    let mut ledger = Ledger::empty(&Lake::new(root, Clock::system(), Engine::default()), "s");
    let entry = |(batch, file, status): &(Option<i64>, FoundFile, Status)| Entry {
        reason: (*status != Status::Planned).then(|| "a reason".to_owned()),
        ..Entry::new(*batch, file, *status, "")
    };
    ledger.add(rows.iter().map(entry).collect(), App::Planned, 9);
    ledger
}

fn paths(files: Vec<FoundFile>) -> Vec<String> {
    files.into_iter().map(|file| file.path).collect()
}

#[test]
fn a_file_is_its_path_and_its_content_never_a_mark_in_time() {
    let ledger = ledger(&[(Some(1), file("a", 5), Status::Planned)]);
    assert_eq!((ledger.planned(), ledger.notes()), (9, 0));
    assert!(ledger.knows(&file("a", 5)));
    assert!(!ledger.knows(&file("b", 5)) && !ledger.knows(&file("b", 1)));
    assert!(!ledger.knows(&file("a", 4)) && ledger.is_overwritten_by(&file("a", 4)));
    assert!(!ledger.is_overwritten_by(&file("a", 5)) && !ledger.is_overwritten_by(&file("b", 5)));
    let versioned = |etag: &str, modified_us| FoundFile { etag: Some(etag.into()), ..file("a", modified_us) };
    assert!(versioned("x", 1).is_same(&versioned("x", 2)), "the version of a store says more than a time");
    assert!(!versioned("x", 1).is_same(&versioned("y", 1)));
}

#[test]
fn a_refused_file_is_remembered_and_its_correction_is_no_overwrite() {
    let ledger = ledger(&[
        (Some(1), file("a", 5), Status::Planned),
        (Some(1), file("b", 5), Status::Planned),
        (Some(1), file("a", 5), Status::Failed),
        (None, file("c", 5), Status::Ignored),
    ]);
    assert_eq!(paths(ledger.batch(1)), ["b"]);
    assert_eq!(ledger.failures(1).count(), 1);
    assert!(ledger.knows(&file("a", 5)) && ledger.failure(&file("a", 5)) == Some("a reason"));
    assert!(!ledger.knows(&file("a", 6)) && !ledger.is_overwritten_by(&file("a", 6)));
    assert!(ledger.is_overwritten_by(&file("b", 6)));
    assert!(ledger.knows(&file("c", 5)) && ledger.failure(&file("c", 5)).is_none());
}

#[test]
fn a_file_that_was_gone_is_taken_when_it_is_back() {
    let gone = [(Some(1), file("a", 5), Status::Planned), (Some(1), file("a", 5), Status::Gone)];
    let before = ledger(&gone);
    assert!(before.batch(1).is_empty() && before.failures(1).count() == 1);
    assert!(!before.knows(&file("a", 5)) && before.failure(&file("a", 5)).is_none());
    assert!(!before.is_overwritten_by(&file("a", 6)));
    let [planned, gone] = gone;
    let back = ledger(&[planned, gone, (Some(2), file("a", 5), Status::Planned)]);
    assert!(back.knows(&file("a", 5)));
    assert_eq!((paths(back.batch(1)), paths(back.batch(2))), (vec![], vec!["a".to_owned()]));
}

#[test]
fn rows_that_are_there_outweigh_a_note_of_another_run() {
    let noted = [(Some(1), file("a", 5), Status::Planned), (Some(1), file("a", 5), Status::Gone)];
    assert!(!ledger(&noted).knows(&file("a", 5)) && ledger(&noted).is_unsettled(1));
    let [planned, gone] = noted;
    let settled = ledger(&[planned, gone, (Some(1), file("a", 5), Status::Taken)]);
    assert!(settled.knows(&file("a", 5)) && !settled.is_unsettled(1));
    assert_eq!(paths(settled.batch(1)), ["a"]);
    let failed = [
        (Some(1), file("a", 5), Status::Planned),
        (Some(1), file("a", 5), Status::Failed),
        (Some(1), file("a", 5), Status::Taken),
    ];
    assert_eq!(ledger(&failed).failure(&file("a", 5)), None);
}

#[test]
fn a_file_that_was_there_before_the_start_is_known_until_it_changes() {
    let ledger = ledger(&[(None, file("a", 5), Status::Existing)]);
    assert!(ledger.knows(&file("a", 5)) && ledger.failure(&file("a", 5)).is_none());
    assert!(!ledger.knows(&file("a", 6)) && !ledger.is_overwritten_by(&file("a", 6)));
}

#[test]
fn what_is_wanted_again_is_taken_once_more() {
    let taken = (Some(1), file("a", 5), Status::Planned);
    let again = (Some(3), file("a", 5), Status::Again);
    let wanted = ledger(&[taken.clone(), again.clone()]);
    assert!(!wanted.knows(&file("a", 5)) && wanted.is_wanted_again(&file("a", 5)));
    assert_eq!(wanted.taken(&file("a", 5)), None);
    assert_eq!(paths(wanted.batch(1)), ["a"], "the batch that took it stays what it is");
    let done = ledger(&[taken, again, (Some(4), file("a", 5), Status::Planned)]);
    assert!(done.knows(&file("a", 5)) && done.taken(&file("a", 5)).map(|(batch, _)| batch) == Some(4));
    let of = |status| ledger(&[(None, file("a", 5), status), (Some(0), file("a", 5), Status::Again)]);
    for status in [Status::Failed, Status::Ignored, Status::Existing] {
        assert!(!of(status).knows(&file("a", 5)) && of(status).left_out(&file("a", 5)).is_none(), "{status:?}");
    }
}
