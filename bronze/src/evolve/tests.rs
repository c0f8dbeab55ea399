//! How columns of files meet those of a table.

use arrow::array::{Array, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::array_value_to_string;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("a batch")
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn shown(column: &ArrayRef) -> Vec<String> {
    let cell = |row| if column.is_null(row) { "\\N".into() } else { array_value_to_string(column, row).expect("text") };
    (0..column.len()).map(cell).collect()
}

/// Values of one column that joins a table column of another type.
#[track_caller]
fn check(column: ArrayRef, target: DataType, values: &[&str], rescued: &[Option<&str>]) {
    let mut evolution = Evolution::of(&Schema::new(vec![Field::new("c", target.clone(), true)]));
    let mut held = None;
    let placed = evolution.place(&mut FileColumns::default(), &batch(vec![("c", column)]), &mut held).expect("columns");
    assert_eq!((placed[0].data_type(), shown(&placed[0])), (&target, values.iter().map(ToString::to_string).collect()));
    let held: Vec<Option<String>> = held.unwrap_or_else(|| vec![None; values.len()]);
    assert_eq!(held.iter().map(Option::as_deref).collect::<Vec<_>>(), rescued);
}

#[test]
fn columns_are_matched_by_name_and_new_ones_come_last() {
    let table = columns::bronze_leading().into_iter().chain([Field::new("id", DataType::Utf8, true)]);
    let mut evolution = Evolution::of(&Schema::new(table.collect::<Vec<_>>()));
    let first = batch(vec![("Status", texts(&[Some("new")])), ("ID", texts(&[Some("1")]))]);
    let placed = evolution.place(&mut FileColumns::default(), &first, &mut None).expect("columns");
    assert_eq!(placed.iter().map(shown).collect::<Vec<_>>(), [["1"], ["new"]]);
    let second = batch(vec![("status", texts(&[Some("paid")])), ("coupon", texts(&[Some("X")]))]);
    let placed = evolution.place(&mut FileColumns::default(), &second, &mut None).expect("columns");
    assert_eq!(placed.iter().map(shown).collect::<Vec<_>>(), [["\\N"], ["paid"], ["X"]]);
    assert_eq!(
        evolution.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["id", "Status", "coupon"]
    );
}

#[test]
fn a_value_of_another_type_joins_when_it_survives() {
    let decimal = DataType::Decimal128(38, 2);
    check(Arc::new(Int64Array::from(vec![5, -1])), decimal.clone(), &["5.00", "-1.00"], &[None, None]);
    let finer = Decimal128Array::from(vec![1230, 1234]).with_precision_and_scale(38, 3).expect("a decimal");
    check(Arc::new(finer), decimal.clone(), &["1.23", "\\N"], &[None, Some("{\"c\":\"1.234\"}")]);
    check(
        Arc::new(Float64Array::from(vec![2.0, 2.5])),
        DataType::Int64,
        &["2", "\\N"],
        &[None, Some("{\"c\":\"2.5\"}")],
    );
    check(Arc::new(Int64Array::from(vec![7])), DataType::Utf8, &["7"], &[None]);
    check(Arc::new(Date32Array::from(vec![19844])), DataType::Utf8, &["2024-05-01"], &[None]);
    let large = 9_007_199_254_740_993;
    check(
        Arc::new(Int64Array::from(vec![large])),
        DataType::Float64,
        &["\\N"],
        &[Some("{\"c\":\"9007199254740993\"}")],
    );
}

#[test]
fn a_value_of_another_kind_is_rescued() {
    let instant = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let (number, flag): (ArrayRef, ArrayRef) =
        (Arc::new(Int64Array::from(vec![5])), Arc::new(BooleanArray::from(vec![true])));
    let day: ArrayRef = Arc::new(Date32Array::from(vec![19844]));
    for (column, target, text) in [
        (&number, instant(), "5"),
        (&number, DataType::Date32, "5"),
        (&number, DataType::Boolean, "5"),
        (&flag, DataType::Int64, "true"),
        (&day, DataType::Int64, "2024-05-01"),
        (&day, instant(), "2024-05-01"),
    ] {
        check(Arc::clone(column), target, &["\\N"], &[Some(&format!("{{\"c\":\"{text}\"}}"))]);
    }
}

#[test]
fn a_text_joins_a_typed_column_only_as_it_would_be_written() {
    check(
        texts(&[Some("2024-05-01"), Some("01.05.2024"), None]),
        DataType::Date32,
        &["2024-05-01", "\\N", "\\N"],
        &[None, Some("{\"c\":\"01.05.2024\"}"), None],
    );
    check(
        texts(&[Some("7"), Some("007"), Some("x"), Some("")]),
        DataType::Int64,
        &["7", "\\N", "\\N", "\\N"],
        &[None, Some("{\"c\":\"007\"}"), Some("{\"c\":\"x\"}"), Some("{\"c\":\"\"}")],
    );
    check(
        texts(&[Some("10.5"), Some("10.505")]),
        DataType::Decimal128(38, 2),
        &["10.50", "\\N"],
        &[None, Some("{\"c\":\"10.505\"}")],
    );
}

#[test]
fn what_was_rescued_before_stays() {
    let mut evolution = Evolution::of(&Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let mut rescued = Some(vec![Some("{\"_c3\":\"y\"}".to_owned())]);
    evolution
        .place(&mut FileColumns::default(), &batch(vec![("n", texts(&[Some("x")]))]), &mut rescued)
        .expect("columns");
    assert_eq!(rescued, Some(vec![Some("{\"_c3\":\"y\",\"n\":\"x\"}".to_owned())]));
}

fn hint(name: &str, kind: &str) -> Column {
    Column::parse(name, kind).expect("a column")
}

fn rules(mode: SchemaEvolutionMode, hints: Vec<Column>) -> SchemaRules {
    SchemaRules { mode, hints, ..SchemaRules::default() }
}

/// A table with one data column of text, `id`.
fn table() -> Schema {
    Schema::new(
        columns::bronze_leading().into_iter().chain([Field::new("id", DataType::Utf8, true)]).collect::<Vec<_>>(),
    )
}

#[test]
fn a_double_joins_a_decimal_with_the_digits_that_it_is_written_with() {
    let doubles = Arc::new(Float64Array::from(vec![1.1, 0.125, 1e30]));
    let decimal = DataType::Decimal128(38, 20);
    check(
        doubles,
        decimal,
        &["1.10000000000000000000", "0.12500000000000000000", "\\N"],
        &[None, None, Some("{\"c\":\"1e30\"}")],
    );
}

#[test]
fn what_was_rescued_keeps_its_digits() {
    let mut evolution = Evolution::of(&Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let mut rescued = Some(vec![Some("{\"\":1.10}".to_owned())]);
    evolution
        .place(&mut FileColumns::default(), &batch(vec![("n", texts(&[Some("x")]))]), &mut rescued)
        .expect("columns");
    assert_eq!(rescued, Some(vec![Some("{\"\":1.10,\"n\":\"x\"}".to_owned())]));
}

#[test]
fn a_hinted_column_is_typed_by_what_its_text_means() {
    let hints = vec![hint("Amount", "decimal(12,2)"), hint("at", "timestamp"), hint("later", "bigint")];
    let rules = SchemaRules { zone: Tz::America__New_York, ..rules(SchemaEvolutionMode::AddNewColumns, hints) };
    let mut evolution = Evolution::with_rules(&table(), &rules);
    let rows = batch(vec![
        ("id", texts(&[Some("1"), Some("2"), Some("3")])),
        ("amount", texts(&[Some("007.5"), Some("1.005"), None])),
        ("at", texts(&[Some("2024-05-01 10:00:00"), Some("soon"), Some("2024-05-01T10:00:00Z")])),
    ]);
    let mut rescued = None;
    let placed = evolution.place(&mut FileColumns::default(), &rows, &mut rescued).expect("columns");
    assert_eq!(evolution.fields()[1].name(), "Amount");
    assert_eq!(shown(&placed[1]), ["7.50", "\\N", "\\N"]);
    assert_eq!(shown(&placed[2]), ["2024-05-01T14:00:00Z", "\\N", "2024-05-01T10:00:00Z"]);
    assert_eq!((placed[3].data_type(), placed[3].null_count()), (&DataType::Int64, 3));
    assert_eq!(rescued, Some(vec![None, Some("{\"Amount\":\"1.005\",\"at\":\"soon\"}".to_owned()), None]));
}

#[test]
fn a_hint_cannot_change_a_column_that_is_there() {
    let name = TableName::bronze("s");
    let wrong = rules(SchemaEvolutionMode::AddNewColumns, vec![hint("ID", "bigint")]);
    let error = check_hints(&name, &table(), &wrong).expect_err("another type");
    assert_eq!(error.to_string(), "column `id` of bronze.s is string, and `schema_hints` wants bigint");
    let right = rules(SchemaEvolutionMode::AddNewColumns, vec![hint("id", "string"), hint("new", "date")]);
    check_hints(&name, &table(), &right).expect("the same type, and a new column");
}

#[test]
fn the_mode_says_what_becomes_of_new_columns() {
    let rows = || batch(vec![("id", texts(&[Some("1"), Some("2")])), ("coupon", texts(&[Some("X"), None]))]);
    let outcome = |mode| {
        let mut evolution = Evolution::with_rules(&table(), &rules(mode, Vec::new()));
        let (mut file, mut rescued) = (evolution.begin_file(), None);
        let placed = evolution.place(&mut file, &rows(), &mut rescued).map(|placed| placed.len());
        (placed, rescued, evolution.note(&file))
    };
    let (placed, rescued, note) = outcome(SchemaEvolutionMode::AddNewColumns);
    assert_eq!((placed.expect("columns"), rescued, note), (2, None, None));
    let (placed, rescued, note) = outcome(SchemaEvolutionMode::Rescue);
    assert_eq!((placed.expect("columns"), rescued), (1, Some(vec![Some("{\"coupon\":\"X\"}".to_owned()), None])));
    assert_eq!(note.expect("a note").to_string(), "`coupon` not in the table (kept in `_rescued_data`)");
    let (placed, rescued, note) = outcome(SchemaEvolutionMode::None);
    assert_eq!((placed.expect("columns"), rescued), (1, None));
    assert!(note.expect("a note").to_string().contains("`coupon` not in the table (left out"));
    let (placed, _, _) = outcome(SchemaEvolutionMode::FailOnNewColumns);
    let error = placed.expect_err("a new column");
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(error.to_string().contains("the column `coupon` is not in the table"), "{error}");
}

#[test]
fn the_first_batch_brings_the_columns_in_every_mode() {
    let empty = Schema::new(columns::bronze_leading());
    let hints = vec![hint("amount", "bigint")];
    let mut evolution = Evolution::with_rules(&empty, &rules(SchemaEvolutionMode::FailOnNewColumns, hints));
    let rows = batch(vec![("id", texts(&[Some("1")])), ("coupon", texts(&[Some("X")]))]);
    assert_eq!(evolution.place(&mut FileColumns::default(), &rows, &mut None).expect("columns").len(), 3);
}

#[test]
fn a_column_that_vanishes_while_another_appears_is_probably_renamed() {
    let mut evolution = Evolution::of(&table());
    let mut note = |names: [&str; 2]| {
        let (mut file, value) = (evolution.begin_file(), texts(&[Some("1")]));
        let rows = batch(names.into_iter().map(|name| (name, Arc::clone(&value))).collect());
        evolution.place(&mut file, &rows, &mut None).expect("columns");
        evolution.note(&file)
    };
    assert_eq!(note(["ID", "state"]), None, "nothing is gone");
    let note = note(["id", "status"]).expect("a note");
    assert!(note.is_rename());
    assert_eq!(note.to_string(), "`state` gone and `status` new: probably renamed");
}

#[test]
fn a_hinted_column_that_no_file_has_is_not_renamed() {
    let hints = vec![hint("amount", "bigint")];
    let mut evolution = Evolution::with_rules(&table(), &rules(SchemaEvolutionMode::AddNewColumns, hints));
    let mut file = evolution.begin_file();
    let rows = batch(vec![("id", texts(&[Some("1")])), ("coupon", texts(&[Some("X")]))]);
    evolution.place(&mut file, &rows, &mut None).expect("columns");
    assert_eq!(evolution.note(&file), None);
}

#[test]
fn a_table_has_so_many_columns_at_most() {
    let many: Vec<Field> =
        (0..COLUMNS_MAX).map(|index| Field::new(format!("c{index}"), DataType::Utf8, true)).collect();
    let mut evolution = Evolution::of(&Schema::new(many));
    let error = evolution
        .place(&mut FileColumns::default(), &batch(vec![("more", texts(&[None]))]), &mut None)
        .expect_err("too many");
    assert_eq!(error.to_string(), "with the column `more` the table would have more than 5000 columns");
}
