//! What each type accepts, and what it names as not fitting.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{Decimal128Type, Int32Type, TimestampMicrosecondType};

use super::*;

const UTC: Rules = Rules { zone: Tz::UTC };

fn text(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn decimals(values: &[&str], precision: u8, scale: i8) -> (Vec<Option<i128>>, Vec<usize>) {
    let column = text(&values.iter().map(|value| Some(*value)).collect::<Vec<_>>());
    let Cast { array, bad } = cast(&column, ColumnType::Decimal(precision, scale), UTC);
    (array.as_primitive::<Decimal128Type>().iter().collect(), bad.into_iter().map(|(row, _)| row).collect())
}

#[test]
fn decimals_keep_every_digit_or_are_named() {
    let (values, bad) = decimals(&["10.00", "-0.5", "1e2", "1.50e-1", "007", "1.000", " 3 "], 12, 2);
    assert_eq!(values, [Some(1000), Some(-50), Some(10_000), Some(15), Some(700), Some(100), Some(300)]);
    assert!(bad.is_empty());

    let (values, bad) = decimals(&["oops", "1.005", "", "12,5", "1e", "99999999999.99", "0x10", ".", "1e-9"], 12, 2);
    assert_eq!(bad, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(values.iter().all(Option::is_none));

    let (values, _) = decimals(&["9007199254740993.01", "0e99", "0.000"], 18, 2);
    assert_eq!(values, [Some(900_719_925_474_099_301), Some(0), Some(0)]);
    let (values, bad) = decimals(&["99999999999999999999999999999999999999", "1e38"], 38, 0);
    assert_eq!(values[0], Some(99_999_999_999_999_999_999_999_999_999_999_999_999));
    assert_eq!(bad, [1]);
}

#[test]
fn whole_numbers_are_whole_and_in_range() {
    let column = text(&[Some("18446744073709551615"), Some("-9223372036854775808"), Some("1.5"), None, Some("x")]);
    let Cast { array, bad } = cast(&column, ColumnType::Bigint, UTC);
    assert_eq!(array.null_count(), 4);
    let reasons: Vec<_> = bad.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "`18446744073709551615` is out of range for bigint",
            "`1.5` is not a bigint: it has a fraction",
            "`x` is not a bigint"
        ]
    );
}

#[test]
fn a_whole_number_is_one_however_it_is_written() {
    let numbers =
        ["1.0", "-10.00", "1e3", "1.7040672E15", "+7.", "120e-1", "9223372036854775807.0", "007", "-0", "0e999"];
    let column = text(&numbers.map(Some));
    let Cast { array, bad } = cast(&column, ColumnType::Bigint, UTC);
    assert!(bad.is_empty(), "{bad:?}");
    let values = array.as_primitive::<arrow::datatypes::Int64Type>();
    assert_eq!(values.values(), &[1, -10, 1_000, 1_704_067_200_000_000, 7, 12, i64::MAX, 7, 0, 0]);

    let misfits = ["9223372036854775808.0", "1e40", "1e-1", "1e", "0x10", "1,0", "", ".", "--1", "NaN", "1 0"];
    let Cast { array, bad } = cast(&text(&misfits.map(Some)), ColumnType::Bigint, UTC);
    assert_eq!((array.null_count(), bad.len()), (misfits.len(), misfits.len()), "{bad:?}");
    assert_eq!(bad[0].1, "`9223372036854775808.0` is out of range for bigint");
    let Cast { array, bad } = cast(&text(&[Some("127.0"), Some("128.0")]), ColumnType::Tinyint, UTC);
    assert_eq!(array.as_primitive::<arrow::datatypes::Int8Type>().value(0), 127);
    assert_eq!(bad, [(1, "`128.0` is out of range for tinyint".to_owned())]);
}

#[test]
fn spaces_that_do_not_break_are_blanks_around_a_value() {
    let column = text(&[Some("\u{a0}1"), Some(" \u{202f}2\u{a0} "), Some("\u{a0}"), Some("1\u{a0}000")]);
    let Cast { array, bad } = cast(&column, ColumnType::Int, UTC);
    assert_eq!(array.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(1), Some(2), None, None]);
    assert_eq!(bad.len(), 2);
    assert_eq!(moments(&["\u{a0}1970-01-01\u{a0}"], UTC).0, [Some(0)]);
}

