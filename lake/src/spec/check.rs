//! YAML against the JSON Schema of a struct: every unknown key, wrong type and unknown value, each with its place.
//!
//! Knows what `schemars` makes of plain structs, maps, lists, options and enums of plain values. Tagged and untagged
//! enums are not used in the spec, because their errors help nobody.

use schemars::JsonSchema;
use serde_json::Value as Json;
use serde_yaml::{Mapping, Value};

use super::nearest::nearest;
use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::scalars::{ByteSize, DURATION_FORMAT, Duration, SIZE_FORMAT};
use super::yaml::plain;

/// Texts of the user are cut here in messages, in characters.
const SHOWN_MAX: usize = 40;

/// The JSON Schema of a struct of the spec, with the definitions it refers to.
pub(super) fn schema_of<T: JsonSchema>() -> Json {
    schemars::SchemaGenerator::default().into_root_schema_for::<T>().to_value()
}

/// Reports what does not fit and returns what does: without unknown keys and wrong values, and with the field names
/// in place of their aliases. `None` when nothing of the value can be used.
pub(super) fn check(value: &Value, schema: &Json, path: &SpecPath, problems: &mut Problems) -> Option<Value> {
    let value = match value {
        Value::Null => &Value::Mapping(Mapping::new()),
        other => other,
    };
    Checker { root: schema, problems }.value(value, schema, path)
}

/// What was found, for a message.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Number(number) => format!("the number `{number}`"),
        Value::String(text) => format!("the text `{}`", shown(text)),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) | Value::Tagged(_) => "a mapping".to_owned(),
    }
}

struct Checker<'a> {
    root: &'a Json,
    problems: &'a mut Problems,
}

/// What a schema allows, with references and alternatives resolved.
#[derive(Default)]
struct Allowed<'a> {
    types: Vec<&'a str>,
    /// The texts of an enum of plain values.
    choices: Vec<&'a str>,
    format: Option<&'a str>,
    minimum: Option<&'a Json>,
    maximum: Option<&'a Json>,
    properties: Option<&'a serde_json::Map<String, Json>>,
    required: Vec<&'a str>,
    /// The schema of values with free keys.
    additional: Option<&'a Json>,
    items: Option<&'a Json>,
    not_yet: Vec<&'a str>,
    aliases: Option<&'a serde_json::Map<String, Json>>,
}

impl<'a> Allowed<'a> {
    fn of(root: &'a Json, schema: &'a Json) -> Self {
        let mut allowed = Self::default();
        allowed.merge(root, schema);
        allowed
    }

    fn merge(&mut self, root: &'a Json, schema: &'a Json) {
        if let Some(target) = schema.get("$ref").and_then(Json::as_str)
            && let Some(definition) = root.pointer(target.trim_start_matches('#'))
        {
            self.merge(root, definition);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in schema.get(key).and_then(Json::as_array).into_iter().flatten() {
                self.merge(root, part);
            }
        }
        match schema.get("type") {
            Some(Json::String(one)) => self.types.push(one),
            Some(Json::Array(several)) => self.types.extend(several.iter().filter_map(Json::as_str)),
            _ => {}
        }
        self.choices.extend(schema.get("const").and_then(Json::as_str));
        self.choices.extend(texts(schema.get("enum")));
        self.required.extend(texts(schema.get("required")));
        self.not_yet.extend(texts(schema.get("x-not-yet")));
        self.format = self.format.or_else(|| schema.get("format").and_then(Json::as_str));
        self.minimum = self.minimum.or_else(|| schema.get("minimum"));
        self.maximum = self.maximum.or_else(|| schema.get("maximum"));
        self.properties = self.properties.or_else(|| schema.get("properties").and_then(Json::as_object));
        self.aliases = self.aliases.or_else(|| schema.get("x-aliases").and_then(Json::as_object));
        self.items = self.items.or_else(|| schema.get("items"));
        let additional = schema.get("additionalProperties").filter(|additional| **additional != Json::Bool(false));
        self.additional = self.additional.or(additional);
    }

    fn any(&self) -> bool {
        self.types.is_empty() && self.choices.is_empty()
    }

    fn takes(&self, kind: &str) -> bool {
        self.types.contains(&kind)
    }

    fn plain_text(&self) -> bool {
        self.takes("string") && self.choices.is_empty() && self.format.is_none()
    }

    fn expected(&self) -> String {
        if !self.choices.is_empty() {
            return format!("one of {}", quoted(&self.choices));
        }
        match self.format {
            Some(DURATION_FORMAT) => return "a duration such as `2s` or `7 days`".to_owned(),
            Some(SIZE_FORMAT) => return "a size such as `100MiB`".to_owned(),
            _ => {}
        }
        let mut names: Vec<&str> = Vec::new();
        for kind in &self.types {
            names.push(match *kind {
                "object" => "a mapping",
                "array" => "a list",
                "string" => "text",
                "integer" => "a whole number",
                "number" => "a number",
                "boolean" => "`true` or `false`",
                _ => continue,
            });
        }
        names.dedup();
        names.join(" or ")
    }
}

