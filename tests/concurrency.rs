//! Two runs at the same time on one storage: right tables, and no error that a user must care about.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::sample::assert_right;
use crate::support::program::workspace;
use crate::support::project::{Project, files_below, summary_of};

/// How often both runs start together; each time with new files, the last time with none.
const ROUNDS: usize = 4;

#[test]
fn two_runs_at_once_make_what_one_run_makes() {
    let project = Project::example();
    let sample = workspace().join("landing");
    let files: Vec<PathBuf> = files_below(&sample);
    std::fs::remove_dir_all(project.landing()).expect("a landing zone");
    let part = files.len().div_ceil(ROUNDS - 1);
    for round in 0..ROUNDS {
        for file in files.iter().skip(round * part).take(part) {
            let to = file.strip_prefix(&sample).expect("a sample file");
            project.land_file(file, to, Some(chrono::DateTime::UNIX_EPOCH));
        }
        let running = [project.start_run(), project.start_run()];
        for outcome in running.map(|one| one.wait().expect(0)) {
            summary_of(&outcome).assert_accounted();
        }
    }
    project.assert_settled();
    assert_right(&project);
    assert_every_record_once(&project);
}

/// No record is in bronze or in quarantine twice, and none is missing.
fn assert_every_record_once(project: &Project) {
    for (source, folder) in [("orders_cdc", "orders"), ("web_orders_cdc", "web_orders"), ("products_feed", "products")]
    {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let columns: &[&str] = &["_file_path", "_row_number"];
        for line in project.content(&[(&format!("bronze.{source}"), columns)]) {
            *seen.entry(line).or_default() += 1;
        }
        assert!(seen.values().all(|times| *times == 1), "records of {source} are in bronze twice");
        let folded = if folder == "products" {
            crate::support::fold::products(&project.landing().join(folder))
        } else {
            crate::support::fold::orders(&project.landing().join(folder))
        };
        let quarantined = project.count(&format!("quarantine.{source}")) as usize;
        assert_eq!(quarantined, folded.refused, "refused records of {source}");
        assert!(seen.len() + quarantined >= folded.records, "records of {source} are missing");
    }
}
