//! The schema that an Avro file carries: its types in a list, named ones once, with the logical types that we know.

use std::collections::HashMap;

use lake::Result;
use serde_json::{Map, Value};

use super::super::{COLUMNS_MAX, NESTING_MAX, refused};

/// The place of a type in [`Schema`].
pub(super) type TypeId = usize;

/// A type, with the logical type that it carries.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<String>),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    /// Names and types of the fields.
    Record(Vec<(String, TypeId)>),
    /// An unscaled number of big-endian bytes: of a fixed length, or as long as it says.
    Decimal {
        size: Option<usize>,
        scale: usize,
    },
    /// Days since the epoch.
    Date,
    TimeMillis,
    TimeMicros,
    /// A moment in parts of a second since the epoch.
    Timestamp(Unit),
    /// 16 bytes of a UUID; written as a text it is a text.
    Uuid,
    /// Months, days and milliseconds.
    Duration,
}

/// The part of a second that a moment counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// Its sign.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::Nanos => "ns",
        }
    }
}

/// The types of a file.
#[derive(Debug)]
pub(super) struct Schema {
    types: Vec<Type>,
    /// The type of a record.
    root: TypeId,
}

impl Schema {
    /// Reads the schema of a file.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when it is not a schema of Avro.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let json: Value = serde_json::from_slice(text)
            .map_err(|error| refused(format!("the schema of the file is not JSON: {error}")).with_source(error))?;
        let mut parser = Parser::default();
        let root = parser.read(&json, "", 0).map_err(|reason| refused(format!("the schema of the file: {reason}")))?;
        Ok(Self { types: parser.types, root })
    }

    /// The type of a place.
    pub(super) fn get(&self, id: TypeId) -> &Type {
        &self.types[id]
    }

    /// The fields of a record of the file, and whether a record may be null.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File) when the file holds something else than records.
    pub(super) fn records(&self) -> Result<&[(String, TypeId)]> {
        let of = |id: &TypeId| match self.get(*id) {
            Type::Record(fields) => Some(fields.as_slice()),
            _ => None,
        };
        let fields = match self.get(self.root) {
            Type::Union(branches) => {
                let others = branches.iter().filter(|id| *self.get(**id) != Type::Null).collect::<Vec<_>>();
                if let [one] = others.as_slice() { of(one) } else { None }
            }
            _ => of(&self.root),
        };
        fields.ok_or_else(|| refused("the schema of the file is not that of a record, so it has no columns"))
    }

    /// The type of a record.
    pub(super) fn root(&self) -> TypeId {
        self.root
    }
}

#[derive(Default)]
struct Parser {
    types: Vec<Type>,
    /// Named types by their full name.
    named: HashMap<String, TypeId>,
}

impl Parser {
    fn add(&mut self, kind: Type) -> TypeId {
        self.types.push(kind);
        self.types.len() - 1
    }

    fn read(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<TypeId, String> {
        if depth > NESTING_MAX {
            return Err(format!("types are nested deeper than {NESTING_MAX} levels"));
        }
        match json {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.read(branch, namespace, depth + 1));
                let branches = branches.collect::<Result<Vec<_>, _>>()?;
                Ok(self.add(Type::Union(branches)))
            }
            Value::Object(object) => self.object(object, namespace, depth),
            other => Err(format!("`{other}` is not a type")),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<TypeId, String> {
        if let Some(primitive) = primitive(name) {
            return Ok(self.add(primitive));
        }
        let known = self.named.get(&full_name(name, namespace)).or_else(|| self.named.get(name));
        known.copied().ok_or_else(|| format!("the type `{name}` is not known"))
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str, depth: usize) -> Result<TypeId, String> {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            // A type around a type says nothing more.
            Some(inner) => return self.read(inner, namespace, depth + 1),
            None => return Err("a type has no `type`".to_owned()),
        };
        let inner = |key: &str| object.get(key).ok_or_else(|| format!("a type `{kind}` has no `{key}`"));
        match kind {
            "record" | "error" => self.record(object, namespace, depth),
            "enum" => {
                let symbols = inner("symbols")?.as_array().into_iter().flatten().filter_map(Value::as_str);
                let symbols = symbols.map(str::to_owned).collect();
                let id = self.add(Type::Enum(symbols));
                self.name(object, namespace, id)?;
                Ok(id)
            }
            "fixed" => {
                let size = inner("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or("the size of a type `fixed` is not a number")?;
                let id = self.add(logical(object, Type::Fixed(size)));
                self.name(object, namespace, id)?;
                Ok(id)
            }
            "array" => {
                let items = self.read(inner("items")?, namespace, depth + 1)?;
                Ok(self.add(Type::Array(items)))
            }
            "map" => {
                let values = self.read(inner("values")?, namespace, depth + 1)?;
                Ok(self.add(Type::Map(values)))
            }
            name => match primitive(name) {
                Some(primitive) => Ok(self.add(logical(object, primitive))),
                None => self.by_name(name, namespace),
            },
        }
    }

    fn record(&mut self, object: &Map<String, Value>, namespace: &str, depth: usize) -> Result<TypeId, String> {
        // Known before its fields are: they may hold the record itself.
        let id = self.add(Type::Record(Vec::new()));
        let namespace = self.name(object, namespace, id)?;
        let mut fields = Vec::new();
        for field in object.get("fields").and_then(Value::as_array).ok_or("a record has no `fields`")? {
            let name = field.get("name").and_then(Value::as_str).ok_or("a field has no name")?;
            let kind = field.get("type").ok_or_else(|| format!("the field `{name}` has no type"))?;
            fields.push((name.to_owned(), self.read(kind, &namespace, depth + 1)?));
        }
        if fields.len() > COLUMNS_MAX {
            return Err(format!("a record has {} fields, the limit is {COLUMNS_MAX}", fields.len()));
        }
        self.types[id] = Type::Record(fields);
        Ok(id)
    }

    /// Makes a type known by its name; the namespace of the names in it.
    fn name(&mut self, object: &Map<String, Value>, namespace: &str, id: TypeId) -> Result<String, String> {
        let name = object.get("name").and_then(Value::as_str).ok_or("a named type has no name")?;
        let own = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, own);
        let namespace = full.rsplit_once('.').map(|(namespace, _)| namespace.to_owned()).unwrap_or_default();
        self.named.insert(full, id);
        Ok(namespace)
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" => Type::Int,
        "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "string" => Type::String,
        _ => return None,
    })
}

