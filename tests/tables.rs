//! Tables as they are and as they were: lists, histories, and queries of earlier versions.

use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::support::project::Project;

const SPEC: &str = "
name: tables
storage: ./lakehouse
landing: ./landing
timezone: America/New_York
bronze:
  orders_cdc: {path: ./, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    keys: [id]
    sequence_by: [ts]
    partition_by: [shop]
    properties: {delta.logRetentionDuration: interval 60 days, owner: shop}
    columns: {id: bigint not null, shop: string, status: string, ts: timestamp}
";

/// Two runs, some milliseconds apart.
fn two_versions() -> Project {
    let project = Project::new(SPEC);
    project.land("1.csv", b"id,shop,status,ts\n1,a,new,2024-05-01T10:00:00Z\n2,b,new,2024-05-01T10:00:00Z\n", None);
    project.run();
    #[expect(clippy::disallowed_methods, reason = "versions are told apart by the clock of the machine")]
    sleep(Duration::from_millis(50));
    project.land("2.csv", b"id,shop,status,ts\n1,a,paid,2024-05-02T10:00:00Z\n3,b,new,2024-05-02T10:00:00Z\n", None);
    project.run();
    project
}

fn json(project: &Project, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
    serde_json::from_str(&project.orchestrator(&args).expect(0).stdout).expect("JSON")
}

#[test]
fn a_query_reads_a_table_as_it_was() {
    let project = two_versions();
    let history = json(&project, &["table", "history", "silver.orders"]);
    let numbers = history.as_array().expect("versions").iter().map(|one| one["version"].as_u64());
    assert_eq!(numbers.collect::<Vec<_>>(), [Some(2), Some(1), Some(0)], "{history}");
    assert_eq!((&history[0]["operation"], &history[2]["operation"]), (&"MERGE".into(), &"CREATE TABLE".into()));
    let run = json(&project, &["runs"])[0]["run_id"].clone();
    assert_eq!(history[0]["run_id"], run);

    let states = |from: &str| {
        let rows = project.query(&format!("SELECT id, status FROM {from} ORDER BY id"));
        rows.iter()
            .map(|row| format!("{} {}", row["id"], row["status"].as_str().expect("a status")))
            .collect::<Vec<_>>()
    };
    let first = ["1 new", "2 new"];
    assert_eq!(states("silver.orders VERSION AS OF 1"), first);
    assert_eq!(states("silver.orders@v1"), first);
    assert_eq!(states("silver.orders"), ["1 paid", "2 new", "3 new"]);
    let at = history[1]["at"].as_str().expect("a time");
    assert_eq!(states(&format!("silver.orders TIMESTAMP AS OF '{at}'")), first);
    let both = "SELECT o.status AS before, n.status AS after FROM silver.orders@v1 o JOIN silver.orders n USING (id) \
                WHERE o.status <> n.status";
    let changed = project.query(both);
    assert_eq!((changed.len(), &changed[0]["before"], &changed[0]["after"]), (1, &"new".into(), &"paid".into()));

    for (from, message) in [
        ("silver.orders VERSION AS OF 7", "table silver.orders has no version 7"),
        ("silver.orders TIMESTAMP AS OF '2001-01-01'", "table silver.orders has no version of 2001-01-01T05:00:00Z"),
        ("silver.orders TIMESTAMP AS OF 'soon'", "`soon` is not a time of America/New_York"),
        ("silver.order VERSION AS OF 1", "there is no table `silver.order`"),
    ] {
        let outcome = project.orchestrator(&["query", &format!("SELECT 1 FROM {from}")]);
        assert!(outcome.code == Some(1) || outcome.code == Some(2), "{}", outcome.story());
        assert!(outcome.stderr.contains(message), "{message}: {}", outcome.story());
    }
}

#[test]
fn tables_are_listed_and_described() {
    let project = two_versions();
    let list = json(&project, &["table", "list"]);
    let of = |name: &str| {
        let found = list.as_array().expect("tables").iter().find(|table| table["table"] == name);
        found.unwrap_or_else(|| panic!("{name} is not listed: {list}")).clone()
    };
    assert_eq!(of("bronze.orders_cdc")["rows"], 4);
    assert_eq!((of("silver.orders")["rows"].as_u64(), of("silver.orders")["version"].as_u64()), (Some(3), Some(2)));
    assert!(of("state.event_log")["bytes"].as_u64().is_some_and(|bytes| bytes > 0));

    let told = json(&project, &["table", "describe", "silver.orders"]);
    assert_eq!((told["partition_by"].clone(), told["rows"].as_u64()), (serde_json::json!(["shop"]), Some(3)));
    let id = &told["columns"][0];
    assert_eq!(
        (id["name"].as_str(), id["type"].as_str(), id["nullable"].as_bool()),
        (Some("id"), Some("bigint"), Some(false))
    );
    assert_eq!(told["properties"]["delta.enableChangeDataFeed"], "true");
    let text = project.orchestrator(&["table", "describe", "silver.orders"]).expect(0).stdout;
    for part in ["partitioned by  shop", "delta.enableChangeDataFeed = true", "not null"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wrong = project.orchestrator(&["table", "history", "silver.ordrs"]).expect(2);
    assert!(wrong.stderr.contains("did you mean `silver.orders`"), "{}", wrong.story());

    assert_eq!(
        (&told["properties"]["owner"], &told["properties"]["delta.logRetentionDuration"]),
        (&"shop".into(), &"interval 60 days".into())
    );
    project.respec(&SPEC.replace("owner: shop", "owner: sales"));
    project.land("3.csv", b"id,shop,status,ts\n4,a,new,2024-05-03T10:00:00Z\n", None);
    project.run();
    assert_eq!(json(&project, &["table", "describe", "silver.orders"])["properties"]["owner"], "sales");
    project.respec(&SPEC.replace("owner: shop", "delta.enableChangeDataFeed: \"false\""));
    let wrong = project.orchestrator(&["validate"]).expect(2);
    assert!(wrong.stderr.contains("has an option of its own"), "{}", wrong.story());
}
