//! The whole sample: which folders, which files, how many lines each.

use std::path::{Path, PathBuf};

use chrono::{Datelike, NaiveDate, NaiveTime, Weekday};
use lake::Result;

use super::dice::Dice;
use super::files::{self, Output};
use super::order::{DAY, Millis};
use super::products::Catalog;
use super::record::Format;
use super::timeline::{Timeline, Window};

/// How many change events the committed sample has.
pub(crate) const DEFAULT_ROWS: u64 = 6_000;
/// The seed of the committed sample.
pub(crate) const DEFAULT_SEED: u64 = 42;
/// How many days the committed sample covers.
pub(crate) const DEFAULT_DAYS: u32 = 12;

const FIRST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2024, 5, 1).expect("a day of the calendar");

/// What to make.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The folder that gets `orders/`, `web_orders/` and `products/`.
    pub(crate) dir: PathBuf,
    /// Change events of orders over all files, repeats and broken ones included.
    pub(crate) rows: u64,
    /// The same seed gives the same bytes.
    pub(crate) seed: u64,
    /// Days that the files cover.
    pub(crate) days: u32,
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Written {
    /// Files.
    pub(crate) files: u64,
    /// Change events of orders.
    pub(crate) events: u64,
    /// Rows of product extracts.
    pub(crate) products: u64,
    /// Bytes of all files.
    pub(crate) bytes: u64,
}

/// Where the orders come from.
struct Channel {
    folder: &'static str,
    format: Format,
    extension: &'static str,
    /// Names of the parts of a day, one file each, with the share of the day's events.
    parts: &'static [(&'static str, u64)],
    first_number: u64,
    stream: u8,
}

const SHOP: Channel = Channel {
    folder: "orders",
    format: Format::Csv,
    extension: "csv",
    parts: &[("_am", 2), ("_pm", 3)],
    first_number: 100_001,
    stream: 0,
};
const WEB: Channel = Channel {
    folder: "web_orders",
    format: Format::JsonLines,
    extension: "jsonl",
    parts: &[("", 1)],
    first_number: 500_001,
    stream: 1,
};
const PRODUCTS_STREAM: u8 = 2;

/// Writes the sample: change files of orders as CSV (`orders/`) and JSON lines (`web_orders/`), and daily extracts of
/// the products (`products/`).
///
/// # Errors
/// When one of the folders already holds something, or a file cannot be written.
pub(crate) fn generate(options: &Options) -> Result<Written> {
    let days = options.days.max(1);
    let customers = (options.rows / 15).max(20);
    let web_rows = options.rows * 3 / 10;
    let mut written = Written::default();
    for (channel, rows) in [(&SHOP, options.rows - web_rows), (&WEB, web_rows)] {
        written.bytes += orders(channel, options, rows, days, customers, &mut written.files)?;
        written.events += rows;
    }
    products(options, days, &mut written)?;
    Ok(written)
}

fn orders(channel: &Channel, options: &Options, rows: u64, days: u32, customers: u64, files: &mut u64) -> Result<u64> {
    let folder = files::empty_folder(&options.dir, channel.folder)?;
    let plan = windows(channel, rows, days);
    let dice = Dice::new(options.seed, channel.stream);
    let mut timeline = Timeline::new(channel.format, dice, customers, channel.first_number, rows, plan.len() as u64);
    let mut bytes = 0;
    for (name, window) in plan {
        let mut out = Output::create(&folder, &name)?;
        timeline.write(&window, &mut out)?;
        bytes += out.finish()?;
        *files += 1;
    }
    Ok(bytes)
}

/// The files of a channel, in the order of time, and the lines that each gets: more on a Saturday than on a Tuesday.
fn windows(channel: &Channel, rows: u64, days: u32) -> Vec<(String, Window)> {
    let part_length = DAY / channel.parts.len() as u64;
    let of_all = channel.parts.iter().map(|part| part.1).sum::<u64>() * each_day(days).map(busy).sum::<u64>();
    let lines_until = |weight: u64| share(rows, weight, of_all);
    let (mut plan, mut weight) = (Vec::new(), 0);
    for (number, day) in each_day(days).enumerate() {
        let mut start = midnight(day);
        for (suffix, part) in channel.parts {
            let lines = lines_until(weight + part * busy(day)) - lines_until(weight);
            weight += part * busy(day);
            let name = format!("{}_{day}{suffix}.{}", channel.folder, channel.extension);
            let with_channel = 2 * number >= days as usize;
            plan.push((name, Window { start, end: start + part_length, lines, with_channel }));
            start += part_length;
        }
    }
    plan
}

fn products(options: &Options, days: u32, written: &mut Written) -> Result<()> {
    let folder: &Path = &files::empty_folder(&options.dir, "products")?;
    let count = (options.rows / 150).clamp(40, 5_000);
    let mut catalog = Catalog::new(Dice::new(options.seed, PRODUCTS_STREAM), count, midnight(FIRST_DAY));
    for day in each_day(days) {
        // Nobody works at night before a Sunday or the first of May: those extracts repeat the day before.
        if day.weekday() != Weekday::Sun && day != FIRST_DAY {
            catalog.pass_night(midnight(day));
        }
        let (rows, bytes) = catalog.write(folder, day)?;
        written.files += 1;
        written.products += rows;
        written.bytes += bytes;
    }
    Ok(())
}

fn each_day(days: u32) -> impl Iterator<Item = NaiveDate> {
    FIRST_DAY.iter_days().take(days as usize)
}

fn midnight(day: NaiveDate) -> Millis {
    u64::try_from(day.and_time(NaiveTime::MIN).and_utc().timestamp_millis()).unwrap_or(0)
}

/// How much goes on in the shop on such a day.
fn busy(day: NaiveDate) -> u64 {
    match day.weekday() {
        Weekday::Tue | Weekday::Wed => 9,
        Weekday::Mon | Weekday::Thu => 10,
        Weekday::Sun => 11,
        Weekday::Fri => 12,
        Weekday::Sat => 14,
    }
}

/// `part` of `whole` of the rows, rounded down.
fn share(rows: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(rows) * u128::from(part) / u128::from(whole)).unwrap_or(rows)
}
