//! Producers of changes, recognised by the columns that only they write, and the rows inside of their records.

use chrono::{DateTime, SecondsFormat};
use lake::spec::Map;
use serde_json::Value;

use super::records::{Members, Records, members, objects};

/// A producer and what its records hold.
pub(super) struct Envelope {
    /// The name of the preset; empty where records are rows and nothing more.
    pub(super) preset: &'static str,
    /// By what it was recognised.
    pub(super) reason: &'static str,
    /// The rows inside of the records.
    pub(super) rows: Records,
    /// Whether the preset says what the sequence is.
    pub(super) has_sequence: bool,
    /// Types that an inline schema gives: column and declaration.
    pub(super) schema: Map<String>,
}

/// How the rows of a producer are found.
enum Rows {
    /// The records, without columns that begin so.
    Beside(&'static [&'static str]),
    /// In the first of these columns that holds an object.
    In(&'static [&'static str]),
    /// In the array of this column.
    Each(&'static str),
    /// In these columns, as extended JSON.
    Documents(&'static [&'static str]),
}

struct Known {
    preset: &'static str,
    reason: &'static str,
    /// All of these columns are there, each by one of its names.
    columns: &'static [&'static [&'static str]],
    rows: Rows,
    /// Columns of which one must be there for the preset to order changes.
    sequence: &'static [&'static str],
}

/// The producers; those whose columns are told apart only together come first.
const KNOWN: [Known; 14] = [
    Known {
        preset: "datastream",
        reason: "`source_metadata` and `payload`",
        columns: &[&["source_metadata"], &["payload"]],
        rows: Rows::In(&["payload"]),
        sequence: &["sort_keys"],
    },
    Known {
        preset: "airbyte",
        reason: "`_airbyte_data`",
        columns: &[&["_airbyte_data"]],
        rows: Rows::In(&["_airbyte_data"]),
        sequence: &["_ab_cdc_lsn"],
    },
    Known {
        preset: "airbyte",
        reason: "columns that begin with `_airbyte_`",
        columns: &[&["_airbyte_raw_id", "_airbyte_ab_id", "_ab_cdc_deleted_at"]],
        rows: Rows::Beside(&["_airbyte_", "_ab_"]),
        sequence: &["_ab_cdc_lsn"],
    },
    Known {
        preset: "canal",
        reason: "`isDdl`, `type` and `data`",
        columns: &[&["isDdl"], &["type"], &["data"]],
        rows: Rows::Each("data"),
        sequence: &["es", "id"],
    },
    Known {
        preset: "maxwell",
        reason: "`database`, `table`, `type` and `data`",
        columns: &[&["database"], &["table"], &["type"], &["data"]],
        rows: Rows::In(&["data"]),
        sequence: &["ts", "xid"],
    },
    Known {
        preset: "goldengate",
        reason: "`op_type`, and `before` or `after`",
        columns: &[&["op_type"], &["before", "after"]],
        rows: Rows::In(&["after", "before"]),
        sequence: &["pos"],
    },
    Known {
        preset: "debezium",
        reason: "`op`, `source`, and `before` or `after`",
        columns: &[&["op"], &["source", "ts_ms"], &["before", "after"]],
        rows: Rows::In(&["after", "before"]),
        sequence: &["source"],
    },
    Known {
        preset: "debezium_flattened",
        reason: "`__op` or `__deleted`",
        columns: &[&["__op", "__deleted"]],
        rows: Rows::Beside(&["__", "schema", "payload"]),
        sequence: &["__lsn", "__source_ts_ms", "__ts_ms"],
    },
    Known {
        preset: "delta_cdf",
        reason: "`_change_type` and `_commit_version`",
        columns: &[&["_change_type"], &["_commit_version"]],
        rows: Rows::Beside(&["_change_type", "_commit_version", "_commit_timestamp"]),
        sequence: &["_commit_version"],
    },
    Known {
        preset: "qlik",
        reason: "columns that begin with `header__`",
        columns: &[&["header__change_oper"]],
        rows: Rows::Beside(&["header__"]),
        sequence: &["header__change_seq"],
    },
    Known {
        preset: "sqlserver",
        reason: "`__$operation` and `__$start_lsn`",
        columns: &[&["__$operation"], &["__$start_lsn"]],
        rows: Rows::Beside(&["__$"]),
        sequence: &["__$start_lsn"],
    },
    Known {
        preset: "snowflake",
        reason: "`METADATA$ACTION`",
        columns: &[&["METADATA$ACTION"]],
        rows: Rows::Beside(&["METADATA$"]),
        sequence: &[],
    },
    Known {
        preset: "fivetran",
        reason: "`_fivetran_synced`",
        columns: &[&["_fivetran_deleted", "_fivetran_synced"]],
        rows: Rows::Beside(&["_fivetran_"]),
        sequence: &["_fivetran_synced"],
    },
    // Kafka records with documents of MongoDB: see `recognise`.
    Known {
        preset: "debezium_mongodb",
        reason: "the envelope of MongoDB in `value`",
        columns: &[&["key"], &["value"]],
        rows: Rows::Documents(&["after", "before", "key"]),
        sequence: &["source"],
    },
];

