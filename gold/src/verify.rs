//! Whether the table of a model holds what its query gives as a whole: asked row by row, every value to its last bit.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::util::display::array_value_to_string;
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, Operator, binary_expr, cast, ident, lit};
use lake::report::{counted, thousands};
use lake::{Context, Error, ErrorKind, Lake, Result, Table, TableName};
use serde_json::{Value, json};

use crate::checks::condition;
use crate::model::{empty_as_null, recipe};
use crate::output;
use crate::plan::ModelPlan;
use crate::recipe::{Held, source_app};
use crate::refresh::known;
use crate::refresh::shape::Coverage;

/// Rows that are named one by one, of each kind.
const NAMED_MAX: usize = 5;
const TIMES: &str = "__times";
const SIDE: &str = "__right_";

/// What a model's table was found to be.
#[derive(Debug)]
pub struct Verdict {
    /// The table.
    pub table: TableName,
    /// The version that was asked.
    pub version: u64,
    /// The versions of the sources that it was made from.
    pub sources: BTreeMap<TableName, u64>,
    /// Its rows.
    pub rows: u64,
    /// Rows that the query gives and the table lacks.
    pub missing: Difference,
    /// Rows that the table has and the query does not give.
    pub surplus: Difference,
    /// Rows of one key with other values; counted as neither of the others.
    pub differing: Difference,
}

/// Rows that should not be as they are.
#[derive(Debug, Default)]
pub struct Difference {
    /// How many.
    pub rows: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
}

impl Verdict {
    /// True when the table is what its query gives.
    pub fn holds(&self) -> bool {
        self.kinds().iter().all(|(_, difference)| difference.rows == 0)
    }

    fn kinds(&self) -> [(&'static str, &Difference); 3] {
        [
            ("rows that are missing", &self.missing),
            ("rows that should not be there", &self.surplus),
            ("rows that differ", &self.differing),
        ]
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let sources: Vec<String> = self.sources.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let rows = counted(usize::try_from(self.rows).unwrap_or(usize::MAX), "row");
        let mut text = format!("{} version {}, {rows}, from {}\n", self.table, self.version, sources.join(", "));
        if self.holds() {
            text.push_str("  ok      the table is what its query gives\n");
        }
        for (what, difference) in self.kinds().into_iter().filter(|(_, difference)| difference.rows > 0) {
            text.push_str(&format!("  BROKEN  {what}: {}\n", thousands(difference.rows)));
            difference.examples.iter().for_each(|example| text.push_str(&format!("            {example}\n")));
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let kind = |difference: &Difference| json!({"rows": difference.rows, "examples": difference.examples});
        json!({
            "table": self.table.to_string(),
            "version": self.version,
            "sources": self.sources.iter().map(|(name, version)| (name.to_string(), *version)).collect::<BTreeMap<_, _>>(),
            "rows": self.rows,
            "holds": self.holds(),
            "missing": kind(&self.missing),
            "surplus": kind(&self.surplus),
            "differing": kind(&self.differing),
        })
    }
}

/// Computes the query of a model as a whole, from the versions that its table was made from, and compares.
///
/// # Errors
/// [`ErrorKind::Table`] when there is no table, when it was made otherwise than the plan says, or when a version is gone.
pub async fn verify(lake: &Lake, plan: &ModelPlan) -> Result<Verdict> {
    let table = lake.existing(&plan.table).await?;
    let (session, mut sources) = (lake.query_session()?, Vec::new());
    for name in &plan.sources {
        sources.push(lake.existing(name).await?);
    }
    let made_by = Held::of(Some(&table))?.recipe.unwrap_or_default();
    if let Some(changed) = made_by.changed_to(&recipe(plan, &sources)?) {
        let message = format!("{} was made otherwise than the spec says now: {changed}", plan.table);
        return Err(Error::new(ErrorKind::Table, message).hint("bring it up to date: `gold run`"));
    }
    for source in &mut sources {
        let name = source.name().clone();
        let version = table.txn_version(&source_app(&plan.table, &name)).await?;
        let version = version.and_then(|version| u64::try_from(version).ok());
        let version = version.ok_or_else(|| Error::internal(format!("{} does not tell of {name}", plan.table)))?;
        *source = lake.table_at(&name, version).await?;
        session.register(source).await?;
    }
    let keys = match Coverage::of(plan, &known(&session, &sources).await?)? {
        Coverage::Groups(shape) => shape.groups.into_iter().map(|group| group.name).collect(),
        Coverage::Whole(_) => plan.keys.clone(),
    };
    let right = session.sql(&plan.query).await.context(|| format!("planning the query of {}", plan.table))?;
    output::columns(right.schema().as_arrow(), &plan.table)?;
    let mut right = empty_as_null(right, &plan.partition_by)?;
    for check in plan.checks.drops() {
        let met = condition(&session, &check, right.schema())?;
        right = right.filter(met.is_true())?;
    }
    let columns = table.schema();
    let plain =
        columns.fields().iter().map(|field| cast(ident(field.name()), field.data_type().clone()).alias(field.name()));
    let right = right.select(plain.collect::<Vec<_>>())?;
    let left = session.context().read_table(session.provider(&table).await?)?;
    let left = left.select(columns.fields().iter().map(|field| ident(field.name())).collect::<Vec<_>>())?;
    let [missing, surplus, differing] = Comparison { table: &table, keys }.of(left, right).await?;
    let sources = sources.iter().map(|source| (source.name().clone(), source.version())).collect();
    let (name, version) = (plan.table.clone(), table.version());
    let rows = table.row_count()?.unwrap_or(0);
    Ok(Verdict { table: name, version, sources, rows, missing, surplus, differing })
}

struct Comparison<'a> {
    table: &'a Table,
    /// The columns that tell rows apart; empty where none do.
    keys: Vec<String>,
}

impl Comparison<'_> {
    async fn of(&self, left: DataFrame, right: DataFrame) -> Result<[Difference; 3]> {
        let names: Vec<String> = self.table.schema().fields().iter().map(|field| field.name().clone()).collect();
        // Each different row once, with how often it comes.
        let counted =
            |frame: DataFrame| frame.aggregate(names.iter().map(ident).collect(), vec![count(lit(1_i64)).alias(TIMES)]);
        let (left, right) = (counted(left)?, counted(right)?);
        let all: Vec<String> = names.iter().cloned().chain([TIMES.to_owned()]).collect();
        let right = right.select(all.iter().map(|name| ident(name).alias(side(name))).collect::<Vec<_>>())?;
        let surplus = left.clone().join_on(right.clone(), JoinType::LeftAnti, same(&all))?;
        let missing = left.join_on(right, JoinType::RightAnti, same(&all))?;
        let (surplus, missing) = (surplus.cache().await?, missing.cache().await?);
        if self.keys.is_empty() {
            return Ok([found(&missing, words).await?, found(&surplus, words).await?, Difference::default()]);
        }
        let keys = same(&self.keys);
        let differing = surplus.clone().join_on(missing.clone(), JoinType::Inner, keys.clone())?;
        let only_left = surplus.clone().join_on(missing.clone(), JoinType::LeftAnti, keys.clone())?;
        let only_right = surplus.join_on(missing, JoinType::RightAnti, keys)?;
        let differing = found(&differing, |batch| differences(batch, &self.keys)).await?;
        Ok([found(&only_right, words).await?, found(&only_left, words).await?, differing])
    }
}

