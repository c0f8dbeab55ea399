//! The columns of an Avro file, each in the widest type of its kind, filled record by record.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder,
    StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use lake::cast::{is_day, is_moment, widened};

use super::cursor::{Cursor, Damage};
use super::schema::{Schema, Type, TypeId, Unit};
use super::text;
use crate::decode::nanos_text;

/// One column: the type of its field, and its values so far.
pub(super) struct Column {
    id: TypeId,
    values: Values,
}

enum Values {
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Double(Float64Builder),
    Binary(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Decimal(Decimal128Builder),
    /// Texts, and as JSON what has no type of its own.
    Text(StringBuilder),
}

impl Column {
    /// A column for the field of a type.
    pub(super) fn new(schema: &Schema, id: TypeId) -> Self {
        let values = match schema.get(one(schema, id)) {
            Type::Boolean => Values::Boolean(BooleanBuilder::new()),
            Type::Int | Type::Long => Values::Integer(Int64Builder::new()),
            Type::Float | Type::Double => Values::Double(Float64Builder::new()),
            Type::Bytes | Type::Fixed(_) => Values::Binary(BinaryBuilder::new()),
            Type::Date => Values::Date(Date32Builder::new()),
            Type::Timestamp(_) => Values::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            Type::Decimal { scale, .. } => match i8::try_from(*scale) {
                Ok(scale) if scale.unsigned_abs() <= DECIMAL128_MAX_PRECISION => {
                    let kind = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
                    Values::Decimal(Decimal128Builder::new().with_data_type(kind))
                }
                _ => Values::Text(StringBuilder::new()),
            },
            _ => Values::Text(StringBuilder::new()),
        };
        Self { id, values }
    }

    /// Adds the next value; the text of one that the column cannot hold, which is null in it.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(super) fn push(
        &mut self,
        schema: &Schema,
        cursor: &mut Cursor<'_>,
        scratch: &mut String,
    ) -> Result<Option<String>, Damage> {
        if let Values::Text(builder) = &mut self.values {
            scratch.clear();
            let there = text::plain(schema, self.id, cursor, scratch)?;
            builder.append_option(there.then_some(scratch.as_str()));
            return Ok(None);
        }
        let kind = text::branch(schema, self.id, cursor)?.map(|id| schema.get(id));
        let mut unfit = None;
        match (&mut self.values, kind) {
            (values, None) => values.push_null(),
            (Values::Boolean(builder), Some(_)) => builder.append_value(cursor.boolean()?),
            (Values::Integer(builder), Some(Type::Int)) => builder.append_value(i64::from(cursor.int()?)),
            (Values::Integer(builder), Some(_)) => builder.append_value(cursor.long()?),
            (Values::Double(builder), Some(Type::Float)) => builder.append_value(widened(cursor.float()?)),
            (Values::Double(builder), Some(_)) => builder.append_value(cursor.double()?),
            (Values::Binary(builder), Some(Type::Fixed(size))) => builder.append_value(cursor.take(*size)?),
            (Values::Binary(builder), Some(_)) => builder.append_value(cursor.bytes()?),
            (Values::Date(builder), Some(_)) => {
                let days = cursor.int()?;
                let is_day = is_day(i64::from(days));
                unfit = (!is_day).then(|| format!("{days} days"));
                builder.append_option(is_day.then_some(days));
            }
            (Values::Timestamp(builder), Some(Type::Timestamp(unit))) => {
                let value = cursor.long()?;
                let micros = text::micros(value, *unit).filter(|micros| is_moment(*micros));
                unfit = match unit {
                    Unit::Nanos => (value.rem_euclid(1_000) != 0).then(|| nanos_text(value)),
                    _ => micros.is_none().then(|| format!("{value} {}", unit.name())),
                };
                builder.append_option(micros);
            }
            (Values::Decimal(builder), Some(Type::Decimal { size, scale })) => {
                let bytes = text::unscaled(cursor, *size)?;
                let value = text::narrow(bytes);
                unfit = value.is_none().then(|| text::decimal_text(bytes, *scale)).transpose()?;
                builder.append_option(value);
            }
            (_, Some(other)) => return Err(format!("a value of type {other:?} has no column")),
        }
        Ok(unfit)
    }

    /// The values since the last time, as an array.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Boolean(builder) => Arc::new(builder.finish()),
            Values::Integer(builder) => Arc::new(builder.finish()),
            Values::Double(builder) => Arc::new(builder.finish()),
            Values::Binary(builder) => Arc::new(builder.finish()),
            Values::Date(builder) => Arc::new(builder.finish()),
            Values::Timestamp(builder) => Arc::new(builder.finish()),
            Values::Decimal(builder) => Arc::new(builder.finish()),
            Values::Text(builder) => Arc::new(builder.finish()),
        }
    }
}

impl Values {
    fn push_null(&mut self) {
        match self {
            Self::Boolean(builder) => builder.append_null(),
            Self::Integer(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Binary(builder) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
            Self::Timestamp(builder) => builder.append_null(),
            Self::Decimal(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
        }
    }
}

/// The one type of a field beside null; of a union of several, the union itself.
fn one(schema: &Schema, id: TypeId) -> TypeId {
    let Type::Union(branches) = schema.get(id) else { return id };
    let mut others = branches.iter().filter(|id| *schema.get(**id) != Type::Null);
    match (others.next(), others.next()) {
        (Some(one), None) => *one,
        _ => id,
    }
}
