//! A run that dies or loses an answer at any fault point leaves nothing that the next run does not put right.
//!
//! `FAULT=silver_committed:kill` in the environment tries only the faults that start so.

use lake::fault::POINTS;

use crate::support::parallel;
use crate::support::project::{Project, midday_zone, summary_of};

/// A task that met a fault is tried again at once.
const TASKS: &str = "
tasks:
  bronze.orders_cdc: {min_retry_interval: 0s}
  bronze.notes_feed: {min_retry_interval: 0s}
  silver.orders: {min_retry_interval: 0s}
  silver.orders_kept: {min_retry_interval: 0s}
  silver.orders_history: {min_retry_interval: 0s}
  silver.notes: {min_retry_interval: 0s}
  silver.notes_list: {min_retry_interval: 0s}
  gold.totals: {min_retry_interval: 0s}
  gold.orders_daily: {min_retry_interval: 0s}
  gold.orders_changes: {min_retry_interval: 0s}
";

/// A pipeline that crosses every point: typed rows, deletes, refused rows and a refused file, models and snapshots.
const SPEC: &str = "
name: crash
storage: ./lakehouse
landing: ./landing
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 0s}
  notes_feed: {path: notes/, format: json, settle: 0s}
silver:
  orders:
    source: orders_cdc
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D], truncate: [T]}
    keys: [order_id]
    sequence_by: [ts]
    columns: {order_id: bigint not null, status: string, amount: 'decimal(12,2)', ts: timestamp}
    deletion_vectors: true
    write_mode: merge_on_read
  orders_kept:
    source: orders_cdc
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D], ignore: [T]}
    keys: [order_id]
    sequence_by: [ts]
    columns: {order_id: bigint not null, status: string, amount: 'decimal(12,2)', ts: timestamp}
    delete_mode: soft
  orders_history:
    source: orders_cdc
    cdc: plain
    op: {column: op, insert: [I], update: [U], delete: [D], ignore: [T]}
    keys: [order_id]
    sequence_by: [ts]
    columns: {order_id: bigint not null, status: string, amount: 'decimal(12,2)', ts: timestamp}
    stored_as_scd_type: 2
    track_history_column_list: [status]
  notes:
    source: notes_feed
    cdc: plain
    keys: [id]
    sequence_by: []
    columns: {id: bigint not null, text: string}
  notes_list:
    source: notes_feed
    keys: [id]
    sequence_by: ['_file_path string']
    columns: {id: bigint not null, text: string}
    from_snapshot: true
gold:
  totals:
    query: SELECT status, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY status
  orders_daily: {snapshot_of: silver.orders, strategy: full}
  orders_changes: {snapshot_of: silver.orders, strategy: changed_only}
";

/// Files of the first and of the second run: a change of each kind, a row that does not cast, one without a key, a cut
/// line, a file that is no UTF-8; in the second a truncate of what is old, and a new column, which silver takes over.
const FILES: [[(&str, &[u8]); 4]; 2] = [
    [
        ("orders/1-a.csv", b"op,order_id,status,amount,ts\nI,1,New,10.00,2024-05-01T10:00:00Z\nI,2,New,20.00,2024-05-01T10:00:00Z\nI,3,New,3O.00,2024-05-01T10:00:00Z\nI,9,Old,9.00,2024-05-01T08:00:00Z\n"),
        ("orders/1-b.csv", b"op,order_id,status,amount,ts\nU,1,Paid,10.00,2024-05-01T11:00:00Z\nD,4,,,2024-05-01T11:00:00Z\nI,,New,1.00,2024-05-01T11:00:00Z\n"),
        ("orders/1-c.csv", b"op,order_id,status,amount,ts\nI,5,\xff\xfe,50.00,2024-05-01T10:00:00Z\n"),
        ("notes/1.jsonl", b"{\"id\":1,\"text\":\"first\"}\n{\"id\":2,\"te\n"),
    ],
    [
        ("orders/2-a.csv", b"op,order_id,status,amount,ts,note\nD,1,,,2024-05-02T10:00:00Z,\nU,2,Paid,21.00,2024-05-02T10:00:00Z,x\nI,6,New,6.00,2024-05-02T10:00:00Z,y\nT,,,,2024-05-01T08:30:00Z,\n"),
        ("orders/2-b.csv", b"op,order_id,status,amount,ts\nI,4,New,4.00,2024-05-01T09:00:00Z\nU,2,Late,2.00,2024-05-01T12:00:00Z\nI,7,New,n/a,2024-05-02T11:00:00Z\n"),
        ("orders/2-c.csv", b"op,order_id,status,amount,ts\nI,8,\xc3\x28,80.00,2024-05-02T10:00:00Z\n"),
        ("notes/2.jsonl", b"{\"id\":3,\"te\n{\"id\":1,\"text\":\"second\"}\n"),
    ],
];

