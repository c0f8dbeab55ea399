//! Tables that keep more than current rows, and what the events of a history come to in them: a fold that shares no
//! code with the product.

use std::collections::BTreeMap;

use super::history::Event;

/// What a table keeps beside the current rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Deleted rows, marked.
    Deleted,
    /// Versions: every change makes one.
    Versions,
    /// Versions: changes of the note make one.
    OfNotes,
    /// Versions: changes of anything but the note make one.
    ButNotes,
}

/// A row: the first key, the second, note, amount, from when on, until when.
pub(crate) type Row = Vec<Option<String>>;

impl Past {
    /// Each as often as it has ways to go wrong.
    pub(crate) const ALL: [Self; 6] =
        [Self::Deleted, Self::Deleted, Self::Versions, Self::OfNotes, Self::OfNotes, Self::ButNotes];

    /// The options of such a table.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Self::Deleted => "delete_mode: soft",
            Self::Versions => "stored_as_scd_type: 2",
            Self::OfNotes => "stored_as_scd_type: 2\n    track_history_column_list: [note]",
            Self::ButNotes => "stored_as_scd_type: 2\n    track_history_except_column_list: [note]",
        }
    }

    /// The columns of such a table from which on and until when a row holds.
    pub(crate) fn columns(self) -> &'static str {
        match self {
            Self::Deleted => "_sequence_1 AS start_at, CASE WHEN _is_deleted THEN _deleted_sequence_1 END AS end_at",
            _ => "__START_AT AS start_at, __END_AT AS end_at",
        }
    }

    /// The rows that events come to; of one key and one time the later stands behind the other. A column that an event
    /// does not have keeps what the events before it gave it, since the last delete. A truncate is an event of every key.
    pub(crate) fn fold<'e>(self, events: impl Iterator<Item = &'e Event> + Clone) -> Vec<Row> {
        let mut keys: BTreeMap<_, BTreeMap<i64, Vec<&Event>>> = BTreeMap::new();
        for event in events.clone().filter(|event| event.op != "T") {
            keys.entry((event.k1, event.k2)).or_default();
        }
        for event in events {
            for (key, times) in &mut keys {
                if event.op == "T" || *key == (event.k1, event.k2) {
                    times.entry(event.at).or_default().push(event);
                }
            }
        }
        let whole = keys.values().map(whole).collect::<Vec<_>>();
        match self {
            Self::Deleted => whole.iter().filter_map(|events| marked(events)).collect(),
            _ => whole.iter().flat_map(|events| self.versions(events)).collect(),
        }
    }

    fn versions(self, events: &[Event]) -> Vec<Row> {
        let mut rows: Vec<(&Event, &Event, Option<i64>)> = Vec::new();
        // The last of each time counts.
        let last =
            events.iter().enumerate().filter(|(n, event)| events.get(n + 1).is_none_or(|next| next.at > event.at));
        for (_, event) in last {
            let open = rows.last_mut().filter(|(_, _, end)| end.is_none());
            match open {
                Some((_, _, end)) if event.is_end() => *end = Some(event.at),
                Some((_, last, _)) if self.is_same(last, event) => *last = event,
                Some((_, _, end)) => {
                    *end = Some(event.at);
                    rows.push((event, event, None));
                }
                None if event.is_end() => {}
                None => rows.push((event, event, None)),
            }
        }
        rows.into_iter().map(|(first, last, end)| row(last, first.at, end)).collect()
    }

    fn is_same(self, before: &Event, event: &Event) -> bool {
        let (note, amount) = (before.note == event.note, before.amount == event.amount);
        match self {
            Self::OfNotes => note,
            Self::ButNotes => amount,
            Self::Versions | Self::Deleted => note && amount,
        }
    }
}

/// The events of a key in their order, with what they left out.
fn whole(times: &BTreeMap<i64, Vec<&Event>>) -> Vec<Event> {
    let (mut note, mut amount) = (None, None);
    let events = times.values().flatten().map(|event| {
        if event.is_end() {
            (note, amount) = (None, None);
        } else {
            note = event.note.unwrap_or(note);
            amount = event.amount.unwrap_or(amount);
        }
        event.with(note, amount)
    });
    events.collect()
}

/// The last values of a key, and the last delete when one comes after them; else the first truncate, since it deletes
/// what is there.
fn marked(events: &[Event]) -> Option<Row> {
    let last = events.iter().rposition(|event| !event.is_end())?;
    let ends = &events[last + 1..];
    let delete = ends.iter().rfind(|event| event.op == "D").or(ends.first()).map(|event| event.at);
    Some(row(&events[last], events[last].at, delete))
}

fn row(values: &Event, start: i64, end: Option<i64>) -> Row {
    let mut row = values.values();
    row.truncate(4);
    row.extend([Some(start), end].map(|at| at.map(Event::time_of)));
    row
}
