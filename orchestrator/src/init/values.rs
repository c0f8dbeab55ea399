//! The type of a column, told from its values so that none of them loses anything.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use chrono_tz::Tz;
use lake::cast::{Rules, TextFormat, cast, cast_format};
use lake::report::thousands;
use lake::schema::ColumnType;

use super::records::Column;

/// Texts that stand for null in files that have no other way to say it.
pub(super) const NULL_TOKENS: [&str; 6] = ["NULL", "null", "\\N", "NA", "N/A", "None"];
/// With so many values, a few may be wrong: they go to quarantine.
const TOLERANT_FROM: usize = 100;
/// The part of the values that may be wrong then.
const WRONG_SHARE: f64 = 0.01;
/// A column of texts of which nearly all, so large a part, are numbers or dates is told.
const NEARLY_SHARE: f64 = 0.95;
/// Characters of a value that are shown.
const SHOWN_CHARS_MAX: usize = 30;
/// Digits of a decimal, unless its values have more.
const PRECISION: usize = 18;
/// More digits than this after the point come from floating numbers.
const SCALE_MAX: usize = 10;
/// Formats of days and moments that are not ISO 8601; a text must fit only one of those that name the same parts.
const FORMATS: [&str; 15] = [
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%d-%b-%Y %H:%M:%S",
];
/// Words in the names of numbers that are codes: they may begin with 0 tomorrow.
const CODES: [&str; 10] = ["zip", "postal", "postcode", "phone", "mobile", "fax", "iban", "ean", "gtin", "vat"];

/// A type and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Typed {
    /// As the spec declares it, without `not null`.
    pub(super) declaration: String,
    /// The type of the table's column.
    pub(super) kind: ColumnType,
    /// Why, in a few words; empty where there is nothing to say.
    pub(super) reason: String,
    /// The format of its dates or timestamps.
    pub(super) format: Option<&'static str>,
    /// Values that stand for null.
    pub(super) null_tokens: Vec<&'static str>,
}

impl Typed {
    pub(super) fn new(declaration: &str, kind: ColumnType, reason: impl Into<String>) -> Self {
        let (declaration, reason) = (declaration.to_owned(), reason.into());
        Self { declaration, kind, reason, format: None, null_tokens: Vec::new() }
    }

    fn plain(kind: ColumnType, reason: impl Into<String>) -> Self {
        Self::new(&kind.to_string(), kind, reason)
    }
}

/// The type of a column.
pub(super) fn typed(column: &Column, zone: Tz) -> Typed {
    if let Some(kind) = column.typed {
        return Typed::plain(kind, "as the files type it");
    }
    let tokens: Vec<&'static str> =
        NULL_TOKENS.into_iter().filter(|token| column.present().any(|value| value == *token)).collect();
    let values: Vec<&str> = column.present().filter(|value| !tokens.contains(value)).collect();
    if values.is_empty() {
        return Typed::plain(ColumnType::String, "no value in the sample");
    }
    let found = Values { values: &values, zone }.typed(&column.name);
    match found.kind {
        ColumnType::String => found,
        _ => Typed { null_tokens: tokens, ..found },
    }
}

struct Values<'a> {
    values: &'a [&'a str],
    zone: Tz,
}

