//! The spec as a JSON Schema, for editors: what the structs that read it say, with their docs.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::overrides;

/// The address of the schema, for editors that ask for one.
const TITLE: &str = "pipelines.yaml";
/// Texts with a reference to the environment may stand where a number or a truth value belongs.
const REFERENCE: &str = r"\$\{";
/// A length of time; `${…}` may give it.
const DURATION: &str = r"^\s*[0-9]+\s*[a-z]+\s*$|\$\{";
/// A number of bytes; `${…}` may give it.
const SIZE: &str = r"^\s*[0-9]+\s*([KMGTkmgt]?[Ii]?[Bb])?\s*$|\$\{";

/// The schema.
pub(crate) fn schema() -> Value {
    let mut generator = SchemaSettings::draft2019_09().into_generator();
    let mut root = lake::spec::top_schema(&mut generator).to_value();
    let sections = [
        ("bronze", generator.subschema_for::<BTreeMap<String, bronze::spec::Source>>()),
        ("silver", generator.subschema_for::<BTreeMap<String, silver::spec::Table>>()),
        ("gold", generator.subschema_for::<BTreeMap<String, gold::spec::Table>>()),
        ("tasks", generator.subschema_for::<BTreeMap<String, overrides::Raw>>()),
    ];
    for (name, section) in sections {
        let mut section = section.to_value();
        section["description"] = json!(about(name));
        root["properties"][name] = section;
    }
    root["$schema"] = json!("https://json-schema.org/draft/2019-09/schema");
    root["title"] = json!(TITLE);
    root["$defs"] = Value::Object(generator.take_definitions(true));
    for_editors(&mut root);
    root
}

/// The schema as a file.
pub(crate) fn text() -> String {
    format!("{:#}\n", schema())
}

fn about(section: &str) -> &'static str {
    match section {
        "bronze" => "Files of the landing zone into tables that keep every record as it was written, by name.",
        "silver" => "Changes of bronze sources into typed tables with one row for each key, by name.",
        "gold" => "SQL models and daily snapshots, by name.",
        _ => "How tasks are run, by the name of the table that each writes: `silver.orders`.",
    }
}

/// Makes of a schema of structs one of the YAML that they are read from: a key without a value means the default, another
/// name of a key is a key, and what the environment gives is a text.
fn for_editors(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("x-not-yet");
            if let Some(Value::Object(aliases)) = object.remove("x-aliases") {
                add_aliases(object, &aliases);
            }
            let required: Vec<Value> = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            object.values_mut().for_each(for_editors);
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                for (name, property) in properties.iter_mut() {
                    if !required.contains(&json!(name)) {
                        or_nothing(property);
                    }
                }
            }
            values(object);
        }
        Value::Array(items) => items.iter_mut().for_each(for_editors),
        _ => {}
    }
}

fn add_aliases(object: &mut Map<String, Value>, aliases: &Map<String, Value>) {
    // Which of the two names is given, only the program checks.
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !aliases.values().any(|target| target == name));
    }
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (alias, target) in aliases {
        let Some(mut property) = target.as_str().and_then(|target| properties.get(target)).cloned() else { continue };
        property["description"] = json!(format!("Another name of `{}`.", target.as_str().unwrap_or_default()));
        properties.insert(alias.clone(), property);
    }
}

/// Texts for numbers and truth values, durations and sizes as the spec writes them.
fn values(object: &mut Map<String, Value>) {
    let types: Vec<String> = match object.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return,
    };
    match object.get("format").and_then(Value::as_str) {
        Some("duration") => {
            object.remove("format");
            object.insert("pattern".to_owned(), json!(DURATION));
        }
        Some("byte-size") => {
            object.remove("format");
            object.insert("pattern".to_owned(), json!(SIZE));
        }
        _ if types.iter().any(|kind| matches!(kind.as_str(), "integer" | "number" | "boolean")) => {
            object.insert("type".to_owned(), json!([&types[..], &["string".to_owned()]].concat()));
            object.insert("pattern".to_owned(), json!(REFERENCE));
        }
        _ => {}
    }
}