#[test]
fn floats_are_numbers_and_the_words_for_what_is_none() {
    let texts = ["1.5", "NaN", "-Infinity", "inf", "-2e3", "1e999", "-1e999", "infinite", "n/a", ""];
    let Cast { array, bad } = cast(&text(&texts.map(Some)), ColumnType::Double, UTC);
    let values = array.as_primitive::<arrow::datatypes::Float64Type>();
    assert!(values.value(1).is_nan());
    assert_eq!([values.value(0), values.value(2), values.value(3)], [1.5, f64::NEG_INFINITY, f64::INFINITY]);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
    assert_eq!(bad[0].1, "`1e999` is out of range for double");
    let Cast { array, bad } = cast(&text(&[Some("NaN"), Some("Infinity"), Some("1e39")]), ColumnType::Float, UTC);
    assert!(array.as_primitive::<arrow::datatypes::Float32Type>().value(0).is_nan());
    assert_eq!(bad, [(2, "`1e39` is out of range for float".to_owned())]);
}

#[test]
fn years_have_four_digits_in_every_form() {
    let days = text(&[Some("0000-12-31"), Some("0001-01-01"), Some("9999-12-31"), Some("10000-01-01")]);
    let bad = |cast: Cast| cast.bad.into_iter().map(|(row, _)| row).collect::<Vec<_>>();
    assert_eq!(bad(cast(&days, ColumnType::Date, UTC)), [0, 3]);
    let moments = text(&[
        Some("0001-01-01T00:00:00+00:01"),
        Some("0001-01-01T00:00:00Z"),
        Some("9999-12-31T23:59:59.999999Z"),
        Some("9999-12-31T23:59:59-00:01"),
        Some("0000-06-01 00:00:00"),
    ]);
    let of_texts = cast(&moments, ColumnType::Timestamp, UTC);
    assert!(of_texts.bad[0].1.contains("out of range for a timestamp (years 0001 to 9999)"), "{:?}", of_texts.bad);
    assert_eq!(bad(of_texts), [0, 3, 4]);

    let ends = [-62_135_596_800_000_001, -62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000];
    let typed: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from(ends.to_vec()).with_timezone("UTC"));
    let of_typed = cast(&typed, ColumnType::Timestamp, UTC);
    assert_eq!(of_typed.array.null_count(), 2);
    assert_eq!(bad(of_typed), [0, 3]);
    let numbers: ArrayRef = Arc::new(Int64Array::from(ends.to_vec()));
    assert_eq!(bad(from_epoch(&cast(&numbers, ColumnType::Bigint, UTC), 1)), [0, 3]);
    let seconds: ArrayRef = Arc::new(Int64Array::from(vec![-62_135_596_801, 253_402_300_799, i64::MAX]));
    assert_eq!(bad(from_epoch(&cast(&seconds, ColumnType::Bigint, UTC), 1_000_000)), [0, 2]);

    let counts: ArrayRef = Arc::new(Int64Array::from(vec![-719_163, -719_162, 2_932_896, 2_932_897, i64::MAX]));
    assert_eq!(bad(from_days(&cast(&counts, ColumnType::Bigint, UTC))), [0, 3, 4]);
    let typed: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![Some(i32::MAX), None, Some(0)]));
    let of_typed = cast(&typed, ColumnType::Date, UTC);
    assert_eq!((of_typed.array.null_count(), bad(of_typed)), (2, vec![0]));
}

#[test]
fn single_precision_keeps_its_digits_both_ways() {
    for value in [19.99_f32, 0.1, 5.5, 1e10, -1e-10, f32::MAX, f32::MIN_POSITIVE, 16_777_217.0, 0.0, -0.0] {
        let wide = widened(value);
        assert_eq!((wide.to_string(), wide as f32), (value.to_string(), value));
    }
    for number in -20_000_i32..20_000 {
        let value = number as f32 / 97.0;
        assert_eq!(widened(value).to_string(), value.to_string());
        let price = number as f32 / 100.0;
        assert_eq!(widened(price).to_string(), (f64::from(number) / 100.0).to_string());
    }
    assert!(widened(f32::NAN).is_nan() && widened(f32::INFINITY).is_infinite());
    let doubles: ArrayRef =
        Arc::new(Float64Array::from(vec![19.99, f64::from(19.99_f32), 0.123_456_789_012, f64::NAN]));
    let Cast { array, bad } = cast(&doubles, ColumnType::Float, UTC);
    assert_eq!(array.as_primitive::<arrow::datatypes::Float32Type>().value(0), 19.99);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2], "more digits than a float has");
}

