//! The `avg` of every session: whole numbers are added up as such, where DataFusion's own makes floats of them first, whose
//! sum depends on the order of the rows. The result is a double: the sum, rounded once, divided by the count. All else is left to
//! DataFusion.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion::physical_expr::NullState;

use super::sum::{Distinct, Wide, each_alone};

/// The function, under the name that replaces DataFusion's.
pub(super) fn function() -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(AggregateUDF::from(ExactAvg { inner: Avg::new(), distinct: Sum::new(), signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactAvg {
    /// What decides about types and averages all but whole numbers.
    inner: Avg,
    /// What keeps whole numbers that count once.
    distinct: Sum,
    signature: Signature,
}

impl AggregateUDFImpl for ExactAvg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::UInt64] => Ok(vec![DataType::UInt64]),
            [kind] if kind.is_integer() => Ok(vec![DataType::Int64]),
            _ => {
                let fields: Vec<FieldRef> =
                    arguments.iter().map(|kind| Arc::new(Field::new("x", kind.clone(), true))).collect();
                let fields = fields_with_udf(&fields, &AggregateUDF::from(Avg::new()))?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !is_whole(args.input_fields) {
            return self.inner.state_fields(args);
        }
        if args.is_distinct {
            return self
                .distinct
                .state_fields(StateFieldsArgs { return_field: Arc::clone(&args.input_fields[0]), ..args });
        }
        let field = |name, kind| Arc::new(Field::new(format_state_name(args.name, name), kind, true));
        Ok(vec![field("count", DataType::UInt64), field("sum", Decimal128Type::state(0))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !is_whole(args.expr_fields) {
            return self.inner.accumulator(args);
        }
        if !args.is_distinct {
            return Ok(Box::new(Average::default()));
        }
        let return_field = Arc::clone(&args.expr_fields[0]);
        let inner = self.distinct.accumulator(AccumulatorArgs { return_field, ..args })?;
        Ok(Box::new(Distinct { inner, total: Average::default() }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_whole(args.expr_fields) { self.accumulator(args) } else { self.inner.create_sliding_accumulator(args) }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match is_whole(args.expr_fields) {
            true => !args.is_distinct,
            false => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match is_whole(args.expr_fields) {
            true => Ok(Box::new(Averages { sums: Vec::new(), counts: Vec::new(), seen: NullState::new() })),
            false => self.inner.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn is_whole(arguments: &[FieldRef]) -> bool {
    matches!(arguments, [field] if matches!(field.data_type(), DataType::Int64 | DataType::UInt64))
}

/// The average: the doubles that are nearest to the sum and to the count, divided.
fn quotient(sum: i128, count: u64) -> f64 {
    sum as f64 / count as f64
}

// === one average per group ===

#[derive(Debug)]
struct Averages {
    /// Of no more values than 64 bits count, so they fit.
    sums: Vec<i128>,
    counts: Vec<u64>,
    seen: NullState,
}

impl Averages {
    fn resize(&mut self, count: usize) {
        self.sums.resize(count, 0);
        self.counts.resize(count, 0);
    }
}

impl GroupsAccumulator for Averages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        let values = Decimal128Type::widen(&values[0]);
        self.seen.accumulate(group_indices, &values, opt_filter, total_num_groups, |group, value| {
            sums[group] += value;
            counts[group] += 1;
        });
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.resize(total_num_groups);
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        let (part_counts, parts) = (values[0].as_primitive::<UInt64Type>(), values[1].as_primitive::<Decimal128Type>());
        self.seen.accumulate(group_indices, part_counts, None, total_num_groups, |group, count| counts[group] += count);
        for (group, sum) in group_indices.iter().zip(parts) {
            sums[*group] += sum.unwrap_or_default();
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        let nulls = self.seen.build(emit_to);
        let values: Vec<f64> = sums.iter().zip(&counts).map(|(sum, count)| quotient(*sum, *count)).collect();
        Ok(Arc::new(Float64Array::new(values.into(), nulls)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        let nulls = self.seen.build(emit_to);
        let sums = Decimal128Array::new(sums.into(), nulls.clone()).with_data_type(Decimal128Type::state(0));
        Ok(vec![Arc::new(UInt64Array::new(counts.into(), nulls)), Arc::new(sums)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Type::widen(&values[0]).with_data_type(Decimal128Type::state(0));
        let sums = each_alone(Arc::new(sums), opt_filter)?;
        let counts = UInt64Array::new(vec![1; sums.len()].into(), sums.nulls().cloned());
        Ok(vec![Arc::new(counts), sums])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<u64>() + self.seen.size()
    }
}

// === one average of all ===

#[derive(Debug, Default)]
struct Average {
    sum: i128,
    count: u64,
}

impl Accumulator for Average {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in Decimal128Type::widen(&values[0]).iter().flatten() {
            self.sum += value;
            self.count += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in Decimal128Type::widen(&values[0]).iter().flatten() {
            self.sum -= value;
            self.count -= 1;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += states[0].as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        self.sum += states[1].as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = (self.count > 0).then(|| quotient(self.sum, self.count));
        ScalarValue::new_primitive::<Float64Type>(average, &DataType::Float64)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let some = self.count > 0;
        Ok(vec![
            ScalarValue::UInt64(some.then_some(self.count)),
            ScalarValue::new_primitive::<Decimal128Type>(some.then_some(self.sum), &Decimal128Type::state(0))?,
        ])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    /// Not a whole number of steps of a double at this size.
    const LARGE: i64 = (1 << 60) + 1;

    fn averages() -> Averages {
        Averages { sums: Vec::new(), counts: Vec::new(), seen: NullState::new() }
    }

    fn ints(values: &[Option<i64>]) -> [ArrayRef; 1] {
        [Arc::new(Int64Array::from(values.to_vec()))]
    }

    #[test]
    fn the_sum_is_exact_whatever_the_order() {
        for order in [[LARGE, 1, -LARGE], [LARGE, -LARGE, 1], [1, LARGE, -LARGE]] {
            let mut all = averages();
            let values = [&order.map(Some)[..], &[None]].concat();
            all.update_batch(&ints(&values), &[0, 0, 0, 1], None, 2).expect("sums");
            let got = all.evaluate(EmitTo::All).expect("averages");
            assert_eq!(got.as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(1.0 / 3.0), None]));
        }
    }

    /// The whole numbers of a column of the answer to a query over 30,000 rows, in several partitions.
    async fn asked(sql: &str) -> Vec<String> {
        let session = super::super::Session::detached().expect("a session");
        let rows = "(SELECT value % 3 AS g, value % 100 AS x FROM generate_series(1, 30000))";
        let answer = session.context().sql(&sql.replace("rows", rows)).await.expect("a plan");
        let batches = answer.collect().await.expect("an answer");
        batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Float64Type>().values().to_vec())
            .map(|x| x.to_string())
            .collect()
    }

    #[tokio::test]
    async fn the_function_stands_in_every_kind_of_plan() {
        assert_eq!(asked("SELECT avg(x), count(*), g FROM rows GROUP BY g ORDER BY g").await, ["49.5", "49.5", "49.5"]);
        assert_eq!(asked("SELECT avg(DISTINCT x), count(*), g FROM rows GROUP BY g ORDER BY g").await, ["49.5"; 3]);
        assert_eq!(asked("SELECT mean(DISTINCT x), sum(x) FROM rows").await, ["49.5"]);
        assert_eq!(asked("SELECT avg(x) FILTER (WHERE x < 10), avg(x) FROM rows").await, ["4.5"]);
        let sliding =
            "SELECT avg(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES (1), (2), (5)) v(x)";
        assert_eq!(asked(sliding).await, ["1", "1.5", "3.5"]);
    }

    #[test]
    fn parts_are_merged() {
        let filter = BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(true)]);
        let values = ints(&[Some(LARGE), Some(7), Some(7), None, Some(2)]);
        let mut all = averages();
        let direct = all.convert_to_state(&values, Some(&filter)).expect("states");
        assert_eq!((direct[0].null_count(), direct[1].null_count()), (3, 3));
        all.merge_batch(&direct, &[0, 0, 0, 0, 1], 2).expect("merged");
        let mut part = averages();
        part.update_batch(&values, &[0, 1, 1, 1, 1], Some(&filter), 3).expect("sums");
        all.merge_batch(&part.state(EmitTo::All).expect("states"), &[0, 1, 2], 3).expect("merged");
        let got = all.evaluate(EmitTo::All).expect("averages");
        assert_eq!(got.as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(LARGE as f64), Some(2.0), None]));
    }

    #[test]
    fn a_window_takes_back_what_it_leaves() {
        let mut average = Average::default();
        average.update_batch(&ints(&[Some(5), None, Some(6)])).expect("a sum");
        average.retract_batch(&ints(&[Some(5), None])).expect("a sum");
        assert_eq!(average.evaluate().expect("an average"), ScalarValue::Float64(Some(6.0)));
        average.retract_batch(&ints(&[Some(6)])).expect("a sum");
        assert_eq!(average.evaluate().expect("an average"), ScalarValue::Float64(None));
    }
}
