//! The layers' own programs on the spec of the whole: each does its part, again and alone.

use std::fs;

use crate::sample::assert_right;
use crate::support::fold::ORDER_COLUMNS;
use crate::support::project::Project;

#[test]
fn bronze_then_silver_then_gold_make_what_one_run_makes() {
    let project = Project::example();
    for (layer, tables) in [("bronze", 3), ("silver", 3), ("gold", 4)] {
        let summary = project.run_layer(layer);
        assert_eq!((summary.status.as_str(), summary.tasks.len()), ("succeeded", tables), "{layer}: {summary:#?}");
        assert!(summary.tasks.iter().all(|task| task.task.starts_with(layer)), "{summary:#?}");
    }
    assert_right(&project);
    let versions = project.versions();
    for layer in ["bronze", "silver", "gold"] {
        assert_eq!(project.run_layer(layer).status, "up_to_date", "{layer} again");
    }
    assert_eq!(project.versions(), versions);
    project.assert_settled();
}

#[test]
fn silver_comes_back_from_bronze() {
    let project = Project::example();
    project.run();
    let tables = ["silver.orders", "silver.web_orders"];
    let before = tables.map(|table| project.rows(table, &ORDER_COLUMNS));
    fs::remove_dir_all(project.path().join("lakehouse/silver")).expect("silver is there");
    project.run_layer("silver");
    for (table, before) in tables.into_iter().zip(before) {
        if let Some(difference) = project.rows(table, &ORDER_COLUMNS).difference(&before) {
            panic!("{table}: {difference}");
        }
    }
    assert_right(&project);
}
