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
