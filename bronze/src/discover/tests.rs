//! What is found below a folder, by which name, and when it counts as settled.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FsPath;
use std::sync::Arc;

use lake::spec::{Document, Entry};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use super::*;
use crate::spec::Source;

fn plan(options: &str) -> SourcePlan {
    let document = Document::parse("p.yaml", &format!("name: t\nbronze:\n  s: {{format: csv, {options}}}\n"));
    let mut problems = document.problems();
    let entry: Entry<Source> = document.section("bronze", &mut problems).remove(0);
    crate::plan::compile(&entry, &mut problems).unwrap_or_else(|| panic!("{problems}"))
}

fn write(root: &FsPath, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn open(root: &FsPath) -> Root {
    Root::open(".", root).expect("a root")
}

/// Discovers with a clock that stands `age` after now.
fn found(root: &FsPath, plan: &SourcePlan, age: Duration) -> Discovery {
    let now = Clock::system().now();
    let clock = Clock::manual(now + age);
    block_on(discover(&open(root), plan, None, &clock, None, |_| false)).expect("a listing")
}

fn names(files: &[FoundFile]) -> Vec<String> {
    let mut names: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    names.sort();
    names
}

const ODD_NAMES: &[&str] = &[
    "a b.csv",
    "in%3Aout.csv",
    "x#1.csv",
    "p+q@r.csv",
    "день.csv",
    "dt=2024-05-01 00%3A00/f.csv",
    "d'or & co.csv",
    "100%.csv",
    "%20.csv",
    "q?.csv",
    "[x]{y}.csv",
    "~tilde^`|.csv",
    "a\\b.csv",
    "semi;colon.csv",
    "star*.csv",
    "<>.csv",
    "\"quoted\".csv",
    " lead and trail .csv ",
    "#.csv",
    "a#",
    "e\u{301}.csv",
    "é.csv",
    "a:b.csv",
    "..x/y..csv",
    "a.csv#1",
    "line\nbreak.csv",
];

#[test]
fn odd_names_are_exact_and_can_be_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ODD_NAMES {
        write(folder.path(), name, name);
    }
    let names_found =
        found(folder.path(), &plan("path: ./, settle: 0s, default_excludes: false"), Duration::ZERO).ready;
    let mut expected: Vec<String> = ODD_NAMES.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(names(&names_found), expected);
    for file in &names_found {
        assert_eq!(file.unreadable, None, "{}", file.path);
        let bytes = fs::read(folder.path().join(&file.path));
        assert_eq!(bytes.unwrap_or_else(|error| panic!("{}: {error}", file.path)), file.path.as_bytes());
    }
}

#[test]
fn a_name_that_is_no_text_is_found_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "good.csv", "x");
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.csv")), "x").expect("a file");
    let found = found(folder.path(), &plan("path: ./, settle: 0s"), Duration::ZERO).ready;
    assert_eq!(names(&found), ["caf\u{fffd}.csv", "good.csv"]);
    for file in &found {
        assert_eq!(file.unreadable.is_none(), file.path == "good.csv", "{file:?}");
    }
}

#[test]
fn only_data_below_the_folder_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["orders/a.csv", "orders/2024/b.csv", "orders/_tmp/c.csv", "orders/.d.csv", "orders/e.csv.tmp"] {
        write(folder.path(), path, "x");
    }
    write(folder.path(), "orders_old/f.csv", "x");
    write(folder.path(), "orders/lake/bronze/g.csv", "x");
    write(folder.path(), "orders/empty.csv", "");
    let all = found(folder.path(), &plan("path: orders/, settle: 0s"), Duration::ZERO);
    assert_eq!(names(&all.ready), ["orders/2024/b.csv", "orders/a.csv", "orders/lake/bronze/g.csv"]);
    assert_eq!(all.empty, ["orders/empty.csv"]);
    let flat = found(folder.path(), &plan("path: orders, settle: 0s, recursive: false"), Duration::ZERO);
    assert_eq!(names(&flat.ready), ["orders/a.csv"]);
    let globs = found(folder.path(), &plan("path: orders, settle: 0s, include: ['2024/*']"), Duration::ZERO);
    assert_eq!(names(&globs.ready), ["orders/2024/b.csv"]);
    let (root, whole) = (open(folder.path()), plan("path: orders, settle: 0s"));
    let skipping = block_on(discover(&root, &whole, Some("orders/lake"), &Clock::system(), None, |_| false));
    assert_eq!(names(&skipping.expect("a listing").ready), ["orders/2024/b.csv", "orders/a.csv"]);
    assert!(found(folder.path(), &plan("path: nowhere/"), Duration::ZERO).missing);
}

