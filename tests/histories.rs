//! Any order of arrival, any split, any repetition, any batching, and a crash now and then: same silver, same gold.
//!
//! Histories come from a seed; a failure prints it. `HISTORIES=500` runs that many, `SEED=…` starts elsewhere. A
//! project holds several histories, each with its own source, silver table and model, since starting a program costs
//! more than reading a small file.

use std::collections::BTreeMap;

use crate::support::history::{Dice, Format, History};
use crate::support::parallel;
use crate::support::program;
use crate::support::project::{Project, midday_zone};
use crate::support::rows::{Rows, text_of};

const HISTORIES: u64 = 48;
const SEED: u64 = 20_240_501;
/// Histories in one project.
const TOGETHER: u64 = 6;

/// Columns of silver, with the history's number in front.
const SILVER: [&str; 6] = ["history", "k1", "k2", "note", "amount", "ts"];
/// Columns of the second silver table.
const PAST: [&str; 7] = ["history", "k1", "k2", "note", "amount", "start_at", "end_at"];
const GOLD: [&str; 4] = ["history", "digit", "n", "total"];

#[test]
fn any_arrival_gives_what_the_fold_gives() {
    let projects = parallel::seeds(parallel::number("HISTORIES", HISTORIES).div_ceil(TOGETHER), SEED);
    let name = |seed: &u64| format!("SEED={seed} HISTORIES={TOGETHER}");
    parallel::all("histories", &projects, name, |seed| drive(*seed));
}

/// Makes the histories of a seed, lets them arrive, and compares with the fold after every run.
fn drive(seed: u64) {
    let mut dice = Dice::new(seed);
    let runs = 1 + dice.below(3) as usize;
    let histories: Vec<History> = (0..TOGETHER).map(|_| History::new(&mut dice, runs)).collect();
    let project = Project::new(&spec(&histories));
    for run in 0..runs {
        for (number, history) in histories.iter().enumerate() {
            for file in &history.arrivals[run] {
                project.land(format!("h{number}/{}", file.name), file.content.as_bytes(), None);
            }
        }
        if dice.chance(30) {
            let point = lake::fault::POINTS[dice.below(lake::fault::POINTS.len() as u64) as usize];
            let crossing = 1 + dice.below(4);
            project.run_with(Some(&format!("{point}:kill:{crossing}")));
        }
        project.run();
        assert_folded(&project, &histories, run);
    }
    project.assert_settled();
    if seed.is_multiple_of(4) {
        let args = ["verify", "--rebuild", "--output", "json"];
        program::run("silver", project.path(), &args, None).expect(0);
    }
}

fn spec(histories: &[History]) -> String {
    let (mut bronze, mut silver, mut gold) = (String::new(), String::new(), String::new());
    for (number, History { format, files_per_batch, is_partial, past, .. }) in histories.iter().enumerate() {
        let nulls = if *is_partial && *format == Format::Json { ", json: {explicit_nulls: true}" } else { "" };
        bronze.push_str(&format!(
            "  h{number}: {{path: h{number}/, format: {}, settle: 0s, max_files_per_batch: {files_per_batch}{nulls}}}\n",
            format.of_source()
        ));
        let table = |name: &str, columns: &str, more: &str| {
            format!(
                "  {name}{number}:\n    source: h{number}\n    cdc: plain\n    \
                 op: {{column: op, insert: [I], update: [U], delete: [D], truncate: [T]}}\n    keys: [k1, k2]\n    \
                 {}\n    \
                 columns: {{k1: bigint not null, k2: string, note: string, amount: \"decimal(12,2)\"{columns}}}\n{more}",
                format.options()
            )
        };
        // Every other history marks its rows as deleted.
        let vectors = if number % 2 == 1 { "    deletion_vectors: true\n    write_mode: merge_on_read\n" } else { "" };
        let partial = format!("    partial_updates: {is_partial}\n{vectors}");
        silver.push_str(&table("h", ", ts: timestamp", &partial));
        silver.push_str(&table("p", "", &format!("    {}\n{partial}", past.options())));
        gold.push_str(&format!(
            "  h{number}:\n    query: SELECT k1 % 2 AS digit, count(*) AS n, sum(amount) AS total \
             FROM silver.h{number} GROUP BY k1 % 2\n"
        ));
    }
    let zone = midday_zone();
    format!(
        "name: histories\nstorage: ./lakehouse\nlanding: ./landing\ntimezone: {zone}\n\
         bronze:\n{bronze}silver:\n{silver}gold:\n{gold}"
    )
}

