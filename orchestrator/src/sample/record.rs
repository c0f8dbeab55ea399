//! How an event is written: a CSV row of the shop's database, a JSON line of the web shop, and how both can be broken.

use std::fmt::Write;

use chrono::DateTime;

use super::order::{Event, Millis, Op};

/// How the events of a channel are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Numbers as order ids, times to the second.
    Csv,
    /// `W-` ids, times to the millisecond, amounts as JSON numbers.
    JsonLines,
}

/// Ways in which a record goes wrong, in the order in which a channel takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// An amount that no decimal can take: `12,5O`.
    Amount,
    /// A day that no calendar has.
    Date,
    /// The rest of the record is missing.
    Cut,
    /// A field more than the header names; the record itself is right.
    Surplus,
}

impl Format {
    /// The header line, if the format has one.
    pub(super) fn header(self, with_channel: bool) -> Option<&'static str> {
        match (self, with_channel) {
            (Self::JsonLines, _) => None,
            (Self::Csv, false) => Some("op,order_id,customer_id,order_date,status,amount,updated_at"),
            (Self::Csv, true) => Some("op,order_id,customer_id,order_date,status,amount,updated_at,channel"),
        }
    }

    /// The kinds of damage that records of this format suffer.
    pub(super) fn damages(self) -> &'static [Damage] {
        match self {
            Self::Csv => &[Damage::Amount, Damage::Cut, Damage::Date, Damage::Surplus],
            Self::JsonLines => &[Damage::Cut, Damage::Amount],
        }
    }

    fn ways(self) -> [&'static str; 3] {
        match self {
            Self::Csv => ["store", "phone", "partner"],
            Self::JsonLines => ["app", "browser", "marketplace"],
        }
    }

    /// Writes the record of an event into `line`, without the line break.
    pub(super) fn write(self, line: &mut String, event: &Event, with_channel: bool, damage: Option<Damage>) {
        line.clear();
        let channel = event.way.and_then(|way| self.ways().get(way).copied());
        match self {
            Self::Csv => csv(line, event, with_channel.then(|| channel.unwrap_or_default()), damage),
            Self::JsonLines => json(line, event, channel, damage),
        }
    }
}

fn csv(line: &mut String, event: &Event, channel: Option<&str>, damage: Option<Damage>) {
    let code = event.op.code();
    let number = event.number;
    let at = time(event.at, "%Y-%m-%dT%H:%M:%SZ");
    // Writing to a String cannot fail.
    let _ = match (event.op, damage) {
        (_, Some(Damage::Cut)) => write!(line, "{code}"),
        (Op::Delete, _) => write!(line, "{code},{number},,,,,{at}"),
        _ => {
            let date = match damage {
                Some(Damage::Date) => "2024-13-45".to_owned(),
                _ => time(event.ordered_at, "%Y-%m-%d"),
            };
            let amount = match damage {
                Some(Damage::Amount) => "\"12,5O\"".to_owned(),
                _ => money(event.cents),
            };
            let (customer, status) = (event.customer, event.status.word());
            write!(line, "{code},{number},C-{customer:05},{date},{status},{amount},{at}")
        }
    };
    if damage == Some(Damage::Cut) {
        return;
    }
    if let Some(channel) = channel {
        line.push(',');
        line.push_str(if event.op == Op::Delete { "" } else { channel });
    }
    if damage == Some(Damage::Surplus) {
        line.push_str(",checked by hand");
    }
}

fn json(line: &mut String, event: &Event, channel: Option<&str>, damage: Option<Damage>) {
    let (code, number) = (event.op.code(), event.number);
    let _ = write!(line, r#"{{"op":"{code}","order_id":"W-{number}""#);
    if event.op != Op::Delete {
        let (customer, status) = (event.customer, event.status.word());
        let date = time(event.ordered_at, "%Y-%m-%d");
        let amount = match damage {
            Some(Damage::Amount) => "\"n/a\"".to_owned(),
            _ => money(event.cents),
        };
        let _ = write!(
            line,
            r#","customer_id":"C-{customer:05}","order_date":"{date}","status":"{status}","amount":{amount}"#
        );
        if let Some(channel) = channel {
            let _ = write!(line, r#","channel":"{channel}""#);
        }
    }
    let at = time(event.at, "%Y-%m-%dT%H:%M:%S%.3fZ");
    let _ = write!(line, r#","updated_at":"{at}"}}"#);
    if damage == Some(Damage::Cut) {
        line.truncate(line.len() / 2);
    }
}

/// A time in UTC, written with a chrono format.
pub(super) fn time(at: Millis, format: &str) -> String {
    let moment = i64::try_from(at).ok().and_then(DateTime::from_timestamp_millis).unwrap_or(DateTime::UNIX_EPOCH);
    moment.format(format).to_string()
}

/// Cents as an amount with two decimals.
pub(super) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
