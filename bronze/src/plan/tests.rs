//! What the options of a source become, and what is said of those that cannot work.

use super::*;
use lake::spec::Document;

fn compiled(source: &str) -> Result<SourcePlan, String> {
    let text = format!("name: shop\nbronze:\n  s: {source}\n");
    let document = Document::parse("pipelines.yaml", &text);
    let mut problems = document.problems();
    let entries = document.section::<Source>("bronze", &mut problems);
    let plan = entries.first().and_then(|entry| compile(entry, &mut problems));
    problems.finish(()).map_err(|problems| problems.to_string())?;
    Ok(plan.expect("a plan without problems"))
}

#[track_caller]
fn problem(source: &str, expected: &str) {
    let problems = compiled(source).expect_err("a problem");
    assert!(problems.contains(expected), "{problems}");
}

#[test]
fn the_least_a_source_says_gives_the_defaults() {
    let plan = compiled("{path: ./orders//, format: csv}").expect("a plan");
    assert_eq!((plan.folder.as_str(), plan.source()), ("orders", "s"));
    assert_eq!(plan.settle, Duration::from_secs(2));
    assert_eq!((plan.max_files_per_batch, plan.max_bytes_per_batch), (1000, 10 << 30));
    assert!(
        matches!(&plan.format, Format::Text(TextFormat::Csv(csv), packing) if *csv == Dialect::default() && *packing == Packing::default())
    );
    assert_eq!(compiled("{path: ./, format: json}").expect("a plan").folder, "");
}

#[test]
fn every_csv_option_reaches_the_dialect() {
    let plan = compiled(
        "{path: a, format: csv, duplicate_columns: rename, csv: {header: false, columns: [a, b], leading_op: true, \
         delimiter: '\\t', quote: null, escape: '\\', comment: '#', null_values: ['NULL'], empty_is_null: never}}",
    );
    let Ok(SourcePlan { format: Format::Text(TextFormat::Csv(dialect), _), .. }) = plan else { panic!("{plan:?}") };
    assert_eq!(
        dialect,
        Dialect {
            header: Header::Given { columns: vec!["a".into(), "b".into()], leading_op: true },
            delimiter: b'\t',
            quote: None,
            escape: Some(b'\\'),
            comment: Some(b'#'),
            null_values: vec!["NULL".into()],
            empty_is_null: decode::EmptyIsNull::Never,
            duplicate_columns: decode::DuplicateColumns::Rename,
        }
    );
}

#[test]
fn compression_and_encoding_reach_the_reader() {
    let plan = compiled("{path: a, format: json, compression: zstd, encoding: Latin1}").expect("a plan");
    let encoding = Encoding::for_label("windows-1252").expect("a label");
    let wanted = Packing { compression: Compression::Zstd, encoding };
    assert!(matches!(plan.format, Format::Text(TextFormat::Json(_), packing) if packing == wanted));
    problem("{path: x, format: csv, encoding: windows1251x}", "did you mean `windows-1251`?");
    problem("{path: x, format: csv, encoding: windows1251x}", "no encoding of the WHATWG list");
    problem("{path: x, format: csv, schema_hints: {a: bigin}}", "did you mean `bigint`?");
    problem("{path: x, format: csv, schema_hints: {a: bigint, A: date}}", "`A` is named twice");
    problem("{path: x, format: csv, schema_hints: {_row_number: bigint}}", "technical column");
    problem("{path: x, format: parquet, encoding: latin1}", "says nothing about files that are not text");
}

#[test]
fn what_cannot_work_is_said() {
    problem("{format: csv}", "`path` is missing");
    problem("{path: ../x, format: csv}", "leaves the landing root");
    problem("{path: /x, format: csv}", "not below the landing root");
    problem("{path: x/*.csv, format: csv}", "globs belong into `include`");
    problem("{path: x, format: csv, include: ['a[']}", "`a[` is not a glob");
    problem("{path: x, format: orc}", "unknown value `orc`");
    problem("{path: x, format: avro, encoding: latin1}", "says nothing about files that are not text");
    problem("{path: x, format: csv, json: {explicit_nulls: true}}", "says nothing about files of another format");
    problem("{path: x, format: json, csv: {header: false}}", "says nothing about files of another format");
    problem("{path: x, format: csv, csv: {header: false}}", "the columns must be named");
    problem("{path: x, format: csv, csv: {columns: [a]}}", "the header names the columns already");
    problem("{path: x, format: csv, csv: {leading_op: true}}", "needs `header: false`");
    problem("{path: x, format: csv, csv: {header: false, columns: [a, A]}}", "`A` is named twice");
    problem("{path: x, format: csv, csv: {header: false, columns: [_batch_id]}}", "technical column");
    problem("{path: x, format: csv, csv: {delimiter: '||'}}", "expected one ASCII character, found `||`");
    problem("{path: x, format: csv, csv: {delimiter: '\"'}}", "the same character");
    problem("{path: x, format: csv, max_files_per_batch: 0}", "too small");
    problem("{path: x, format: csv, max_bytes_per_batch: 0B}", "0 bytes");
    problem("{path: x, format: csv, partition_columns: [a, A]}", "`A` is named twice");
    problem("{path: x, format: csv, partition_columns: [_file_path]}", "technical column");
}

