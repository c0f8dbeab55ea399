//! Whether a table is what it promises to be: asked of its rows, and on demand of the whole of bronze.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::util::display::array_value_to_string;
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::report::{counted, thousands};
use lake::run::RunContext;
use lake::session::Session;
use lake::upsert::{differs, same_key};
use lake::{Error, ErrorKind, Lake, Layer, Result, Table, TableName, columns};
use serde_json::{Value, json};

use crate::facts::rebuilt;
use crate::plan::{Kept, TablePlan};
use crate::read::{Range, count as count_records};

/// Offenders that are named one by one.
const NAMED_MAX: usize = 5;
/// How many rows have a key, and where a row is from.
const COUNT: &str = "__count";
const SIDE: &str = "__side_";

/// What was asked of a table, and the answers.
#[derive(Debug)]
pub struct Verdict {
    /// The table.
    pub table: TableName,
    /// The version that was asked.
    pub version: u64,
    /// Its rows.
    pub rows: u64,
    /// The answers, in the order of the questions.
    pub checks: Vec<Check>,
}

/// One answer.
#[derive(Debug)]
pub struct Check {
    /// What must hold, in words.
    pub rule: &'static str,
    /// How many rows or keys break it.
    pub offenders: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
    /// Whether offenders are only worth a note: the table is as it promised to be.
    pub is_note: bool,
}

