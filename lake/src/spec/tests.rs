//! Small wrong specs and exactly what is said about them.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ByteSize, Document, Duration, Map, Problem, Problems};

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-not-yet" = ["avro"]))]
enum Format {
    /// Separated values.
    #[default]
    Csv,
    /// One object a line.
    Json,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnError {
    #[default]
    Quarantine,
    Null,
}

#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Csv {
    delimiter: String,
    header: bool,
    quote: Option<String>,
}

/// A type of a column, to stand for what only serde can check.
#[derive(Debug, Default, PartialEq, JsonSchema)]
struct Column(#[schemars(with = "String")] String);

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "bigint" => Ok(Self("bigint".to_owned())),
            other => Err(serde::de::Error::custom(format!("unknown type `{other}`"))),
        }
    }
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend(
    "required" = ["source"],
    "x-not-yet" = ["generated"],
    "x-aliases" = {"unique_key": "keys"}
))]
struct Table {
    source: String,
    keys: Vec<String>,
    sequence_by: Vec<String>,
    columns: Map<Column>,
    format: Format,
    on_error: Option<OnError>,
    csv: Csv,
    settle: Duration,
    size: Option<ByteSize>,
    batch: u16,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            source: String::new(),
            keys: Vec::new(),
            sequence_by: Vec::new(),
            columns: Map::default(),
            format: Format::Csv,
            on_error: None,
            csv: Csv::default(),
            settle: Duration::from_secs(2),
            size: None,
            batch: 10,
        }
    }
}

fn lookup(name: &str) -> Option<String> {
    (name == "TOKEN").then(|| "hunter2".to_owned())
}

fn load(yaml: &str) -> (Vec<Table>, Problems) {
    let document = Document::parse_with(Path::new("pipelines.yaml"), yaml, &lookup);
    let mut problems = document.problems();
    document.header(&mut problems);
    document.check_names("silver", &mut problems);
    let tables = document.section::<Table>("silver", &mut problems);
    (tables.into_iter().map(|entry| entry.raw).collect(), problems)
}

/// The report of a spec whose `silver.orders` holds these lines (from line 5 on).
fn report(lines: &str) -> String {
    let indented: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    load(&format!("name: shop\nsilver:\n  orders:\n    source: orders_cdc\n{indented}")).1.to_string()
}

/// The messages and hints of such a spec: `line path: message (hint)`.
fn brief(lines: &str) -> Vec<String> {
    let indented: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    brief_of(&format!("name: shop\nsilver:\n  orders:\n    source: orders_cdc\n{indented}"))
}

fn brief_of(yaml: &str) -> Vec<String> {
    let problems = load(yaml).1.to_json();
    let list = problems["problems"].as_array().expect("a list").iter();
    list.map(|problem| {
        let hint = problem["hint"].as_str().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let text = |key: &str| problem[key].as_str().expect("text").replace("silver.orders", "…");
        format!("{} {}: {}{hint}", problem["line"], text("path"), text("message"))
    })
    .collect()
}

#[test]
fn a_right_spec_is_read_with_its_defaults() {
    let (tables, problems) = load(
        "name: shop\nsilver:\n  orders:\n    source: orders_cdc\n    unique_key: [id]\n    format: json\n    \
         columns: {b: bigint, a: bigint}\n    csv: {delimiter: ';', quote: }\n    settle: 30m\n    size: 1024\n    \
         sequence_by:\n    on_error: \"null\"\n  empty:\n",
    );
    let expected = Table {
        source: "orders_cdc".to_owned(),
        keys: vec!["id".to_owned()],
        columns: [("b", "bigint"), ("a", "bigint")]
            .map(|(name, kind)| (name, Column(kind.to_owned())))
            .into_iter()
            .collect(),
        format: Format::Json,
        on_error: Some(OnError::Null),
        csv: Csv { delimiter: ";".to_owned(), header: false, quote: None },
        settle: "30m".parse().expect("a duration"),
        size: Some(ByteSize::from_bytes(1024)),
        ..Table::default()
    };
    assert_eq!(tables[0], expected);
    assert_eq!(tables[1], Table::default());
    assert_eq!(brief_of("name: shop\nsilver:\n  orders:\n"), ["3 ….source: `source` is missing"]);
    assert_eq!(problems.len(), 1);
}