#[test]
fn files_are_moved_to_where_they_are_not_taken_again() {
    let clean = |source: &str, to: &str| {
        format!("{{format: csv, {source}, clean_source: {{mode: move, move_destination: {to}}}}}")
    };
    let inside = "inside the folder of the source";
    problem(&clean("path: orders", "orders/done"), inside);
    problem(&clean("path: ./", "done"), inside);
    problem(&clean("path: orders, recursive: false", "orders"), inside);
    problem(&clean("path: orders, exclude: ['done/*']", "orders/done"), inside);
    problem(&clean("path: orders, default_excludes: false", "orders/_done"), inside);
    problem(&clean("path: orders", "../done"), "leaves the landing root");
    problem(&clean("path: orders", "./"), "`./` is the landing root itself");
    problem("{path: x, format: csv, clean_source: {mode: move}}", "needs a folder to move files to");
    problem("{path: x, format: csv, clean_source: {mode: delete, move_destination: y}}", "says nothing");
    for (source, to) in [
        ("path: orders", "archive/orders/"),
        ("path: orders", "orders_done"),
        ("path: ./", "_done"),
        ("path: orders, recursive: false", "orders/done"),
        ("path: orders, exclude: ['done/**']", "orders/done"),
    ] {
        let plan = compiled(&clean(source, to)).unwrap_or_else(|problems| panic!("{problems}"));
        let Clean::Move { retention, to: folder } = plan.clean else { panic!("{:?}", plan.clean) };
        assert_eq!((retention.as_secs(), folder.as_str()), (30 * 86_400, to.trim_end_matches('/')));
    }
}

#[test]
fn files_are_not_moved_to_where_another_source_takes_them() {
    let text = "name: shop
bronze:
  a: {path: a, format: csv, clean_source: {mode: move, move_destination: b/old}}
  b: {path: b, format: csv}
  c: {path: c, format: csv, clean_source: {mode: move, move_destination: b/_old}}
";
    let document = Document::parse("pipelines.yaml", text);
    let mut problems = document.problems();
    let entries = document.section::<Source>("bronze", &mut problems);
    let plans: Vec<SourcePlan> = entries.iter().filter_map(|entry| compile(entry, &mut problems)).collect();
    check_together(&plans.iter().collect::<Vec<_>>(), &mut problems);
    let problems = problems.finish(()).expect_err("a problem").to_string();
    assert!(problems.contains("`b/old` is inside the folder of `b`") && !problems.contains("_old"), "{problems}");
    assert!(!problems.contains("also read by"), "{problems}");
}

#[test]
fn files_that_two_sources_read_are_not_cleared_away() {
    let problems = |other: &str| {
        let text = format!(
            "name: shop\nbronze:\n  a: {{path: x, format: csv, include: ['*.csv'], clean_source: {{mode: delete}}}}\n  b: {other}\n"
        );
        let document = Document::parse("pipelines.yaml", &text);
        let mut problems = document.problems();
        let entries = document.section::<Source>("bronze", &mut problems);
        let plans: Vec<SourcePlan> = entries.iter().filter_map(|entry| compile(entry, &mut problems)).collect();
        check_together(&plans.iter().collect::<Vec<_>>(), &mut problems);
        problems.finish(()).err().map(|problems| problems.to_string()).unwrap_or_default()
    };
    for shared in ["{path: x, format: csv}", "{path: ./, format: csv}", "{path: x/y, format: csv}"] {
        assert!(problems(shared).contains("are also read by `b`"), "{shared}: {}", problems(shared));
    }
    for apart in [
        "{path: x, format: json, include: ['*.json']}",
        "{path: z, format: csv}",
        "{path: ./, format: csv, recursive: false}",
    ] {
        assert_eq!(problems(apart), "", "{apart}");
    }
}