impl Verdict {
    /// True when everything holds.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.offenders == 0 || check.is_note)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let rows = counted(usize::try_from(self.rows).unwrap_or(usize::MAX), "row");
        let mut text = format!("{} version {}, {rows}\n", self.table, self.version);
        for check in &self.checks {
            match check.offenders {
                0 if check.is_note => continue,
                0 => text.push_str(&format!("  ok      {}\n", check.rule)),
                offenders if check.is_note => {
                    text.push_str(&format!("  note    {}: {}\n", check.rule, thousands(offenders)));
                }
                offenders => text.push_str(&format!("  BROKEN  {}: {}\n", check.rule, thousands(offenders))),
            }
            check.examples.iter().for_each(|example| text.push_str(&format!("            {example}\n")));
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let check = |check: &Check| json!({"rule": check.rule, "holds": check.offenders == 0 || check.is_note, "offenders": check.offenders, "examples": check.examples});
        json!({
            "table": self.table.to_string(),
            "version": self.version,
            "rows": self.rows,
            "holds": self.holds(),
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

/// Asks a table whether it keeps its promises; with `rebuild` also whether bronze as a whole makes the same rows.
///
/// # Errors
/// [`ErrorKind::Table`] when there is no table, or with `rebuild` when bronze has more than it; what reading fails with.
pub async fn verify(lake: &Lake, plan: &TablePlan, rebuild: bool) -> Result<Verdict> {
    let table = lake.existing(&plan.table).await?;
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(&table).await?)?;
    let (all, mut checks) = promises(plan, rows.clone()).await?;
    if rebuild {
        checks.extend(same_as_anew(lake, plan, &table, &session, rows).await?);
    }
    Ok(Verdict { table: plan.table.clone(), version: table.version(), rows: all, checks })
}

/// What a table promises of its rows whatever bronze has, and how many rows there are.
pub(crate) async fn promises(plan: &TablePlan, rows: DataFrame) -> Result<(u64, Vec<Check>)> {
    let all = rows.clone().count().await? as u64;
    let keys = plan.kept.row_keys(plan);
    let mut checks = vec![unique(&rows, &keys, "no key comes twice").await?, keyed(&rows, &plan.keys).await?];
    if let Kept::History(_) = plan.kept {
        let current = rows.filter(ident(columns::END_AT).is_null())?;
        checks.push(unique(&current, &plan.keys, "no key has two current versions").await?);
    }
    Ok((all, checks))
}

async fn unique(rows: &DataFrame, keys: &[String], rule: &'static str) -> Result<Check> {
    let keys: Vec<Expr> = keys.iter().map(ident).collect();
    let twice = rows.clone().aggregate(keys.clone(), vec![count(lit(1)).alias(COUNT)])?;
    let twice =
        twice.filter(ident(COUNT).gt(lit(1)))?.sort(keys.into_iter().map(|key| key.sort(true, true)).collect())?;
    check(rule, twice, words).await
}

async fn keyed(rows: &DataFrame, keys: &[String]) -> Result<Check> {
    let null = keys.iter().map(|key| ident(key).is_null()).reduce(Expr::and).unwrap_or_else(|| lit(false));
    check("every row has a key", rows.clone().filter(null)?, words).await
}

/// Makes the table anew from bronze, where nobody sees it, and compares.
async fn same_as_anew(
    lake: &Lake,
    plan: &TablePlan,
    table: &Table,
    session: &Session,
    rows: DataFrame,
) -> Result<Vec<Check>> {
    let source = TableName::bronze(&plan.source);
    let bronze = lake.existing(&source).await?;
    let (has, upto) = (table.txn_version(&app(plan)).await?, bronze.txn_version(&plan.source).await?);
    // Batches of files that were refused have no records.
    let range = Range { after: has.unwrap_or(i64::MIN), upto: upto.unwrap_or(i64::MIN) };
    if has > upto || (has < upto && count_records(&bronze, range, session).await? > 0) {
        let message = format!("{} has not applied all of {source}, so the two cannot be compared", plan.table);
        return Err(Error::new(ErrorKind::Table, message).hint("bring it up to date: `silver run`"));
    }
    // All that a silver table is made with, besides bronze.
    let layers = Layer::ALL.into_iter().filter(|layer| !matches!(layer, Layer::Bronze | Layer::Files));
    let (aside, _folder) = lake.with_aside(layers.collect())?;
    // What was discarded there stays discarded.
    let quarantine = TableName::quarantine(&plan.source);
    lake.copy_table(&quarantine, &aside, &quarantine).await?;
    let context = RunContext::new(&aside);
    context.pins.set(&source, bronze.version());
    crate::run(&aside, plan, &context).await?;
    let anew = aside.existing(&plan.table).await?;
    let anew = session.context().read_table(session.provider(&anew).await?)?;
    let schema = table.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let joined = joined(lake, table).await?;
    let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
    let sides = Sides { schema: &schema, keys: &plan.kept.row_keys(plan), names: &names, joined: &joined };
    Ok(sides.compare(rows, anew).await?.into())
}

/// The columns that the table did not have at first: rows that were applied before one joined are null in it. Of a table
/// that a rebuild has made it is not known.
async fn joined(lake: &Lake, table: &Table) -> Result<Vec<String>> {
    if rebuilt(table)?.is_some() {
        return Ok(Vec::new());
    }
    let Ok(first) = lake.table_at(table.name(), 0).await else { return Ok(Vec::new()) };
    let (first, schema) = (first.schema(), table.schema());
    let new = schema.fields().iter().filter(|field| first.field_with_name(field.name()).is_err());
    Ok(new.map(|field| field.name().clone()).collect())
}

/// The application under which a silver table has what its bronze table has.
fn app(plan: &TablePlan) -> String {
    format!("{}:{}", plan.table, TableName::bronze(&plan.source))
}

/// The rows of a table and those that they should be.
pub(crate) struct Sides<'a> {
    pub(crate) schema: &'a SchemaRef,
    /// The columns that make a row.
    pub(crate) keys: &'a [String],
    /// The columns that are compared.
    pub(crate) names: &'a [&'a str],
    /// Those of them that joined after rows were applied.
    pub(crate) joined: &'a [&'a str],
}

