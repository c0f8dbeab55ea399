//! The tables of keys in docs/SPEC.md follow from the structs that read the spec: they are compared here, and written
//! anew with `UPDATE_DOCS=1 cargo test --workspace spec_reference`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde_json::Value;

/// The sections of the page, each between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
fn sections() -> Vec<(&'static str, Value)> {
    fn of<T: JsonSchema>() -> Value {
        schemars::SchemaGenerator::default().into_root_schema_for::<T>().to_value()
    }
    vec![
        ("bronze", of::<bronze::spec::Source>()),
        ("silver", of::<silver::spec::Table>()),
        ("gold", of::<gold::spec::Table>()),
        ("maintenance", of::<lake::spec::Maintenance>()),
        ("tasks", of::<super::overrides::Raw>()),
        ("notification", of::<lake::spec::Notification>()),
    ]
}

#[test]
fn the_spec_reference_is_that_of_the_structs() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/SPEC.md");
    let page = std::fs::read_to_string(&file).expect("docs/SPEC.md");
    let mut wanted = page.clone();
    for (name, schema) in sections() {
        let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->"));
        let from = wanted.find(&begin).unwrap_or_else(|| panic!("{begin} is not in the page")) + begin.len();
        let to = wanted.find(&end).unwrap_or_else(|| panic!("{end} is not in the page"));
        wanted.replace_range(from..to, &table(&schema));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).expect("the page is written");
    } else {
        assert!(page == wanted, "docs/SPEC.md does not tell the keys as they are; see {}", file!());
    }
}

fn table(schema: &Value) -> String {
    let mut text = String::from("\n| Key | Value | Default | |\n|---|---|---|---|\n");
    rows(schema, schema, "", &mut text);
    let not_yet = schema["x-not-yet"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let not_yet: Vec<String> = not_yet.map(|key| format!("`{key}`")).collect();
    if !not_yet.is_empty() {
        text.push_str(&format!("\nRefused as not supported yet: {}.\n", not_yet.join(", ")));
    }
    text.push('\n');
    text
}

fn rows(root: &Value, schema: &Value, prefix: &str, text: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let target = resolved(root, property);
        let name = format!("{prefix}{key}");
        let default = match (&property["default"], required.contains(&key.as_str())) {
            (_, true) => "required".to_owned(),
            (Value::Null, _) => String::new(),
            (Value::Array(items), _) if items.is_empty() => String::new(),
            (Value::Object(items), _) if items.is_empty() => String::new(),
            (Value::String(value), _) => format!("`{value}`"),
            (value, _) => format!("`{value}`"),
        };
        let about = property["description"].as_str().or(target["description"].as_str()).unwrap_or_default();
        let about = about.split("\n\n").next().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {} | {default} | {about} |\n", kind(root, property)));
        if target["properties"].is_object() {
            rows(root, target, &format!("{name}."), text);
        } else if let Some(inner) = mapped(root, target) {
            rows(root, inner, &format!("{name}.<name>."), text);
        }
    }
}

/// The struct behind the values of a map.
fn mapped<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let inner = resolved(root, schema.get("additionalProperties").filter(|inner| inner.is_object())?);
    inner["properties"].is_object().then_some(inner)
}

/// What a property is behind references and the alternative null.
fn resolved<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    if let Some(target) = property["$ref"].as_str() {
        return root.pointer(target.trim_start_matches('#')).unwrap_or(property);
    }
    let choices = property["anyOf"].as_array().into_iter().flatten();
    match choices.into_iter().find(|choice| choice["type"] != "null") {
        Some(choice) => resolved(root, choice),
        None => property,
    }
}

fn kind(root: &Value, property: &Value) -> String {
    let target = resolved(root, property);
    let choices: Vec<String> = choices(target).into_iter().map(|choice| format!("`{choice}`")).collect();
    if !choices.is_empty() {
        return choices.join(", ");
    }
    match (target["format"].as_str(), type_of(target)) {
        (Some("duration"), _) => "duration".to_owned(),
        (Some("byte-size"), _) => "size".to_owned(),
        (_, "array") => format!("list of {}", kind(root, &target["items"])),
        (_, "object") if target["properties"].is_object() => "mapping".to_owned(),
        (_, "object") => "mapping by name".to_owned(),
        (_, "string") => "text".to_owned(),
        (_, "integer") => "number".to_owned(),
        (_, "boolean") => "true, false".to_owned(),
        (_, other) => other.to_owned(),
    }
}

fn type_of(schema: &Value) -> &str {
    let listed = schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str).find(|kind| *kind != "null");
    schema["type"].as_str().or(listed).unwrap_or("text")
}

/// The values of an enum, with or without a description each.
fn choices(schema: &Value) -> Vec<&str> {
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = schema["oneOf"].as_array().into_iter().flatten();
    let described = described.flat_map(|choice| {
        let one = choice["const"].as_str();
        one.into_iter().chain(choice["enum"].as_array().into_iter().flatten().filter_map(Value::as_str))
    });
    plain.chain(described).collect()
}