fn moments(values: &[&str], rules: Rules) -> (Vec<Option<i64>>, Vec<String>) {
    let column = text(&values.iter().map(|value| Some(*value)).collect::<Vec<_>>());
    let Cast { array, bad } = cast(&column, ColumnType::Timestamp, rules);
    (
        array.as_primitive::<TimestampMicrosecondType>().iter().collect(),
        bad.into_iter().map(|(_, reason)| reason).collect(),
    )
}

#[test]
fn moments_are_instants_whatever_their_form() {
    let same = [
        "2024-05-01T10:00:00Z",
        "2024-05-01 10:00:00",
        "2024-05-01 10:00",
        "2024-05-01T12:00:00.000+02:00",
        "2024-05-01T05:30:00.0-0430",
        "2024-05-01 10:00:00.000000000 UTC",
    ];
    let (values, bad) = moments(&same, UTC);
    assert!(bad.is_empty(), "{bad:?}");
    assert!(values.iter().all(|value| *value == Some(1_714_557_600_000_000)), "{values:?}");
    let (values, _) = moments(&["2024-05-01 10:00:00.5", "2024-05-01 10:00:00.007042", "1969-12-31"], UTC);
    assert_eq!(values, [Some(1_714_557_600_500_000), Some(1_714_557_600_007_042), Some(-86_400_000_000)]);
}

#[test]
fn moments_that_cannot_be_are_named() {
    let wrong = [
        "0000-00-00 00:00:00",
        "2024-02-30",
        "2024-05-01 25:00:00",
        "yesterday",
        "2024-05-01 10:00:00.1234567",
        "2024-05-01 10:00:",
    ];
    let (values, bad) = moments(&wrong, UTC);
    assert!(values.iter().all(Option::is_none));
    assert_eq!(bad.len(), wrong.len());
    assert_eq!(bad[4], "`2024-05-01 10:00:00.1234567` is finer than a microsecond");
}

#[test]
fn text_without_an_offset_is_in_the_zone() {
    let lisbon = Rules { zone: Tz::Europe__Lisbon };
    let (values, bad) = moments(&["2024-07-01 12:00:00", "2024-03-31 01:30:00", "2024-10-27 01:30:00"], lisbon);
    assert_eq!(values[0], moments(&["2024-07-01T11:00:00Z"], UTC).0[0]);
    assert_eq!(bad, ["`2024-03-31 01:30:00` does not exist in Europe/Lisbon"]);
    assert_eq!(values[2], moments(&["2024-10-27T00:30:00Z"], UTC).0[0], "the first of the hour that comes twice");
}