/// The producer of these records.
pub(super) fn recognise(records: &Records) -> Envelope {
    let is_kafka = has(records, "key") && has(records, "value");
    let outer = if is_kafka && of_mongodb(&unwrapped(&records.unwrapped("value"))) {
        records.unwrapped("value")
    } else {
        records.clone()
    };
    let around = unwrapped(&outer);
    let is_known = |known: &&Known| {
        known.preset != "debezium_mongodb"
            && known.columns.iter().all(|names| names.iter().any(|name| has(&around, name)))
    };
    let mongodb = || KNOWN.iter().find(|known| known.preset == "debezium_mongodb");
    let known = match KNOWN.iter().find(is_known) {
        Some(known) if known.preset == "debezium" && of_mongodb(&around) => mongodb(),
        Some(known) => Some(known),
        None => operation_of_dms(records),
    };
    let Some(known) = known else {
        let (rows, schema) = (records.clone(), Map::default());
        return Envelope { preset: "", reason: "", rows, has_sequence: false, schema };
    };
    let reason = match (known.preset, is_kafka) {
        ("debezium_mongodb", false) => "`op`, `after`, and `mongodb` in `source`",
        _ => known.reason,
    };
    Envelope {
        preset: known.preset,
        reason,
        rows: rows(&around, &known.rows),
        has_sequence: known.sequence.iter().any(|name| has(&around, name)),
        schema: outer.column("schema").and_then(|column| column.present().find_map(inline_schema)).unwrap_or_default(),
    }
}

/// AWS DMS: a column `Op` of I, U and D.
fn operation_of_dms(records: &Records) -> Option<&'static Known> {
    static DMS: Known = Known {
        preset: "dms",
        reason: "`Op` with I, U and D",
        columns: &[],
        rows: Rows::Beside(&["Op"]),
        sequence: &[],
    };
    let values = records.exactly("Op")?.few(3)?;
    (!values.is_empty() && values.iter().all(|value| matches!(*value, "I" | "U" | "D"))).then_some(&DMS)
}

/// Records inside of `payload`, where a `schema` stands beside it.
fn unwrapped(records: &Records) -> Records {
    match has(records, "payload") && has(records, "schema") {
        true => records.unwrapped("payload"),
        false => records.clone(),
    }
}

fn of_mongodb(records: &Records) -> bool {
    has(records, "op")
        && records.column("source").is_some_and(|source| source.present().any(|text| text.contains("\"mongodb\"")))
}

fn has(records: &Records, name: &str) -> bool {
    records.exactly(name).is_some()
}

