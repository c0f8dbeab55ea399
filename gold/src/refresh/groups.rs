//! A query for some groups only: the group columns are followed down to the sources, so that rows of other groups are
//! left out before they are joined and added up, and files without any of the groups are not opened.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::{cast, concat, sort_to_indices};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as PlanResult, ScalarValue, TableReference};
use datafusion::logical_expr::{Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, TableScan, Union, ident, lit};
use lake::session::Session;
use lake::skip::Wanted;
use lake::{Error, Result, Table};

use super::scans::{Scans, Side, named, of_provider, table_of};
use super::spans::spans;
use super::through::{columns, is_of, place, replaced, through};
use super::touched::{TOUCHED, in_group, pair, touched_name};

/// The name under which a scan of some files stands in a plan until it is made.
const PART: &str = "__part_";
/// Groups that a scan is asked for by value; of more it is asked for their span.
const LISTED_MAX: usize = 64;

/// The groups that are touched.
#[derive(Debug)]
pub(super) struct Touched {
    /// Their values, a column for each group column.
    pub(super) values: Vec<ArrayRef>,
    plan: LogicalPlan,
}

/// An expression of a row that must have the value of a touched group, with the number of the group column.
type Condition = (Expr, usize);

/// A scan that is to read what holds touched groups alone.
#[derive(Debug)]
struct Part {
    scan: TableScan,
    conditions: Vec<Condition>,
}

/// A query for touched groups.
#[derive(Debug)]
pub(super) struct Restricted {
    /// The plan.
    pub(super) plan: LogicalPlan,
    /// Bytes of the files that it reads of the sources that could be restricted, and bytes of all of their files.
    pub(super) bytes: (u64, u64),
}

impl Touched {
    /// The groups of computed batches, in the types of `schema`.
    pub(super) fn new(session: &Session, schema: &SchemaRef, batches: Vec<RecordBatch>) -> Result<Self> {
        let column = |number: usize| -> Result<ArrayRef> {
            let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(number).as_ref()).collect();
            let kind = schema.field(number).data_type();
            match parts.is_empty() {
                true => Ok(new_empty_array(kind)),
                false => Ok(cast(&concat(&parts)?, kind)?),
            }
        };
        let values = (0..schema.fields().len()).map(column).collect::<Result<Vec<_>>>()?;
        let whole = RecordBatch::try_new(Arc::clone(schema), values.clone())?;
        let plan = session.context().read_batch(whole)?.into_unoptimized_plan();
        let plan = LogicalPlanBuilder::from(plan).alias(TOUCHED)?.build()?;
        Ok(Self { values, plan })
    }

    /// The columns of touched groups, by the names that they have.
    pub(super) fn named(schema: &SchemaRef) -> SchemaRef {
        let fields = schema.fields().iter().enumerate();
        let fields = fields.map(|(number, field)| {
            let kind = match field.data_type() {
                DataType::Dictionary(_, values) => values.as_ref().clone(),
                kind => kind.clone(),
            };
            Field::new(touched_name(number), kind, true)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.values.first().map_or(0, |column| column.len())
    }

    /// The groups as a plan.
    pub(super) fn plan(&self) -> LogicalPlan {
        self.plan.clone()
    }

    /// The rows of a node that meet conditions.
    fn semi(&self, node: LogicalPlan, conditions: &[Condition]) -> PlanResult<LogicalPlan> {
        let named = conditions.iter().map(|(_, number)| ident(touched_name(*number)));
        let groups = LogicalPlanBuilder::from(self.plan.clone()).project(named.collect::<Vec<_>>())?;
        let groups = if conditions.len() < self.values.len() { groups.distinct()? } else { groups };
        let groups = groups.alias(TOUCHED)?.build()?;
        let same = conditions.iter().map(|(expr, number)| in_group(expr, *number));
        LogicalPlanBuilder::from(node).join_on(groups, JoinType::LeftSemi, same)?.build()
    }
}

/// Restricts a query, whose group columns these are, to touched groups.
///
/// # Errors
/// [`ErrorKind::Query`](lake::ErrorKind::Query) when a scan cannot be planned.
pub(super) async fn restrict(
    session: &Session,
    plan: &LogicalPlan,
    groups: &[Expr],
    touched: &Touched,
    scans: &Scans,
    sources: &[Table],
) -> Result<Restricted> {
    let conditions: Vec<Condition> = groups.iter().cloned().enumerate().map(|(number, expr)| (expr, number)).collect();
    let mut down = Down { touched, scans, parts: Vec::new() };
    let plan = down.restrict(plan, &conditions)?;
    let (mut made, mut bytes) = (Vec::new(), (0, 0));
    for part in &down.parts {
        let source = table_of(&part.scan.table_name);
        let source = sources.iter().find(|table| Some(table.name()) == source.as_ref());
        let source = source.ok_or_else(|| Error::internal("a scan reads no source"))?;
        let (scan, read) = part.make(session, source, touched).await?;
        bytes = (bytes.0 + read, bytes.1 + source.files_size()?);
        made.push(scan);
    }
    let plan = plan.transform_up(|node| {
        let number = match &node {
            LogicalPlan::TableScan(scan) => scan.table_name.table().strip_prefix(PART).and_then(|n| n.parse().ok()),
            _ => None,
        };
        Ok(match number.and_then(|number: usize| made.get(number)) {
            Some(scan) => Transformed::yes(scan.clone()),
            None => Transformed::no(node),
        })
    });
    Ok(Restricted { plan: plan?.data, bytes })
}

struct Down<'a> {
    touched: &'a Touched,
    scans: &'a Scans,
    parts: Vec<Part>,
}

