//! The column types of the spec: their names, what Arrow and Delta call them, and how a table may change.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef};

use crate::columns;

/// The type of a column, as the spec writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// 64-bit integer.
    Bigint,
    /// 32-bit integer.
    Int,
    /// 16-bit integer.
    Smallint,
    /// 8-bit integer.
    Tinyint,
    /// 64-bit floating point.
    Double,
    /// 32-bit floating point.
    Float,
    /// Exact number: total digits, digits after the point.
    Decimal(u8, i8),
    /// UTF-8 text.
    String,
    /// True or false.
    Boolean,
    /// Calendar day.
    Date,
    /// Moment in microseconds, UTC.
    Timestamp,
    /// Bytes.
    Binary,
}

impl ColumnType {
    /// The Arrow type that the lake uses for it.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Bigint => DataType::Int64,
            Self::Int => DataType::Int32,
            Self::Smallint => DataType::Int16,
            Self::Tinyint => DataType::Int8,
            Self::Double => DataType::Float64,
            Self::Float => DataType::Float32,
            Self::Decimal(precision, scale) => DataType::Decimal128(precision, scale),
            Self::String => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Date => DataType::Date32,
            Self::Timestamp => columns::timestamp_type(),
            Self::Binary => DataType::Binary,
        }
    }

    /// The spec's name of an Arrow type; `None` when the spec has none.
    pub fn of(arrow: &DataType) -> Option<Self> {
        Some(match arrow {
            DataType::Int64 => Self::Bigint,
            DataType::Int32 => Self::Int,
            DataType::Int16 => Self::Smallint,
            DataType::Int8 => Self::Tinyint,
            DataType::Float64 => Self::Double,
            DataType::Float32 => Self::Float,
            DataType::Decimal128(precision, scale) => Self::Decimal(*precision, *scale),
            DataType::Utf8 => Self::String,
            DataType::Boolean => Self::Boolean,
            DataType::Date32 => Self::Date,
            DataType::Binary => Self::Binary,
            other if *other == columns::timestamp_type() => Self::Timestamp,
            _ => return None,
        })
    }

    /// False for types whose file statistics cannot be trusted: wide decimals pass through a double.
    pub fn has_sound_stats(self) -> bool {
        !matches!(self, Self::Decimal(precision, _) if precision > 15)
    }
}

/// The simple type names, for hints.
pub const TYPE_NAMES: &[&str] = &[
    "bigint",
    "int",
    "smallint",
    "tinyint",
    "double",
    "float",
    "decimal(p,s)",
    "string",
    "boolean",
    "date",
    "timestamp",
    "binary",
];

/// The type of the spec that other systems call by this name: `varchar(20)`, `int64`, `datetime`.
pub fn type_meant(word: &str) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    let name = word.split(['(', ' ', '<']).next().unwrap_or_default();
    Some(match name {
        "text" | "varchar" | "nvarchar" | "char" | "nchar" | "character" | "str" | "clob" | "uuid" | "utf8"
        | "json" | "jsonb" | "object" | "enum" | "time" | "varchar2" => "string",
        "long" | "int8" | "int64" | "integer64" | "bigserial" | "serial" | "uint32" => "bigint",
        "integer" | "int4" | "int32" | "uint16" => "int",
        "short" | "int2" | "int16" => "smallint",
        "byte" => "tinyint",
        "number" | "numeric" | "money" | "dec" => "decimal(18,2)",
        "float64" | "real" | "float8" => "double",
        "float4" | "float32" => "float",
        "bool" | "bit" => "boolean",
        "datetime" | "datetime2" | "timestamptz" | "timestamp_ntz" | "timestamp_ltz" | "timestamp_tz" | "instant" => {
            "timestamp"
        }
        "bytes" | "blob" | "bytea" | "varbinary" | "raw" => "binary",
        _ => return None,
    })
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim() {
            "bigint" => Self::Bigint,
            "int" => Self::Int,
            "smallint" => Self::Smallint,
            "tinyint" => Self::Tinyint,
            "double" => Self::Double,
            "float" => Self::Float,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp,
            "binary" => Self::Binary,
            other => return decimal(other).unwrap_or_else(|| Err(format!("`{other}` is not a type"))),
        })
    }
}

/// Reads `decimal(p,s)`; `None` when the text is something else.
fn decimal(text: &str) -> Option<Result<ColumnType, String>> {
    let inside = text.strip_prefix("decimal")?.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (precision, scale) = inside.split_once(',').unwrap_or((inside, "0"));
    let (Ok(precision), Ok(scale)) = (precision.trim().parse::<u8>(), scale.trim().parse::<i8>()) else {
        return Some(Err(format!("`{text}` needs two numbers: decimal(precision, scale)")));
    };
    if precision == 0 || precision > DECIMAL128_MAX_PRECISION || scale < 0 || scale.unsigned_abs() > precision {
        return Some(Err(format!("`{text}` is out of range: precision is 1 to 38 and scale 0 to the precision")));
    }
    Some(Ok(ColumnType::Decimal(precision, scale)))
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal(precision, scale) => write!(f, "decimal({precision},{scale})"),
            Self::Bigint => f.write_str("bigint"),
            Self::Int => f.write_str("int"),
            Self::Smallint => f.write_str("smallint"),
            Self::Tinyint => f.write_str("tinyint"),
            Self::Double => f.write_str("double"),
            Self::Float => f.write_str("float"),
            Self::String => f.write_str("string"),
            Self::Boolean => f.write_str("boolean"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Binary => f.write_str("binary"),
        }
    }
}