fn rows(records: &Records, kind: &Rows) -> Records {
    let mut made = Records::default();
    let cell = |name: &str, row: usize| records.column(name)?.values[row].as_deref();
    for (row, file) in records.files.iter().enumerate() {
        match kind {
            Rows::Beside(own) => {
                let is_own = |name: &str| own.iter().any(|start| name.starts_with(start));
                made.push(*file, records.row(row).into_iter().filter(|(name, _)| !is_own(name)).collect());
            }
            Rows::In(columns) => {
                let inside = columns.iter().find_map(|name| members(cell(name, row)?));
                if let Some(inside) = inside {
                    let is_row = |name: &str| !name.ends_with("_isMissing") && !name.starts_with("_ab_");
                    made.push(*file, inside.into_iter().filter(|(name, _)| is_row(name)).collect());
                }
            }
            Rows::Each(column) => {
                let inside = cell(column, row).and_then(objects).unwrap_or_default();
                inside.into_iter().for_each(|members| made.push(*file, members));
            }
            Rows::Documents(columns) => {
                if let Some(document) = columns.iter().find_map(|name| document(cell(name, row)?)) {
                    made.push(*file, document);
                }
            }
        }
    }
    // Types of the files stay where columns do.
    for column in &mut made.columns {
        column.typed = records.exactly(&column.name).filter(|_| matches!(kind, Rows::Beside(_))).and_then(|c| c.typed);
    }
    made
}

/// A document of extended JSON as plain members.
fn document(text: &str) -> Option<Members> {
    let members = members(text)?;
    // The key of a Kafka record has the key as `id`, a text.
    if members.iter().any(|(name, _)| name == "payload" || name == "id") && !members.iter().any(|(n, _)| n == "_id") {
        return None;
    }
    Some(members.into_iter().map(|(name, value)| (name, value.map(|text| plain(&text)))).collect())
}

/// `{"$oid": "5f…"}` is `5f…`.
fn plain(text: &str) -> String {
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let mut inside = object.iter();
    match (inside.next(), inside.next()) {
        (Some((key, value)), None) if key.starts_with('$') => {
            let inner = value.as_str().map_or_else(|| plain(&value.to_string()), str::to_owned);
            match (key.as_str(), inner.parse().ok().and_then(DateTime::from_timestamp_millis)) {
                ("$date", Some(moment)) => moment.to_rfc3339_opts(SecondsFormat::Millis, true),
                _ => inner,
            }
        }
        _ => text.to_owned(),
    }
}

/// The types of a row in the inline schema of Kafka Connect.
fn inline_schema(text: &str) -> Option<Map<String>> {
    let schema: Value = serde_json::from_str(text).ok()?;
    let fields = schema["fields"].as_array()?;
    let inside = fields.iter().find(|field| field["field"] == "after" || field["field"] == "before");
    let of_row = inside.map_or(fields, |field| field["fields"].as_array().unwrap_or(fields));
    let declared = of_row.iter().filter_map(|field| Some((field["field"].as_str()?, declaration(field)?)));
    Some(declared.collect())
}

