//! Days of snapshots that are recorded late, in any order, come out as if each had been recorded in its time.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use lake::TableName;

use crate::support::days::{Days, State};
use crate::support::history::Dice;
use crate::support::parallel;

/// What may happen to a table over days: its rows, and whether it has a second value, which comes and goes.
fn random_states(dice: &mut Dice) -> Vec<Vec<(State, bool)>> {
    const NAMES: [Option<&str>; 4] = [Some("a"), Some("b"), Some("c"), None];
    let (mut state, mut has_note) = (State::new(), false);
    let mut day = |dice: &mut Dice| {
        let mut states = Vec::new();
        for _ in 0..dice.below(3) {
            for _ in 0..=dice.below(3) {
                let id = dice.below(5) as i64;
                if dice.chance(30) {
                    state.remove(&id);
                } else {
                    state.insert(id, NAMES[dice.below(4) as usize]);
                }
            }
            has_note ^= dice.chance(15);
            states.push((state.clone(), has_note));
        }
        states
    };
    let mut days: Vec<Vec<(State, bool)>> = (0..8).map(|_| day(dice)).collect();
    days[0].push((State::from([(1, Some("first"))]), false));
    days
}

/// Tables whose days are recorded late, and those whose options change besides: of these fewer find a fault.
/// `SNAPSHOTS=100` makes that many, `SEED=…` starts elsewhere.
const TABLES: u64 = 4;
const OF_OPTIONS: u64 = 12;
const SEED: u64 = 90_000;

/// Snapshots of one table that record in order, and late.
const LATE: &str = "
name: late
gold:
  copies: {snapshot_of: silver.products, strategy: full}
  changes: {snapshot_of: silver.products, strategy: changed_only}
  kept: {snapshot_of: silver.products, strategy: changed_only, hard_deletes: ignore}
  few: {snapshot_of: silver.products, strategy: changed_only, columns: [id]}
  named: {snapshot_of: silver.products, strategy: changed_only, columns: [id, name, _batch_id], compare_columns: [name]}
  named_kept: {snapshot_of: silver.products, strategy: changed_only, columns: [id, name, _batch_id], compare_columns: [name], hard_deletes: ignore}
";

fn random(work: &str, tables: u64, test: impl AsyncFn(u64) + Sync) {
    let seeds = parallel::seeds(parallel::number("SNAPSHOTS", tables), SEED);
    parallel::all(
        work,
        &seeds,
        |seed| format!("SEED={seed} SNAPSHOTS=1"),
        |seed| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(test(*seed));
        },
    );
}

#[test]
fn days_recorded_late_in_any_order_are_as_if_recorded_in_their_time() {
    random("snapshots", TABLES, late);
}

/// Snapshots that keep few days, and the same that keep all.
const RECENT: &str = "
name: recent
gold:
  all: {snapshot_of: silver.products, strategy: changed_only}
  recent: {snapshot_of: silver.products, strategy: changed_only, retention: 2 days}
  all_kept: {snapshot_of: silver.products, strategy: changed_only, hard_deletes: ignore, compare_columns: [name]}
  recent_kept: {snapshot_of: silver.products, strategy: changed_only, hard_deletes: ignore, compare_columns: [name], retention: 3 days}
";

#[test]
fn days_that_are_kept_stay_whole_whatever_goes() {
    random("retentions", TABLES, recent);
}

