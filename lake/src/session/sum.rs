//! The `sum` of every session: a sum that does not fit its type is an error, where DataFusion's own wraps.
//!
//! Whole numbers and decimals are added up in a wider type (128 bits, or 256 for decimals of more than 28 digits),
//! so that a sum depends neither on the order of the rows nor on what they add up to on the way: only the result
//! must fit. Its type is DataFusion's: bigint for whole numbers, ten digits more than the input for decimals. Floats,
//! durations and intervals are left to DataFusion.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{not, nullif, prep_null_mask_filter};
use arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, DecimalType, Field, FieldRef,
    Int64Type, UInt64Type, i256,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};
use datafusion::physical_expr::NullState;

use crate::error::{Error, ErrorKind};
use crate::schema::type_name;

/// Decimals of at most so many digits are added up in 128 bits: ten billion of the largest still fit.
const DIGITS_MAX_IN_128_BITS: u8 = 28;

/// The function, under the name that replaces DataFusion's.
pub(super) fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CheckedSum { inner: Sum::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    /// What decides about types, and does the work where nothing can overflow.
    inner: Sum,
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match Width::of(args.input_fields) {
            Some(width) if !args.is_distinct => {
                let name = format_state_name(args.name, "sum");
                Ok(vec![Arc::new(Field::new(name, width.state(), true))])
            }
            _ => self.inner.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Width::of(args.expr_fields) {
            None => self.inner.accumulator(args),
            Some(width) if args.is_distinct => {
                let total = Total::<Decimal256Type>::new(&args, width.scale());
                Ok(Box::new(Distinct { inner: self.inner.accumulator(args)?, total }))
            }
            Some(Width::Bits128(scale)) => Ok(Box::new(Total::<Decimal128Type>::new(&args, scale))),
            Some(Width::Bits256(scale)) => Ok(Box::new(Total::<Decimal256Type>::new(&args, scale))),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct { self.inner.create_sliding_accumulator(args) } else { self.accumulator(args) }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match Width::of(args.expr_fields) {
            None => self.inner.create_groups_accumulator(args),
            Some(Width::Bits128(scale)) => Ok(Box::new(Totals::<Decimal128Type>::new(&args, scale))),
            Some(Width::Bits256(scale)) => Ok(Box::new(Totals::<Decimal256Type>::new(&args, scale))),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The type that a sum is added up in, with the scale of its input.
#[derive(Debug, Clone, Copy)]
enum Width {
    Bits128(i8),
    Bits256(i8),
}

impl Width {
    /// `None` for what is left to DataFusion.
    fn of(arguments: &[FieldRef]) -> Option<Self> {
        match arguments.first()?.data_type() {
            DataType::Int64 | DataType::UInt64 => Some(Self::Bits128(0)),
            DataType::Decimal128(digits, scale) if *digits <= DIGITS_MAX_IN_128_BITS => Some(Self::Bits128(*scale)),
            DataType::Decimal128(_, scale) => Some(Self::Bits256(*scale)),
            _ => None,
        }
    }

    fn scale(self) -> i8 {
        match self {
            Self::Bits128(scale) | Self::Bits256(scale) => scale,
        }
    }

    fn state(self) -> DataType {
        match self {
            Self::Bits128(scale) => Decimal128Type::state(scale),
            Self::Bits256(scale) => Decimal256Type::state(scale),
        }
    }
}

/// A type to add up in.
pub(super) trait Wide: DecimalType + fmt::Debug + Sized {
    /// The type of a sum that is not the last word.
    fn state(scale: i8) -> DataType {
        Self::TYPE_CONSTRUCTOR(Self::MAX_PRECISION, scale)
    }

    /// The values of a column that is summed.
    fn widen(values: &ArrayRef) -> PrimitiveArray<Self>;

    /// `None` when the number takes more than 128 bits.
    fn narrow(sum: Self::Native) -> Option<i128>;
}

impl Wide for Decimal128Type {
    fn widen(values: &ArrayRef) -> PrimitiveArray<Self> {
        match values.data_type() {
            DataType::Int64 => values.as_primitive::<Int64Type>().unary(i128::from),
            DataType::UInt64 => values.as_primitive::<UInt64Type>().unary(i128::from),
            _ => values.as_primitive::<Self>().clone(),
        }
    }

    fn narrow(sum: i128) -> Option<i128> {
        Some(sum)
    }
}

impl Wide for Decimal256Type {
    fn widen(values: &ArrayRef) -> PrimitiveArray<Self> {
        Decimal128Type::widen(values).unary(i256::from_i128)
    }

    fn narrow(sum: i256) -> Option<i128> {
        sum.to_i128()
    }
}

/// What the sums become in the end.
#[derive(Debug, Clone)]
struct Output {
    /// The expression as the plan names it.
    name: String,
    data_type: DataType,
}

impl Output {
    fn of(args: &AccumulatorArgs) -> Self {
        Self { name: args.name.to_owned(), data_type: args.return_type().clone() }
    }

    fn array<W: Wide>(&self, sums: &[W::Native], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        Ok(match &self.data_type {
            DataType::UInt64 => {
                let values = self.values::<W, UInt64Type>(sums, nulls.as_ref(), |sum| u64::try_from(sum).ok())?;
                Arc::new(UInt64Array::new(values.into(), nulls))
            }
            DataType::Decimal128(digits, scale) => {
                let fits = |sum| Decimal128Type::is_valid_decimal_precision(sum, *digits).then_some(sum);
                let values = self.values::<W, Decimal128Type>(sums, nulls.as_ref(), fits)?;
                Arc::new(Decimal128Array::new(values.into(), nulls).with_precision_and_scale(*digits, *scale)?)
            }
            _ => {
                let values = self.values::<W, Int64Type>(sums, nulls.as_ref(), |sum| i64::try_from(sum).ok())?;
                Arc::new(Int64Array::new(values.into(), nulls))
            }
        })
    }

    fn values<W: Wide, T: ArrowPrimitiveType>(
        &self,
        sums: &[W::Native],
        nulls: Option<&NullBuffer>,
        fit: impl Fn(i128) -> Option<T::Native>,
    ) -> Result<Vec<T::Native>> {
        let values = sums.iter().enumerate().map(|(index, sum)| match nulls {
            Some(nulls) if nulls.is_null(index) => Ok(T::Native::default()),
            _ => W::narrow(*sum).and_then(&fit).ok_or_else(|| self.overflow()),
        });
        values.collect()
    }

    fn overflow(&self) -> datafusion::error::DataFusionError {
        let message = format!("{} does not fit {}", self.name, type_name(&self.data_type));
        let hint = "cast what is summed to a wider type, for example CAST(x AS DECIMAL(38, 2))";
        Error::new(ErrorKind::Query, message).hint(hint).into()
    }
}

/// The sums of each value for itself: null for what a filter leaves out.
pub(super) fn each_alone(values: ArrayRef, filter: Option<&BooleanArray>) -> Result<ArrayRef> {
    let Some(filter) = filter else { return Ok(values) };
    let left_out = match filter.null_count() {
        0 => not(filter)?,
        _ => not(&prep_null_mask_filter(filter))?,
    };
    Ok(nullif(&values, &left_out)?)
}

// === one sum per group ===

#[derive(Debug)]
struct Totals<W: Wide> {
    output: Output,
    state: DataType,
    sums: Vec<W::Native>,
    seen: NullState,
}

impl<W: Wide> Totals<W> {
    fn new(args: &AccumulatorArgs, scale: i8) -> Self {
        Self { output: Output::of(args), state: W::state(scale), sums: Vec::new(), seen: NullState::new() }
    }

    fn add(
        &mut self,
        values: &PrimitiveArray<W>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, W::Native::default());
        let (sums, mut overflow) = (&mut self.sums, false);
        self.seen.accumulate(groups, values, filter, count, |group, value| match sums[group].add_checked(value) {
            Ok(sum) => sums[group] = sum,
            Err(_) => overflow = true,
        });
        if overflow { Err(self.output.overflow()) } else { Ok(()) }
    }
}

impl<W: Wide> GroupsAccumulator for Totals<W> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(&W::widen(&values[0]), group_indices, opt_filter, total_num_groups)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.add(values[0].as_primitive::<W>(), group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        self.output.array::<W>(&sums, nulls)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        let sums = PrimitiveArray::<W>::new(sums.into(), nulls);
        Ok(vec![Arc::new(sums.with_data_type(self.state.clone()))])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        Ok(vec![each_alone(Arc::new(W::widen(&values[0]).with_data_type(self.state.clone())), opt_filter)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<W::Native>() + self.seen.size()
    }
}

// === one sum of all ===

#[derive(Debug)]
struct Total<W: Wide> {
    output: Output,
    state: DataType,
    sum: W::Native,
    /// Values in the sum; without any it is null.
    count: u64,
}

impl<W: Wide> Total<W> {
    fn new(args: &AccumulatorArgs, scale: i8) -> Self {
        Self { output: Output::of(args), state: W::state(scale), sum: W::Native::default(), count: 0 }
    }

    fn add(&mut self, values: &PrimitiveArray<W>) -> Result<()> {
        for value in values.iter().flatten() {
            self.sum = self.sum.add_checked(value).map_err(|_| self.output.overflow())?;
            self.count += 1;
        }
        Ok(())
    }
}

impl<W: Wide> Accumulator for Total<W> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&W::widen(&values[0]))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states[0].as_primitive::<W>())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in W::widen(&values[0]).iter().flatten() {
            self.sum = self.sum.sub_checked(value).map_err(|_| self.output.overflow())?;
            self.count -= 1;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let nulls = (self.count == 0).then(|| NullBuffer::new_null(1));
        let sum = self.output.array::<W>(&[self.sum], nulls)?;
        ScalarValue::try_from_array(&sum, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::new_primitive::<W>(sum, &self.state)?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.output.name.capacity()
    }
}

/// A sum or an average of distinct values: DataFusion keeps the values, `total` adds them up.
#[derive(Debug)]
pub(super) struct Distinct<T> {
    pub(super) inner: Box<dyn Accumulator>,
    pub(super) total: T,
}

impl<T: Accumulator> Accumulator for Distinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        for state in self.inner.state()? {
            if let ScalarValue::List(values) = state {
                self.total.update_batch(&[values.value(0)])?;
            }
        }
        self.total.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.inner.size() + self.total.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals<W: Wide>(data_type: DataType, scale: i8) -> Totals<W> {
        let output = Output { name: "sum(x)".into(), data_type };
        Totals { output, state: W::state(scale), sums: Vec::new(), seen: NullState::new() }
    }

    fn ints(values: &[Option<i64>]) -> [ArrayRef; 1] {
        [Arc::new(Int64Array::from(values.to_vec()))]
    }

    fn decimals(values: &[i128], digits: u8) -> [ArrayRef; 1] {
        let values = Decimal128Array::from(values.to_vec()).with_precision_and_scale(digits, 0).expect("decimals");
        [Arc::new(values)]
    }

    #[test]
    fn only_the_result_must_fit() {
        let mut sums = totals::<Decimal128Type>(DataType::Int64, 0);
        sums.update_batch(&ints(&[Some(i64::MAX), Some(1), None, Some(i64::MIN)]), &[0, 0, 1, 0], None, 2)
            .expect("sums");
        let got = sums.evaluate(EmitTo::All).expect("sums");
        assert_eq!(got.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(0), None]));
    }

    #[test]
    fn a_result_that_does_not_fit_is_an_error() {
        let mut sums = totals::<Decimal128Type>(DataType::Int64, 0);
        sums.update_batch(&ints(&[Some(i64::MAX), Some(1)]), &[0, 0], None, 1).expect("sums");
        let error = Error::from(sums.evaluate(EmitTo::All).expect_err("too large"));
        assert_eq!(error.to_string(), "sum(x) does not fit bigint");
        assert!(error.hint_text().is_some());

        let largest = 10_i128.pow(38) - 1;
        let mut sums = totals::<Decimal256Type>(DataType::Decimal128(38, 0), 0);
        sums.update_batch(&decimals(&[largest, largest, -largest], 38), &[0, 0, 0], None, 1).expect("sums");
        let got = sums.evaluate(EmitTo::All).expect("it fits in the end");
        assert_eq!(got.as_primitive::<Decimal128Type>().value(0), largest);
        sums.update_batch(&decimals(&[largest, 1], 38), &[0, 0], None, 1).expect("sums");
        assert!(sums.evaluate(EmitTo::All).is_err());
    }

    #[test]
    fn parts_of_a_sum_are_merged_in_the_wide_type() {
        let filter = BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]);
        let values = ints(&[Some(i64::MAX), Some(7), Some(7), Some(i64::MAX)]);
        let mut all = totals::<Decimal128Type>(DataType::Int64, 0);
        let direct = all.convert_to_state(&values, Some(&filter)).expect("states");
        assert_eq!(direct[0].null_count(), 2);
        let mut part = totals::<Decimal128Type>(DataType::Int64, 0);
        part.update_batch(&values, &[0, 0, 0, 0], Some(&filter), 1).expect("sums");
        let grouped = part.state(EmitTo::All).expect("states");
        all.merge_batch(&direct, &[0, 0, 0, 0], 1).expect("merged");
        all.merge_batch(&grouped, &[0], 1).expect("merged");
        all.update_batch(&ints(&[Some(-i64::MAX); 3]), &[0; 3], None, 1).expect("sums");
        let got = all.evaluate(EmitTo::All).expect("it fits in the end");
        assert_eq!(got.as_primitive::<Int64Type>().value(0), i64::MAX);
    }

    #[test]
    fn a_window_takes_back_what_it_leaves() {
        let output = Output { name: "sum(x)".into(), data_type: DataType::Int64 };
        let mut sum = Total::<Decimal128Type> { output, state: Decimal128Type::state(0), sum: 0, count: 0 };
        sum.update_batch(&ints(&[Some(5), None, Some(6)])).expect("a sum");
        sum.retract_batch(&ints(&[Some(5), None])).expect("a sum");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Int64(Some(6)));
        sum.retract_batch(&ints(&[Some(6)])).expect("a sum");
        assert_eq!(sum.evaluate().expect("a sum"), ScalarValue::Int64(None));
    }
}