/// A declared column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, exactly as written.
    pub name: String,
    /// Its type.
    pub kind: ColumnType,
    /// False for `not null`.
    pub nullable: bool,
}

impl Column {
    /// Reads the declaration of a column: `bigint not null`.
    ///
    /// # Errors
    /// A sentence about what is wrong with the declaration.
    pub fn parse(name: &str, declaration: &str) -> Result<Self, String> {
        let words = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        let lower = words.to_ascii_lowercase();
        let (kind, nullable) = match lower.strip_suffix(" not null") {
            Some(kind) => (kind.to_owned(), false),
            None => (lower, true),
        };
        Ok(Self { name: name.to_owned(), kind: kind.parse()?, nullable })
    }

    /// The Arrow field of the column.
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.kind.arrow(), self.nullable)
    }
}

/// What must happen for a table of one schema to hold rows of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evolution {
    /// Nothing: the schemas are the same.
    Same,
    /// The table gains columns; the whole new schema, the table's columns first.
    Add(SchemaRef),
    /// It cannot: sentences about each column that stands in the way.
    Refused(Vec<String>),
}

/// Compares a table's schema with the one that its spec asks for now.
pub fn evolution(table: &Schema, wanted: &Schema) -> Evolution {
    let mut problems = Vec::new();
    for field in wanted.fields() {
        match table.fields().iter().find(|held| held.name().eq_ignore_ascii_case(field.name())) {
            Some(held) if held.name() != field.name() => problems.push(format!(
                "column `{}` of the table is `{}` in the spec, and names that differ only in case are one column",
                held.name(),
                field.name()
            )),
            Some(held) if held.data_type() != field.data_type() => problems.push(format!(
                "column `{}` is {} in the table and {} in the spec",
                held.name(),
                type_name(held.data_type()),
                type_name(field.data_type())
            )),
            Some(held) if held.is_nullable() && !field.is_nullable() => {
                problems
                    .push(format!("column `{}` may be null in the table and is `not null` in the spec", held.name()));
            }
            Some(held) if !held.is_nullable() && field.is_nullable() => {
                problems
                    .push(format!("column `{}` is `not null` in the table and may be null in the spec", held.name()));
            }
            Some(_) => {}
            None if !field.is_nullable() => {
                problems.push(format!("new column `{}` cannot be `not null`: rows without it exist", field.name()));
            }
            None => {}
        }
    }
    for held in table.fields() {
        if !wanted.fields().iter().any(|field| held.name().eq_ignore_ascii_case(field.name())) {
            problems.push(format!("column `{}` of the table is gone from the spec", held.name()));
        }
    }
    if !problems.is_empty() {
        return Evolution::Refused(problems);
    }
    match crate::table::with_new_columns(table, wanted) {
        Some(wider) => Evolution::Add(wider),
        None => Evolution::Same,
    }
}

/// The spec's name of an Arrow type, or Arrow's own where the spec has none.
pub fn type_name(arrow: &DataType) -> String {
    ColumnType::of(arrow).map_or_else(|| arrow.to_string(), |kind| kind.to_string())
}

/// A schema of declared columns.
pub fn schema_of(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_whatever_their_spacing() {
        let column = Column::parse("amount", "  Decimal( 18 , 2 )  NOT  NULL").expect("a column");
        assert_eq!((column.kind, column.nullable), (ColumnType::Decimal(18, 2), false));
        assert_eq!(Column::parse("id", "bigint").expect("a column").field().data_type(), &DataType::Int64);
        assert!(Column::parse("id", "decimal(39,2)").expect_err("too wide").contains("out of range"));
        assert_eq!(Column::parse("id", "integr").expect_err("unknown"), "`integr` is not a type");
    }

    #[test]
    fn every_type_survives_its_name_and_arrow() {
        for kind in [
            "bigint",
            "int",
            "smallint",
            "tinyint",
            "double",
            "float",
            "decimal(12,2)",
            "string",
            "boolean",
            "date",
            "timestamp",
            "binary",
        ] {
            let parsed: ColumnType = kind.parse().expect("a type");
            assert_eq!(parsed.to_string(), kind);
            assert_eq!(ColumnType::of(&parsed.arrow()), Some(parsed));
        }
    }

    #[test]
    fn a_table_only_gains_nullable_columns() {
        let base = schema_of(&[Column::parse("id", "bigint not null").expect("a column")]);
        let more = schema_of(&[
            Column::parse("id", "bigint not null").expect("a column"),
            Column::parse("note", "string").expect("a column"),
        ]);
        assert_eq!(evolution(&base, &base), Evolution::Same);
        assert!(matches!(evolution(&base, &more), Evolution::Add(schema) if schema.fields().len() == 2));
        let narrower = schema_of(&[Column::parse("id", "int not null").expect("a column")]);
        assert_eq!(
            evolution(&base, &narrower),
            Evolution::Refused(vec!["column `id` is bigint in the table and int in the spec".into()])
        );
        assert!(matches!(evolution(&more, &base), Evolution::Refused(problems) if problems[0].contains("gone")));
    }
}
