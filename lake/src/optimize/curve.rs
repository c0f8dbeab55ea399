//! An order in which rows that are near each other in several columns are near each other: the curve that bits of all
//! columns in turn draw (Z-order, Morton 1966).
//!
//! The bits are those of a value's rank among a sample of its column, not of the value itself: keys that all begin alike
//! (`CUST000001`) would otherwise differ in their last bits alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Error, Result};

/// Ranks have so many bits.
const RANK_BITS: usize = 16;

/// Tells the place of rows on the curve, from some columns.
#[derive(Debug)]
pub(super) struct Curve {
    ranks: Vec<Ranks>,
    signature: Signature,
}

/// The values of a sample of one column, in their order.
#[derive(Debug)]
struct Ranks {
    kind: DataType,
    sorted: Vec<OwnedRow>,
}

impl Curve {
    /// A curve through columns of which these are samples.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when a type has no order.
    pub(super) fn new(samples: &[ArrayRef]) -> Result<Self> {
        let ranks = samples.iter().map(|sample| Ranks::new(sample.as_ref())).collect::<Result<Vec<_>>>()?;
        let kinds = ranks.iter().map(|ranks| ranks.kind.clone()).collect();
        Ok(Self { ranks, signature: Signature::exact(kinds, Volatility::Immutable) })
    }

    /// The places of rows, to be compared byte by byte.
    fn places(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        let ranks = self.ranks.iter().zip(columns).map(|(ranks, column)| ranks.of(column));
        let ranks = ranks.collect::<Result<Vec<Vec<u16>>>>()?;
        let rows = columns.first().map_or(0, |column| column.len());
        let mut places = BinaryBuilder::with_capacity(rows, rows * ranks.len() * 2);
        for row in 0..rows {
            places.append_value(interleaved(ranks.iter().map(|ranks| ranks[row])));
        }
        Ok(Arc::new(places.finish()))
    }
}

impl Ranks {
    fn new(sample: &dyn Array) -> Result<Self> {
        let kind = sample.data_type().clone();
        let converter = converter(&kind)?;
        let rows = converter.convert_columns(&[arrow::array::make_array(sample.to_data())])?;
        let mut sorted: Vec<OwnedRow> = rows.iter().map(|row| row.owned()).collect();
        sorted.sort_unstable_by(|left, right| left.row().cmp(&right.row()));
        sorted.dedup_by(|left, right| left.row() == right.row());
        Ok(Self { kind, sorted })
    }

    /// Between 0 and 65535: how much of the sample is less than each value.
    fn of(&self, column: &ArrayRef) -> Result<Vec<u16>> {
        let rows = converter(&self.kind)?.convert_columns(std::slice::from_ref(column))?;
        let all = self.sorted.len().max(1);
        let rank = |row: arrow::row::Row<'_>| {
            let less = self.sorted.partition_point(|held| held.row() < row);
            u16::try_from((less << RANK_BITS) / all).unwrap_or(u16::MAX)
        };
        Ok(rows.iter().map(rank).collect())
    }
}

fn converter(kind: &DataType) -> Result<RowConverter> {
    RowConverter::new(vec![SortField::new(kind.clone())])
        .map_err(|error| Error::internal(format!("values of {kind} have no order")).with_source(error))
}

/// The highest bits of all ranks, then the next ones, and so on.
fn interleaved(ranks: impl Iterator<Item = u16> + Clone) -> Vec<u8> {
    let (mut bytes, mut byte, mut bits) = (Vec::new(), 0_u8, 0);
    for bit in (0..RANK_BITS).rev() {
        for rank in ranks.clone() {
            byte = (byte << 1) | u8::from((rank >> bit) & 1 == 1);
            bits += 1;
            if bits == 8 {
                bytes.push(byte);
                (byte, bits) = (0, 0);
            }
        }
    }
    bytes
}

impl PartialEq for Curve {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Curve {}

impl std::hash::Hash for Curve {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

impl ScalarUDFImpl for Curve {
    fn name(&self) -> &str {
        "place_on_curve"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Binary, false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        Ok(ColumnarValue::Array(self.places(&columns)?))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};

    use super::*;

    #[test]
    fn bits_are_taken_in_turn() {
        assert_eq!(interleaved([0xffff, 0].into_iter()), [0b1010_1010; 4]);
        assert_eq!(interleaved([0x8001].into_iter()), [0x80, 0x01]);
        assert_eq!(interleaved([0, 0, 0x8000].into_iter()), [0b0010_0000, 0, 0, 0, 0, 0]);
    }

    /// Of a square of rows, a quarter of the curve is a quarter of the square.
    #[test]
    fn near_rows_are_near_on_the_curve() {
        let (xs, ys): (Vec<i64>, Vec<String>) = (0..64_i64).map(|row| (row % 8, format!("CUST{:09}", row / 8))).unzip();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(xs)), Arc::new(StringArray::from(ys))];
        let curve = Curve::new(&columns).expect("a curve");
        let places = curve.places(&columns).expect("places");
        let places = places.as_binary::<i32>();
        let mut rows: Vec<usize> = (0..64).collect();
        rows.sort_by_key(|row| places.value(*row).to_vec());
        let quarter: std::collections::BTreeSet<(usize, usize)> =
            rows[..16].iter().map(|row| (row % 8, row / 8)).collect();
        assert_eq!(quarter, (0..4).flat_map(|x| (0..4).map(move |y| (x, y))).collect());
    }

    #[test]
    fn nulls_and_values_out_of_the_sample_have_a_place() {
        let sample: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![10, 20, 30]))];
        let curve = Curve::new(&sample).expect("a curve");
        let column: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(5), Some(20), Some(99)]));
        let ranks = curve.ranks[0].of(&column).expect("ranks");
        assert_eq!(ranks, [0, 0, 21_845, 65_535]);
        let none: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(Vec::<i64>::new()))];
        assert_eq!(Curve::new(&none).expect("a curve").ranks[0].of(&column).expect("ranks"), [0; 4]);
    }
}