/// Allows a key without a value.
fn or_nothing(property: &mut Value) {
    let Value::Object(object) = property else { return };
    let takes_null = |schema: &Value| {
        schema["type"] == "null" || schema["type"].as_array().is_some_and(|t| t.contains(&json!("null")))
    };
    let choices = object.get("anyOf").and_then(Value::as_array);
    if takes_null(&Value::Object(object.clone())) || choices.is_some_and(|choices| choices.iter().any(takes_null)) {
        return;
    }
    match (object.get("type").cloned(), object.contains_key("enum")) {
        (Some(Value::String(one)), false) => drop(object.insert("type".to_owned(), json!([one, "null"]))),
        (Some(Value::Array(mut several)), false) => {
            several.push(json!("null"));
            object.insert("type".to_owned(), Value::Array(several));
        }
        _ => {
            let description = object.remove("description");
            let default = object.remove("default");
            let inner = std::mem::take(object);
            object.insert("anyOf".to_owned(), json!([inner, {"type": "null"}]));
            object.extend(description.map(|text| ("description".to_owned(), text)));
            object.extend(default.map(|value| ("default".to_owned(), value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// What of a value the schema does not allow; as much of JSON Schema as the schema uses.
    fn wrong(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(target) = schema["$ref"].as_str() {
            let target = root.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("{target} is nowhere"));
            let wrong = wrong(root, target, value, at);
            if !wrong.is_empty() {
                return wrong;
            }
        }
        for key in ["anyOf", "oneOf"] {
            let Some(choices) = schema[key].as_array() else { continue };
            let tried: Vec<_> = choices.iter().map(|choice| wrong_of(root, choice, value, at)).collect();
            if !tried.iter().any(Vec::is_empty) {
                return tried.into_iter().max_by_key(|found| found.iter().map(String::len).max()).unwrap_or_default();
            }
        }
        wrong_of(root, &json!({"here": schema})["here"].clone(), value, at)
    }

    fn wrong_of(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if schema["$ref"].is_string() && !at.starts_with('!') {
            let target = root.pointer(schema["$ref"].as_str().unwrap_or_default().trim_start_matches('#'));
            return wrong(root, target.expect("a definition"), value, at);
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => vec![kind],
        };
        let is_taken = types.contains(&kind) || kind == "integer" && types.contains(&"number");
        if !is_taken {
            return vec![format!("{at}: {kind} is none of {types:?}")];
        }
        let choices = schema["enum"].as_array().map(|choices| choices.contains(value));
        if choices == Some(false) || schema.get("const").is_some_and(|constant| constant != value) {
            return vec![format!("{at}: {value} is no choice")];
        }
        let mut found = Vec::new();
        if let Value::Object(entries) = value {
            for (key, value) in entries {
                let place = format!("{at}.{key}");
                match (schema["properties"].get(key), schema.get("additionalProperties")) {
                    (Some(property), _) => found.extend(wrong(root, property, value, &place)),
                    (None, Some(Value::Bool(false))) => found.push(format!("{place}: unknown")),
                    (None, Some(inner)) => found.extend(wrong(root, inner, value, &place)),
                    (None, None) => {}
                }
            }
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !entries.contains_key(name) {
                    found.push(format!("{at}: {name} is missing"));
                }
            }
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            found.extend(wrong(root, &schema["items"], item, &format!("{at}[{index}]")));
        }
        found
    }

    fn check(yaml: &str) -> Vec<String> {
        let value: Value = serde_yaml::from_str(yaml).expect("YAML");
        let schema = schema();
        wrong(&schema, &schema, &value, "")
    }

    fn workspace() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_spec_of_this_repository_fits() {
        for file in ["pipelines.yaml", "examples/debezium/pipelines.yaml", "examples/dms/pipelines.yaml"] {
            let yaml = std::fs::read_to_string(workspace().join(file)).expect("a spec");
            assert_eq!(check(&yaml), Vec::<String>::new(), "{file}");
        }
        assert_eq!(check(crate::init::EXAMPLE_SPEC), Vec::<String>::new());
    }

    #[test]
    fn what_the_program_takes_is_allowed_and_what_it_refuses_is_not() {
        let table = "name: x\nsilver: {t: {source: s, keys: [id]";
        for right in [
            "name: x\nengine: {threads: '${N}', memory: 4GiB}\nbronze:\n",
            &format!("{table}, on_cast_error: 'null', columns: {{id: bigint}}, sequence_by: }}}}"),
            "name: x\nsilver: {t: {source: s, unique_key: [id]}}",
            "name: x\nbronze: {s: {path: ./, format: csv, settle: 0s, csv: {quote: null}}}",
            "name: x\ntasks: {silver.t: {max_retries: 1}}",
        ] {
            assert_eq!(check(right), Vec::<String>::new(), "{right}");
        }
        for (wrong, told) in [
            ("nmae: x", ".nmae: unknown"),
            ("storage: x", "name is missing"),
            (&format!("{table}, kyes: [a]}}}}")[..], ".silver.t.kyes: unknown"),
            ("name: x\nbronze: {s: {path: ./, format: cvs}}", "is no choice"),
            ("name: x\nbronze: {s: {path: ./, format: csv, csv: {header: [1]}}}", ".bronze.s.csv.header"),
            ("name: x\nsilver: {t: {source: s, keys: id}}", ".silver.t.keys"),
        ] {
            assert!(check(wrong).join("\n").contains(told), "{wrong}: {:?}", check(wrong));
        }
    }

    #[test]
    fn keys_are_explained() {
        let schema = schema();
        let keys = &schema["$defs"]["Source"]["properties"];
        for key in ["path", "format", "settle", "csv"] {
            assert!(keys[key]["description"].as_str().is_some_and(|text| text.len() > 10), "{key}: {}", keys[key]);
        }
    }
}