#[test]
fn the_report_shows_the_line_and_what_was_meant() {
    assert_eq!(
        report("sequnce_by: [updated_at]\nkeys: order_id\nformat: cvs"),
        "\
pipelines.yaml: 3 problems

error: unknown key `sequnce_by`
  --> pipelines.yaml:5:5  silver.orders.sequnce_by
   |
 5 |     sequnce_by: [updated_at]
   |     ^^^^^^^^^^
  hint: did you mean `sequence_by`?

error: expected a list, found the text `order_id`
  --> pipelines.yaml:6:11  silver.orders.keys
   |
 6 |     keys: order_id
   |           ^^^^^^^^
  hint: write it as a list: `[order_id]`

error: unknown value `cvs`
  --> pipelines.yaml:7:13  silver.orders.format
   |
 7 |     format: cvs
   |             ^^^
  hint: did you mean `csv`?
"
    );
}

#[test]
fn a_duplicate_key_shows_both_lines() {
    assert_eq!(
        report("keys: [a]\nformat: csv\nkeys: [b]"),
        "\
pipelines.yaml: 1 problem

error: duplicate key `keys`
  --> pipelines.yaml:7:5  silver.orders.keys
   |
 5 |     keys: [a]
 7 |     keys: [b]
   |     ^^^^
  hint: it is already given on line 5; remove one of them
"
    );
}