#[test]
fn days_have_no_time() {
    let column =
        text(&[Some("2024-05-01"), Some("2024-05-01T00:00:00"), Some("2024-05-01 10:00:00"), Some("01/05/2024")]);
    let Cast { array, bad } = cast(&column, ColumnType::Date, UTC);
    let values = array.as_primitive::<arrow::datatypes::Date32Type>();
    assert_eq!((values.value(0), values.value(1)), (19_844, 19_844));
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_midnight_is_the_day_that_is_written() {
    let same = [
        "2024-05-01 00:00",
        "2024-05-01T00:00:00Z",
        "2024-05-01t00:00:00.000000000Z",
        "2024-05-01T00:00:00+00:00",
        "2024-05-01 00:00:00.0 UTC",
        "2024-05-01T00:00:00+02:00",
        "2024-05-01 00:00:00-0800",
    ];
    let Cast { array, bad } = cast(&text(&same.map(Some)), ColumnType::Date, UTC);
    assert!(bad.is_empty(), "{bad:?}");
    assert!(array.as_primitive::<arrow::datatypes::Date32Type>().iter().all(|day| day == Some(19_844)), "{array:?}");
    let others =
        ["2024-05-01T00:00:01Z", "2024-05-01T00:00:00.0000001Z", "2024-05-01 00:00x", "2024-05-01T", "2024-05-012"];
    let Cast { bad, .. } = cast(&text(&others.map(Some)), ColumnType::Date, UTC);
    let reasons: Vec<&str> = bad.iter().map(|(_, reason)| reason.as_str()).collect();
    assert!(reasons[..2].iter().all(|reason| reason.ends_with("is not a date: it has a time of day")), "{reasons:?}");
    assert!(reasons[2..].iter().all(|reason| reason.ends_with("is not a date (year-month-day)")), "{reasons:?}");
    assert_eq!(reasons.len(), others.len());
}

#[test]
fn typed_values_must_survive_the_way_back() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(3_000_000_000), None]));
    let Cast { array, bad } = cast(&numbers, ColumnType::Int, UTC);
    assert_eq!(array.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(7), None, None]);
    assert_eq!(bad, [(1, "bigint `3000000000` does not fit int exactly".to_owned())]);

    let wide: ArrayRef =
        Arc::new(Decimal128Array::from(vec![1_500, 1_505]).with_precision_and_scale(38, 3).expect("a type"));
    let Cast { array, bad } = cast(&wide, ColumnType::Decimal(10, 2), UTC);
    assert_eq!(array.as_primitive::<Decimal128Type>().value(0), 150);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);

    let halves: ArrayRef = Arc::new(Float64Array::from(vec![2.0, 2.5]));
    let Cast { bad, .. } = cast(&halves, ColumnType::Bigint, UTC);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_double_is_the_digits_that_it_is_written_with() {
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![1.1, 0.1, 19.99, -2.5, 1e22, 0.125, f64::NAN]));
    let Cast { array, bad } = cast(&doubles, ColumnType::Decimal(38, 20), UTC);
    let shown: Vec<String> = (0..5).map(|row| array.as_primitive::<Decimal128Type>().value_as_string(row)).collect();
    assert_eq!(
        shown[..4],
        ["1.10000000000000000000", "0.10000000000000000000", "19.99000000000000000000", "-2.50000000000000000000"]
    );
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [4, 6], "too large, and no number");
    let Cast { array, bad } = cast(&doubles, ColumnType::Decimal(12, 2), UTC);
    assert_eq!(array.as_primitive::<Decimal128Type>().value(2), 1999);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [4, 5, 6]);
}

#[test]
fn a_decimal_becomes_a_double_only_with_all_its_digits() {
    let values = vec![110, 900_719_925_474_099_301, -5, 0];
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(values).with_precision_and_scale(38, 2).expect("a type"));
    let Cast { array, bad } = cast(&decimals, ColumnType::Double, UTC);
    let doubles: Vec<_> = array.as_primitive::<arrow::datatypes::Float64Type>().iter().collect();
    assert_eq!(doubles, [Some(1.1), None, Some(-0.05), Some(0.0)]);
    assert_eq!(bad.len(), 1);
}

#[test]
fn a_number_is_no_date_and_no_timestamp() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
    let Cast { array, bad } = cast(&numbers, ColumnType::Timestamp, UTC);
    assert_eq!((array.data_type(), array.null_count()), (&ColumnType::Timestamp.arrow(), 2));
    assert_eq!(
        bad,
        [(0, "bigint `5` does not fit timestamp exactly: a count is `timestamp_ms` or `timestamp_us`".to_owned())]
    );
    let Cast { bad, .. } = cast(&numbers, ColumnType::Date, UTC);
    assert_eq!(bad, [(0, "bigint `5` does not fit date exactly: a count of days is `date_days`".to_owned())]);
    let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![19_844]));
    let Cast { bad, .. } = cast(&days, ColumnType::Bigint, UTC);
    assert_eq!(bad, [(0, "date `2024-05-01` does not fit bigint exactly".to_owned())]);
    let flags: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, 2]));
    let Cast { bad, .. } = cast(&flags, ColumnType::Boolean, UTC);
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2], "0 and 1 are how many sources write them");
}
