//! Truncates of tables that keep deleted rows or versions: what random histories and cases do not reach.

use crate::support::project::Project;

const SPEC: &str = "
name: truncates
storage: ./lakehouse
landing: ./landing
bronze:
  feed: {path: ./, format: csv, settle: 0s}
silver:
  kept: {TABLE, delete_mode: soft}
  past: {TABLE, stored_as_scd_type: 2}
  kept_parts: {TABLE, delete_mode: soft, ignore_null_updates: true}
  past_parts: {TABLE, stored_as_scd_type: 2, ignore_null_updates: true}
";
const TABLE: &str = "source: feed, keys: [id], sequence_by: [at], op: {column: op, insert: [I], update: [U], delete: [D], truncate: [T]}, columns: {id: bigint, value: string, more: string, at: date}, formats: {at: FORMAT}";

const PLAIN: &str = "'%d/%m/%Y'";
/// The same with blanks, or none, before the first stroke.
const WIDE: &str = "'%d /%m/%Y'";

const ROWS: &[&str] = &["id", "value", "more", "_is_deleted", "_deleted_sequence_1"];
const VERSIONS: &[&str] = &["id", "value", "more", "__START_AT", "__END_AT"];
const TABLES: [(&str, &[&str]); 4] =
    [("silver.kept", ROWS), ("silver.past", VERSIONS), ("silver.kept_parts", ROWS), ("silver.past_parts", VERSIONS)];

fn spec(format: &str) -> String {
    SPEC.replace("TABLE", TABLE).replace("FORMAT", format)
}

/// Lands a file and runs; the tables are right by themselves and every record is somewhere.
fn take(project: &Project, name: &str, lines: &str) -> Vec<String> {
    project.land(format!("{name}.csv"), format!("op,id,value,more,at\n{lines}").as_bytes(), None);
    project.run();
    right(project)
}

fn right(project: &Project) -> Vec<String> {
    project.silver(&["verify", "--rebuild"]).expect(0);
    project.silver(&["account"]).expect(0);
    project.content(&TABLES)
}

#[test]
fn a_truncate_that_was_refused_counts_as_if_it_had_been_right_when_it_came() {
    // What stands at its day goes by the order in the file.
    let first = "I,1,a,a,01/04/2024\nI,2,a,a,05/04/2024\nT,,,,05 /04/2024\nI,3,a,a,05/04/2024\nI,4,a,a,06/04/2024\n";
    let second = "U,1,b,,03/04/2024\nI,5,c,c,02/04/2024\n";
    let third = "U,2,,late,04/04/2024\nU,3,late,,04/04/2024\nU,4,,late,05/04/2024\nU,5,late,,07/04/2024\n";

    let refused = Project::new(&spec(PLAIN));
    refused.land("1.csv", format!("op,id,value,more,at\n{first}").as_bytes(), None);
    refused.run();
    take(&refused, "2", second);
    refused.respec(&spec(WIDE));
    refused.orchestrator(&["quarantine", "replay"]).expect(0);

    let told = Project::new(&spec(WIDE));
    take(&told, "1", first);
    let expected = take(&told, "2", second);
    assert!(expected.iter().any(|line| line == "silver.kept: 2 | a | a | true | 2024-04-05"), "{expected:#?}");
    assert!(expected.iter().any(|line| line == "silver.kept: 3 | a | a | false | \\N"), "{expected:#?}");
    assert_eq!(right(&refused), expected);
    assert_eq!(take(&refused, "3", third), take(&told, "3", third));
}

#[test]
fn a_delete_where_a_truncate_stands_is_not_taken_for_it() {
    let files = [
        ("1", "I,1,a,a,01/04/2024\nI,2,a,a,01/04/2024\nD,1,,,05/04/2024\nT,,,,05/04/2024\n"),
        ("2", "T,,,,03/04/2024\n"),
    ];
    let mut tables = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let project = Project::new(&spec(PLAIN));
        for (name, lines) in order.map(|number| files[number]) {
            take(&project, name, lines);
        }
        tables.push(right(&project));
    }
    assert_eq!(tables[0], tables[1]);
    let has = |line: &str| tables[0].iter().any(|held| held == line);
    assert!(has("silver.kept: 1 | a | a | true | 2024-04-05"), "{:#?}", tables[0]);
    assert!(has("silver.kept: 2 | a | a | true | 2024-04-03"), "{:#?}", tables[0]);
}

/// The same tables come out by these files one after the other as by all of them in a rebuild, which [`take`] compares.
fn story(files: &[&str]) -> Vec<String> {
    let project = Project::new(&spec(PLAIN));
    let mut tables = Vec::new();
    for (number, lines) in files.iter().enumerate() {
        tables = take(&project, &number.to_string(), lines);
    }
    tables
}

#[test]
fn an_update_after_a_truncate_takes_over_nothing_from_before_it() {
    let files = ["I,1,a,a,01/04/2024\n", "T,,,,02/04/2024\nU,1,b,,03/04/2024\n", "U,1,c,,04/04/2024\n"];
    let tables = story(&files);
    assert!(tables.iter().any(|line| line == "silver.kept_parts: 1 | c | \\N | false | \\N"), "{tables:#?}");
    // An update where the truncate stands, in a later batch.
    story(&["I,1,a,a,01/04/2024\n", "T,,,,02/04/2024\n", "U,1,b,,02/04/2024\n", "U,1,,c,03/04/2024\n"]);
}

#[test]
fn what_stands_where_a_truncate_stands_is_known_by_its_order() {
    let late = "I,1,a,a,01/04/2024\n";
    for (first, value) in [
        ("T,,,,02/04/2024\nU,1,b,,02/04/2024\n", "b | \\N | false | \\N"),
        ("T,,,,02/04/2024\nU,1,b,,02/04/2024\nU,1,c,,03/04/2024\n", "c | \\N | false | \\N"),
        ("U,1,b,,02/04/2024\nT,,,,02/04/2024\nU,1,c,,03/04/2024\n", "c | \\N | false | \\N"),
        ("U,1,b,,02/04/2024\nT,,,,02/04/2024\n", "b | a | true | 2024-04-02"),
        ("U,1,b,,02/04/2024\nT,,,,02/04/2024\nU,1,c,,02/04/2024\n", "c | \\N | false | \\N"),
    ] {
        let tables = story(&[first, late]);
        let expected = format!("silver.kept_parts: 1 | {value}");
        assert!(tables.contains(&expected), "{first}{tables:#?}");
    }
}