impl<'a> Checker<'a> {
    fn value(&mut self, value: &Value, schema: &'a Json, path: &SpecPath) -> Option<Value> {
        let allowed = Allowed::of(self.root, schema);
        match value {
            _ if allowed.any() => Some(value.clone()),
            Value::Null if allowed.choices.contains(&"null") => {
                let problem = Problem::at(path, "`null` without quotes means no value");
                self.problems.add(problem.hint("put it in quotes: \"null\""));
                None
            }
            Value::Null if allowed.takes("null") => Some(Value::Null),
            Value::Mapping(entries) if allowed.takes("object") => Some(self.mapping(entries, &allowed, path)),
            Value::Sequence(items) if allowed.takes("array") => self.list(items, &allowed, path),
            Value::String(text) if !allowed.choices.is_empty() => self.choice(text, &allowed, path),
            Value::String(text) if allowed.takes("string") => self.text(text, &allowed, path),
            Value::Bool(_) if allowed.takes("boolean") => Some(value.clone()),
            Value::String(text) if self.is_expanded(path) && !plain(text).is_string() => {
                self.value(&plain(text), schema, path)
            }
            Value::Number(number) if allowed.takes("number") || (allowed.takes("integer") && !number.is_f64()) => {
                self.number(number, &allowed, path)
            }
            other => self.wrong_type(other, &allowed, path),
        }
    }

    fn mapping(&mut self, entries: &Mapping, allowed: &Allowed<'a>, path: &SpecPath) -> Value {
        let mut kept = Mapping::new();
        for (key, value) in entries {
            // A key that is no name was refused when it was read.
            let Some(written) = key.as_str().filter(|key| !key.is_empty()) else { continue };
            let name = allowed.aliases.and_then(|aliases| aliases.get(written)?.as_str()).unwrap_or(written);
            let place = path.key(written);
            if name != written && entries.contains_key(name) {
                let message = format!("`{written}` is another name of `{name}`, and both are given");
                self.problems.add(Problem::of_key(&place, message).hint(format!("keep `{name}`")));
                continue;
            }
            let property = allowed.properties.and_then(|properties| properties.get(name));
            let checked = match (property, allowed.additional) {
                (Some(schema), _) => self.field(value, schema, &place),
                (None, Some(schema)) => self.free(value, schema, &place),
                (None, None) => {
                    self.unknown_key(written, allowed, &place);
                    None
                }
            };
            if let Some(checked) = checked {
                kept.insert(Value::String(name.to_owned()), checked);
            }
        }
        for name in &allowed.required {
            let given = |key: &str| entries.get(key).is_some_and(|value| !value.is_null());
            let alias = |name: &str| {
                let aliases = allowed.aliases.into_iter().flatten();
                aliases.filter(|(_, target)| target.as_str() == Some(name)).any(|(alias, _)| given(alias))
            };
            if !given(name) && !alias(name) {
                let about =
                    allowed.properties.and_then(|properties| properties.get(*name)?.get("description")?.as_str());
                let problem = Problem::at(&path.key(*name), format!("`{name}` is missing"));
                self.problems.add(match about.and_then(|about| about.split(['.', ';', ':']).next()) {
                    Some(about) => problem.hint(format!("add `{name}:`, {}", lowered(&about.replace('\n', " ")))),
                    None => problem,
                });
            }
        }
        Value::Mapping(kept)
    }

    /// The value of a field: none means the default, unless the field itself has a null.
    fn field(&mut self, value: &Value, schema: &'a Json, place: &SpecPath) -> Option<Value> {
        let allowed = Allowed::of(self.root, schema);
        if value.is_null() && !allowed.takes("null") && !allowed.choices.contains(&"null") {
            return None;
        }
        self.value(value, schema, place)
    }

    /// The value of a free key: none means an empty mapping where a mapping belongs.
    fn free(&mut self, value: &Value, schema: &'a Json, place: &SpecPath) -> Option<Value> {
        let empty = Value::Mapping(Mapping::new());
        let mapping = value.is_null() && Allowed::of(self.root, schema).takes("object");
        self.value(if mapping { &empty } else { value }, schema, place)
    }

    /// True for a value written with a reference to the environment: it has the type of its place.
    fn is_expanded(&self, path: &SpecPath) -> bool {
        self.problems.text().is_some_and(|text| text.is_expanded(path))
    }

    fn list(&mut self, items: &[Value], allowed: &Allowed<'a>, path: &SpecPath) -> Option<Value> {
        let Some(schema) = allowed.items else { return Some(Value::Sequence(items.to_vec())) };
        let checked: Vec<Option<Value>> =
            items.iter().enumerate().map(|(index, item)| self.item(item, schema, &path.index(index))).collect();
        checked.into_iter().collect::<Option<Vec<Value>>>().map(Value::Sequence)
    }

    fn item(&mut self, item: &Value, schema: &'a Json, place: &SpecPath) -> Option<Value> {
        let allowed = Allowed::of(self.root, schema);
        if item.is_null() && allowed.plain_text() && !allowed.takes("null") {
            let problem = Problem::at(place, "expected text, found nothing: `NULL` without quotes means no value");
            self.problems.add(problem.hint("put it in quotes: \"NULL\""));
            return None;
        }
        self.value(item, schema, place)
    }