impl Down<'_> {
    fn restrict(&mut self, node: &LogicalPlan, conditions: &[Condition]) -> PlanResult<LogicalPlan> {
        if conditions.is_empty() {
            return self.scans.whole(node, Side::New);
        }
        match node {
            LogicalPlan::TableScan(scan) if table_of(&scan.table_name).is_some() => self.scan(scan, conditions),
            LogicalPlan::Join(join) => self.join(node, join, conditions),
            LogicalPlan::Union(union) => self.union(node, union, conditions),
            _ => {
                let exprs: Vec<Expr> = conditions.iter().map(|(expr, _)| expr.clone()).collect();
                match (through(node, &exprs)?, node.inputs().first()) {
                    (Some(below), Some(input)) => {
                        let numbers = conditions.iter().map(|(_, number)| *number);
                        let below: Vec<Condition> = below.into_iter().zip(numbers).collect();
                        let input = self.restrict(input, &below)?;
                        anew(node, input)
                    }
                    _ => self.touched.semi(self.scans.whole(node, Side::New)?, conditions),
                }
            }
        }
    }

    fn union(&mut self, node: &LogicalPlan, union: &Union, conditions: &[Condition]) -> PlanResult<LogicalPlan> {
        let mut inputs = Vec::new();
        for input in &union.inputs {
            let below = conditions.iter().map(|(expr, number)| Ok((replaced(node, expr, &columns(input))?, *number)));
            let below = below.collect::<PlanResult<Vec<_>>>()?;
            inputs.push(Arc::new(self.restrict(input, &below)?));
        }
        Ok(LogicalPlan::Union(Union { inputs, schema: Arc::clone(&union.schema) }))
    }

    /// Each input is restricted as far as it says which groups its rows belong to; what needs both is asked of the pairs.
    fn join(&mut self, node: &LogicalPlan, join: &Join, conditions: &[Condition]) -> PlanResult<LogicalPlan> {
        use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
        let kind = join.join_type;
        let (mut left, mut right, mut both) = (Vec::new(), Vec::new(), Vec::new());
        let may_left = matches!(kind, Inner | Left | LeftSemi | LeftAnti | LeftMark);
        let may_right = matches!(kind, Inner | Right | RightSemi | RightAnti | RightMark);
        for (expr, number) in conditions {
            match (is_of(&join.left, expr), is_of(&join.right, expr)) {
                (true, _) if may_left => left.push((expr.clone(), *number)),
                (_, true) if may_right => right.push((expr.clone(), *number)),
                _ => both.push((expr.clone(), *number)),
            }
        }
        // What the pair is asked for as a whole; the parts may have values of several groups.
        let is_split = !both.is_empty() || (!left.is_empty() && !right.is_empty());
        // Rows meet by equal values, so that the other input has those of the same groups.
        let of_right = if may_left && kind != LeftMark { across(join, &left, true) } else { Vec::new() };
        let of_left = if may_right && kind != RightMark { across(join, &right, false) } else { Vec::new() };
        left.extend(of_left);
        right.extend(of_right);
        let inputs = (self.restrict(&join.left, &left)?, self.restrict(&join.right, &right)?);
        let joined = pair(join, inputs.0, inputs.1, kind)?;
        debug_assert_eq!(joined.schema().fields().len(), node.schema().fields().len());
        if is_split { self.touched.semi(joined, conditions) } else { Ok(joined) }
    }

    fn scan(&mut self, scan: &TableScan, conditions: &[Condition]) -> PlanResult<LogicalPlan> {
        let name = TableReference::bare(format!("{PART}{}", self.parts.len()));
        let part = LogicalPlanBuilder::scan(name, Arc::clone(&scan.source), None)?.build()?;
        self.parts.push(Part { scan: scan.clone(), conditions: conditions.to_vec() });
        let plan = named(part, scan)?;
        self.touched.semi(plan, conditions)
    }
}

