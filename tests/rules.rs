//! The rules that a silver table puts on its rows, CHECK constraints and generated columns: set where every engine finds
//! them, held on every path, those of others too.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::Project;

const SPEC: &str = "
name: rules
storage: ./lakehouse
landing: ./landing
bronze:
  s: {path: ./, format: csv, settle: 0s}
silver:
  t:
    source: s
    keys: [id]
    op: {column: op, delete: [D], insert: [I]}
    sequence_by: [\"seq bigint\"]
    columns: {id: bigint not null, amount: bigint, note: string}
";

fn with(options: &str) -> String {
    format!("{SPEC}    {options}\n")
}

/// The newest action of a kind in the log of a silver table, and the newest version.
fn newest(project: &Project, kind: &str) -> (Value, u64) {
    let folder = project.table_folder("silver.t").join("_delta_log");
    let mut found = None;
    let mut last = 0;
    for version in 0.. {
        let Ok(text) = fs::read_to_string(folder.join(format!("{version:020}.json"))) else { break };
        last = version;
        let actions = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        found = actions.filter_map(|action| action.get(kind).cloned()).next_back().or(found);
    }
    (found.unwrap_or_else(|| panic!("no {kind} in the log")), last)
}

/// Another program changes the metadata of the table.
fn rewrite(project: &Project, change: impl Fn(&mut Value)) {
    let (mut metadata, version) = newest(project, "metaData");
    change(&mut metadata);
    let folder = project.table_folder("silver.t").join("_delta_log");
    let line = json!({"metaData": metadata}).to_string();
    fs::write(folder.join(format!("{:020}.json", version + 1)), format!("{line}\n")).expect("a commit");
}

fn failing(project: &Project) -> String {
    project.orchestrator(&["run", "--output", "json"]).expect(1).story()
}

fn ids(project: &Project) -> Vec<i64> {
    let rows = project.query("SELECT id FROM silver.t ORDER BY id");
    rows.iter().map(|row| row["id"].as_i64().expect("a number")).collect()
}

#[test]
fn a_constraint_is_asked_of_rows_that_are_there_and_of_those_that_come() {
    let project = Project::new(SPEC);
    project.land("a.csv", b"op,id,seq,amount,note\nI,1,1,10,x\nI,2,1,-1,x\nI,3,1,,x\n", None);
    project.run();

    // Rows that are there must meet it: null does not.
    project.respec(&with("constraints: {Positive: amount > 0}"));
    let story = failing(&project);
    assert!(story.contains("2 rows do not meet constraint `positive`: amount > 0"), "{story}");
    assert!(story.contains("id 2, amount -1; id 3, amount NULL"), "{story}");
    assert!(newest(&project, "metaData").0["configuration"].get("delta.constraints.positive").is_none());

    let spec = "constraints: {Positive: amount > -5 OR amount IS NULL, odd: '\"note\" <> ''z'''}";
    project.respec(&with(spec));
    project.run();
    let configuration = newest(&project, "metaData").0["configuration"].clone();
    assert_eq!(configuration["delta.constraints.positive"], "amount > -5 OR amount IS NULL");
    assert_eq!(configuration["delta.constraints.odd"], "`note` <> 'z'", "as other engines read it");
    assert!(newest(&project, "protocol").0["minWriterVersion"].as_u64() >= Some(3));
    project.assert_settled();

    // A record that does not meet it goes to quarantine alone, with its values.
    project.land("b.csv", b"op,id,seq,amount,note\nI,4,1,-9,x\nI,1,2,11,z\nI,5,1,5,y\nD,2,2,-99,z\n", None);
    assert_eq!(project.run().task("silver.t").quarantined, 2);
    assert_eq!(ids(&project), [1, 3, 5]);
    let refused = project.query("SELECT reason_kind, reason FROM quarantine.s ORDER BY reason");
    assert!(refused.iter().all(|row| row["reason_kind"] == "constraint"), "{refused:?}");
    let reason = refused[0]["reason"].as_str().expect("a text");
    assert_eq!(reason, "constraint `Positive` is not met: amount > -5 OR amount IS NULL (amount -9)");

    // What is gone from the spec is gone from the table, what others have set stays, and is held.
    rewrite(&project, |metadata| metadata["configuration"]["delta.constraints.theirs"] = json!("id < 100"));
    project.respec(SPEC);
    project.run();
    let configuration = newest(&project, "metaData").0["configuration"].clone();
    assert!(configuration.get("delta.constraints.positive").is_none(), "{configuration}");
    assert_eq!(configuration["delta.constraints.theirs"], "id < 100");
    project.land("c.csv", b"op,id,seq,amount,note\nI,100,1,1,x\nD,5,2,,\n", None);
    let before = project.versions();
    let story = failing(&project);
    assert!(story.contains("1 row does not meet constraint `theirs`: id < 100"), "{story}");
    assert!(story.contains("id 100"), "{story}");
    let changed: Vec<_> =
        project.versions().into_iter().filter(|(table, version)| before.get(table) != Some(version)).collect();
    assert!(changed.iter().all(|(table, _)| !table.contains("silver") && !table.contains("tombstones")), "{changed:?}");

    // Under the same name the spec cannot say something else.
    project.respec(&with("constraints: {theirs: id < 1000}"));
    assert!(failing(&project).contains("another program has set constraint `theirs`: id < 100"));
    project.respec(&with("constraints: {theirs: id < 100}"));
    assert_eq!(project.run().task("silver.t").quarantined, 1);
    project.respec(SPEC);
    project.run();
    assert_eq!(newest(&project, "metaData").0["configuration"]["delta.constraints.theirs"], "id < 100", "it is theirs");
}

/// A project with a generated column, and how records land there.
struct Generated {
    project: Project,
    is_json: bool,
    spec: String,
}

impl Generated {
    fn new(options: &str, is_json: bool) -> Self {
        let format = if is_json { "format: json, json: {explicit_nulls: true}" } else { "format: csv" };
        let spec = with(&format!("generated: {{day: CAST(at AS DATE)}}\n    {options}"))
            .replace("note: string", "note: string, at: timestamp, day: date")
            .replace("format: csv", format);
        Self { project: Project::new(&spec), is_json, spec }
    }

    fn land(&self, name: &str, records: &[Value]) {
        let names = ["op", "id", "seq", "note", "at", "day"];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let cell = |record: &Value, name: &str| record.get(name).map_or(String::new(), text);
        let line = |record: &Value| match self.is_json {
            true => format!("{record}\n"),
            false => names.map(|name| cell(record, name)).join(",") + "\n",
        };
        let header = if self.is_json { String::new() } else { names.join(",") + "\n" };
        let content = header + &records.iter().map(line).collect::<String>();
        let end = if self.is_json { "json" } else { "csv" };
        self.project.land(format!("{name}.{end}"), content.as_bytes(), None);
    }

    /// Rows by id with their day, which is what its expression gives in all rows.
    fn days(&self, current: &str) -> Vec<(i64, String)> {
        let wrong = "SELECT count(*) AS n FROM silver.t WHERE day IS DISTINCT FROM CAST(at AS DATE)";
        assert_eq!(self.project.query(wrong)[0]["n"], 0);
        let rows = self.project.query(&format!("SELECT id, day FROM silver.t WHERE {current} ORDER BY id"));
        let day = |row: &serde_json::Map<String, Value>| row["day"].as_str().unwrap_or("-").to_owned();
        rows.iter().map(|row| (row["id"].as_i64().expect("a number"), day(row))).collect()
    }
}

fn record(op: &str, id: i64, seq: i64, at: &str) -> Value {
    json!({"op": op, "id": id, "seq": seq, "at": at, "note": "x"})
}

fn day(id: i64, day: &str) -> (i64, String) {
    (id, day.to_owned())
}

#[test]
fn a_generated_column_is_what_its_expression_gives_on_every_path() {
    for (options, current, is_json) in [
        ("partition_by: [day]", "true", false),
        ("deletion_vectors: true\n    write_mode: merge_on_read", "true", false),
        ("delete_mode: soft\n    partition_by: [day]", "NOT _is_deleted", false),
        ("stored_as_scd_type: 2", "__END_AT IS NULL", false),
        ("partial_updates: true\n    partition_by: [day]", "true", true),
    ] {
        let table = Generated::new(options, is_json);
        let project = &table.project;
        let mut wrong = record("I", 3, 1, "2024-05-01T10:00:00");
        wrong["day"] = json!("2024-05-02");
        let mut right = record("I", 4, 1, "2024-05-01T23:59:59.999999");
        right["day"] = json!("2024-05-01");
        let at = "2024-05-01T10:00:00";
        table.land("a", &[record("I", 1, 1, at), record("I", 2, 1, at), wrong, right]);
        assert_eq!(project.run().task("silver.t").quarantined, 1, "{options}");
        let metadata = newest(project, "metaData").0;
        assert!(metadata["schemaString"].as_str().expect("a text").contains("CAST(at AS DATE)"), "{metadata}");
        assert!(newest(project, "protocol").0["minWriterVersion"].as_u64() >= Some(4));
        // The row moves to another partition, another is deleted, a new one comes.
        let moved = record("I", 1, 2, "2024-06-01T10:00:00");
        table.land("b", &[moved, record("D", 2, 2, ""), record("I", 5, 1, "1969-12-31T23:00:00")]);
        project.run();
        let expected = [day(1, "2024-06-01"), day(4, "2024-05-01"), day(5, "1969-12-31")];
        assert_eq!(table.days(current), expected, "{options}");
        if is_json {
            // Updates that bring only a part: of what the column is made of, or of all else.
            let newer = json!({"op": "I", "id": 1, "seq": 4, "at": "2024-07-01T00:00:00"});
            table.land("c", &[newer, json!({"op": "I", "id": 1, "seq": 3, "note": "y"})]);
            let unset = json!({"op": "I", "id": 4, "seq": 2, "at": null});
            table.land("d", &[json!({"op": "I", "id": 6, "seq": 1, "note": "z"}), unset]);
            project.run();
            let expected = [day(1, "2024-07-01"), day(4, "-"), day(5, "1969-12-31"), day(6, "-")];
            assert_eq!(table.days(current), expected, "{options}");
        }
        project.assert_settled();
        project.silver(&["verify", "--rebuild"]).expect(0);
        // Rows that are there lack what another expression gives.
        project.respec(&table.spec.replace("CAST(at AS DATE)", "CAST(at + INTERVAL '1 day' AS DATE)"));
        assert!(failing(project).contains("not meet generated column `day`"), "{options}");
    }
}

#[test]
fn a_column_that_another_program_generates_is_held_to_its_expression() {
    let project = Project::new(SPEC);
    project.land("a.csv", b"op,id,seq,amount,note\nI,1,1,2,n2\n", None);
    project.run();
    rewrite(&project, |metadata| {
        let mut schema: Value = serde_json::from_str(metadata["schemaString"].as_str().expect("a text")).expect("JSON");
        let fields = schema["fields"].as_array_mut().expect("fields");
        let note = fields.iter_mut().find(|field| field["name"] == "note").expect("the column");
        note["metadata"]["delta.generationExpression"] = json!("concat('n', CAST(amount AS STRING))");
        metadata["schemaString"] = json!(schema.to_string());
    });
    project.land("b.csv", b"op,id,seq,amount,note\nI,2,1,7,n7\nI,1,2,3,n3\n", None);
    assert_eq!(project.run().task("silver.t").applied, 2);
    project.land("c.csv", b"op,id,seq,amount,note\nI,3,1,7,n8\n", None);
    let story = failing(&project);
    assert!(story.contains("1 row does not meet generated column `note`"), "{story}");
    assert!(story.contains("id 3, note n8, amount 7"), "{story}");
    // Named in the spec it is computed, and the record that says something else is refused.
    project.respec(&with("generated: {note: \"concat('n', CAST(amount AS STRING))\"}"));
    assert_eq!(project.run().task("silver.t").quarantined, 1);
    project.land("d.csv", b"op,id,seq,amount,note\nI,4,1,9,\n", None);
    project.run();
    let rows = project.query("SELECT note FROM silver.t WHERE id = 4");
    assert_eq!(rows[0]["note"], "n9");
}

#[test]
fn a_generated_column_makes_no_update_one_that_does_not_send_all() {
    let options =
        "ignore_null_updates: true\n    constraints: {positive: amount > 0}\n    generated: {day: CAST(at AS DATE)}";
    let spec = with(options).replace("note: string", "note: string, at: timestamp, day: date not null");
    let project = Project::new(&spec);
    let header = "op,id,seq,amount,note,at,day\n";
    let land = |name: &str, records: &str| project.land(name, format!("{header}{records}").as_bytes(), None);
    land("a.csv", "I,1,1,10,x,2024-05-01T10:00:00,\nI,2,1,-1,x,2024-05-01T10:00:00,\n");
    assert_eq!(project.run().task("silver.t").quarantined, 1, "a bad record is no reason to fail");
    assert_eq!(ids(&project), [1]);
    assert_eq!(project.query("SELECT count(*) AS n FROM silver.t WHERE _set_at IS NOT NULL")[0]["n"], 0);

    // A note alone, what the column is made of alone, a row that lacks it, the column without what it is made of.
    land("b.csv", "I,1,2,,y,,\nI,1,3,,,2024-06-01T10:00:00,\nI,3,1,5,z,,\nI,1,4,,,,2024-06-02\n");
    assert_eq!(project.run().task("silver.t").quarantined, 2);
    let refused = project.query("SELECT reason_kind, reason FROM quarantine.s ORDER BY reason_kind");
    let kinds: Vec<_> = refused.iter().map(|row| row["reason_kind"].as_str().expect("a text")).collect();
    assert_eq!(kinds, ["constraint", "generated", "incomplete"], "{refused:?}");
    assert!(
        refused[2]["reason"].as_str().expect("a text").contains("does not bring what it is made of"),
        "{refused:?}"
    );
    let rows = project.query("SELECT id, note, day FROM silver.t");
    assert_eq!(json!(rows), json!([{"id": 1, "note": "y", "day": "2024-06-01"}]));
    project.assert_settled();
    project.silver(&["verify", "--rebuild"]).expect(0);
}

#[test]
fn a_condition_may_guard_what_cannot_be_computed() {
    let guarded = "constraints: {ratio: amount = 0 OR 100 / amount < 60}";
    let project = Project::new(&with(guarded));
    project.land("a.csv", b"op,id,seq,amount,note\nI,1,1,0,x\nI,2,1,2,x\nI,3,1,3,x\nI,4,1,1,x\n", None);
    assert_eq!(project.run().task("silver.t").quarantined, 1);
    assert_eq!(ids(&project), [1, 2, 3]);
    // Rows that are there are asked in the same way, and one that cannot be asked does not meet the condition.
    project.respec(&with("constraints: {ratio: amount = 0 OR 100 / amount < 59}"));
    project.run();
    project.respec(&with("constraints: {bare: 100 / amount < 59}"));
    let story = failing(&project);
    assert!(story.contains("1 row does not meet constraint `bare`: 100 / amount < 59"), "{story}");
    assert!(story.contains("id 1, amount 0") && story.contains("ivide by zero"), "{story}");
}

#[test]
fn where_null_means_not_sent_an_expression_over_nulls_still_gives_its_value() {
    let options = "ignore_null_updates: true\n    select: {note: \"coalesce(nick, full_name)\"}";
    let project = Project::new(&with(options));
    project.land("a.csv", b"op,id,seq,amount,nick,full_name\nI,1,1,1,,A\nI,2,1,1,n,A\n", None);
    project.land("b.csv", b"op,id,seq,amount,nick,full_name\nI,2,2,2,,\nI,1,2,,,B\n", None);
    project.run();
    let rows = project.query("SELECT id, amount, note FROM silver.t ORDER BY id");
    assert_eq!(json!(rows), json!([{"id": 1, "amount": 1, "note": "B"}, {"id": 2, "amount": 2, "note": "n"}]));
}

#[test]
fn a_table_made_anew_keeps_the_constraints_of_others_and_asks_for_them() {
    let project = Project::new(&with("constraints: {ours: id > 0}"));
    project.land("a.csv", b"op,id,seq,amount,note\nI,1,1,2,a\n", None);
    project.run();
    rewrite(&project, |metadata| metadata["configuration"]["delta.constraints.theirs"] = json!("amount < 10"));
    project.respec(SPEC);
    project.silver(&["rebuild", "t"]).expect(0);
    let (metadata, version) = newest(&project, "metaData");
    let constraint = |name: &str| metadata["configuration"][format!("delta.constraints.{name}")].clone();
    assert_eq!((constraint("theirs"), constraint("ours")), (json!("amount < 10"), Value::Null));
    project.land("b.csv", b"op,id,seq,amount,note\nI,2,1,20,b\n", None);
    project.run_layer("bronze");
    let story = project.silver(&["rebuild", "t"]).expect(1).story();
    assert!(story.contains("1 row does not meet constraint `theirs`: amount < 10"), "{story}");
    assert_eq!(newest(&project, "metaData").1, version, "nothing has changed");
}