fn side(name: &str) -> String {
    format!("{SIDE}{name}")
}

fn same(names: &[String]) -> Vec<Expr> {
    names.iter().map(|name| binary_expr(ident(name), Operator::IsNotDistinctFrom, ident(side(name)))).collect()
}

/// The first rows, and how many there are.
async fn found(rows: &DataFrame, words: impl Fn(&RecordBatch) -> Vec<String>) -> Result<Difference> {
    let some = rows.clone().limit(0, Some(NAMED_MAX))?.collect().await?;
    let examples = some.iter().flat_map(words).take(NAMED_MAX).collect();
    Ok(Difference { rows: rows.clone().count().await? as u64, examples })
}

/// Rows in words: `day 2024-05-01, total 3.00`.
pub(crate) fn words(batch: &RecordBatch) -> Vec<String> {
    let names: Vec<String> =
        batch.schema_ref().fields().iter().map(|field| field.name().trim_start_matches(SIDE).to_owned()).collect();
    let row = |row: usize| {
        let cells =
            names.iter().zip(batch.columns()).filter(|(name, column)| *name != TIMES || cell(column, row) != "1");
        let cells = cells.map(|(name, column)| match name.as_str() {
            TIMES => format!("{} times", cell(column, row)),
            name => format!("{name} {}", cell(column, row)),
        });
        cells.collect::<Vec<_>>().join(", ")
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Rows of both sides in words: `day 2024-05-01: total is 3.00 and should be 4.00`.
fn differences(batch: &RecordBatch, keys: &[String]) -> Vec<String> {
    let value = |name: &str, row| batch.column_by_name(name).map(|column| cell(column, row)).unwrap_or_default();
    let row = |row| {
        let named = keys.iter().map(|key| format!("{key} {}", value(key, row))).collect::<Vec<_>>();
        let names = batch.schema_ref().fields().iter().filter_map(|field| field.name().strip_prefix(SIDE));
        let both = names.map(|name| (name, value(name, row), value(&side(name), row)));
        let unlike = both.filter(|(_, held, right)| held != right);
        let unlike = unlike.map(|(name, held, right)| format!("{name} is {held} and should be {right}"));
        format!("{}: {}", named.join(", "), unlike.collect::<Vec<_>>().join("; "))
    };
    (0..batch.num_rows()).map(row).collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    match column.is_null(row) {
        true => "NULL".to_owned(),
        false => array_value_to_string(column, row).unwrap_or_default(),
    }
}