impl Values<'_> {
    fn typed(&self, name: &str) -> Typed {
        if let Some(padded) = self.values.iter().find(|value| is_padded(value)) {
            return Typed::plain(ColumnType::String, format!("`{padded}` would lose its zeros as a number"));
        }
        self.numbers(name).or_else(|| self.moments()).unwrap_or_else(|| self.text())
    }

    fn numbers(&self, name: &str) -> Option<Typed> {
        if self.all(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "false")) {
            return Some(Typed::plain(ColumnType::Boolean, ""));
        }
        let is_number = |value: &&str| digits(value).is_some();
        let wrong = self.misfits(|value| is_number(&value))?;
        let numbers: Vec<&str> = self.values.iter().copied().filter(is_number).collect();
        let words = name.to_lowercase();
        if CODES.iter().any(|code| words.split(['_', '-', ' ', '.']).any(|word| word.starts_with(code))) {
            return Some(Typed::plain(ColumnType::String, "a code, which may begin with 0"));
        }
        let scale = numbers.iter().filter_map(|value| Some(digits(value)?.1)).max().unwrap_or(0);
        let whole = numbers.iter().filter_map(|value| Some(digits(value)?.0)).max().unwrap_or(0);
        if scale == 0 && numbers.iter().all(|value| value.parse::<i64>().is_ok()) {
            return Some(self.whole(&words, &numbers, wrong));
        }
        let kind = match scale {
            0..=SCALE_MAX if whole + scale <= PRECISION => decimal(PRECISION, scale),
            0..=SCALE_MAX if whole + scale <= 38 => decimal(38, scale),
            _ => ColumnType::Double,
        };
        let exact = kind != ColumnType::Double || numbers.iter().all(|value| comes_back(value));
        let reason = match kind {
            ColumnType::Double if exact => format!("up to {scale} digits after the point: floating numbers"),
            ColumnType::Double => return Some(Typed::plain(ColumnType::String, "more digits than a number holds")),
            _ if scale == 0 => "whole numbers beyond 64 bits".to_owned(),
            _ => format!("at most {scale} {} after the point", if scale == 1 { "digit" } else { "digits" }),
        };
        Some(self.proven(Typed::plain(kind, reason), wrong))
    }

    /// Whole numbers, some of which look like moments.
    fn whole(&self, name: &str, numbers: &[&str], wrong: usize) -> Typed {
        let within = |low: i64, high: i64| {
            numbers.iter().all(|value| value.parse::<i64>().is_ok_and(|number| (low..high).contains(&number)))
        };
        let is_moment =
            ["_at", "_ts", "time", "date", "timestamp"].iter().any(|word| name.ends_with(word)) || name == "ts";
        if is_moment && within(1_000_000_000_000, 4_000_000_000_000) {
            return Typed::new(
                "timestamp_ms",
                ColumnType::Timestamp,
                "13 digits: milliseconds since 1970, by the look of it",
            );
        }
        if is_moment && within(1_000_000_000_000_000, 4_000_000_000_000_000) {
            return Typed::new(
                "timestamp_us",
                ColumnType::Timestamp,
                "16 digits: microseconds since 1970, by the look of it",
            );
        }
        if (name.contains("date") || name.contains("day")) && within(19_000_101, 21_000_101) {
            let dated = Typed { format: Some("%Y%m%d"), ..Typed::plain(ColumnType::Date, "a day as year, month, day") };
            if self.misfits_of_format("%Y%m%d", ColumnType::Date) == Some(0) {
                return dated;
            }
        }
        if name.ends_with("date") && within(7_000, 40_000) {
            return Typed::new("date_days", ColumnType::Date, "days since 1970, by the look of it");
        }
        self.proven(Typed::plain(ColumnType::Bigint, "whole numbers"), wrong)
    }

    /// Days and moments.
    fn moments(&self) -> Option<Typed> {
        for kind in [ColumnType::Date, ColumnType::Timestamp] {
            if let Some(wrong) = self.misfits_of(kind) {
                let reason = if kind == ColumnType::Timestamp { self.offsets() } else { String::new() };
                return Some(self.proven(Typed::plain(kind, reason), wrong));
            }
        }
        let fitting = FORMATS.into_iter().filter_map(|format| {
            let kind = if format.contains("%H") { ColumnType::Timestamp } else { ColumnType::Date };
            Some((format, kind, self.misfits_of_format(format, kind)?))
        });
        let fitting: Vec<_> = fitting.collect();
        match fitting[..] {
            [] => None,
            [(format, kind, wrong)] => {
                let reason = format!("written as `{format}`");
                Some(self.proven(Typed { format: Some(format), ..Typed::plain(kind, reason) }, wrong))
            }
            [(one, ..), (other, kind, _), ..] => {
                let reason =
                    format!("a {kind} by `{one}` or by `{other}`: say which in `formats` and declare `{kind}`");
                Some(Typed::plain(ColumnType::String, reason))
            }
        }
    }

    fn text(&self) -> Typed {
        let is_nested = self.values.iter().all(|value| value.starts_with(['{', '[']));
        let base64 = |value: &&str| value.len().is_multiple_of(4) && value.ends_with('=') && value.len() <= 24;
        let reason = match () {
            () if is_nested => "JSON; a path takes a part of it: `column_names: {city: address.city}`",
            () if self.values.iter().all(|value| has_decimal_comma(value)) => {
                "a decimal comma? `select` with `replace(replace(x, '.', ''), ',', '.')` makes a `decimal(18,2)` of it"
            }
            () if self.values.iter().all(base64) => "base64? a decimal of Debezium would be `decimal_base64(p,s)`",
            () => return Typed::plain(ColumnType::String, self.nearly().unwrap_or_default()),
        };
        Typed::plain(ColumnType::String, reason)
    }

    /// What nearly all of the values are, and the first that is none.
    fn nearly(&self) -> Option<String> {
        let all = self.values.len();
        // Numbers and dates of all formats begin so.
        let begins = |value: &&&str| value.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if (self.values.iter().filter(begins).count() as f64) < all as f64 * NEARLY_SHARE {
            return None;
        }
        let told = |what: String, first: usize, wrong: usize| {
            let is_so = wrong > 0 && (all - wrong) as f64 >= all as f64 * NEARLY_SHARE;
            let (fit, of) = (thousands((all - wrong) as u64), thousands(all as u64));
            is_so.then(|| {
                format!("{fit} of {of} values are {what}; the first that is not: `{}`", shown(self.values[first]))
            })
        };
        let no_number = || self.values.iter().enumerate().filter(|(_, value)| digits(value).is_none());
        let numbers = no_number().next().and_then(|(first, _)| told("numbers".to_owned(), first, no_number().count()));
        let by_cast = |what: String, bad: Vec<(usize, String)>| told(what, bad.first()?.0, bad.len());
        let rules = || Rules { zone: self.zone };
        let of_kind =
            |(kind, what): (ColumnType, &str)| by_cast(what.to_owned(), cast(&self.array(), kind, rules()).bad);
        let of_format = |format: &str| {
            let kind = if format.contains("%H") { ColumnType::Timestamp } else { ColumnType::Date };
            let bad = cast_format(&self.array(), kind, &format.parse().ok()?, rules()).bad;
            by_cast(format!("{kind}s by `{format}`"), bad)
        };
        let kinds = [(ColumnType::Date, "dates"), (ColumnType::Timestamp, "timestamps")];
        numbers.or_else(|| kinds.into_iter().find_map(of_kind)).or_else(|| FORMATS.into_iter().find_map(of_format))
    }

    /// Says whether timestamps have offsets.
    fn offsets(&self) -> String {
        let has_offset = |value: &str| {
            let clock = value.get(10..).unwrap_or_default();
            clock.ends_with(['Z', 'z', 'C']) || clock.contains(['+', '-'])
        };
        match self.values.iter().filter(|value| has_offset(value)).count() {
            0 => format!("without an offset: read in {}", self.zone),
            some if some < self.values.len() => format!("some without an offset: read in {}", self.zone),
            _ => String::new(),
        }
    }

    /// A type, with what is said of values that do not fit it.
    fn proven(&self, typed: Typed, wrong: usize) -> Typed {
        if wrong == 0 {
            return typed;
        }
        let all = thousands(self.values.len() as u64);
        let verb = if wrong == 1 { "does not fit and goes" } else { "do not fit and go" };
        let bad = format!("{} of {all} values {verb} to quarantine", thousands(wrong as u64));
        let reason = if typed.reason.is_empty() { bad } else { format!("{}; {bad}", typed.reason) };
        Typed { reason, ..typed }
    }

    fn all(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.values.iter().all(|value| fits(value))
    }

    /// How many values do not fit, where they are few enough.
    fn misfits(&self, fits: impl Fn(&str) -> bool) -> Option<usize> {
        tolerable(self.values.iter().filter(|value| !fits(value)).count(), self.values.len())
    }

    /// The same by the casts of the engine.
    fn misfits_of(&self, kind: ColumnType) -> Option<usize> {
        let wrong = cast(&self.array(), kind, Rules { zone: self.zone }).bad.len();
        tolerable(wrong, self.values.len())
    }

    fn misfits_of_format(&self, format: &str, kind: ColumnType) -> Option<usize> {
        let format: TextFormat = format.parse().ok()?;
        let wrong = cast_format(&self.array(), kind, &format, Rules { zone: self.zone }).bad.len();
        tolerable(wrong, self.values.len())
    }

    fn array(&self) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(self.values.iter()))
    }
}

