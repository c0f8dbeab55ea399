//! Generated histories of changes: what happened, the files in which it arrives, and the fold that says what is left.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde_json::{Map, Value, json};

use super::csv;
use super::past::Past;

/// A small seeded generator (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeds that are neighbours begin far from each other: a state that follows from the seed by the step of the generator
    /// would make each one's numbers those of the one before, moved by one.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Self(!seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True this many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// Texts that are easily mistaken for something else.
const NOTES: [Option<&str>; 9] = [
    None,
    Some(""),
    Some("plain"),
    Some("a, \"b\""),
    Some("two\nlines"),
    Some("NULL"),
    Some(r"\N"),
    Some("é ✓"),
    Some("'x'"),
];
const SECOND_KEYS: [Option<&str>; 3] = [None, Some(""), Some("B")];

type Key = (u64, Option<&'static str>);

/// A value that a change has: `None` is null. What a change does not have at all, it leaves as it is.
type Sent<T> = Option<Option<T>>;

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(super) op: &'static str,
    pub(super) k1: u64,
    pub(super) k2: Option<&'static str>,
    pub(super) note: Sent<&'static str>,
    /// In cents; an amount that does not cast when it is broken.
    pub(super) amount: Sent<u64>,
    is_broken: bool,
    /// The key that the row had before, where it changes.
    from: Option<Key>,
    /// Whether it has the time of another change of its key that came in an earlier run: the later to come counts.
    is_rival: bool,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
}

/// Events of one key and one instant, in their order. They always travel together.
type Unit = Vec<Event>;

/// A file that lands.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) name: String,
    pub(crate) content: String,
    units: Vec<Unit>,
}

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Json,
    /// JSON with the new values and the old key in objects of their own: a change may change the key.
    Nested,
}

impl Format {
    /// The format of the source.
    pub(crate) fn of_source(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json | Self::Nested => "json",
        }
    }

    /// The options of a table that say where values are, and what orders changes.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Self::Csv | Self::Json => "sequence_by: [ts timestamp]",
            Self::Nested => "sequence_by: [pos timestamp]\n    row: after\n    before: before",
        }
    }
}

/// One history and the way in which it arrives.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) format: Format,
    pub(crate) files_per_batch: u64,
    /// Whether changes may leave out columns.
    pub(crate) is_partial: bool,
    /// What a second table of the source keeps.
    pub(crate) past: Past,
    /// The files that land before each run.
    pub(crate) arrivals: Vec<Vec<Arrival>>,
}

impl History {
    /// A history that arrives over `runs` runs, with at least one file before the first.
    pub(crate) fn new(dice: &mut Dice, runs: usize) -> Self {
        let format = dice.pick(&[Format::Csv, Format::Json, Format::Json, Format::Nested, Format::Nested]);
        let is_partial = format != Format::Csv && dice.chance(60);
        let files_per_batch = dice.pick(&[1, 2, 1000]);
        let past = dice.pick(&Past::ALL);
        let mut units = happen(dice, is_partial, format == Format::Nested);
        if dice.chance(70) {
            dice.shuffle(&mut units);
        }
        let mut arrivals = vec![Vec::new(); runs];
        let mut files = split(dice, units, format);
        arrivals[0].push(files.remove(0));
        for file in files {
            arrivals[dice.below(runs as u64) as usize].push(file);
        }
        resend(dice, &mut arrivals);
        rival(dice, &mut arrivals, format, is_partial);
        Self { format, files_per_batch, is_partial, past, arrivals }
    }

    /// The rows (k1, k2, note, amount, ts) that are left after the arrivals up to and with a run: what happened, told
    /// once more in its own order.
    pub(crate) fn fold(&self, run: usize) -> Vec<Vec<Option<String>>> {
        // A unit that comes again is the same unit.
        let arrived = self.arrivals[..=run].iter().flatten().flat_map(|file| &file.units);
        let units: BTreeMap<(i64, bool), &Unit> = arrived.map(|unit| ((unit[0].at, unit[0].is_rival), unit)).collect();
        let mut rows: BTreeMap<Key, Event> = BTreeMap::new();
        for event in units.into_values().flatten().filter(|event| !event.is_broken) {
            if let Some(from) = &event.from {
                rows.remove(from);
            }
            match event.op {
                "T" => rows.clear(),
                "D" => drop(rows.remove(&event.key())),
                _ => {
                    let held = rows.get(&event.key()).cloned();
                    let (note, amount) = held.map_or((None, None), |held| (held.note, held.amount));
                    let (note, amount) = (event.note.or(note), event.amount.or(amount));
                    rows.insert(event.key(), Event { note, amount, ..event.clone() });
                }
            }
        }
        rows.values().map(Event::values).collect()
    }

    /// The rows (k1, k2, note, amount, start, end) of the second table after these arrivals.
    pub(crate) fn fold_past(&self, run: usize) -> Vec<Vec<Option<String>>> {
        let events: Vec<Event> = self.arrived(run).flat_map(Event::parts).collect();
        self.past.fold(events.iter())
    }

