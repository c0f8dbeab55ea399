//! How keys and sequences are compared, in one place for all who compare them.

use arrow::datatypes::Schema;
use datafusion::logical_expr::{Expr, Operator, binary_expr, lit};

/// Equality of the key column `key` of `schema`, null meeting null where the column may be null.
pub fn same_key(schema: &Schema, key: &str, left: Expr, right: Expr) -> Expr {
    let nullable = schema.field_with_name(key).is_ok_and(|field| field.is_nullable());
    if nullable { binary_expr(left, Operator::IsNotDistinctFrom, right) } else { left.eq(right) }
}

/// True when the sides are not the same, null being the same as null.
pub fn differs(left: Expr, right: Expr) -> Expr {
    binary_expr(left, Operator::IsDistinctFrom, right)
}

/// True when the left sides come before the right sides, compared part by part, a null before any value.
pub fn older(parts: &[(Expr, Expr)]) -> Expr {
    let Some(((left, right), rest)) = parts.split_first() else { return lit(false) };
    let null_first = left.clone().is_null().and(right.clone().is_not_null());
    let less = null_first.or(left.clone().lt(right.clone()).is_true());
    if rest.is_empty() {
        return less;
    }
    let same = binary_expr(left.clone(), Operator::IsNotDistinctFrom, right.clone());
    less.or(same.and(older(rest)))
}