/// Conditions on one input of a join as conditions on the other, by the columns that are compared.
fn across(join: &Join, conditions: &[Condition], of_left: bool) -> Vec<Condition> {
    let other = |expr: &Expr| {
        let pairs = join.on.iter().map(|(left, right)| if of_left { (left, right) } else { (right, left) });
        pairs.filter(|(own, _)| *own == expr).map(|(_, other)| other.clone()).next()
    };
    conditions.iter().filter_map(|(expr, number)| Some((other(expr)?, *number))).collect()
}

fn anew(node: &LogicalPlan, input: LogicalPlan) -> PlanResult<LogicalPlan> {
    match node {
        LogicalPlan::Distinct(Distinct::All(_)) => Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input)))),
        node => node.with_new_exprs(node.expressions(), vec![input]),
    }
}

impl Part {
    /// The scan, and the bytes of the files that it reads.
    async fn make(&self, session: &Session, source: &Table, touched: &Touched) -> Result<(LogicalPlan, u64)> {
        let schema = source.schema();
        let (mut wanted, mut filters) = (Vec::new(), Vec::new());
        let probe = LogicalPlan::TableScan(self.scan.clone());
        for (expr, number) in &self.conditions {
            let values = &touched.values[*number];
            let found = match place(&probe, expr) {
                Some(place) => {
                    let name = self.scan.projected_schema.field(place).name();
                    let kind = schema.field_with_name(name)?.data_type();
                    let values = cast(values, kind)?;
                    filters.extend(filter(name, &values)?);
                    Some((name.clone(), Wanted::Values(values)))
                }
                None => spans(expr, values, &schema)?,
            };
            wanted.extend(found);
        }
        let selection = source.files_with(&wanted)?;
        let whole = selection.paths.len() == source.file_count()?;
        let provider = match whole {
            true => session.provider(source).await?,
            false => session.part(source, selection.paths).await?,
        };
        let plan = of_provider(session, provider)?;
        let plan = match filters.into_iter().reduce(Expr::and) {
            Some(filter) => LogicalPlanBuilder::from(plan).filter(filter)?.build()?,
            None => plan,
        };
        Ok((plan, selection.bytes))
    }
}

/// A condition on a column that row groups and pages can be left out by.
fn filter(name: &str, values: &ArrayRef) -> Result<Option<Expr>> {
    let scalar = |row: usize| Ok(lit(ScalarValue::try_from_array(values, row)?));
    let known: Vec<usize> = (0..values.len()).filter(|row| values.is_valid(*row)).collect();
    let column = ident(name);
    if known.is_empty() {
        return Ok((!values.is_empty()).then(|| column.is_null()));
    }
    let among = if known.len() <= LISTED_MAX {
        column.clone().in_list(known.iter().map(|row| scalar(*row)).collect::<Result<Vec<_>>>()?, false)
    } else {
        let order = sort_to_indices(values, None, None)?;
        let valid: Vec<u32> = order.values().iter().copied().filter(|row| values.is_valid(*row as usize)).collect();
        let (Some(first), Some(last)) = (valid.first(), valid.last()) else { return Ok(None) };
        column.clone().between(scalar(*first as usize)?, scalar(*last as usize)?)
    };
    Ok(Some(if values.null_count() > 0 { among.or(column.is_null()) } else { among }))
}