async fn recent(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut days = Days::new(RECENT);
    let ids = 10 + dice.below(40);
    let mut state: State = (0..ids as i64).map(|id| (id, Some("first"))).collect();
    for day in 0..12_i64 {
        for _ in 0..=dice.below(2) {
            for _ in 0..dice.below(3) {
                let id = dice.below(ids) as i64;
                match dice.chance(40) {
                    true => state.remove(&id),
                    false => state.insert(id, [Some("a"), Some("b"), None][dice.below(3) as usize]),
                };
            }
            days.set(&state).await;
            if day == 0 || dice.chance(60) {
                days.run().await;
            }
        }
        let today: NaiveDate = name(usize::try_from(day).expect("a day")).parse().expect("a day");
        let back = |back: u64| today - chrono::TimeDelta::days(back as i64);
        if day > 2 && dice.chance(25) {
            let late = back(1 + dice.below(2)).to_string();
            days.backfill(&late, &late).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        for (all, recent, kept) in [("all", "recent", 2), ("all_kept", "recent_kept", 3)] {
            for ago in 0..=kept.min(day as u64) {
                let then = back(ago).to_string();
                let (all, recent) = (days.told(all, &then).await, days.told(recent, &then).await);
                assert_eq!(recent.ok(), all.ok(), "{then} on {today}, seed {seed}");
            }
        }
        days.next_day().await;
    }
}

/// The name of a day, by its number.
fn name(day: usize) -> String {
    format!("2024-05-{:02}", day + 1)
}

async fn set(days: &mut Days, (state, has_note): &(State, bool)) {
    days.has_note = *has_note;
    days.set(state).await;
}

async fn late(seed: u64) {
    let mut dice = Dice::new(seed);
    let states = random_states(&mut dice);
    // Each day recorded by a run at its end, and the same days recorded late.
    let (mut timely, mut late) = (Days::new(LATE), Days::new(LATE));
    for (day, states) in states.iter().enumerate() {
        for state in states {
            set(&mut timely, state).await;
            set(&mut late, state).await;
            // A run in the middle of the day: the day is recorded again as it was at its end.
            if dice.chance(20) {
                late.run().await;
            }
        }
        timely.run().await;
        if dice.chance(30) {
            late.run().await;
        }
        timely.next_day().await;
        late.next_day().await;
        if dice.chance(20) && day > 0 {
            let day = name(dice.below(day as u64) as usize);
            late.backfill(&day, &day).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    let mut order: Vec<usize> = (0..states.len()).collect();
    dice.shuffle(&mut order);
    for day in order.into_iter().map(name) {
        late.backfill(&day, &day).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    late.backfill(&name(0), &name(states.len() - 1)).await.expect("nothing is left");
    for table in ["changes", "kept", "few", "named", "named_kept"] {
        assert_eq!(late.rows(table).await, timely.rows(table).await, "{table}, seed {seed}");
    }
    for day in (0..states.len()).map(name) {
        let copy = timely.told("copies", &day).await.expect("a day");
        assert_eq!(timely.as_of("changes", &day).await, copy, "{day}, seed {seed}");
        assert_eq!(late.told("copies", &day).await.expect("a day"), copy, "{day}, seed {seed}");
        assert_eq!(late.as_of("changes", &day).await, copy, "{day}, seed {seed}");
    }
}

/// Options that a snapshot changes between.
const OPTIONS: [&str; 6] = [
    "",
    ", hard_deletes: ignore",
    ", columns: [id, name, _batch_id], compare_columns: [name]",
    ", columns: [id, name, _batch_id], compare_columns: [name], hard_deletes: ignore",
    ", columns: [id]",
    ", columns: [id, name, _batch_id]",
];

/// What the spec says of a table by these options.
fn entry(table: &str, options: usize) -> String {
    let (strategy, options) = match table {
        "copies" if options == 4 => ("full", OPTIONS[4]),
        "copies" => ("full", ""),
        _ => ("changed_only", OPTIONS[options]),
    };
    format!("{{snapshot_of: silver.products, strategy: {strategy}{options}}}")
}

/// A copy of each day and the changes of each.
fn spec_with(options: usize) -> String {
    let entries = ["copies", "changes"].map(|table| format!("  {table}: {}\n", entry(table, options)));
    format!("name: late\ngold:\n{}", entries.concat())
}

#[test]
fn days_recorded_late_are_compared_by_the_options_of_their_time() {
    random("options", OF_OPTIONS, options);
}

async fn options(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut states = random_states(&mut dice);
    // The day that is not over.
    states.push(Vec::new());
    let mut now = 2;
    let mut late = Days::new(&spec_with(now));
    // How each day of a table was recorded last: by which options, after how many of its writes.
    let mut recorded: BTreeMap<(TableName, NaiveDate), (usize, usize)> = BTreeMap::new();
    let day_of = |day: usize| name(day).parse::<NaiveDate>().expect("a day");
    let today = states.len() - 1;
    let mut order: Vec<usize> = (0..today).filter(|_| dice.chance(30)).collect();
    dice.shuffle(&mut order);
    for (day, of_day) in states.iter().enumerate() {
        let mut runs = of_day.iter().map(|state| (Some(state), dice.chance(60))).collect::<Vec<_>>();
        if day > 0 && dice.chance(30) {
            // Those that compare few columns more often: most depends on what came before.
            now = [0, 1, 2, 2, 2, 3, 4, 5, 5][dice.below(9) as usize];
            late.respec(&spec_with(now));
            runs.insert(0, (None, true));
        }
        let mut seen = 0;
        for (state, is_run) in runs {
            if let Some(state) = state {
                set(&mut late, state).await;
                seen += 1;
            }
            let changed = if is_run { late.run().await } else { Vec::new() };
            let changed = late.plans.iter().zip(changed).filter(|(_, changed)| *changed);
            recorded.extend(changed.map(|(plan, _)| ((plan.table().clone(), day_of(day)), (now, seen))));
        }
        let back = if day == 0 { None } else { dice.chance(40).then(|| dice.below(day as u64) as usize) };
        let last = if day == today { order.clone() } else { Vec::new() };
        for day in back.into_iter().chain(last) {
            let (day, all) = (name(day), states[day].len());
            let changed = late.backfill(&day, &day).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            recorded.extend(changed.into_iter().map(|of| (of, (now, all))));
            for table in ["copies", "changes"] {
                let (by, seen) = recorded[&(TableName::gold(table), day.parse().expect("a day"))];
                assert_eq!(entry(table, by), entry(table, now), "{table} on {day}, seed {seed}: asked for, not done");
                assert_eq!(seen, all, "{table} on {day}, seed {seed}: as it was at its end");
            }
        }
        late.next_day().await;
    }
    for table in ["copies", "changes"] {
        let mut timely = Days::new(&spec_with(0));
        for (day, states) in states.iter().enumerate() {
            let (options, seen) = match recorded.get(&(TableName::gold(table), day_of(day))) {
                Some((options, seen)) => (Some(*options), *seen),
                None => (None, 0),
            };
            for state in &states[..seen] {
                set(&mut timely, state).await;
            }
            if let Some(options) = options {
                timely.respec(&spec_with(options));
                timely.plans.retain(|plan| plan.table().name == table);
                timely.run().await;
            }
            for state in &states[seen..] {
                set(&mut timely, state).await;
            }
            timely.next_day().await;
        }
        assert_eq!(late.rows(table).await, timely.rows(table).await, "{table}, seed {seed}: {recorded:?}");
    }
}
