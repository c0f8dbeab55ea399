//! Files of the landing zone over time: what is taken once more, cleared away, left at the start, and how the ledger
//! stays small.

use std::fs;

use bronze::ledger::{Entry, Ledger, Status};

use crate::support::project::{Project, files_below, summary_of};

fn spec(options: &str) -> String {
    format!(
        "
name: landing
storage: ./lakehouse
landing: ./landing
bronze:
  s: {{path: in/, format: csv, settle: 0s{options}}}
silver:
  t:
    source: s
    cdc: plain
    keys: [id]
    sequence_by: [ts bigint]
    columns: {{id: bigint not null, v: string}}
tasks:
  bronze.s: {{min_retry_interval: 0s}}
"
    )
}

fn rows(project: &Project) -> Vec<String> {
    project.content(&[("silver.t", &["id", "v"])])
}

/// Data files that the newest version of a table has, counted from its log.
fn live_files(project: &Project, table: &str) -> usize {
    let mut live = std::collections::BTreeSet::new();
    let mut commits = files_below(&project.path().join("lakehouse").join(table).join("_delta_log"));
    commits.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    for commit in commits {
        for line in fs::read_to_string(&commit).expect("a commit").lines() {
            let action: serde_json::Value = serde_json::from_str(line).expect("an action");
            let path = |kind: &str| action[kind]["path"].as_str().map(str::to_owned);
            live.extend(path("add"));
            path("remove").inspect(|path| assert!(live.remove(path)));
        }
    }
    live.len()
}

fn landed(project: &Project) -> Vec<String> {
    let root = project.landing();
    let name = |path: &std::path::PathBuf| path.strip_prefix(&root).expect("below").to_str().expect("UTF-8").to_owned();
    files_below(&root).iter().map(name).collect()
}

/// Waits for something that must come to pass, up to a minute.
fn until(what: &str, mut passed: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    for _ in 0..6_000 {
        if passed() {
            return;
        }
        runtime.block_on(lake::Clock::system().sleep(std::time::Duration::from_millis(10)));
    }
    panic!("{what}: not within a minute");
}

#[test]
fn a_refused_file_is_taken_once_more_when_it_is_asked_for() {
    let project = Project::new(&spec(", duplicate_columns: fail"));
    project.land("in/good.csv", b"id,v,ts\n1,a,1\n", None);
    project.land("in/bad.csv", b"id,v,ts,ts\n2,b,1,1\n", None);
    assert_eq!(summary_of(&project.run_with(None).expect(1)).refused(), ["in/bad.csv".to_owned()].into());
    project.respec(&spec(", duplicate_columns: rename"));
    project.assert_settled();

    let preview = project.bronze(&["reingest", "--files", "*.csv", "--dry-run"], None).expect(0);
    assert!(preview.stdout.contains("bronze.s: 1 of 2 files"), "{}", preview.story());
    assert!(preview.stdout.contains("tried again; it was refused"), "{}", preview.story());
    assert!(preview.stdout.contains("left: its records are in the table by batch 1"), "{}", preview.story());
    project.assert_settled();

    let again = project.bronze(&["reingest", "--files", "*.csv", "--output", "json"], None).expect(0);
    assert!(again.stderr.contains("tried again"), "{}", again.story());
    assert_eq!(project.count("bronze.s"), 2);
    project.run();
    assert_eq!(rows(&project), ["silver.t: 1 | a", "silver.t: 2 | b"]);
    project.assert_settled();
    let nothing = project.bronze(&["reingest", "--files", "in/other*"], None).expect(2);
    assert!(nothing.stderr.contains("no file matches in/other*"), "{}", nothing.story());
}

#[test]
fn what_was_taken_comes_once_more_only_when_that_is_said_and_once_per_command() {
    for fault in ["files_failed_committed:kill", "ledger_committed:kill", "bronze_data_written:kill"] {
        let project = Project::new(&spec(""));
        project.land("in/a.csv", b"id,v,ts\n1,a,1\n2,b,1\n", None);
        project.run();
        project.bronze(&["reingest", "--files", "in/a.csv"], None).expect(0);
        assert_eq!(project.count("bronze.s"), 2, "it is in the table already");
        project.bronze(&["reingest", "--files", "in/a.csv", "--taken"], Some(fault)).expect_killed();
        // The same command again ends what the killed one began.
        project.bronze(&["reingest", "--files", "in/a.csv", "--taken"], None).expect(0);
        assert_eq!(project.count("bronze.s"), 4, "{fault}");
        project.run();
        assert_eq!(rows(&project), ["silver.t: 1 | a", "silver.t: 2 | b"]);
        project.assert_settled();
        project.bronze(&["reingest", "--files", "in/a.csv", "--taken"], None).expect(0);
        assert_eq!(project.count("bronze.s"), 6, "another command is another wish");
    }
}

