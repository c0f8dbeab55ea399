//! A watch that is killed again and again, at any moment, while files arrive: the tables come out as those of one run.
//! `SOAK_SECONDS=600` does it for so long.

use std::fs;
use std::time::Duration;

use lake::Clock;

use crate::support::history::Dice;
use crate::support::program;
use crate::support::project::Project;

const SPEC: &str = "
name: soak
bronze:
  orders_cdc: {path: orders/, format: csv, settle: 0s}
silver:
  orders:
    source: orders_cdc
    keys: [id]
    sequence_by: [ts]
    op: {column: op, insert: [I], update: [U], delete: [D]}
    columns: {id: bigint not null, ts: bigint, amount: 'decimal(18,2)'}
  past:
    source: orders_cdc
    keys: [id]
    sequence_by: [ts]
    op: {column: op, insert: [I], update: [U], delete: [D]}
    columns: {id: bigint not null, ts: bigint, amount: 'decimal(18,2)'}
    stored_as_scd_type: 2
gold:
  totals: {query: 'SELECT id % 7 AS bucket, count(*) AS orders, sum(amount) AS amount FROM silver.orders GROUP BY 1'}
";

/// How long watches are killed for.
fn seconds() -> i64 {
    std::env::var("SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(8)
}

fn pause(milliseconds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(Clock::system().sleep(Duration::from_millis(milliseconds)));
}

/// A file of changes, one of which cannot be cast now and then; moments rise from file to file.
fn changes(dice: &mut Dice, file: u64) -> String {
    let mut text = "op,id,ts,amount\n".to_owned();
    for row in 0..20 {
        let op = ["I", "U", "U", "D"][dice.below(4) as usize];
        let amount = if dice.below(40) == 0 { "much".to_owned() } else { format!("{}.25", dice.below(1_000)) };
        text.push_str(&format!("{op},{},{},{amount}\n", dice.below(60), file * 100 + row));
    }
    text
}

/// What the tables hold, in an order of its own.
fn tables(project: &Project) -> Vec<String> {
    project.content(&[
        ("silver.orders", &["id", "ts", "amount"]),
        ("silver.past", &["id", "ts", "amount", "__START_AT", "__END_AT"]),
        ("gold.totals", &["bucket", "orders", "amount"]),
        ("quarantine.orders_cdc", &["_file_path", "_row_number", "refused_by", "reason"]),
    ])
}

#[test]
fn a_watch_that_is_killed_at_any_moment_makes_the_tables_of_one_run() {
    let mut dice = Dice::new(7);
    let project = Project::new(SPEC);
    fs::create_dir_all(project.landing().join("orders")).expect("a folder");
    let (clock, began) = (Clock::system(), Clock::system().now());
    let (mut files, mut kills) = (0, 0);
    while (clock.now() - began).num_seconds() < seconds() {
        let mut child = program::start("orchestrator", project.path(), &["watch"], None).into_child();
        // Some are killed while they begin, some in the middle of a run.
        for _ in 0..dice.below(4) {
            let outside = project.path().join("outside");
            fs::write(&outside, changes(&mut dice, files)).expect("a file");
            fs::rename(&outside, project.landing().join(format!("orders/{files:06}.csv"))).expect("landed");
            files += 1;
            pause(dice.below(400));
        }
        pause(dice.below(700));
        child.kill().expect("kill -9");
        child.wait().expect("an end");
        kills += 1;
    }
    let last = project.run_with(None).expect(0);
    let clean = Project::new(SPEC);
    clean.land_folder(&project.landing(), None);
    clean.run();
    assert!(kills >= 3 && files > 3, "{kills} kills, {files} files");
    assert_eq!(tables(&project), tables(&clean), "{kills} kills, {files} files; {}", last.story());
    assert_eq!(project.count("bronze.orders_cdc"), i64::try_from(files * 20).expect("a count"));
    project.assert_settled();
}
