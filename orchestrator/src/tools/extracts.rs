//! Bronze tables whose files are full extracts for a silver table: what may be taken out of them by hand.
//!
//! A record that is not in an extract is deleted, so records of an extract that is still to be applied cannot go one by
//! one. An extract that goes as a whole is none from then on, which the bronze table says itself.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{cast, ident, lit, when};
use lake::columns::{BATCH_ID, FILE_PATH};
use lake::taken_out::TakenOut;
use lake::{Error, Lake, Result, Table, TableName};
use silver::TablePlan;

use crate::spec::{Job, Project};

const RECORDS: &str = "__records";
const DOOMED: &str = "__doomed";

/// The silver tables that take the files of a bronze table for full extracts.
pub(crate) fn readers<'p>(project: &'p Project, bronze: &TableName) -> Vec<&'p TablePlan> {
    let plans = project.tasks.iter().filter_map(|task| match &task.job {
        Job::Silver(plan) => Some(plan.as_ref()),
        _ => None,
    });
    plans.filter(|plan| plan.snapshot.is_some() && TableName::bronze(&plan.source) == *bronze).collect()
}

/// What the commit says that takes out of a bronze table the records that meet a condition.
///
/// # Errors
/// [`lake::ErrorKind::Spec`] when an extract that is not yet applied would lose some of its records.
pub(crate) async fn taken_out(
    project: &Project,
    lake: &Lake,
    table: &Table,
    condition: &str,
) -> Result<Option<(String, String)>> {
    let readers = readers(project, table.name());
    if readers.is_empty() {
        return Ok(None);
    }
    let mut applied = Vec::new();
    for plan in readers {
        let silver = lake.table(&plan.table).await?;
        let app = format!("{}:{}", plan.table, table.name());
        let upto = match silver {
            Some(silver) => silver.txn_version(&app).await?,
            None => None,
        };
        applied.push((&plan.table, upto.unwrap_or(0)));
    }
    let mut gone = Vec::new();
    for file in files(lake, table, condition).await? {
        let is_whole = file.doomed == file.records;
        if let Some((name, _)) = applied.iter().find(|(_, upto)| !is_whole && file.batch > *upto) {
            let message = format!(
                "`{}` (batch {}) is a full extract that {name} has still to apply: what it lacks would be deleted there",
                file.path, file.batch
            );
            let hint = format!("run {name} first, or take the file out as a whole: `{FILE_PATH} = '{}'`", file.path);
            return Err(Error::spec(message).hint(hint));
        }
        if is_whole {
            gone.push((file.batch, file.path));
        }
    }
    if gone.is_empty() {
        return Ok(None);
    }
    TakenOut::of(table)?.and_files(gone).property().map(Some)
}

/// A file with records that meet the condition.
struct InFile {
    batch: i64,
    path: String,
    records: i64,
    doomed: i64,
}

async fn files(lake: &Lake, table: &Table, condition: &str) -> Result<Vec<InFile>> {
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(table).await?)?;
    let is_doomed = when(rows.parse_sql_expr(condition)?, lit(1_i64)).end()?;
    let group = vec![ident(BATCH_ID), cast(ident(FILE_PATH), DataType::Utf8).alias(FILE_PATH)];
    let counts = vec![count(lit(1_i64)).alias(RECORDS), count(is_doomed).alias(DOOMED)];
    let hit = rows.aggregate(group, counts)?.filter(ident(DOOMED).gt(lit(0_i64)))?;
    let mut files = Vec::new();
    for batch in hit.sort(vec![ident(BATCH_ID).sort(true, true), ident(FILE_PATH).sort(true, true)])?.collect().await? {
        let number = |place: usize| batch.column(place).as_primitive::<Int64Type>();
        let (batches, paths, records, doomed) = (number(0), batch.column(1).as_string::<i32>(), number(2), number(3));
        files.extend((0..batch.num_rows()).map(|row| InFile {
            batch: batches.value(row),
            path: paths.value(row).to_owned(),
            records: records.value(row),
            doomed: doomed.value(row),
        }));
    }
    Ok(files)
}