    fn arrived(&self, run: usize) -> impl Iterator<Item = &Event> {
        let arrived = self.arrivals[..=run].iter().flatten().flat_map(|file| &file.units).flatten();
        arrived.filter(|event| !event.is_broken)
    }
}

impl Event {
    /// The same with all values.
    pub(super) fn with(&self, note: Option<&'static str>, amount: Option<u64>) -> Self {
        Self { note: Some(note), amount: Some(amount), ..self.clone() }
    }

    /// Whether no row is left after it.
    pub(super) fn is_end(&self) -> bool {
        matches!(self.op, "D" | "T")
    }

    fn key(&self) -> Key {
        (self.k1, self.k2)
    }

    /// The changes of one key each: a change of the key deletes the old one.
    fn parts(&self) -> Vec<Self> {
        let gone = self.from.map(|(k1, k2)| Self { op: "D", k1, k2, from: None, ..self.clone() });
        gone.into_iter().chain([Self { from: None, ..self.clone() }]).collect()
    }

    pub(super) fn values(&self) -> Vec<Option<String>> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let note = text(self.note.flatten());
        vec![Some(self.k1.to_string()), text(self.k2), note, self.amount_text(), Some(self.time())]
    }

    fn amount_text(&self) -> Option<String> {
        if self.is_broken {
            return Some("1O.00".to_owned());
        }
        self.amount.flatten().map(|cents| format!("{}.{:02}", cents / 100, cents % 100))
    }

    fn time(&self) -> String {
        Self::time_of(self.at)
    }

    pub(super) fn time_of(at: i64) -> String {
        let at = DateTime::from_timestamp_millis(at).expect("a time");
        at.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
    }

    /// The record as a file holds it; a delete has its key and its time only, a truncate its time.
    fn record(&self, format: Format) -> String {
        let mut values = self.values();
        match self.op {
            "D" => values[2..4].fill(None),
            "T" => values[..4].fill(None),
            _ => {}
        }
        values.insert(0, Some(self.op.to_owned()));
        if format == Format::Csv {
            return csv::line(&values);
        }
        let names = ["op", "k1", "k2", "note", "amount", "ts"];
        let value = |value: Option<String>| value.map_or(Value::Null, Value::String);
        let mut object: Map<String, Value> =
            names.iter().map(|name| (*name).to_owned()).zip(values.into_iter().map(value)).collect();
        if self.op != "T" {
            object.insert("k1".to_owned(), json!(self.k1));
        }
        for (name, is_sent) in [("note", self.note.is_some()), ("amount", self.amount.is_some())] {
            if !is_sent {
                object.remove(name);
            }
        }
        if format == Format::Nested {
            return self.nested(object).to_string();
        }
        Value::Object(object).to_string()
    }

    fn nested(&self, mut row: Map<String, Value>) -> Value {
        row.remove("op");
        let key = |(k1, k2): Key| json!({"k1": k1, "k2": k2});
        match self.op {
            "T" => json!({"op": "T", "pos": self.time()}),
            "D" => json!({"op": "D", "pos": self.time(), "before": key(self.key()), "after": null}),
            op => {
                let before = self.from.or_else(|| (op == "U").then(|| self.key())).map(key);
                json!({"op": op, "pos": self.time(), "before": before, "after": row})
            }
        }
    }
}

/// What happens: changes of a few keys, one instant after the other.
fn happen(dice: &mut Dice, is_partial: bool, moves: bool) -> Vec<Unit> {
    let keys: Vec<Key> = (0..1 + dice.below(4)).map(|_| (dice.below(3), dice.pick(&SECOND_KEYS))).collect();
    let mut at = 1_714_557_600_000;
    let mut units = Vec::new();
    for _ in 0..3 + dice.below(25) {
        at += dice.pick(&[1, 7, 100, 1_000, 60_000, 86_400_000]);
        let key = dice.pick(&keys);
        let to = dice.pick(&keys);
        if moves && to != key && dice.chance(15) {
            let event = event(dice, to, at, false);
            if !matches!(event.op, "D" | "T") {
                units.push(vec![Event { op: "U", from: Some(key), ..event }]);
                continue;
            }
        }
        let size = if dice.chance(20) { 2 + dice.below(2) } else { 1 };
        units.push((0..size).map(|_| event(dice, key, at, is_partial)).collect());
    }
    units
}

