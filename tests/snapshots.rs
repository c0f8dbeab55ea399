//! Snapshots over days, by a manual clock: both strategies say of every day what the table was at its last run.

use std::collections::BTreeMap;

use gold::Plan;
use lake::TableName;
use lake::run::RunContext;

use crate::support::days::{Days, State, ZONE, owned};

const SPEC: &str = "
name: days
gold:
  copies: {snapshot_of: silver.products, strategy: full}
  changes: {snapshot_of: silver.products, strategy: changed_only}
  recent: {snapshot_of: silver.products, strategy: changed_only, retention: 2 days}
";

fn changes(expected: &[(i64, &str)]) -> BTreeMap<i64, Option<String>> {
    expected.iter().map(|(id, change)| (*id, Some((*change).to_owned()))).collect()
}

#[test]
fn both_strategies_say_what_every_day_was() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story());
}

async fn story() {
    let mut days = Days::new(SPEC);
    let first = State::from([(1, Some("a")), (2, Some("b"))]);
    days.set(&first).await;
    assert_eq!(days.run().await, [true, true, true]);
    assert_eq!(days.run().await, [false, false, false], "the same day again, nothing new");

    // The second day is run twice: what the first of its runs saw is replaced.
    days.next_day().await;
    days.set(&State::from([(1, Some("wrong")), (9, Some("gone by noon"))])).await;
    days.run().await;
    let second = State::from([(1, Some("a2")), (2, Some("b")), (3, Some("c"))]);
    days.set(&second).await;
    assert_eq!(days.run().await, [true, true, true]);

    // The third day has no run. On the fourth a key is gone, on the fifth nothing has happened.
    days.next_day().await;
    days.next_day().await;
    let fourth = State::from([(1, Some("a2")), (3, Some("c"))]);
    days.set(&fourth).await;
    days.run().await;
    days.next_day().await;
    assert_eq!(days.run().await, [true, false, false], "a copy of each day; no change to record");

    // A key comes back, a value becomes null.
    days.next_day().await;
    let sixth = State::from([(1, Some("a2")), (2, Some("b")), (3, None)]);
    days.set(&sixth).await;
    days.run().await;

    let told = [("01", &first), ("02", &second), ("04", &fourth), ("05", &fourth), ("06", &sixth)];
    for (day, state) in told {
        let day = format!("2024-05-{day}");
        assert_eq!(days.copy_of(&day).await, owned(state), "the copy of {day}");
        assert_eq!(days.as_of("changes", &day).await, owned(state), "the changes up to {day}");
    }
    assert_eq!(days.recorded("2024-05-02").await, changes(&[(1, "update"), (3, "insert")]));
    assert_eq!(days.recorded("2024-05-04").await, changes(&[(2, "delete")]));
    assert_eq!(days.recorded("2024-05-06").await, changes(&[(2, "insert"), (3, "update")]));

    // Old days are gone, and the days that are kept are whole all the same.
    for (day, state) in &told[2..] {
        let day = format!("2024-05-{day}");
        assert_eq!(days.as_of("recent", &day).await, owned(state), "what is kept up to {day}");
    }
    let error = days.told("recent", "2024-05-01").await.expect_err("a day that is gone");
    assert_eq!(error, "gold.recent has no state of 2024-05-01; it has the days from 2024-05-04 to 2024-05-06");

    // The day without a run gets one; nothing was done on it, so it is the second again.
    days.backfill("2024-05-03", "2024-05-03").await.expect_err("`recent` keeps no such day");
    for day in ["02", "03"] {
        let day = format!("2024-05-{day}");
        assert_eq!((days.copy_of(&day).await, days.as_of("changes", &day).await), (owned(&second), owned(&second)));
    }
    let error = days.backfill("2024-04-30", "2024-04-30").await.expect_err("a day before the table");
    assert!(error.contains("2024-04-30 cannot be recorded") && error.contains("the table was made later"), "{error}");
    let error = days.backfill("2024-05-07", "2024-05-07").await.expect_err("a day to come");
    assert!(error.contains("2024-05-07 is to come"), "{error}");
}

#[test]
fn a_lost_column_makes_one_day_compare_all() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(lost());
}