impl Sides<'_> {
    /// Four answers: rows that are missing, rows that should not be there, rows that differ, and those that differ in
    /// nothing but nulls of columns that joined later.
    pub(crate) async fn compare(&self, held: DataFrame, anew: DataFrame) -> Result<[Check; 4]> {
        // The batch of the last change depends on which of several equal ones came first, and so does what is told by it.
        let left_out = [columns::BATCH_ID, columns::DELETED_BATCH_ID, columns::SET_AT, columns::NOT_SENT];
        let values = || self.names.iter().copied().filter(|name| !left_out.contains(name));
        let renamed = values().map(|name| ident(name).alias(format!("{SIDE}{name}")));
        let anew = anew.select(renamed.collect::<Vec<_>>())?;
        let held = held.select(values().map(ident).collect::<Vec<_>>())?;
        let other = |name: &str| ident(format!("{SIDE}{name}"));
        let same: Vec<Expr> = self.keys.iter().map(|key| same_key(self.schema, key, ident(key), other(key))).collect();
        let missing = anew.clone().join_on(held.clone(), JoinType::LeftAnti, same.clone())?;
        let missing = missing.select(values().map(|name| other(name).alias(name)).collect::<Vec<_>>())?;
        let surplus = held.clone().join_on(anew.clone(), JoinType::LeftAnti, same.clone())?;
        let both = held.join_on(anew, JoinType::Inner, same)?;
        let any = |parts: Vec<Expr>| parts.into_iter().reduce(Expr::or).unwrap_or_else(|| lit(false));
        let differs = |name: &str| differs(ident(name), other(name));
        let is_wrong = values().map(|name| match self.joined.contains(&name) {
            true => differs(name).and(ident(name).is_not_null()),
            false => differs(name),
        });
        let is_wrong = any(is_wrong.collect());
        let is_old = any(self.joined.iter().map(|name| differs(name)).collect());
        let wrong = both.clone().filter(is_wrong.clone())?;
        let old = both.filter(is_old.and(is_wrong.is_not_true()))?;
        let words_of = |batch: &RecordBatch| differences(batch, self.keys);
        let old = check("rows were applied before a column joined, and are null in it", old, words_of).await?;
        Ok([
            check("bronze makes no row that the table lacks", missing, words).await?,
            check("the table has no row that bronze does not make", surplus, words).await?,
            check("every row is as bronze makes it", wrong, words_of).await?,
            Check { is_note: true, ..old },
        ])
    }
}

/// The first rows of a frame as offenders, and how many there are.
async fn check(rule: &'static str, offenders: DataFrame, words: impl Fn(&RecordBatch) -> Vec<String>) -> Result<Check> {
    let some = offenders.clone().limit(0, Some(NAMED_MAX))?.collect().await?;
    let offenders = offenders.count().await? as u64;
    let examples = some.iter().flat_map(words).take(NAMED_MAX).collect();
    Ok(Check { rule, offenders, examples, is_note: false })
}

/// Rows in words: `id 7, status paid`.
fn words(batch: &RecordBatch) -> Vec<String> {
    let cells = |row| {
        let names = batch.schema_ref().fields().iter().map(|field| field.name());
        let cells = names.zip(batch.columns()).filter(|(name, _)| *name != COUNT);
        cells.map(|(name, column)| format!("{name} {}", cell(column, row))).collect::<Vec<_>>()
    };
    (0..batch.num_rows()).map(|row| cells(row).join(", ")).collect()
}

/// Rows of both sides in words: `id 7: status is new and should be paid`.
fn differences(batch: &RecordBatch, keys: &[String]) -> Vec<String> {
    let value = |name: &str, row| batch.column_by_name(name).map(|column| cell(column, row)).unwrap_or_default();
    let row = |row| {
        let named = keys.iter().map(|key| format!("{key} {}", value(key, row))).collect::<Vec<_>>();
        let names = batch.schema_ref().fields().iter().filter_map(|field| field.name().strip_prefix(SIDE));
        let both = names.map(|name| (name, value(name, row), value(&format!("{SIDE}{name}"), row)));
        let unlike = both.filter(|(_, held, anew)| held != anew);
        let unlike = unlike.map(|(name, held, anew)| format!("{name} is {held} and should be {anew}"));
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