    fn choice(&mut self, text: &str, allowed: &Allowed<'a>, path: &SpecPath) -> Option<Value> {
        if allowed.choices.contains(&text) {
            return Some(Value::String(text.to_owned()));
        }
        if allowed.not_yet.contains(&text) {
            let problem = Problem::at(path, format!("`{text}` is not supported yet"));
            self.problems.add(problem.hint(format!("supported here: {}", quoted(&allowed.choices))));
            return None;
        }
        let problem = Problem::at(path, format!("unknown value `{}`", shown(text)));
        self.problems.add(problem.did_you_mean(text, allowed.choices.iter().copied()));
        None
    }

    fn text(&mut self, text: &str, allowed: &Allowed<'a>, path: &SpecPath) -> Option<Value> {
        let wrong = match allowed.format {
            Some(DURATION_FORMAT) => text.parse::<Duration>().err(),
            Some(SIZE_FORMAT) => text.parse::<ByteSize>().err(),
            _ => None,
        };
        match wrong {
            None => Some(Value::String(text.to_owned())),
            Some(message) => {
                self.problems.add(Problem::at(path, message));
                None
            }
        }
    }

    fn number(&mut self, number: &serde_yaml::Number, allowed: &Allowed<'a>, path: &SpecPath) -> Option<Value> {
        let value = number.as_f64().unwrap_or(f64::NAN);
        let below = allowed.minimum.filter(|limit| limit.as_f64().is_some_and(|limit| value < limit));
        let above = allowed.maximum.filter(|limit| limit.as_f64().is_some_and(|limit| value > limit));
        if let Some(limit) = below {
            self.problems.add(Problem::at(path, format!("`{number}` is too small: at least {limit}")));
        } else if let Some(limit) = above {
            self.problems.add(Problem::at(path, format!("`{number}` is too large: at most {limit}")));
        } else {
            return Some(Value::Number(number.clone()));
        }
        None
    }

    fn wrong_type(&mut self, value: &Value, allowed: &Allowed<'a>, path: &SpecPath) -> Option<Value> {
        let problem = Problem::at(path, format!("expected {}, found {}", allowed.expected(), found(value)));
        let hint = match value {
            Value::String(text) if allowed.takes("array") => Some(format!("write it as a list: `[{}]`", item(text))),
            Value::Mapping(_) if allowed.takes("array") && !allowed.takes("object") => {
                Some("put a `- ` in front of each item".to_owned())
            }
            Value::Number(_) | Value::Bool(_) if allowed.takes("array") => {
                Some(format!("write it as a list: `[{}]`", scalar(value)))
            }
            Value::Number(number) if allowed.format == Some(DURATION_FORMAT) => {
                Some(format!("add a unit: `{number}s`, `{number}m`, `{number}h` or `{number} days`"))
            }
            Value::Number(_) | Value::Bool(_) if allowed.plain_text() => {
                Some(format!("put it in quotes: \"{}\"", scalar(value)))
            }
            Value::Sequence(items) if items.len() == 1 && !allowed.takes("object") => {
                Some("write the value without brackets".to_owned())
            }
            Value::String(text) if allowed.takes("boolean") => match text.to_lowercase().as_str() {
                "yes" | "on" => Some("write `true`".to_owned()),
                "no" | "off" => Some("write `false`".to_owned()),
                _ => None,
            },
            _ => None,
        };
        self.problems.add(Problem { hint, ..problem });
        None
    }

    fn unknown_key(&mut self, key: &str, allowed: &Allowed<'a>, place: &SpecPath) {
        if allowed.not_yet.contains(&key) {
            let problem = Problem::of_key(place, format!("`{key}` is not supported yet"));
            self.problems.add(problem.hint("remove it; this version does not do what it asks for"));
            return;
        }
        let names: Vec<&str> = allowed.properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let problem = Problem::of_key(place, format!("unknown key `{key}`"));
        let home =
            allowed.properties.into_iter().flatten().find(|(_, schema)| {
                Allowed::of(self.root, schema).properties.is_some_and(|below| below.contains_key(key))
            });
        self.problems.add(match (nearest(key, names.iter().copied()), home) {
            (None, Some((home, _))) => problem.hint(format!("it belongs below `{home}`")),
            (Some(near), _) => problem.hint(format!("did you mean `{near}`?")),
            (None, None) => problem.did_you_mean(key, names),
        });
    }
}

fn texts(list: Option<&Json>) -> impl Iterator<Item = &str> {
    list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A text in a list of YAML.
fn item(text: &str) -> String {
    let shown = shown(text);
    let is_plain = shown.starts_with(char::is_alphanumeric) && !shown.contains([',', '[', ']', '{', '}', ':', '#']);
    if is_plain { shown } else { format!("{shown:?}") }
}

/// A sentence inside of another one.
fn lowered(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_lowercase);
    first.chain(chars).collect()
}

fn shown(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= SHOWN_MAX && line.len() == text.trim_end().len() {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(SHOWN_MAX).collect();
    cut.push('…');
    cut
}