async fn lost() {
    let mut days = Days::new("name: days\ngold:\n  changes: {snapshot_of: silver.products, strategy: changed_only}\n");
    days.has_note = true;
    let first = State::from([(1, Some("a")), (2, Some("b"))]);
    days.set(&first).await;
    days.run().await;

    // What every row has lost is told of every row.
    days.next_day().await;
    days.has_note = false;
    days.set(&first).await;
    assert!(!days.runs_without("changes", "2024-05-01").await, "the first day must be read");
    assert_eq!(days.run().await, [true]);
    assert_eq!(days.recorded("2024-05-02").await, changes(&[(1, "update"), (2, "update")]));

    // The days after it are told from what changed.
    days.next_day().await;
    let third = State::from([(1, Some("a")), (2, Some("b3"))]);
    days.set(&third).await;
    assert!(days.runs_without("changes", "2024-05-02").await, "no day needs to be read");
    assert_eq!(days.recorded("2024-05-03").await, changes(&[(2, "update")]));

    // It is there again.
    days.next_day().await;
    days.has_note = true;
    days.set(&third).await;
    assert_eq!(days.run().await, [true]);
    assert_eq!(days.recorded("2024-05-04").await, changes(&[(1, "update"), (2, "update")]));
    let with_notes = BTreeMap::from([(1, Some("a (of a)".to_owned())), (2, Some("b3 (of b3)".to_owned()))]);
    assert_eq!(days.as_of("changes", "2024-05-04").await, with_notes);
    assert_eq!(days.as_of("changes", "2024-05-03").await, owned(&third));
}

#[test]
fn rows_that_another_hand_took_come_back_the_next_day() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    for after in ["nothing", "a description", "a late day", "a run of the day", "a version taken back"] {
        runtime.block_on(taken(after));
    }
}

async fn taken(after: &str) {
    let spec = "name: days\ngold:\n  changes: {snapshot_of: silver.products, strategy: changed_only}\n";
    let mut days = Days::new(spec);
    let state = |second: &'static str| State::from([(1, Some("a")), (2, Some(second)), (3, Some("c"))]);
    days.set(&state("b")).await;
    days.run().await;
    // The second day has no run.
    days.next_day().await;
    days.set(&state("b2")).await;
    days.next_day().await;
    days.set(&state("b3")).await;
    days.run().await;
    days.delete("changes", "id = 1").await;
    match after {
        "a description" => {
            days.respec(&spec.replace("changed_only", "changed_only, description: all of them"));
            assert_eq!(days.run().await, [false]);
        }
        "a version taken back" => {
            let taken = days.lake.existing(&TableName::gold("changes")).await.expect("a table").version();
            days.set(&state("b3 again")).await;
            days.run().await;
            assert_eq!(days.as_of("changes", "2024-05-03").await, owned(&state("b3 again")), "{after}");
            days.restore("changes", taken).await;
            assert_eq!(days.as_of("changes", "2024-05-03").await.get(&1), None, "{after}");
        }
        "a late day" => {
            assert_eq!(days.backfill("2024-05-02", "2024-05-02").await.expect("a late day").len(), 1);
        }
        _ => {}
    }
    days.next_day().await;
    days.set(&state("b4")).await;
    days.run().await;
    if after == "a run of the day" {
        assert_eq!(days.as_of("changes", "2024-05-04").await, owned(&state("b4")), "{after}");
        days.set(&state("b5")).await;
        days.run().await;
    }
    let last = if after == "a run of the day" { "b5" } else { "b4" };
    assert_eq!(days.as_of("changes", "2024-05-04").await, owned(&state(last)), "{after}");
    // From there on the days are told from what changed.
    days.next_day().await;
    days.set(&state("b6")).await;
    assert!(days.runs_without("changes", "2024-05-01").await, "{after}: no day needs to be read");
    assert_eq!(days.as_of("changes", "2024-05-05").await, owned(&state("b6")), "{after}");
}

#[test]
fn a_column_whose_case_changes_keeps_its_values() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let keys = "keys: [Id]";
    for options in [
        "keys: [id]".to_owned(),
        keys.to_owned(),
        format!("{keys}, columns: [Id, NAME]"),
        format!("{keys}, compare_columns: [Name]"),
        format!("{keys}, hard_deletes: ignore, columns: [Id, Name], compare_columns: [Name]"),
    ] {
        runtime.block_on(spelled(&options));
    }
}

