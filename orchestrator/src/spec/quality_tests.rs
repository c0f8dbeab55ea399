//! SQL of silver tables that cannot be computed, named with its place before anything is run.

use std::collections::BTreeMap;

use lake::spec::Document;

use super::Project;

/// Every problem of a table with these options: `path: message (hint)`.
fn problems(format: &str, options: &str) -> String {
    let spec = format!(
        "name: shop\nbronze:\n  s: {{path: ./, {format}}}\nsilver:\n  t:\n    source: s\n    keys: [id]\n    \
         columns: {{id: bigint not null, note: string, amount: 'decimal(12,2)', at: timestamp, day: date}}\n    {options}\n"
    );
    let document = Document::parse("pipelines.yaml", &spec);
    let Err(problems) = Project::compile(&document, &BTreeMap::new()) else { return String::new() };
    let json = problems.to_json();
    let list = json["problems"].as_array().expect("a list").iter();
    let text = |problem: &serde_json::Value, key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    let word = |problem| format!("{}: {} ({})", text(problem, "path"), text(problem, "message"), text(problem, "hint"));
    list.map(word).collect::<Vec<_>>().join("\n").replace("silver.t.", "")
}

fn assert_all(format: &str, cases: &[(&str, &str)]) {
    for (options, expected) in cases {
        let found = problems(format, options);
        assert_eq!(found.is_empty(), expected.is_empty(), "{options}: {found}");
        assert!(found.contains(expected), "{options}: {found}");
    }
}

#[test]
fn what_select_cannot_compute_is_said_before_anything_is_read() {
    let cases = [
        ("select: {note: 'trim(coalesce(a, doc.b.c))', id: 'CAST(x AS BIGINT) + 1'}", ""),
        ("select: {note: '_file_path', at: '_file_modification_time', id: '_row_number * 2'}", ""),
        ("select: {nota: 'trim(a)'}", "select.nota: `nota` is not a declared column (did you mean `note`?)"),
        ("select: {note: ''}", "select.note: the expression is empty"),
        ("select: {note: 'trim(a'}", "select.note: `trim(a` is not an expression"),
        ("select: {note: 'trim(a) b c'}", "is not an expression"),
        ("select: {note: 'trimm(a)'}", "Did you mean 'trim'"),
        ("select: {note: 'a + 1'}", "cannot coerce arithmetic expression Utf8 + Int64"),
        ("select: {note: 'date_trunc(a)'}", "select.note: `date_trunc(a)` cannot be computed"),
        ("select: {note: 'make_array(a)'}", "which no column can hold"),
        ("select: {at: 'now()'}", "`now()` gives something else whenever it is asked"),
        ("select: {note: 'concat(a, random())'}", "`random()` gives something else"),
        ("select: {note: 'uuid()'}", "`uuid()` gives something else"),
        ("select: {day: 'current_date'}", "gives something else"),
        ("select: {note: 'max(a)'}", "`max()` looks at other rows"),
        ("select: {note: 'lag(a) OVER (ORDER BY b)'}", "looks at other rows"),
        ("select: {note: '(SELECT 1)'}", "it holds a query"),
        ("select: {note: 'a IN (SELECT b FROM c)'}", "it holds a query"),
        ("select: {note: a}\n    column_names: {note: b}", "comes from an expression and from a column"),
    ];
    assert_all("format: csv", &cases);
    // The types of a typed source are not known yet: what depends on them is said by the run.
    let cases = [
        ("select: {note: 'date_trunc(a)'}", ""),
        ("select: {note: 'trimm(a)'}", "Did you mean 'trim'"),
        ("select: {at: 'now()'}", "`now()` gives something else"),
    ];
    assert_all("format: parquet", &cases);
}

#[test]
fn columns_that_the_source_cannot_have_are_said_where_the_spec_names_all() {
    let format = "format: csv, csv: {header: false, columns: [id, note, amount, at, day, kind]}";
    let cases = [
        ("op: {column: kind, delete: [D]}", ""),
        ("op: {column: Kind, delete: [D]}", ""),
        ("op: {column: kin, delete: [D]}", "op.column: `s` has no column `kin` (did you mean `kind`?)"),
        ("delete_flag: {column: gone, values: ['1']}", "delete_flag.column: `s` has no column `gone`"),
        ("select: {note: 'upper(noet)'}", "select.note: `s` has no column `noet` (did you mean `note`?)"),
        ("select: {note: 'upper(kind.name)'}", ""),
        ("column_names: {note: nota}", "column_names.note: `s` has no column `nota` (did you mean `note`?)"),
        ("sequence_by: [\"lsn bigint\"]", "sequence_by: `s` has no column `lsn`"),
        ("sequence_by: [\"_file_path string\"]", ""),
        ("select: {at: 'trim(kind)'}\n    sequence_by: [at]", ""),
    ];
    assert_all(format, &cases);
    assert_all("format: csv", &[("op: {column: kin, delete: [D]}", "")]);
}

#[test]
fn rules_that_no_row_can_be_held_to_are_said_before_anything_is_read() {
    let cases = [
        ("constraints: {positive: 'amount > 0', dated: 'at IS NULL OR day IS NOT NULL'}", ""),
        ("constraints: {positive: 'amuont > 0'}", "`amuont` is not a column of the table (did you mean `amount`?)"),
        ("constraints: {positive: 'amount + 1'}", "is not a condition: it gives"),
        ("constraints: {positive: 'amount >'}", "is not an expression"),
        ("constraints: {positive: 'note > 0 AND at > 5'}", "constraints.positive: "),
        ("constraints: {positive: 'at < now()'}", "`now()` gives something else"),
        ("constraints: {positive: 'amount > (SELECT 1)'}", "it holds a query"),
        ("constraints: {positive: 'sum(amount) > 0'}", "looks at other rows"),
        ("constraints: {'a b': 'amount > 0'}", "`a b` cannot name a constraint (letters, digits and `_`)"),
        ("constraints: {a: 'amount > 0', A: 'amount > 1'}", "are the same name of a constraint"),
        ("generated: {day: 'CAST(at AS DATE)'}\n    partition_by: [day]", ""),
        ("generated: {dai: 'CAST(at AS DATE)'}", "`dai` is not a declared column (did you mean `day`?)"),
        ("generated: {day: 'CAST(att AS DATE)'}", "`att` is not a column of the table (did you mean `at`?)"),
        ("generated: {day: 'current_date'}", "gives something else"),
        ("generated: {day: 'max(at)'}", "looks at other rows"),
        ("generated: {day: ''}", "the expression is empty"),
        ("generated: {id: 'length(note)'}", "make it with `select`"),
        ("generated: {at: 'now()'}\n    sequence_by: [at]", "make it with `select`"),
        ("generated: {day: 'CAST(at AS DATE)', note: 'CAST(day AS STRING)'}", "none can be made of another"),
        ("generated: {day: 'coalesce(day, CAST(at AS DATE))'}", "none can be made of another"),
        ("generated: {day: \"split_part(note, 'T', 1)\"}", "gives a text and `day` is date"),
        ("generated: {day: 'CAST(at AS DATE)'}\n    select: {day: d}", "is made by `select` as well"),
        ("generated: {day: 'CAST(more AS DATE)'}\n    undeclared_columns: add", ""),
    ];
    assert_all("format: csv", &cases);
}
