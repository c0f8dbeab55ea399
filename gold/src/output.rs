//! The columns of a model: names that Delta takes and plain types, from whatever a query makes.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use lake::columns::timestamp_type;
use lake::{Error, ErrorKind, Result, TableName};

/// What Parquet readers do not take in the name of a column.
const FORBIDDEN: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// What is in a list, as a Delta table names it (`delta_kernel::engine::arrow_conversion`); the same of a map.
const ITEM: &str = "element";
const ENTRIES: &str = "key_value";
const PAIR: [&str; 2] = ["key", "value"];

/// The columns of `table` for the result of its query. All are nullable, so that a result may lose or gain a null
/// without another schema.
///
/// Strings, binaries and lists lose their large, view and dictionary forms; unsigned integers take the next larger
/// signed type (bigint at most: a value that does not fit fails the write); dates are days; timestamps are
/// microseconds UTC.
///
/// # Errors
/// [`ErrorKind::Query`] for the first column that has no proper name or no type in Delta, with what to write instead.
pub(crate) fn columns(result: &Schema, table: &TableName) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = Vec::with_capacity(result.fields().len());
    for (index, field) in result.fields().iter().enumerate() {
        let name = field.name();
        check_name(name, index, table)?;
        if let Some(twin) = fields.iter().find(|other| other.name().eq_ignore_ascii_case(name)) {
            let message = match twin.name() == name {
                true => format!("the query of {table} has two columns named `{name}`"),
                false => format!(
                    "the query of {table} has columns `{}` and `{name}`, which differ only in case",
                    twin.name()
                ),
            };
            return Err(query_error(message, "name one of them anew: `… AS other_name`"));
        }
        fields.push(Field::new(name, plain(field.data_type(), name, table)?, true));
    }
    match fields.is_empty() {
        true => Err(query_error(format!("the query of {table} has no columns"), "select at least one column")),
        false => Ok(Arc::new(Schema::new(fields))),
    }
}

fn check_name(name: &str, index: usize, table: &TableName) -> Result<()> {
    let number = index + 1;
    if name.trim().is_empty() {
        let message = format!("column {number} of {table} has no name");
        return Err(query_error(message, "give it one: `… AS name`"));
    }
    if name.contains(FORBIDDEN) {
        let message = format!("column {number} of {table} is named `{name}`, which readers of the table do not take");
        return Err(query_error(message, format!("give it a name: `{name} AS …`, with letters, digits and `_`")));
    }
    Ok(())
}

fn plain(data_type: &DataType, column: &str, table: &TableName) -> Result<DataType> {
    let refused = |what: &str, hint: &str| {
        let message = format!("column `{column}` of {table} is {what}, which a Delta table cannot hold");
        Err(query_error(message, hint))
    };
    let nested = |field: &FieldRef, name: &str| -> Result<FieldRef> {
        let data_type = plain(field.data_type(), column, table)?;
        Ok(Arc::new(Field::new(name, data_type, true)))
    };
    Ok(match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32 => data_type.clone(),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Timestamp(_, Some(_)) => timestamp_type(),
        DataType::Timestamp(_, None) => {
            return refused(
                "a timestamp without a time zone",
                "say what it means: `CAST(… AS TIMESTAMP) AT TIME ZONE 'UTC'`, or the zone that it is written in",
            );
        }
        DataType::Dictionary(_, values) => plain(values, column, table)?,
        DataType::RunEndEncoded(_, values) => plain(values.data_type(), column, table)?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(nested(item, ITEM)?),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| nested(field, field.name()));
            DataType::Struct(fields.collect::<Result<Fields>>()?)
        }
        DataType::Map(entries, sorted) => DataType::Map(plain_entries(entries, column, table)?, *sorted),
        DataType::Null => return refused("null in every row", "give it a type: `CAST(NULL AS STRING)`"),
        other => return refused(&format!("of type {other}"), "cast it to a string or a number: `CAST(… AS STRING)`"),
    })
}

/// The entries of a map: a key that is never null, and a value.
fn plain_entries(entries: &FieldRef, column: &str, table: &TableName) -> Result<FieldRef> {
    let DataType::Struct(pair) = entries.data_type() else { return Ok(Arc::clone(entries)) };
    let fields = PAIR
        .iter()
        .zip(pair)
        .enumerate()
        .map(|(index, (name, field))| Ok(Field::new(*name, plain(field.data_type(), column, table)?, index > 0)));
    let fields = fields.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Field::new(ENTRIES, DataType::Struct(fields.into()), false)))
}

fn query_error(message: String, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    fn of(fields: Vec<Field>) -> Result<SchemaRef> {
        columns(&Schema::new(fields), &TableName::gold("x"))
    }

    fn message(fields: Vec<Field>) -> String {
        of(fields).expect_err("an error").to_string()
    }

    #[test]
    fn types_become_plain_and_nullable() {
        let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8View));
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("Asia/Tokyo".into()));
        let list = DataType::LargeList(Arc::new(Field::new("item", DataType::UInt64, false)));
        let got = of(vec![
            Field::new("a", dictionary, false),
            Field::new("b", zoned, true),
            Field::new("c", list, true),
            Field::new("d", DataType::Decimal128(28, 2), true),
        ]);
        let wanted = Schema::new(vec![
            Field::new("a", DataType::Utf8, true),
            Field::new("b", timestamp_type(), true),
            Field::new("c", DataType::List(Arc::new(Field::new("element", DataType::Int64, true))), true),
            Field::new("d", DataType::Decimal128(28, 2), true),
        ]);
        assert_eq!(*got.expect("columns"), wanted);
    }

    #[test]
    fn a_column_that_delta_cannot_hold_is_named_with_a_way_out() {
        let int = |name: &str| Field::new(name, DataType::Int64, true);
        assert!(message(vec![int("count(*)")]).contains("column 1 of gold.x is named `count(*)`"));
        assert!(message(vec![int("id"), int("id")]).contains("two columns named `id`"));
        assert!(message(vec![int("id"), int("ID")]).contains("`id` and `ID`"));
        assert!(message(vec![int("id"), int("")]).contains("column 2 of gold.x has no name"));
        assert!(message(vec![Field::new("n", DataType::Null, true)]).contains("column `n` of gold.x is null"));
        let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert!(message(vec![Field::new("t", naive, true)]).contains("without a time zone"));
        let error = of(vec![Field::new("d", DataType::Decimal256(50, 2), true)]).expect_err("an error");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("CAST")), "{error}");
    }
}
