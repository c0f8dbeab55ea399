//! One order and its life: from the click to the parcel, with second thoughts.

use super::dice::Dice;

/// Milliseconds since the epoch.
pub(super) type Millis = u64;

pub(super) const MINUTE: Millis = 60_000;
pub(super) const HOUR: Millis = 60 * MINUTE;
pub(super) const DAY: Millis = 24 * HOUR;

/// What a change event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Insert,
    Update,
    Delete,
}

impl Op {
    /// The code in the files.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Insert => "I",
            Self::Update => "U",
            Self::Delete => "D",
        }
    }
}

/// Where an order is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    New,
    Paid,
    Shipped,
    Delivered,
    Cancelled,
}

impl Status {
    /// The word in the files.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Paid => "Paid",
            Self::Shipped => "Shipped",
            Self::Delivered => "Delivered",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// One change of one order, with all the values after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) op: Op,
    pub(super) number: u64,
    pub(super) customer: u64,
    pub(super) ordered_at: Millis,
    pub(super) status: Status,
    pub(super) cents: u64,
    pub(super) at: Millis,
    /// Which way the customer came; an index into the channel's words. Orders older than the column have none.
    pub(super) way: Option<usize>,
}

/// The first event of a new order.
pub(super) fn placed(dice: &mut Dice, number: u64, customers: u64, at: Millis, with_channel: bool) -> Event {
    let way = usize::try_from(dice.below(3)).ok();
    Event {
        op: Op::Insert,
        number,
        customer: dice.skewed(1, customers),
        ordered_at: at,
        status: Status::New,
        cents: basket(dice),
        at,
        way: way.filter(|_| with_channel),
    }
}

/// What happens to the order after `last`, and how long that takes; `None` when its story ends.
///
/// The `at` of the returned event is that of `last`: the caller decides when it happens.
pub(super) fn what_follows(dice: &mut Dice, last: &Event) -> Option<(Event, Millis)> {
    let update = |status| Event { op: Op::Update, status, ..*last };
    let delete = Event { op: Op::Delete, ..*last };
    let chance = dice.below(100);
    Some(match (last.op, last.status) {
        (Op::Delete, _) if chance < 15 => {
            (Event { op: Op::Insert, status: Status::New, ..*last }, dice.between(HOUR, 12 * HOUR))
        }
        (Op::Delete, _) => return None,
        (_, Status::New) if chance < 84 => (update(Status::Paid), dice.between(2 * MINUTE, 8 * HOUR)),
        (_, Status::New) if chance < 91 => (update(Status::Cancelled), dice.between(HOUR, 24 * HOUR)),
        (_, Status::New) => {
            let cents = last.cents * dice.between(80, 120) / 100;
            (Event { cents, ..update(Status::New) }, dice.between(10 * MINUTE, 5 * HOUR))
        }
        (_, Status::Paid) if chance < 95 => (update(Status::Shipped), dice.between(12 * HOUR, 2 * DAY)),
        (_, Status::Paid) => (update(Status::Cancelled), dice.between(HOUR, DAY)),
        (_, Status::Shipped) => (update(Status::Delivered), dice.between(DAY, 3 * DAY)),
        (_, Status::Delivered) if chance < 5 => (delete, dice.between(DAY, 4 * DAY)),
        (_, Status::Cancelled) if chance < 40 => (delete, dice.between(6 * HOUR, 2 * DAY)),
        (_, Status::Delivered | Status::Cancelled) => return None,
    })
}

/// What a basket costs: one to six things, most of them cheap.
fn basket(dice: &mut Dice) -> u64 {
    let mut cents = price(dice);
    for _ in 0..5 {
        if !dice.per_mille(400) {
            break;
        }
        cents += price(dice);
    }
    cents
}

/// A price as shops like them, in cents.
pub(super) fn price(dice: &mut Dice) -> u64 {
    let units = dice.skewed(2, 255);
    let ending = [99, 99, 90, 50].get(usize::try_from(dice.below(4)).unwrap_or(0)).copied().unwrap_or(99);
    units * 100 + ending
}