fn event(dice: &mut Dice, (k1, k2): Key, at: i64, is_partial: bool) -> Event {
    let op = dice.pick(&["I", "I", "I", "I", "U", "U", "U", "U", "U", "U", "D", "D", "D", "T"]);
    // Values that come again make neighbours alike.
    let any = dice.below(1_000_000);
    let amount = if dice.chance(10) { None } else { Some(dice.pick(&[5, 5, 700, any])) };
    let note = if dice.chance(50) { Some("plain") } else { dice.pick(&NOTES) };
    let is_sent = |dice: &mut Dice| !is_partial || op == "I" || dice.chance(50);
    let (note, amount) = (is_sent(dice).then_some(note), is_sent(dice).then_some(amount));
    let is_broken = !matches!(op, "D" | "T") && amount.is_some() && dice.chance(6);
    Event { op, k1, k2, note, amount, is_broken, from: None, is_rival: false, at }
}

/// Files of one to five units, with names in no order.
fn split(dice: &mut Dice, mut units: Vec<Unit>, format: Format) -> Vec<Arrival> {
    let mut files = Vec::new();
    while !units.is_empty() {
        let rest = units.split_off((1 + dice.below(5) as usize).min(units.len()));
        let name = format!("{:04x}_{}.{}", dice.below(0x10000), files.len(), format.of_source());
        files.push(Arrival { name, content: content(&units, format), units: std::mem::replace(&mut units, rest) });
    }
    files
}

fn content(units: &[Unit], format: Format) -> String {
    let header = if format == Format::Csv { "op,k1,k2,note,amount,ts\n" } else { "" };
    let lines = units.iter().flatten().map(|event| event.record(format) + "\n");
    header.to_owned() + &lines.collect::<String>()
}

/// Sends some files again under another name, and lets some take the name of a file that was read before.
fn resend(dice: &mut Dice, arrivals: &mut [Vec<Arrival>]) {
    for run in 0..arrivals.len() {
        for index in 0..arrivals[run].len() {
            if dice.chance(25) {
                let later = run + dice.below((arrivals.len() - run) as u64) as usize;
                let again = arrivals[run][index].clone();
                arrivals[later].push(Arrival { name: format!("{:04x}_{}", dice.below(0x10000), again.name), ..again });
            }
        }
    }
    for run in 1..arrivals.len() {
        let older: Vec<String> = arrivals[run - 1].iter().map(|file| file.name.clone()).collect();
        if let Some(name) = older.first()
            && let Some(file) = arrivals[run].first_mut()
            && dice.chance(40)
        {
            file.name.clone_from(name);
        }
    }
}

/// Lets a change come in a later run that has the key and the time of one that came once.
fn rival(dice: &mut Dice, arrivals: &mut [Vec<Arrival>], format: Format, is_partial: bool) {
    for run in 0..arrivals.len().saturating_sub(1) {
        let times = |at: i64| {
            let units = arrivals.iter().flatten().flat_map(|file| &file.units);
            units.filter(|unit| unit[0].at == at).count()
        };
        let units = arrivals[run].iter().flat_map(|file| &file.units);
        let mut alone = units.filter(|unit| unit.len() == 1 && unit[0].op != "T" && unit[0].from.is_none());
        let Some(first) = alone.find(|unit| times(unit[0].at) == 1).map(|unit| unit[0].clone()) else { continue };
        if dice.chance(50) {
            let other = event(dice, (first.k1, first.k2), first.at, is_partial);
            if other.op == "T" {
                continue;
            }
            let later = run + 1 + dice.below((arrivals.len() - run - 1) as u64) as usize;
            let units = vec![vec![Event { is_rival: true, ..other }]];
            let name = format!("{:04x}_rival_{run}.{}", dice.below(0x10000), format.of_source());
            arrivals[later].push(Arrival { name, content: content(&units, format), units });
        }
    }
}

#[test]
fn a_history_is_the_same_for_the_same_seed_and_loses_nothing() {
    let all = |seed| {
        let mut dice = Dice::new(seed);
        (0..50).map(|_| History::new(&mut dice, 3)).collect::<Vec<_>>()
    };
    assert_eq!(format!("{:?}", all(1)), format!("{:?}", all(1)));
    let histories = all(2);
    let files = || histories.iter().flat_map(|history| history.arrivals.iter().flatten());
    assert!(histories.iter().all(|history| !history.arrivals[0].is_empty()));
    assert!(files().any(|file| file.units.iter().any(|unit| unit.len() > 1)), "no ties");
    let events = || files().flat_map(|file| file.units.iter().flatten());
    assert!(events().any(|event| event.op == "T"), "no truncates");
    assert!(events().any(|event| event.op == "U" && event.note.is_none() && event.amount.is_some()), "no partial ones");
    assert!(events().any(|event| event.from.is_some()), "no changes of a key");
    assert!(events().any(|event| event.is_rival), "no ties between runs");
    assert!(histories.iter().any(|history| !history.fold(2).is_empty()));
    for history in &histories {
        // No name comes twice before one run: the second would hide the first.
        for arrivals in &history.arrivals {
            let names: std::collections::BTreeSet<&str> = arrivals.iter().map(|file| file.name.as_str()).collect();
            assert_eq!(names.len(), arrivals.len());
        }
    }
}