const TABLES: [(&str, &[&str]); 12] = [
    ("bronze.orders_cdc", &["op", "order_id", "status", "amount", "ts", "_file_path", "_row_number"]),
    ("silver.orders", &["order_id", "status", "amount", "ts", "note"]),
    ("silver.orders_kept", &["order_id", "status", "ts", "note", "_is_deleted", "_deleted_sequence_1"]),
    ("silver.orders_history", &["order_id", "status", "amount", "note", "__START_AT", "__END_AT"]),
    ("gold.totals", &["status", "orders", "amount"]),
    ("gold.orders_daily", &["order_id", "status", "amount", "ts", "snapshot_date"]),
    ("gold.orders_changes", &["order_id", "status", "amount", "snapshot_date", "_change"]),
    ("bronze.notes_feed", &["id", "text", "_file_path", "_row_number"]),
    ("silver.notes", &["id", "text"]),
    ("silver.notes_list", &["id", "text"]),
    ("quarantine.notes_feed", &["_file_path", "_row_number", "reason"]),
    ("quarantine.orders_cdc", &["_file_path", "_row_number", "reason"]),
];

/// A fault, and what becomes of the process that meets it.
struct Fault {
    point: &'static str,
    kills: bool,
}

impl Fault {
    fn text(&self) -> String {
        format!("{}:{}", self.point, if self.kills { "kill" } else { "lost" })
    }

    /// Tables are created in the first run only, silver's columns are added in the second, which also truncates.
    fn is_met_in(&self, index: usize) -> bool {
        match self.point {
            "table_created" => index == 0,
            "columns_committed" | "truncate_committed" => index == 1,
            // These need a pipeline of their own: tests/landing.rs.
            "file_cleaning" | "ledger_packed" => false,
            _ => true,
        }
    }
}

#[test]
fn every_fault_point_with_every_end() {
    let tables: Vec<Vec<String>> = (1..=2).map(|rounds| tables_after(rounds, None, true)).collect();
    assert_is_what_the_files_say(&tables[1]);
    let of = |kills: bool| POINTS.iter().map(move |point| Fault { point, kills });
    let wanted = std::env::var("FAULT").unwrap_or_default();
    let faults: Vec<Fault> = of(true).chain(of(false)).filter(|fault| fault.text().starts_with(&wanted)).collect();
    parallel::all("fault", &faults, Fault::text, |fault| {
        assert_eq!(tables_after(1, Some((0, fault)), true), tables[0], "after a fault in the first run");
        assert_eq!(tables_after(2, Some((1, fault)), true), tables[1], "after a fault in the second run");
        assert_eq!(tables_after(2, Some((0, fault)), false), tables[1], "when more files came after the fault");
    });
}

/// The tables after some rounds of landing and running. The run of one round meets a fault; another run follows it,
/// at once or only when the files of the next round are there.
fn tables_after(rounds: usize, fault: Option<(usize, &Fault)>, at_once: bool) -> Vec<String> {
    let spec = format!("{SPEC}{TASKS}timezone: {}\n", midday_zone());
    let project = Project::new(&spec);
    for (round, files) in FILES[..rounds].iter().enumerate() {
        if round == 1 {
            project.respec(&spec.replace("ts: timestamp}", "ts: timestamp, note: string}"));
        }
        for (path, content) in files {
            project.land(path, content, None);
        }
        if let Some((_, fault)) = fault.filter(|(at, fault)| *at == round && fault.is_met_in(round)) {
            meet(&project, fault);
            if !at_once {
                continue;
            }
        }
        let outcome = project.run_with(None);
        assert!(matches!(outcome.code, Some(0 | 1)), "{}", outcome.story());
        // The file that is no UTF-8 was told by now; it makes no later run fail.
        project.assert_settled();
    }
    project.content(&TABLES)
}

/// A run that meets the fault.
fn meet(project: &Project, fault: &Fault) {
    let outcome = project.run_with(Some(&fault.text()));
    if fault.kills {
        outcome.expect_killed();
        return;
    }
    // The answer was lost, the commit was not: the run finds that out by itself.
    let failed = summary_of(&outcome).tasks.into_iter().filter(|task| task.status == "failed");
    assert_eq!(failed.map(|task| task.task).collect::<Vec<_>>(), [""; 0], "{}", outcome.story());
}

/// What the files of both rounds come to, worked out by hand.
fn assert_is_what_the_files_say(tables: &[String]) {
    let of = |table: &str| -> Vec<&str> {
        tables.iter().filter_map(|line| line.strip_prefix(table)?.strip_prefix(": ")).collect()
    };
    let orders = of("silver.orders");
    assert!(
        orders.len() == 2 && orders[0].starts_with("2 | Paid | 21.00") && orders[0].ends_with(" | x"),
        "{tables:#?}"
    );
    assert!(orders[1].starts_with("6 | New | 6.00") && orders[1].ends_with(" | y"), "{tables:#?}");
    assert_eq!(of("gold.totals"), ["New | 1 | 6.00", "Paid | 1 | 21.00"]);
    assert_eq!(of("bronze.orders_cdc").len(), 14);
    assert_eq!(of("quarantine.orders_cdc").len(), 9);
    assert_eq!(of("silver.notes_list"), ["1 | second"]);
    // What was deleted in the first round, what was deleted before its late insert, and what lives.
    let kept: Vec<bool> = of("silver.orders_kept").iter().map(|row| row.contains(" | true | ")).collect();
    assert_eq!(kept, [true, false, true, false, false], "{tables:#?}");
    let ends: Vec<bool> = of("silver.orders_history").iter().map(|row| row.ends_with(r" | \N")).collect();
    assert_eq!(ends, [false, false, false, false, true, false, true, true], "{tables:#?}");
    assert_eq!((of("silver.notes"), of("quarantine.notes_feed").len()), (vec!["1 | second"], 2));
}