async fn spelled(options: &str) {
    let spec = "
name: days
gold:
  copies: {snapshot_of: gold.products, strategy: full, columns: [ID, name]}
  changes: {snapshot_of: gold.products, strategy: changed_only, OPTIONS}
"
    .replace("OPTIONS", options);
    let mut days = Days::new(&spec);
    days.source = TableName::gold("products");
    let state = |first: &'static str| State::from([(1, Some(first)), (2, Some("b"))]);
    days.set(&state("a")).await;
    days.run().await;
    let mut told = vec![("2024-05-01", state("a"))];
    // The second day has no run.
    days.next_day().await;
    days.spelled = ["id", "Name"];
    days.set(&state("a2")).await;
    days.next_day().await;
    days.set(&state("a3")).await;
    assert_eq!(days.run().await, [true, true]);
    assert_eq!(days.recorded("2024-05-03").await, changes(&[(1, "update")]), "{options}");
    told.push(("2024-05-03", state("a3")));
    days.next_day().await;
    days.set(&state("a4")).await;
    days.run().await;
    told.push(("2024-05-04", state("a4")));
    days.next_day().await;
    days.spelled = ["ID", "NAME"];
    days.set(&state("a4")).await;
    days.run().await;
    assert_eq!(days.recorded("2024-05-05").await, changes(&[]), "{options}");
    days.backfill("2024-05-02", "2024-05-02").await.expect("a late day");
    told.push(("2024-05-02", state("a2")));
    for (day, state) in told {
        assert_eq!(days.copy_of(day).await, owned(&state), "the copy of {day}, {options}");
        assert_eq!(days.as_of("changes", day).await, owned(&state), "the changes up to {day}, {options}");
        assert_eq!(days.told("copies", day).await.expect("a day"), owned(&state), "{day}, {options}");
    }
    for plan in &days.plans {
        let Plan::Snapshot(plan) = plan else { panic!("no snapshot") };
        let session = days.lake.session().expect("a session");
        let table = days.lake.existing(&plan.table).await.expect("a table");
        assert!(gold::check(&session, &table, plan).await.expect("days").holds(), "{options}");
    }
}

#[test]
fn keys_are_looked_for_where_they_may_be() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(keyed());
}

async fn keyed() {
    let spec = "name: days\ngold:\n  changes: {snapshot_of: gold.products, strategy: changed_only, keys: [id]}\n";
    let mut days = Days::new(spec);
    days.source = TableName::gold("products");
    let mut state = State::from([(1, Some("a")), (2, Some("b"))]);
    days.set(&state).await;
    days.run().await;

    // A new row: the files of other keys are not read.
    days.next_day().await;
    let old = days.files().await;
    days.append(&[(3, Some("c"))]).await;
    state.insert(3, Some("c"));
    assert_eq!(days.fails_without(&old).await, None);
    assert_eq!(days.as_of("changes", "2024-05-02").await, owned(&state));

    // A key that is there already, one that comes twice, and both rows alike.
    for (twice, id) in
        [([(2, Some("x")), (9, Some("y"))], 2), ([(9, Some("x")), (9, Some("y"))], 9), ([(9, None); 2], 9)]
    {
        days.next_day().await;
        days.append(&twice).await;
        let error = days.fails().await.expect("a key that is there twice");
        assert!(error.contains(&format!("gold.products has several rows with id = {id}; `keys`")), "{error}");
        // The old row of a key may go in the same breath.
        state.insert(2, twice[0].1);
        days.set(&state).await;
        days.run().await;
    }
    assert_eq!(days.as_of("changes", "2024-05-05").await, owned(&state));
}

#[test]
fn retention_costs_what_changed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(carried());
}

async fn carried() {
    const ROWS: i64 = 400;
    const DAYS: i64 = 40;
    let spec = "recent: {snapshot_of: silver.products, strategy: changed_only, retention: 2 days}\n";
    let mut days = Days::new(&format!("name: days\ngold:\n  {spec}"));
    let mut state: State = (0..ROWS).map(|id| (id, Some("first"))).collect();
    let (mut states, mut all) = (Vec::new(), Vec::new());
    for day in 0..DAYS {
        // A row changes each day, and one goes each third.
        if day > 0 {
            state.insert(day * 7 % 200, Some(if day % 2 == 0 { "even" } else { "odd" }));
        }
        if day % 3 == 2 {
            state.remove(&(200 + day));
        }
        days.set(&state).await;
        assert_eq!(days.run().await, [true]);
        states.push(owned(&state));
        let (written, held) = days.rows_written("recent").await;
        if written > 10 {
            all.push(day);
        }
        assert!(held < ROWS as u64 + 100, "{held} rows on day {day}");
        let name =
            |day: i64| (days.lake.clock().now() + chrono::TimeDelta::days(day)).with_timezone(&ZONE).date_naive();
        for back in 0..=day.min(2) {
            let then = name(-back).to_string();
            let expected = &states[usize::try_from(day - back).expect("a day")];
            assert!(days.as_of("recent", &then).await == *expected, "{then} on day {day}");
        }
        days.next_day().await;
    }
    // The first day, the first that goes, and a look at all rows a month later.
    assert_eq!(all, [0, 3, 33]);

    // What is needed for the first day that is kept, the last but two: all of its rows but the one that changed on it.
    let (table, session) = (days.lake.existing(days.plans[0].table()).await, days.lake.session());
    let (table, session) = (table.expect("a table"), session.expect("a session"));
    let Plan::Snapshot(plan) = &days.plans[0] else { panic!("no snapshot") };
    let told = gold::check(&session, &table, plan).await.expect("days").to_json();
    let first = &states[states.len() - 3];
    assert_eq!(told["rows_carried"], first.len() - 1, "{told}");
    // Since that look: what changed on six days, what went on two, and these deletes.
    assert_eq!(told["rows_needless"], 10, "{told}");
}