/// Compares silver and gold of all histories with what has arrived up to this run.
fn assert_folded(project: &Project, histories: &[History], run: usize) {
    let folded: Vec<_> = histories.iter().map(|history| history.fold(run)).collect();
    let silver = folded
        .iter()
        .enumerate()
        .flat_map(|(number, rows)| rows.iter().map(move |row| [vec![Some(number.to_string())], row.clone()].concat()));
    compare(project, histories.len(), "silver", &SILVER, silver.collect());
    let past: Vec<_> = histories.iter().map(|history| history.fold_past(run)).collect();
    let past = past
        .iter()
        .enumerate()
        .flat_map(|(number, rows)| rows.iter().map(move |row| [vec![Some(number.to_string())], row.clone()].concat()));
    compare_past(project, histories, past.collect());
    let gold = folded.iter().enumerate().flat_map(|(number, rows)| totals(number, rows));
    compare(project, histories.len(), "gold", &GOLD, gold.collect());
}

/// Count and sum of the amounts by the last binary digit of the first key; the sum of nothing but nulls is null.
fn totals(number: usize, rows: &[Vec<Option<String>>]) -> Vec<Vec<Option<String>>> {
    let mut totals: BTreeMap<i64, (u64, Option<i64>)> = BTreeMap::new();
    for row in rows {
        let key: i64 = row[0].as_deref().expect("a key").parse().expect("a number");
        let cents = row[3].as_ref().map(|amount| amount.replace('.', "").parse::<i64>().expect("cents"));
        let total = totals.entry(key % 2).or_default();
        total.0 += 1;
        total.1 = total.1.map_or(cents, |sum| Some(sum + cents.unwrap_or(0)));
    }
    let money = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
    let row = |(digit, (n, sum)): (i64, (u64, Option<i64>))| {
        vec![Some(number.to_string()), Some(digit.to_string()), Some(n.to_string()), sum.map(money)]
    };
    totals.into_iter().map(row).collect()
}

fn compare(project: &Project, histories: usize, layer: &str, columns: &[&str], expected: Vec<Vec<Option<String>>>) {
    let list = columns[1..].join(", ");
    let select = |number| format!("SELECT {number} AS history, {list} FROM {layer}.h{number}");
    let sql = (0..histories).map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let types = project.types(&format!("{layer}.h0"));
    let rows = project.query(&sql);
    let texts = rows.iter().map(|row| columns.iter().map(|column| text_of(&row[*column])).collect());
    if let Some(difference) = Rows::new(columns, texts, &types).difference(&Rows::new(columns, expected, &types)) {
        panic!("{layer}: {difference}");
    }
}

/// Compares the tables that keep more than current rows.
fn compare_past(project: &Project, histories: &[History], expected: Vec<Vec<Option<String>>>) {
    let select = |(number, history): (usize, &History)| {
        let columns = history.past.columns();
        format!("SELECT {number} AS history, k1, k2, note, amount, {columns} FROM silver.p{number}")
    };
    let sql = histories.iter().enumerate().map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let mut types = project.types("silver.p0");
    types.extend(["start_at", "end_at"].map(|name| (name.to_owned(), "timestamp".to_owned())));
    let rows = project.query(&sql);
    let texts = rows.iter().map(|row| PAST.iter().map(|column| text_of(&row[*column])).collect());
    if let Some(difference) = Rows::new(&PAST, texts, &types).difference(&Rows::new(&PAST, expected, &types)) {
        let kinds: Vec<_> = histories.iter().map(|history| history.past).collect();
        panic!("what is kept beside current rows {kinds:?}: {difference}");
    }
}