/// The declaration of a column by its field of the inline schema; silver reads the values as the schema says.
fn declaration(field: &Value) -> Option<String> {
    let name = field["name"].as_str().unwrap_or_default();
    let short = name.rsplit('.').next().unwrap_or_default();
    let parameter = |key: &str| field["parameters"][key].as_str();
    let named = match short {
        "Decimal" => {
            let (precision, scale) = (parameter("connect.decimal.precision").unwrap_or("38"), parameter("scale")?);
            Some(format!("decimal({precision},{scale})"))
        }
        "Date" => Some("date".to_owned()),
        _ if short.ends_with("Timestamp") => Some("timestamp".to_owned()),
        _ if short.ends_with("Time") => Some("string".to_owned()),
        _ => None,
    };
    let plain = match field["type"].as_str()? {
        "int64" => "bigint",
        "int32" => "int",
        "int16" => "smallint",
        "int8" => "tinyint",
        "double" | "float64" => "double",
        "float" | "float32" => "float",
        "boolean" => "boolean",
        "bytes" => "binary",
        _ => "string",
    };
    Some(named.unwrap_or_else(|| plain.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(rows: &[&str]) -> Records {
        let mut records = Records::default();
        rows.iter().for_each(|row| records.push(0, members(row).expect("an object")));
        records
    }

    fn preset(row: &str) -> &'static str {
        recognise(&records(&[row])).preset
    }

    #[test]
    fn producers_are_recognised_by_their_columns() {
        let source = r#""source":{"connector":"postgresql","lsn":1}"#;
        for (row, expected) in [
            (r#"{"id":1,"op":"I"}"#.to_owned(), ""),
            (r#"{"Op":"I","id":1}"#.to_owned(), "dms"),
            (r#"{"Op":"x","id":1}"#.to_owned(), ""),
            (format!(r#"{{"before":null,"after":{{"id":1}},"op":"c",{source}}}"#), "debezium"),
            (
                format!(r#"{{"schema":{{}},"payload":{{"before":null,"after":{{"id":1}},"op":"c",{source}}}}}"#),
                "debezium",
            ),
            (r#"{"after":"{}","op":"c","source":{"connector":"mongodb"}}"#.to_owned(), "debezium_mongodb"),
            (
                r#"{"key":"{}","value":{"after":"{}","op":"c","source":{"connector":"mongodb"}}}"#.to_owned(),
                "debezium_mongodb",
            ),
            (r#"{"id":1,"__op":"u","__lsn":2}"#.to_owned(), "debezium_flattened"),
            (r#"{"table":"t","op_type":"I","pos":"01","after":{"id":1}}"#.to_owned(), "goldengate"),
            (r#"{"database":"d","table":"t","type":"insert","ts":1,"data":{"id":1}}"#.to_owned(), "maxwell"),
            (r#"{"database":"d","table":"t","type":"INSERT","isDdl":false,"data":[{"id":"1"}]}"#.to_owned(), "canal"),
            (r#"{"payload":{"id":1},"source_metadata":{},"sort_keys":[1]}"#.to_owned(), "datastream"),
            (r#"{"_airbyte_raw_id":"x","_airbyte_data":{"id":1}}"#.to_owned(), "airbyte"),
            (r#"{"_airbyte_raw_id":"x","id":1}"#.to_owned(), "airbyte"),
            (r#"{"id":1,"_change_type":"insert","_commit_version":3}"#.to_owned(), "delta_cdf"),
            (r#"{"header__change_oper":"I","header__change_seq":"1","id":1}"#.to_owned(), "qlik"),
            (r#"{"__$operation":"2","__$start_lsn":"00","id":1}"#.to_owned(), "sqlserver"),
            (r#"{"METADATA$ACTION":"INSERT","id":1}"#.to_owned(), "snowflake"),
            (r#"{"_fivetran_synced":"2024-05-01","id":1}"#.to_owned(), "fivetran"),
        ] {
            assert_eq!(preset(&row), expected, "{row}");
            let envelope = recognise(&records(&[&row]));
            let is_plain = envelope.preset == "debezium_mongodb";
            assert!(is_plain || envelope.rows.column("id").is_some(), "{row} has no `id`");
        }
    }

    #[test]
    fn an_inline_schema_gives_the_types() {
        let field = r#"{"field":"after","type":"struct","fields":[
            {"field":"id","type":"int64"},
            {"field":"amount","type":"bytes","name":"org.apache.kafka.connect.data.Decimal",
             "parameters":{"scale":"2","connect.decimal.precision":"12"}},
            {"field":"at","type":"int64","name":"io.debezium.time.MicroTimestamp"},
            {"field":"day","type":"int32","name":"io.debezium.time.Date"}]}"#;
        let row = format!(
            r#"{{"schema":{{"type":"struct","fields":[{field}]}},"payload":{{"op":"c","source":{{}},"after":{{"id":1}}}}}}"#
        );
        let schema = recognise(&records(&[&row])).schema;
        let told: Vec<String> = schema.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        assert_eq!(told, ["id bigint", "amount decimal(12,2)", "at timestamp", "day date"]);
    }

    #[test]
    fn documents_of_mongodb_become_plain() {
        assert_eq!(plain(r#"{"$oid":"5f"}"#), "5f");
        assert_eq!(plain(r#"{"$date":{"$numberLong":"1714557600000"}}"#), "2024-05-01T10:00:00.000Z");
        assert_eq!(plain(r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(plain("text"), "text");
    }
}
