use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;
use crate::session::Session;

fn problem(sql: &str) -> String {
    let session = Session::detached().expect("a session");
    let ready = Expression::parse(sql).and_then(|expression| expression.ready_for_texts(&session).map(drop));
    ready.expect_err(sql).to_string()
}

#[test]
fn names_are_found_once_and_with_their_dots() {
    let expression = Expression::parse(r#"coalesce(a, doc.address."zip code", upper(a), 'b')"#).expect("parsed");
    assert_eq!(expression.names(), ["a", "doc.address.zip code"]);
    assert!(Expression::parse("1 + 1").expect("parsed").names().is_empty());
}

#[test]
fn only_values_of_one_row_that_stay_the_same_are_taken() {
    for (sql, why) in [
        ("sum(a)", "`sum()` looks at other rows"),
        ("row_number() OVER (ORDER BY a)", "looks at other rows"),
        ("(SELECT 1)", "it holds a query"),
        ("a IN (SELECT b FROM c)", "it holds a query"),
        ("now()", "`now()` gives something else whenever it is asked"),
        ("CASE WHEN a = 'x' THEN random() END", "`random()` gives something else"),
        ("uuid()", "`uuid()` gives something else"),
        ("current_date", "gives something else"),
        ("a AS b", "`AS b` names a column"),
        ("a b c", "is not an expression"),
        ("lower(", "is not an expression"),
        ("a; drop", "is not an expression"),
        ("trimm(a)", "trimm"),
        ("named_struct('x', a)", "which no column can hold"),
        ("$1", "variable"),
        ("*", "is not an expression"),
    ] {
        let message = problem(sql);
        assert!(message.contains(why), "{sql}: {message}");
    }
}

#[test]
fn what_other_engines_read_has_backticks() {
    let portable = |sql: &str| Expression::parse(sql).expect("parsed").portable();
    assert_eq!(portable(" amount > 0 "), "amount > 0");
    assert_eq!(portable(r#""order id" > 0 AND note <> '"'"#), "`order id` > 0 AND `note` <> '\"'");
    assert_eq!(Expression::parse("`order id` > 0").expect("parsed").names(), ["order id"]);
}

#[test]
fn whole_numbers_do_not_wrap() {
    let session = Session::detached().expect("a session");
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), Some(i64::MIN), None]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers]).expect("a batch");
    for (sql, first) in [("-a", -3), ("a - 1", 2), ("a * 2", 6)] {
        let scalar = Expression::parse(sql).and_then(|sql| sql.ready(&schema, &session)).expect(sql);
        let Values { array, failed } = scalar.values(&batch).expect(sql);
        assert_eq!(array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(first), None, None], "{sql}");
        assert_eq!(failed.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1], "{sql}: {failed:?}");
    }
}