#[test]
fn an_overwrite_that_was_left_alone_is_taken_when_it_is_asked_for() {
    let project = Project::new(&spec(", on_overwrite: ignore"));
    project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
    project.run();
    project.land("in/a.csv", b"id,v,ts\n1,later,2\n", None);
    project.run();
    assert_eq!(project.count("bronze.s"), 1);
    project.bronze(&["reingest", "--files", "a.csv", "--source", "s"], None).expect(0);
    project.run();
    assert_eq!(rows(&project), ["silver.t: 1 | later"]);
    project.assert_settled();
}

#[test]
fn files_go_when_their_records_are_in_the_table_and_only_then() {
    let options = ", clean_source: {mode: move, retention_duration: 0s, move_destination: done/s}";
    let project = Project::new(&spec(options));
    project.land("done/s/a.csv", b"somebody else's", None);
    project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
    project.land("in/x/b.csv", b"id,v,ts\n2,b,1\n", None);
    project.land("in/bad.csv", b"id,id,ts\n3,c,1\n", None);
    project.land("in/empty.csv", b"", None);
    let told = project.run_with(None).expect(1);
    assert!(told.stdout.contains("moved, as their records are in the table: in/a.csv, in/x/b.csv"), "{}", told.story());
    let left = ["done/s/a.csv", "done/s/a.csv.2", "done/s/x/b.csv", "in/bad.csv", "in/empty.csv"];
    assert_eq!(landed(&project), left);
    assert_eq!(fs::read_to_string(project.landing().join("done/s/a.csv.2")).expect("moved"), "id,v,ts\n1,a,1\n");
    project.assert_settled();
    assert_eq!(rows(&project), ["silver.t: 1 | a", "silver.t: 2 | b"]);
}

#[test]
fn a_crash_while_clearing_away_harms_nothing() {
    for (mode, left) in
        [("mode: delete", vec![]), ("mode: move, move_destination: done", vec!["done/a.csv", "done/b.csv"])]
    {
        for fault in ["bronze_committed:kill", "file_cleaning:kill:1", "file_cleaning:kill:2", "file_cleaning:lost:1"] {
            let project = Project::new(&spec(&format!(", clean_source: {{{mode}, retention_duration: 0s}}")));
            project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
            project.land("in/b.csv", b"id,v,ts\n2,b,1\n", None);
            let outcome = project.run_with(Some(fault));
            assert!(outcome.code.is_none_or(|code| code == 0), "{}", outcome.story());
            project.run();
            assert_eq!(landed(&project), left, "{mode} after {fault}");
            assert_eq!(rows(&project), ["silver.t: 1 | a", "silver.t: 2 | b"]);
            assert_eq!(project.count("bronze.s"), 2);
        }
    }
}

#[test]
fn files_stay_for_the_retention_and_when_they_have_changed() {
    let project = Project::new(&spec(", clean_source: {mode: delete, retention_duration: 1 days}"));
    project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
    project.run();
    project.assert_settled();
    assert_eq!(landed(&project), ["in/a.csv"]);
    project.respec(&spec(", on_overwrite: ignore, clean_source: {mode: delete, retention_duration: 0s}"));
    project.land("in/a.csv", b"id,v,ts\n1,other,2\n", None);
    project.run();
    project.run();
    assert_eq!(landed(&project), ["in/a.csv"], "what was not taken is not cleared away");
}

#[test]
fn what_is_there_at_the_start_is_noted_once_whoever_starts() {
    for fault in [None, Some("files_failed_committed:kill"), Some("table_created:kill")] {
        let project = Project::new(&spec(", include_existing_files: false"));
        project.land("in/old.csv", b"id,v,ts\n1,old,1\n", None);
        let early = project.bronze(&["reingest", "--files", "*.csv"], None).expect(2);
        assert!(early.stderr.contains("the first run of bronze.s leaves the files"), "{}", early.story());
        if let Some(fault) = fault {
            project.run_with(Some(fault)).expect_killed();
        }
        let running = [project.start_run(), project.start_run()];
        running.into_iter().for_each(|one| drop(one.wait().expect(0)));
        assert_eq!(project.count("bronze.s"), 0);
        project.land("in/new.csv", b"id,v,ts\n2,new,1\n", None);
        project.run();
        assert_eq!(rows(&project), ["silver.t: 2 | new"], "after {fault:?}");
        project.assert_settled();
    }
}