#[test]
fn what_one_day_did_not_compare_the_next_may() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(mixed());
}

async fn mixed() {
    let all = "name: days\ngold:\n  changes: {snapshot_of: silver.products, strategy: changed_only}\n";
    let by_name = all.replace("changed_only", "changed_only, columns: [id, name], compare_columns: [name]");
    let mut days = Days::new(all);
    let state = State::from([(1, Some("a"))]);
    days.set(&state).await;
    days.run().await;

    // The second day, with another value, has no run. The third does not compare that value, the fourth does.
    days.next_day().await;
    days.has_note = true;
    days.set(&state).await;
    days.next_day().await;
    days.has_note = false;
    days.set(&state).await;
    days.respec(&by_name);
    days.run().await;
    days.next_day().await;
    days.respec(all);
    days.run().await;
    assert_eq!(days.recorded("2024-05-04").await, changes(&[]), "the same as on the first day");

    days.backfill("2024-05-02", "2024-05-02").await.expect("a late day");
    let with_note = BTreeMap::from([(1, Some("a (of a)".to_owned()))]);
    assert_eq!(days.as_of("changes", "2024-05-02").await, with_note);
    assert_eq!(days.recorded("2024-05-03").await, changes(&[]));
    assert_eq!(days.recorded("2024-05-04").await, changes(&[(1, "update")]));
    assert_eq!(days.as_of("changes", "2024-05-04").await, owned(&state));
}

#[test]
fn a_snapshot_that_becomes_another_table_has_the_days_of_its_new_rows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(swapped());
}

async fn swapped() {
    let mut days = Days::new(SPEC);
    days.set(&State::from([(1, Some("a"))])).await;
    days.run().await;
    days.next_day().await;
    // A day without a change has no rows, and is recorded all the same.
    days.set(&State::from([(1, Some("a"))])).await;
    days.run().await;
    let recorded = async |days: &Days, table: &str| {
        let plan = days.plans.iter().find(|plan| plan.table().name == table).expect("a plan");
        let Plan::Snapshot(plan) = plan else { panic!("no snapshot") };
        let session = days.lake.session().expect("a session");
        let held = days.lake.existing(&plan.table).await.expect("a table");
        let told = gold::check(&session, &held, plan).await.expect("days").to_json();
        told["days"].as_array().expect("days").iter().map(|day| day["day"].to_string()).collect::<Vec<_>>()
    };
    let tables = ["copies", "changes"];
    for table in tables {
        let held = days.lake.existing(&TableName::gold(table)).await.expect("a table");
        lake::copy::copy_as(&days.lake, &held, &TableName::gold(format!("{table}_then"))).await.expect("a copy");
    }
    days.next_day().await;
    let third = State::from([(1, Some("b")), (2, Some("c"))]);
    days.set(&third).await;
    days.run().await;
    for table in tables {
        let (before, all) = (recorded(&days, table).await, days.rows(table).await);
        let name = TableName::gold(table);
        let then = days.lake.existing(&TableName::gold(format!("{table}_then"))).await.expect("a copy");
        let mut held = days.lake.existing(&name).await.expect("a table");
        let plan = days.plans.iter().find(|plan| *plan.table() == name);
        let along = gold::swapped(plan, &held, &then).await.expect("days");
        let run = RunContext::new(&days.lake).run;
        lake::copy::take_over(&days.lake, &mut held, &then, &[], &along, &run).await.expect("a swap");
        assert_eq!(recorded(&days, table).await, before[..2], "{table} has the days of its new rows");
        assert!(days.told(table, "2024-05-03").await.is_ok(), "{table}: the state of the last day before");
        days.run().await;
        assert_eq!(recorded(&days, table).await, before, "{table}: the present day is recorded again");
        assert_eq!(days.rows(table).await, all, "{table}");
    }
    assert_eq!(days.run().await, [false, false, false]);
    // What comes after is right as well.
    days.next_day().await;
    let fourth = State::from([(2, Some("c")), (3, Some("d"))]);
    days.set(&fourth).await;
    days.run().await;
    assert_eq!(days.as_of("changes", "2024-05-04").await, owned(&fourth));
    assert_eq!(days.as_of("changes", "2024-05-03").await, owned(&third));
}