#[test]
fn files_that_no_glob_takes_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["in/a.csv", "in/B.CSV", "in/c.csv.gz", "in/d.txt", "in/.e.txt", "in/f.csv.tmp", "other/g.txt"] {
        write(folder.path(), path, "x");
    }
    let found = found(folder.path(), &plan("path: in, settle: 0s, include: ['*.csv']"), Duration::ZERO);
    assert_eq!(names(&found.ready), ["in/a.csv"]);
    let missed = Missed {
        files: 3,
        by_case: vec!["in/B.CSV".to_owned()],
        by_packing: vec!["in/c.csv.gz".to_owned()],
        other: Some("in/d.txt".to_owned()),
    };
    assert_eq!(found.missed, missed);
}

#[test]
fn links_are_followed_and_never_in_circles() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "real/a.csv", "x");
    fs::create_dir(folder.path().join("in")).expect("a folder");
    std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("in/linked")).expect("a link");
    std::os::unix::fs::symlink(folder.path().join("in"), folder.path().join("in/circle")).expect("a link");
    std::os::unix::fs::symlink(folder.path().join("gone"), folder.path().join("in/dangling.csv")).expect("a link");
    let found = found(folder.path(), &plan("path: in, settle: 0s"), Duration::ZERO);
    assert_eq!(names(&found.ready), ["in/linked/a.csv"]);
    std::os::unix::fs::symlink("self.csv", folder.path().join("in/self.csv")).expect("a link");
    let found = self::found(folder.path(), &plan("path: in"), Duration::from_secs(60));
    assert_eq!(names(&found.ready), ["in/linked/a.csv", "in/self.csv"], "the others are found all the same");
    let unreadable =
        |file: &FoundFile| file.unreadable.as_deref().is_some_and(|why| why.contains("cannot be followed"));
    assert_eq!(found.ready.iter().filter(|file| unreadable(file)).count(), 1);
}

#[test]
fn settled_files_are_taken_without_waiting_and_young_ones_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "a.csv", "x");
    let plan = plan("path: ./, settle: 60s");
    let start = Clock::system().now();
    let run = |clock: &Clock| {
        block_on(discover(&open(folder.path()), &plan, None, clock, None, |_| false)).expect("a listing")
    };
    let later = Clock::manual(start + Duration::from_secs(120));
    assert_eq!(names(&run(&later).ready), ["a.csv"]);
    assert!(later.now() <= start + Duration::from_secs(120), "no wait for a settled file");
    let soon = Clock::manual(start + Duration::from_secs(20));
    assert_eq!(names(&run(&soon).ready), ["a.csv"]);
    let waited = (soon.now() - start).num_milliseconds();
    assert!((58_000..=61_000).contains(&waited), "waits for what is left of the 60 s, not {waited} ms");
    let before = Clock::manual(start - Duration::from_secs(3600));
    assert_eq!(names(&run(&before).ready), ["a.csv"], "a time in the future does not hide a file");
}

#[test]
fn a_file_that_grows_during_the_wait_is_left_and_known_ones_never_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "grows.csv", "1");
    write(folder.path(), "rests.csv", "1");
    let plan = plan("path: ./, settle: 300ms");
    let root = open(folder.path());
    let clock = Clock::system();
    let found = block_on(async {
        let write = async {
            clock.sleep(Duration::from_millis(50)).await;
            fs::write(folder.path().join("grows.csv"), "12").expect("a file");
        };
        tokio::join!(discover(&root, &plan, None, &clock, None, |_| false), write).0.expect("a listing")
    });
    assert_eq!(names(&found.ready), ["rests.csv"]);
    assert_eq!(found.changing, ["grows.csv"]);
    let still = Clock::manual(DateTime::UNIX_EPOCH);
    let known = block_on(discover(&root, &plan, None, &still, None, |_| true)).expect("a listing");
    assert_eq!((known.known.len(), still.now()), (2, DateTime::UNIX_EPOCH));
}

#[test]
fn a_bucket_lists_the_same_names() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for path in ["in/a b.csv", "in/%3A.csv", "in/sub/день.csv", "in/_x/b.csv", "other/c.csv"] {
        block_on(store.put(&object_store::path::Path::parse(path).expect("a path"), "x".into())).expect("stored");
    }
    let plan = plan("path: in/");
    let request = |recursive| Request { folder: "in".into(), filter: plan.filter.clone(), recursive, skip: None };
    let all = block_on(remote::list(Arc::clone(&store), &request(true))).expect("a listing");
    assert_eq!(names(&all.files), ["in/%3A.csv", "in/a b.csv", "in/sub/день.csv"]);
    let flat = block_on(remote::list(store, &request(false))).expect("a listing");
    assert_eq!(names(&flat.files), ["in/%3A.csv", "in/a b.csv"]);
    assert!(all.files[0].etag.is_some());
}