#[test]
fn wrong_specs_and_what_is_said() {
    let cases: &[(&str, &[&str])] = &[
        ("keys: [1]", &["5 ….keys[0]: expected text, found the number `1` (put it in quotes: \"1\")"]),
        ("keys: {a: b}", &["5 ….keys: expected a list, found a mapping (put a `- ` in front of each item)"]),
        ("source: [x]", &["5 ….source: duplicate key `source` (it is already given on line 4; remove one of them)"]),
        ("format: avro", &["5 ….format: `avro` is not supported yet (supported here: `csv`, `json`)"]),
        ("format: 1", &["5 ….format: expected one of `csv`, `json`, found the number `1`"]),
        ("on_error: null", &["5 ….on_error: `null` without quotes means no value (put it in quotes: \"null\")"]),
        ("on_error: nul", &["5 ….on_error: unknown value `nul` (did you mean `null`?)"]),
        ("csv: {delimiter: 1}", &["5 ….csv.delimiter: expected text, found the number `1` (put it in quotes: \"1\")"]),
        ("csv: {header: yes}", &["5 ….csv.header: expected `true` or `false`, found the text `yes` (write `true`)"]),
        (
            "csv: {header: [true]}",
            &["5 ….csv.header: expected `true` or `false`, found a list (write the value without brackets)"],
        ),
        ("csv: ';'", &["5 ….csv: expected a mapping, found the text `;`"]),
        ("csv: {delimeter: ';'}", &["5 ….csv.delimeter: unknown key `delimeter` (did you mean `delimiter`?)"]),
        ("delimiter: ';'", &["5 ….delimiter: unknown key `delimiter` (it belongs below `csv`)"]),
        (
            "settle: 2",
            &[
                "5 ….settle: expected a duration such as `2s` or `7 days`, found the number `2` (add a unit: `2s`, `2m`, `2h` or `2 days`)",
            ],
        ),
        ("settle: '2'", &["5 ….settle: `2` has no unit: write `2s`, `2m`, `2h` or `2 days`"]),
        ("settle: 2 moons", &["5 ….settle: `moons` is not a unit of time: ms, s, m, h, days"]),
        ("size: big", &["5 ….size: `big` is not a size such as `100MiB` or `4GiB`"]),
        ("size: -1", &["5 ….size: `-1` is too small: at least 0"]),
        ("size: true", &["5 ….size: expected a size such as `100MiB`, found `true`"]),
        ("batch: 70000", &["5 ….batch: `70000` is too large: at most 65535"]),
        ("batch: 1.5", &["5 ….batch: expected a whole number, found the number `1.5`"]),
        ("batch: many", &["5 ….batch: expected a whole number, found the text `many`"]),
        (
            "generated: {a: b}",
            &["5 ….generated: `generated` is not supported yet (remove it; this version does not do what it asks for)"],
        ),
        (
            "unique_key: [a]\nkeys: [b]",
            &["5 ….unique_key: `unique_key` is another name of `keys`, and both are given (keep `keys`)"],
        ),
        (
            "columns: {a: bigint, b: text, c: blob}",
            &["5 ….columns.b: unknown type `text`", "5 ….columns.c: unknown type `blob`"],
        ),
        ("columns: {a: }", &["5 ….columns.a: expected text, found nothing"]),
        ("columns: [a]", &["5 ….columns: expected a mapping, found a list"]),
        (
            "totally_else: 1",
            &[
                "5 ….totally_else: unknown key `totally_else` (one of `batch`, `columns`, `csv`, `format`, `keys`, `on_error`, `sequence_by`, `settle`, `size`, `source`)",
            ],
        ),
        (
            "keys:\n  - a\n  - ${NOWHERE}",
            &[
                "7 ….keys[1]: environment variable `NOWHERE` is not set (set it, or give a default: `${NOWHERE:-default}`)",
            ],
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(brief(lines), *expected, "{lines}");
    }
}

#[test]
fn the_top_of_a_spec_can_be_wrong() {
    let cases: &[(&str, &[&str])] = &[
        ("", &["null name: `name` is missing (add `name:`, name of the pipeline)"]),
        ("- a", &["1 : expected a mapping, found a list"]),
        ("name: ''", &["1 name: `name` is empty"]),
        ("nmae: x\nname: y", &["1 nmae: unknown key `nmae` (did you mean `name`?)"]),
        ("name: x\nsilvr: {}", &["2 silvr: unknown key `silvr` (did you mean `silver`?)"]),
        (
            "name: x\nsilver: [a]",
            &[
                "2 silver: expected a mapping of names, found a list (write `silver:` and below it one entry for each name)",
            ],
        ),
        (
            "name: x\nschedule: {cron: 'hourly', timezone: Lisbon}",
            &[
                "2 schedule.timezone: `Lisbon` is not a time zone (did you mean `Europe/Lisbon`?)",
                "2 schedule.cron: `hourly` is no cron pattern: it has one field and needs five (write minute, hour, day of the month, month and day of the week: `0 * * * *` is every hour)",
            ],
        ),
        (
            "name: x\ntimezone: Europe/Lissabon",
            &["2 timezone: `Europe/Lissabon` is not a time zone (did you mean `Europe/Lisbon`?)"],
        ),
        (
            "name: x\ntimezone: '+01:00'",
            &["2 timezone: `+01:00` is not a time zone (write an IANA name such as `Europe/Lisbon`)"],
        ),
        (
            "storage: ${NOWHERE}\ntimezone: ${NOWHERE}\nname: ''",
            &[
                "1 storage: environment variable `NOWHERE` is not set (set it, or give a default: `${NOWHERE:-default}`)",
                "2 timezone: environment variable `NOWHERE` is not set (set it, or give a default: `${NOWHERE:-default}`)",
                "3 name: `name` is empty",
            ],
        ),
        (
            "name: x\nengine: {memory: lots, threads: 0}",
            &[
                "2 engine.memory: `lots` is not a size such as `100MiB` or `4GiB`",
                "2 engine.threads: `0` is too small: at least 1",
            ],
        ),
        (
            "name: x\nsilver:\n  1st: {source: a}\n  Orders: {source: a}\n  orders: {source: a}",
            &[
                "3 silver.1st: `1st` cannot be a name (a name starts with a letter, then letters, digits, `_` and `-`)",
                "5 …: `orders` and `Orders` differ only in case (folders and SQL may not tell them apart; rename one)",
            ],
        ),
        (
            "name: x\nsilver:\n  orders: {source: a}\n  orders: {source: b}",
            &["4 …: duplicate key `orders` (it is already given on line 3; remove one of them)"],
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(brief_of(yaml), *expected, "{yaml}");
    }
}

#[test]
fn broken_yaml_is_one_problem_at_its_line() {
    let (_, problems) = load("name: shop\nsilver:\n\torders: {}\n");
    let text = problems.to_string();
    assert!(text.contains("error: the YAML cannot be read: "), "{text}");
    assert!(text.contains("  --> pipelines.yaml:3:2\n   |\n 3 | \torders: {}\n   | \t^\n  hint: indent"), "{text}");
}

#[test]
fn carets_stand_below_what_is_meant() {
    let marks = |lines: &str| -> Vec<String> {
        let report = report(lines);
        let shown = report.lines().filter(|line| line.starts_with(" 5 |") || line.contains('^'));
        shown.map(|line| line[4..].to_owned()).collect()
    };
    assert_eq!(
        marks("csv: {header: true, delimeter: ';'}"),
        ["     csv: {header: true, delimeter: ';'}", "                         ^^^^^^^^^",]
    );
    assert_eq!(marks("keys: [a, {b: 1}]"), ["     keys: [a, {b: 1}]", "               ^^^^^^"]);
    assert_eq!(
        marks("columns: {\"é\": bigint, b: text}"),
        ["     columns: {\"é\": bigint, b: text}", "                               ^^^^",]
    );
    let long = format!("columns: {{{}z: text}}", " ".repeat(120));
    let shown = marks(&long);
    let at = |line: &str, wanted: &str| line.find(wanted).map(|at| line[..at].chars().count());
    assert_eq!(at(&shown[0], "text"), at(&shown[1], "^^^^"), "{shown:#?}");
    assert!(shown[0].chars().count() <= 110, "{shown:#?}");
}

#[test]
fn what_the_environment_gave_is_not_shown() {
    let text = report("settle: ${TOKEN}\nformat: ${TOKEN}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("error: `${TOKEN}` is not a duration"), "{text}");
    assert!(text.contains("error: unknown value `${TOKEN}`"), "{text}");
}

#[test]
fn a_value_of_the_environment_has_the_type_of_its_place() {
    let yaml =
        "name: x\nsilver:\n  orders:\n    source: ${N:-7}\n    batch: ${N:-7}\n    csv: {header: \"${H:-true}\"}\n";
    let (tables, problems) = load(yaml);
    assert_eq!(problems.to_string(), "pipelines.yaml: 0 problems\n");
    assert_eq!((tables[0].source.as_str(), tables[0].batch, tables[0].csv.header), ("7", 7, true));
    assert_eq!(
        brief("csv: {header: ${H:-true}}"),
        [
            "5 : the YAML cannot be read: while parsing a flow mapping, did not find expected ',' or '}' (between `{` and `}` put a value with `${…}` in quotes)"
        ]
    );
}

#[test]
fn a_value_that_the_environment_lacks_is_not_checked_further() {
    let document = Document::parse("pipelines.yaml", "name: x\nsilver:\n  orders:\n    source: ${NOWHERE_AT_ALL}\n");
    let mut problems = document.problems();
    let tables = document.section::<Table>("silver", &mut problems);
    problems.add(Problem::at(&tables[0].path.key("source"), "`` is not a source"));
    assert_eq!(problems.len(), 1);
}

#[test]
fn problems_of_a_layer_find_their_line() {
    let document = Document::parse("pipelines.yaml", "name: x\nsilver:\n  orders:\n    keys: [a, b]\n");
    let mut problems = document.problems();
    let keys = super::SpecPath::of(["silver", "orders", "keys"]);
    problems.add(Problem::at(&keys.index(1), "`b` is not a column").did_you_mean("b", ["a", "bb"]));
    problems.add(Problem::at(&super::SpecPath::of(["silver", "orders", "source"]), "`source` is missing"));
    let lines: Vec<_> = problems.in_file_order().iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [Some(3), Some(4)]);
    assert!(problems.finish(()).is_err());
}
