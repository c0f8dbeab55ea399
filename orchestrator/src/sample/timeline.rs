//! One channel of orders from its first day to its last: what is written into which file, and in which order.

use std::collections::BTreeMap;

use lake::Result;

use super::dice::Dice;
use super::files::Output;
use super::order::{self, Event, Millis, Op};
use super::record::{Damage, Format};

/// The part of the channel's time that one file covers, and how many lines it has.
pub(super) struct Window {
    pub(super) start: Millis,
    pub(super) end: Millis,
    pub(super) lines: u64,
    /// Whether the files have the `channel` column by then.
    pub(super) with_channel: bool,
}

/// The orders of one channel. Every order's events carry strictly rising times, except for a pair that happens in one
/// instant: such a pair stands in one file, one line after the other, and its first part is never sent again.
pub(super) struct Timeline {
    format: Format,
    dice: Dice,
    customers: u64,
    next_number: u64,
    now: Millis,
    /// Lines still to be written, over all files.
    left: u64,
    written: u64,
    lines_per_file: u64,
    damaged: usize,
    /// What follows for the orders on their way, by the time when it is due and the order's number.
    due: BTreeMap<(Millis, u64), Step>,
    /// Events that are written later than they happened, by the line at which they come.
    held: BTreeMap<(u64, u64), Event>,
    text: String,
}

/// The next event of an order, and the one before it.
struct Step {
    next: Event,
    last: Event,
}

/// The file that is being written.
struct Page<'a> {
    out: &'a mut Output,
    with_channel: bool,
    /// Lines that it still takes.
    room: u64,
}

/// What becomes of an event on its way into the file.
enum Fate {
    Plain,
    /// A few lines late.
    Shuffled,
    /// Some files late.
    Late,
    /// Written now and once more later.
    Repeated,
    /// The order's next event happens in the same instant.
    Tied,
    Damaged,
}

impl Timeline {
    /// A channel that will write `lines` lines into `files` files.
    pub(super) fn new(format: Format, dice: Dice, customers: u64, first_number: u64, lines: u64, files: u64) -> Self {
        Self {
            format,
            dice,
            customers,
            next_number: first_number,
            now: 0,
            left: lines,
            written: 0,
            lines_per_file: (lines / files).max(1),
            damaged: 0,
            due: BTreeMap::new(),
            held: BTreeMap::new(),
            text: String::new(),
        }
    }

    /// Writes the file of one window. Windows come in the order of time.
    pub(super) fn write(&mut self, window: &Window, out: &mut Output) -> Result<()> {
        if let Some(header) = self.format.header(window.with_channel) {
            out.line(header)?;
        }
        let span = window.end - window.start;
        let slot = (span / window.lines.max(1)).max(1);
        let mut page = Page { out, with_channel: window.with_channel, room: window.lines };
        while page.room > 0 {
            let share = u128::from(span) * u128::from(window.lines - page.room) / u128::from(window.lines);
            let at = window.start + u64::try_from(share).unwrap_or(0) + self.dice.below(slot);
            self.now = self.now.max(at);
            self.step(&mut page)?;
        }
        Ok(())
    }

    /// Takes the next event that is due, or a new order, and lets its fate decide about its line.
    fn step(&mut self, page: &mut Page<'_>) -> Result<()> {
        if let Some(event) = self.release() {
            return self.line(page, &event, None);
        }
        let (event, before) = self.happen(page.with_channel);
        match self.fate(&event, page.room) {
            Fate::Plain => self.line(page, &event, None)?,
            Fate::Shuffled => self.hold_near(event),
            Fate::Late => self.hold_far(event),
            Fate::Repeated => {
                self.line(page, &event, None)?;
                self.hold_again(event);
            }
            Fate::Tied => return self.tied(page, &event),
            Fate::Damaged => {
                let damages = self.format.damages();
                let damage = damages.get(self.damaged % damages.len()).copied();
                self.damaged += 1;
                self.line(page, &event, damage)?;
            }
        }
        if let Some(before) = before.filter(|_| event.op == Op::Delete)
            && self.dice.per_mille(300)
        {
            // A straggler: what came before the delete arrives once more behind it.
            self.hold_again(before);
        }
        self.plan(&event);
        Ok(())
    }

    /// Writes an event and, in the same instant, the one that follows it.
    fn tied(&mut self, page: &mut Page<'_>, first: &Event) -> Result<()> {
        self.line(page, first, None)?;
        if let Some((second, _)) = order::what_follows(&mut self.dice, first) {
            self.line(page, &second, None)?;
            self.plan(&second);
        }
        Ok(())
    }

    /// The event that happens now, and the one before it of the same order.
    fn happen(&mut self, with_channel: bool) -> (Event, Option<Event>) {
        if let Some(first) = self.due.first_entry()
            && first.key().0 <= self.now
        {
            let step = first.remove();
            return (Event { at: self.now, ..step.next }, Some(step.last));
        }
        let event = order::placed(&mut self.dice, self.next_number, self.customers, self.now, with_channel);
        self.next_number += 1;
        (event, None)
    }

    /// Remembers what follows `last`, if anything does.
    fn plan(&mut self, last: &Event) {
        if let Some((next, wait)) = order::what_follows(&mut self.dice, last) {
            self.due.insert((last.at + wait, last.number), Step { next, last: *last });
        }
    }

    fn fate(&mut self, event: &Event, room: u64) -> Fate {
        match self.dice.below(1000) {
            0..3 if event.op != Op::Delete => Fate::Damaged,
            3..18 if self.may_hold() => Fate::Late,
            18..48 if self.may_hold() => Fate::Shuffled,
            48..66 => Fate::Repeated,
            66..100 if room >= 2 && self.may_hold() => Fate::Tied,
            _ => Fate::Plain,
        }
    }

    /// Whether a line is left for one more event after the present one and all that are held.
    fn may_hold(&self) -> bool {
        self.left > self.held.len() as u64 + 1
    }

    fn hold_near(&mut self, event: Event) {
        let lines = self.dice.between(2, 15);
        self.hold(event, lines);
    }

    fn hold_far(&mut self, event: Event) {
        let lines = self.dice.between(self.lines_per_file, 6 * self.lines_per_file);
        self.hold(event, lines);
    }

    /// Holds an event that has been written already, or was lost, if there is a line for it.
    fn hold_again(&mut self, event: Event) {
        if !self.may_hold() {
            return;
        }
        if self.dice.per_mille(500) {
            self.hold_near(event);
        } else {
            self.hold_far(event);
        }
    }

    fn hold(&mut self, event: Event, lines: u64) {
        let line = self.written + lines;
        let mut place = (line, 0);
        while self.held.contains_key(&place) {
            place.1 += 1;
        }
        self.held.insert(place, event);
    }

    /// The held event whose line has come; at the end of the last file all of them come.
    fn release(&mut self) -> Option<Event> {
        let must = self.left <= self.held.len() as u64;
        let first = self.held.first_entry()?;
        (must || first.key().0 <= self.written).then(|| first.remove())
    }

    fn line(&mut self, page: &mut Page<'_>, event: &Event, damage: Option<Damage>) -> Result<()> {
        self.format.write(&mut self.text, event, page.with_channel, damage);
        page.out.line(&self.text)?;
        page.room -= 1;
        self.written += 1;
        self.left -= 1;
        Ok(())
    }
}