/// A value on one line, without its end when it is long.
fn shown(value: &str) -> String {
    // What ends a line, or has no place in YAML.
    let is_foreign = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}');
    let line: String = value.chars().map(|c| if is_foreign(c) { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn tolerable(wrong: usize, all: usize) -> Option<usize> {
    let few = all >= TOLERANT_FROM && wrong as f64 <= all as f64 * WRONG_SHARE;
    (wrong == 0 || few).then_some(wrong)
}

fn decimal(precision: usize, scale: usize) -> ColumnType {
    ColumnType::Decimal(u8::try_from(precision).unwrap_or(38), i8::try_from(scale).unwrap_or(0))
}

/// Digits before and after the point of a plain number: a sign, digits, a point, digits.
fn digits(text: &str) -> Option<(usize, usize)> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = !whole.is_empty() && all_digits(whole) && all_digits(fraction) && !mantissa.ends_with('.');
    let exponent_digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !is_plain || exponent_digits.is_empty() || !all_digits(exponent_digits) {
        return None;
    }
    // A number with an exponent is a floating one.
    Some((whole.len(), if exponent == "0" { fraction.len() } else { SCALE_MAX + 1 }))
}

/// True for digits that begin with a 0 which is not the number 0.
fn is_padded(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    whole.len() > 1 && whole.starts_with('0') && all_digits(whole) && all_digits(fraction)
}

/// True for `1.234,56` and `0,5`: what much of the world writes, and no number of a spec.
fn has_decimal_comma(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let Some((whole, fraction)) = unsigned.split_once(',') else { return false };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split('.');
    groups.next().is_some_and(digits) && groups.all(|group| group.len() == 3 && digits(group)) && digits(fraction)
}

/// True for a number that a double holds to the last digit.
fn comes_back(text: &str) -> bool {
    let significant = text.bytes().filter(u8::is_ascii_digit).count();
    text.parse::<f64>().is_ok_and(|number| number.is_finite() && (significant <= 15 || number.to_string() == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, values: &[&str]) -> (String, Option<&'static str>) {
        let values = values.iter().map(|value| Some((*value).to_owned())).chain([None]).collect();
        let typed = typed(&Column { name: name.to_owned(), typed: None, values }, Tz::UTC);
        (typed.declaration, typed.format)
    }

    fn kind(values: &[&str]) -> String {
        told("x", values).0
    }

    #[test]
    fn no_value_loses_anything_by_its_type() {
        assert_eq!(kind(&["1", "-20", "0"]), "bigint");
        assert_eq!(kind(&["00042", "42"]), "string");
        assert_eq!(kind(&["+42"]), "string");
        assert_eq!(kind(&["007.50"]), "string");
        assert_eq!(kind(&["1", "2.50", "-3.125"]), "decimal(18,3)");
        assert_eq!(kind(&["9223372036854775808"]), "decimal(38,0)");
        assert_eq!(kind(&["123456789012345678901.25"]), "decimal(38,2)");
        assert_eq!(kind(&["0.30000000000000004"]), "double");
        assert_eq!(kind(&["1e5", "2"]), "double");
        assert_eq!(kind(&["123456789012345678901234567890123456789012"]), "string");
        assert_eq!(kind(&["true", "FALSE"]), "boolean");
        assert_eq!(kind(&["yes", "no"]), "string");
        assert_eq!(kind(&["1,5", "2,5"]), "string");
        assert_eq!(kind(&["a", "1"]), "string");
        assert_eq!(kind(&["", "1"]), "string");
        assert_eq!(told("zip_code", &["12345"]).0, "string");
    }

    #[test]
    fn days_and_moments_are_told_by_the_casts_of_the_engine() {
        assert_eq!(kind(&["2024-05-01", "2024-12-31"]), "date");
        assert_eq!(kind(&["2024-02-30"]), "string");
        assert_eq!(kind(&["2024-05-01", "2024-05-01T10:00:00Z"]), "timestamp");
        assert_eq!(kind(&["2024-05-01 10:00:00.123456"]), "timestamp");
        assert_eq!(kind(&["2024-05-01T10:00:00.1234567Z"]), "string");
        assert_eq!(told("x", &["31/12/2024", "01/02/2024"]), ("date".to_owned(), Some("%d/%m/%Y")));
        assert_eq!(
            told("x", &["12/31/2024 10:00", "01/02/2024 11:30"]),
            ("timestamp".to_owned(), Some("%m/%d/%Y %H:%M"))
        );
        assert_eq!(kind(&["01/02/2024", "03/04/2024"]), "string", "nobody can tell");
        assert_eq!(told("x", &["01.02.2024", "31.12.2023"]), ("date".to_owned(), Some("%d.%m.%Y")));
        assert_eq!(told("order_date", &["20240501"]), ("date".to_owned(), Some("%Y%m%d")));
        assert_eq!(told("order_no", &["20240501"]).0, "bigint");
        assert_eq!(told("updated_at", &["1714557600000"]).0, "timestamp_ms");
        assert_eq!(told("updated_at", &["1714557600000000"]).0, "timestamp_us");
    }

    #[test]
    fn few_wrong_values_among_many_go_to_quarantine() {
        let mut values: Vec<String> = (0..200).map(|number| format!("{number}.50")).collect();
        values.push("12,5O".to_owned());
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(kind(&texts), "decimal(18,2)");
        assert_eq!(kind(&texts[190..]), "string");
        values.push("007".to_owned());
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(kind(&texts), "string", "a zero in front is never lost");
    }

    #[test]
    fn texts_that_are_nearly_numbers_or_dates_are_told() {
        let reason = |most: &dyn Fn(usize) -> String, many: usize, odd: &str| {
            let values = (1..=many).map(|number| Some(most(number))).chain([Some(odd.to_owned())]).collect();
            let typed = typed(&Column { name: "x".to_owned(), typed: None, values }, Tz::UTC);
            assert_eq!(typed.kind, ColumnType::String, "{typed:?}");
            typed.reason
        };
        let number = |number: usize| format!("{number}.50");
        assert_eq!(reason(&number, 39, "n/a"), "39 of 40 values are numbers; the first that is not: `n/a`");
        assert_eq!(reason(&number, 15, "n/a"), "", "15 of 16 are not nearly all");
        let day = |number: usize| format!("2024-01-{number:02}");
        assert_eq!(reason(&day, 29, "soon"), "29 of 30 values are dates; the first that is not: `soon`");
        let written = |number: usize| format!("{number:02}/05/2024");
        let told = reason(&written, 29, &"x".repeat(40));
        assert!(told.starts_with("29 of 30 values are dates by `%d/%m/%Y`; the first that is not: `xxx"), "{told}");
        assert!(told.ends_with("x…`"), "{told}");
    }

    #[test]
    fn tokens_of_null_are_no_values() {
        let values = ["1", "NULL"].iter().map(|value| Some((*value).to_owned())).collect();
        let told = typed(&Column { name: "x".to_owned(), typed: None, values }, Tz::UTC);
        assert_eq!((told.declaration.as_str(), &told.null_tokens[..]), ("bigint", &["NULL"][..]));
    }

    #[test]
    fn a_decimal_comma_is_told_and_no_number() {
        for (text, is_so) in [
            ("1.234,56", true),
            ("-0,5", true),
            ("12,50", true),
            ("1,234.56", false),
            ("a,b", false),
            ("5", false),
            ("1.23,4", false),
        ] {
            assert_eq!(has_decimal_comma(text), is_so, "{text}");
        }
    }
}
