//! Random changes against a map of the largest, in memory and on disk.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;

use super::*;

/// A change: key, sequence, place of arrival.
type Change = (Option<String>, Option<i64>, i64);

/// The same numbers for the same seed.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |sides| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    }
}

fn changes(seed: u64, count: i64) -> Vec<Change> {
    let mut roll = random(seed);
    let keys = 1 + roll(200);
    let change = |at| {
        let key = roll(keys);
        ((key > 0).then(|| format!("k{key}")), (roll(9) > 0).then(|| roll(5) as i64), at)
    };
    (0..count).map(change).collect()
}

fn batch(changes: &[Change]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(changes.iter().map(|change| change.0.as_deref()).collect::<StringArray>());
    let sequence: ArrayRef = Arc::new(changes.iter().map(|change| change.1).collect::<Int64Array>());
    let arrival: ArrayRef = Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.2)));
    RecordBatch::try_from_iter_with_nullable([("k", keys, true), ("s", sequence, true), ("a", arrival, false)])
        .expect("a batch")
}

/// What a worker with this budget keeps, and how many it counts as superseded.
fn kept(changes: &[Change], budget: usize, batch_rows: usize) -> (BTreeMap<Option<String>, Change>, u64) {
    let schema = batch(&[]).schema();
    let order = ["s".to_owned(), "a".to_owned()];
    let columns = Arc::new(Columns::new(&schema, &["k".to_owned()], &order).expect("columns"));
    let mut newest = Newest::new(Arc::clone(&columns), budget, 2);
    for changes in changes.chunks(batch_rows) {
        // Bad hashes: half of the keys share theirs with another.
        let hash = |change: &Change| {
            change.0.as_ref().map_or(0, |key| (key.len() as u64) << 32 | u64::from(key.as_bytes()[1]) << 60)
        };
        let hashes = changes.iter().map(hash).collect();
        let held = Arc::new(columns.hold(batch(changes)).expect("a batch"));
        let rows = (0..changes.len() as u32).collect();
        newest.add(&Piece { held, hashes: Arc::new(hashes), rows }).expect("added");
    }
    let mut found = BTreeMap::new();
    newest
        .drain(|batch| {
            let (keys, sequence) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
            for row in 0..batch.num_rows() {
                let key = (!keys.is_null(row)).then(|| keys.value(row).to_owned());
                let sequence = (!sequence.is_null(row)).then(|| sequence.value(row));
                let change = (key.clone(), sequence, batch.column(2).as_primitive::<Int64Type>().value(row));
                assert_eq!(found.insert(key, change), None, "a key comes twice");
            }
            true
        })
        .expect("drained");
    (found, newest.superseded())
}

#[test]
fn the_largest_of_every_key_stays_whatever_is_held() {
    for seed in 0..12 {
        let changes = changes(seed, 3_000);
        let mut largest: BTreeMap<Option<String>, Change> = BTreeMap::new();
        for change in &changes {
            let known = largest.entry(change.0.clone()).or_insert_with(|| change.clone());
            if (change.1, change.2) > (known.1, known.2) {
                known.clone_from(change);
            }
        }
        let superseded = (changes.len() - largest.len()) as u64;
        for (budget, batch_rows) in [(usize::MAX, 3_000), (usize::MAX, 7), (20_000, 100), (3_000, 50), (0, 11)] {
            let found = kept(&changes, budget, batch_rows);
            assert_eq!(found, (largest.clone(), superseded), "seed {seed}, {budget} bytes, {batch_rows} rows a batch");
        }
    }
}