#[test]
fn a_ledger_of_many_batches_becomes_one_file_and_knows_all() {
    let project = Project::new(&spec(", max_files_per_batch: 1"));
    for number in 0..40 {
        project.land(format!("in/{number:02}.csv"), format!("id,v,ts\n{number},x,1\n").as_bytes(), None);
    }
    project.run_with(Some("ledger_packed:kill")).expect_killed();
    project.run();
    assert_eq!(live_files(&project, "_state/files/s"), 1);
    assert_eq!(project.count("bronze.s"), 40);
    project.assert_settled();
    project.land("in/99.csv", b"id,v,ts\n99,x,1\n", None);
    project.run();
    assert_eq!((live_files(&project, "_state/files/s"), rows(&project).len()), (2, 41));
}

#[test]
fn a_folder_that_is_missing_is_said_and_one_that_is_gone_is_an_error() {
    let project = Project::new(&spec(""));
    let first = project.run_with(None).expect(0);
    assert!(first.stdout.contains("the folder `in` is not there"), "{}", first.story());
    project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
    project.run();
    fs::rename(project.landing().join("in"), project.landing().join("away")).expect("renamed");
    let gone = project.run_with(None).expect(1);
    assert!(gone.stdout.contains("the folder `in` of bronze.s is gone"), "{}", gone.story());
    fs::create_dir(project.path().join("other")).expect("a folder");
    project.orchestrator(&["run", "--landing", "other"]).expect(0);
    fs::rename(project.landing().join("away"), project.landing().join("in")).expect("renamed");
    project.assert_settled();
}

#[test]
fn rows_that_are_there_outweigh_what_another_run_noted() {
    let project = Project::new(&spec(""));
    project.land("in/a.csv", b"id,v,ts\n1,a,1\n", None);
    project.land("in/b.csv", b"id,v,ts\n2,b,1\n", None);
    project.run();
    // A run that read the batch at the same time found `a.csv` gone, and said so too late.
    let root = lake::Root::open("lakehouse", project.path()).expect("a root");
    let lake = lake::Lake::new(root, lake::Clock::system(), lake::session::Engine::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut ledger = Ledger::open(&lake, "s").await.expect("a ledger");
        let file = ledger.batch(1).into_iter().find(|file| file.path == "in/a.csv").expect("a planned file");
        let run = lake::RunId::new(lake.clock());
        let noted = ledger.note(vec![Entry::new(Some(1), &file, Status::Gone, "gone")], &run).await;
        assert!(noted.expect("noted") && !ledger.knows(&file) && ledger.is_unsettled(1));
    });
    project.assert_settled();
    assert_eq!(project.count("bronze.s"), 2);
    project.land("in/c.csv", b"id,v,ts\n3,c,1\n", None);
    project.run();
    assert_eq!(project.count("bronze.s"), 3);
}

#[test]
fn a_report_covers_all_attempts_of_a_run() {
    let project = Project::new(&spec(", max_files_per_batch: 1"));
    for (name, id) in [("a", 1), ("b", 2), ("c", 3)] {
        project.land(format!("in/{name}.csv"), format!("id,v,ts\n{id},x,1\n").as_bytes(), None);
    }
    let outcome = project.run_with(Some("bronze_data_written:fail:3")).expect(0);
    let summary = summary_of(&outcome);
    let task = summary.task("bronze.s");
    assert_eq!((task.attempts, task.files, task.appended), (2, 3, 3), "{}", outcome.story());
}

#[test]
fn a_file_that_goes_while_a_run_works_ends_no_run_and_stops_no_other() {
    for content in [None, Some("id,v,ts\n2,new content,1\n")] {
        let spec = spec(", max_files_per_batch: 1");
        let project = Project::new(spec.split("silver:").next().expect("the part before silver"));
        let large: String = (10..300_000).map(|id| format!("{id},a value of some length,1\n")).collect();
        project.land("in/a.csv", format!("id,v,ts\n{large}").as_bytes(), None);
        project.land("in/b.csv", b"id,v,ts\n2,b,1\n", None);
        project.land("in/c.csv", b"id,v,ts\n3,c,1\n", None);
        let mut run = project.start_run().into_child();
        // The first batch is planned from a listing that has all three; reading it takes a while.
        let planned = project.path().join("lakehouse/_state/files/s/_delta_log/00000000000000000001.json");
        until("the first batch is planned", || planned.exists());
        let path = project.landing().join("in/b.csv");
        match content {
            None => fs::remove_file(&path).expect("removed"),
            Some(content) => fs::write(&path, content).expect("written"),
        }
        until("the run ends", || run.try_wait().expect("a child").is_some());
        let of = |file: &str| {
            let sql = format!("SELECT _file_path FROM bronze.s WHERE _file_path = 'in/{file}' LIMIT 3");
            project.query(&sql).len()
        };
        assert_eq!((of("a.csv"), of("c.csv")), (3, 1));
        project.bronze(&["run"], None).expect(0);
        assert_eq!(of("b.csv"), usize::from(content.is_some()), "the new content is a new arrival");
    }
}
