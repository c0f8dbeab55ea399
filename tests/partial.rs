//! Updates that do not send every column, in tables that change.

use serde_json::Value;

use crate::support::program;
use crate::support::project::Project;

fn spec(columns: &str) -> String {
    format!(
        "name: partial
bronze:
  feed: {{path: feed/, format: json, settle: 0s}}
silver:
  t:
    source: feed
    cdc: plain
    op: {{column: op, insert: [I], update: [U], delete: [D]}}
    keys: [id]
    sequence_by: [ts bigint]
    ignore_null_updates: true
    columns: {{id: bigint not null, {columns}}}
"
    )
}

fn rows(project: &Project) -> Vec<[Value; 4]> {
    let rows = project.query("SELECT id, a, b, c FROM silver.t ORDER BY id");
    rows.iter().map(|row| ["id", "a", "b", "c"].map(|name| row[name].clone())).collect()
}

#[test]
fn a_column_that_joins_is_kept_by_updates_that_do_not_send_it() {
    for columns in
        ["a: string, b: string, c: string", "c: string, a: string, b: string", "a: string, c: string, b: string"]
    {
        let project = Project::new(&spec("a: string, b: string"));
        project.land("feed/1.json", br#"{"op":"I","ts":1,"id":1,"a":"x","b":"y"}"#, None);
        project.run();
        project.respec(&spec(columns));
        let row = |id: u64, a: &str, b: &str, c: &str| [Value::from(id), a.into(), b.into(), c.into()];
        project.land("feed/2.json", br#"{"op":"U","ts":2,"id":1,"a":"x","b":"y","c":"z"}"#, None);
        project.land("feed/3.json", br#"{"op":"U","ts":3,"id":1,"a":"x3"}"#, None);
        project.run();
        assert_eq!(rows(&project), [row(1, "x3", "y", "z")], "{columns}");
        project.land("feed/4.json", br#"{"op":"U","ts":4,"id":1,"b":"y4"}"#, None);
        project.run();
        project.land("feed/5.json", br#"{"op":"U","ts":5,"id":1,"c":"z5"}"#, None);
        project.run();
        assert_eq!(rows(&project), [row(1, "x3", "y4", "z5")], "{columns}");
        program::run("silver", project.path(), &["rebuild", "t"], None).expect(0);
        assert_eq!(rows(&project), [row(1, "x3", "y4", "z5")], "{columns}, made anew");
    }
}