/// A type with its logical type; one that is unknown or does not fit is no more than the type, as Avro says.
fn logical(object: &Map<String, Value>, plain: Type) -> Type {
    let number = |key: &str| object.get(key).and_then(Value::as_u64).and_then(|value| usize::try_from(value).ok());
    let name = object.get("logicalType").and_then(Value::as_str).unwrap_or_default();
    let scale = number("scale").unwrap_or(0);
    match (name, &plain) {
        ("decimal", Type::Bytes) if scale <= number("precision").unwrap_or(0) => Type::Decimal { size: None, scale },
        ("decimal", Type::Fixed(size)) if scale <= number("precision").unwrap_or(0) => {
            Type::Decimal { size: Some(*size), scale }
        }
        ("date", Type::Int) => Type::Date,
        ("time-millis", Type::Int) => Type::TimeMillis,
        ("time-micros", Type::Long) => Type::TimeMicros,
        ("timestamp-millis" | "local-timestamp-millis", Type::Long) => Type::Timestamp(Unit::Millis),
        ("timestamp-micros" | "local-timestamp-micros", Type::Long) => Type::Timestamp(Unit::Micros),
        ("timestamp-nanos" | "local-timestamp-nanos", Type::Long) => Type::Timestamp(Unit::Nanos),
        ("uuid", Type::Fixed(16)) => Type::Uuid,
        ("duration", Type::Fixed(12)) => Type::Duration,
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let parsed = Schema::parse(text.as_bytes()).and_then(|schema| schema.records().map(|fields| fields.len()));
        parsed.expect_err("a problem").to_string()
    }

    #[test]
    fn names_are_found_in_their_namespace_and_may_hold_themselves() {
        let text = r#"{"type":"record","name":"Envelope","namespace":"shop.orders","fields":[
            {"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"int"}]}]},
            {"name":"after","type":["null","Value"]},
            {"name":"again","type":["null","shop.orders.Value"]},
            {"name":"parent","type":["null","Envelope"]}]}"#;
        let schema = Schema::parse(text.as_bytes()).expect("a schema");
        let fields = schema.records().expect("a record");
        let branch = |field: usize| match schema.get(fields[field].1) {
            Type::Union(branches) => branches[1],
            other => panic!("{other:?}"),
        };
        assert_eq!((branch(1), branch(2)), (branch(0), branch(0)));
        assert_eq!(branch(3), schema.root());
    }

    #[test]
    fn logical_types_that_do_not_fit_are_no_more_than_their_type() {
        let of = |text: &str| {
            let schema = Schema::parse(text.as_bytes()).expect("a schema");
            schema.get(schema.root()).clone()
        };
        assert_eq!(of(r#"{"type":"int","logicalType":"date"}"#), Type::Date);
        assert_eq!(of(r#"{"type":"string","logicalType":"date"}"#), Type::String);
        assert_eq!(of(r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":5}"#), Type::Bytes);
        assert_eq!(of(r#"{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}"#), Type::Long);
        assert_eq!(of(r#"{"type":{"type":"string","avro.java.string":"String"}}"#), Type::String);
    }

    #[test]
    fn what_is_no_schema_of_records_is_refused() {
        assert!(problem("{").contains("not JSON"));
        assert!(problem("\"string\"").contains("not that of a record"));
        assert!(problem(r#"{"type":"record","name":"r","fields":[{"name":"a","type":"Other"}]}"#).contains("`Other`"));
        let deep = format!("{}\"int\"{}", "[".repeat(120), "]".repeat(120));
        assert!(
            problem(&format!(r#"{{"type":"record","name":"r","fields":[{{"name":"a","type":{deep}}}]}}"#))
                .contains("nested deeper")
        );
    }
}
