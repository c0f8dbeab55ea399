//! Extracts in their order, and what becomes of each.

use std::cmp::Ordering;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions::string::expr_fn::concat;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::{Expr, cast, ident, lit};
use lake::quarantine::Rejected;
use lake::report::FailedFile;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Error, Result, Table, columns};

use super::files::{File, Files};
use crate::change::{Decoder, FILE_RANK, FILE_TIME};
use crate::plan::{Kept, TablePlan};

const ROWS: &str = "__rows";
const EXAMPLE: &str = "__example";
/// The kind of reason of the records of an extract that is refused.
const REFUSED: &str = "extract";

/// What becomes of an extract.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It is compared with what was before it.
    Taken,
    /// A newer one was applied in an earlier run.
    Late,
    /// It is no extract: records of one that came after it.
    Part,
    /// It cannot be right, for this reason.
    Refused(String),
}

/// One extract.
#[derive(Debug, Clone)]
pub(crate) struct Extract {
    pub(super) file: File,
    /// Its sequence, as the table has it.
    pub(super) position: Vec<ScalarValue>,
    pub(super) rank: i32,
    pub(super) time: i64,
    rows: u64,
    /// Whether all its records are there: what it lacks is deleted.
    pub(super) is_complete: bool,
    fate: Fate,
}

/// The new extracts, the oldest first.
pub(super) struct Extracts(Vec<Extract>);

impl Extracts {
    /// The extracts that the records belong to, and those without a record.
    pub(super) async fn of(
        plan: &TablePlan,
        decoder: &Decoder,
        records: &Staged,
        files: &Files,
        applied: &[Vec<ScalarValue>],
        session: &Session,
    ) -> Result<Self> {
        let mut extracts = found(plan, records, session).await?;
        for extract in &mut extracts {
            extract.is_complete = !files.incomplete.contains(&extract.file);
            if !files.read.contains_key(&extract.file) {
                extract.fate = Fate::Part;
            }
        }
        for (file, modified_us) in &files.read {
            let has_records = extracts.iter().any(|extract| extract.file == *file) || files.incomplete.contains(file);
            if !has_records {
                extracts.push(empty(plan, decoder, file, *modified_us)?);
            }
        }
        duplicates(plan, records, &mut extracts, session).await?;
        for extract in extracts.iter_mut().filter(|extract| extract.fate == Fate::Taken) {
            let orders = || applied.iter().map(|place| order(&extract.position, place));
            let (is_late, is_known) = (orders().any(Ordering::is_lt), orders().any(Ordering::is_eq));
            extract.fate = match (is_late, &plan.kept) {
                (false, _) => Fate::Taken,
                (true, Kept::Current) => Fate::Late,
                // It came again, or another one has its place.
                (true, _) if is_known => Fate::Late,
                (true, _) => Fate::Refused(format!(
                    "it is older than an extract that was applied, and belongs between two of them in what the table keeps of the past: `silver rebuild {}` puts it there",
                    plan.table.name
                )),
            };
        }
        extracts.sort_by(|left, right| {
            order(&left.position, &right.position).then_with(|| {
                let arrival = |extract: &Extract| (extract.file.0, extract.rank, extract.time);
                arrival(left).cmp(&arrival(right)).then_with(|| left.file.1.cmp(&right.file.1))
            })
        });
        Ok(Self(extracts))
    }

    /// Those that are compared.
    pub(super) fn taken(&self) -> impl Iterator<Item = &Extract> {
        self.0.iter().filter(|extract| extract.fate == Fate::Taken)
    }

    /// The records of extracts by what becomes of these.
    pub(super) fn rows(&self, wanted: impl Fn(&Fate) -> bool) -> u64 {
        self.0.iter().filter(|extract| wanted(&extract.fate)).map(|extract| extract.rows).sum()
    }

    /// The files that are refused.
    pub(super) fn failed(&self) -> Vec<FailedFile> {
        let refused = self.0.iter().filter_map(|extract| match &extract.fate {
            Fate::Refused(reason) => {
                Some(FailedFile { path: extract.file.1.clone(), reason: reason.clone(), new: true })
            }
            Fate::Taken | Fate::Late | Fate::Part => None,
        });
        refused.collect()
    }

    /// What a person should know of the others.
    pub(super) fn notes(&self, parts: u64) -> Vec<String> {
        let late = self.0.iter().filter(|extract| extract.fate == Fate::Late);
        let late =
            late.map(|extract| format!("`{}` is older than an extract that was applied: it is stale", extract.file.1));
        let partial = self.taken().filter(|extract| !extract.is_complete);
        let partial = partial
            .map(|extract| format!("records of `{}` are in quarantine: what it lacks is not deleted", extract.file.1));
        let parts = (parts > 0).then(|| {
            format!("{parts} records came after the extracts that they belong to and are left out: the next extract has them")
        });
        late.chain(partial).chain(parts).collect()
    }

    /// The records of extracts that are refused, for quarantine.
    pub(super) async fn refuse(
        &self,
        bronze: &Table,
        decoder: &Decoder,
        records: &Staged,
        session: &Session,
    ) -> Result<Vec<Rejected>> {
        let mut refused = Vec::new();
        for extract in &self.0 {
            let Fate::Refused(reason) = &extract.fate else { continue };
            if extract.rows == 0 {
                continue;
            }
            let of_file = |batch: &str, path: &str| {
                ident(batch).eq(lit(extract.file.0)).and(ident(path).eq(lit(extract.file.1.as_str())))
            };
            let rows = session.context().read_table(session.provider(bronze).await?)?;
            let rows = rows.filter(of_file(columns::BATCH_ID, columns::FILE_PATH))?;
            let these = records.frame(session).await?.filter(of_file(columns::BATCH_ID, columns::FILE_PATH))?;
            let these = these.select(vec![ident(columns::ROW_NUMBER).alias(ROWS)])?;
            let rows = rows.join_on(these, JoinType::LeftSemi, [ident(columns::ROW_NUMBER).eq(ident(ROWS))])?;
            for batch in rows.collect().await? {
                refused.extend(decoder.refuse_all(&batch, REFUSED, reason)?);
            }
        }
        Ok(refused)
    }
}

/// The extracts that records belong to.
async fn found(plan: &TablePlan, records: &Staged, session: &Session) -> Result<Vec<Extract>> {
    let group = [columns::BATCH_ID, columns::FILE_PATH, FILE_RANK, FILE_TIME].map(ident).to_vec();
    let mut aggregates = vec![count(lit(1_i64)).alias(ROWS)];
    let parts = plan.sequence_columns();
    for (number, part) in parts.iter().enumerate() {
        aggregates.push(min(ident(part)).alias(format!("__min_{number}")));
        aggregates.push(max(ident(part)).alias(format!("__max_{number}")));
        aggregates.push(count(ident(part)).alias(format!("__count_{number}")));
    }
    let batches = records.frame(session).await?.aggregate(group, aggregates)?.collect().await?;
    let mut extracts = Vec::new();
    for batch in batches {
        let rows = number(&batch, ROWS)?;
        for row in 0..batch.num_rows() {
            let mut position = Vec::new();
            let mut fate = Fate::Taken;
            for (index, part) in plan.sequence.iter().enumerate() {
                let (low, high) =
                    (value(&batch, &format!("__min_{index}"), row)?, value(&batch, &format!("__max_{index}"), row)?);
                let filled = number(&batch, &format!("__count_{index}"))?.value(row);
                if low != high || (filled > 0 && filled < rows.value(row)) {
                    fate = Fate::Refused(format!(
                        "its records are not all at one place of the sequence: `{}` is {low} and {high}; a full extract has one, such as `_file_modification_time timestamp`, or none (`sequence_by: []`)",
                        part.source
                    ));
                }
                position.push(high);
            }
            let paths = batch.column_by_name(columns::FILE_PATH).and_then(|column| column.as_string_opt::<i32>());
            let path = paths.ok_or_else(|| Error::internal("changes have no file"))?.value(row).to_owned();
            let ranks = batch.column_by_name(FILE_RANK).and_then(|column| column.as_primitive_opt::<Int32Type>());
            extracts.push(Extract {
                file: (number(&batch, columns::BATCH_ID)?.value(row), path),
                position,
                rank: ranks.map_or(0, |ranks| ranks.value(row)),
                time: number(&batch, FILE_TIME)?.value(row),
                rows: u64::try_from(rows.value(row)).unwrap_or(0),
                is_complete: true,
                fate,
            });
        }
    }
    Ok(extracts)
}

/// A file without a record: refused, unless the spec allows it and it says where it stands.
fn empty(plan: &TablePlan, decoder: &Decoder, file: &File, modified_us: i64) -> Result<Extract> {
    let position = decoder.position_of_file(&file.1, modified_us)?;
    let allowed = plan.snapshot.is_some_and(|snapshot| snapshot.allow_empty);
    let nowhere = plan.sequence.iter().zip(&position).find(|(_, part)| part.is_null());
    let fate = match nowhere {
        _ if !allowed => Fate::Refused(
            "it has no record, and a full extract without one would delete every row: `allow_empty_snapshot: true` lets it".to_owned(),
        ),
        Some((part, _)) => {
            Fate::Refused(format!("it has no record, and so no `{}`, which orders extracts", part.source))
        }
        None => Fate::Taken,
    };
    let time = decoder.file_time(modified_us);
    Ok(Extract { file: file.clone(), position, rank: 1, time, rows: 0, is_complete: true, fate })
}

/// Refuses extracts that have a key twice.
async fn duplicates(plan: &TablePlan, records: &Staged, extracts: &mut [Extract], session: &Session) -> Result<()> {
    let place = [columns::BATCH_ID, columns::FILE_PATH].map(ident);
    let keys = plan.keys.iter().map(ident);
    let group: Vec<Expr> = place.iter().cloned().chain(keys).collect();
    let twice = records.frame(session).await?.aggregate(group, vec![count(lit(1_i64)).alias(ROWS)])?;
    let mut texts = Vec::new();
    for (number, key) in plan.keys.iter().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        texts.push(lit(format!("{comma}{key} = ")));
        texts.push(coalesce(vec![cast(ident(key), DataType::Utf8), lit("null")]));
    }
    let key = concat(texts).alias(EXAMPLE);
    let twice = twice.filter(ident(ROWS).gt(lit(1_i64)))?;
    let twice = twice.select(place.iter().cloned().chain([key]).collect::<Vec<_>>())?;
    let each = vec![min(ident(EXAMPLE)).alias(EXAMPLE), count(lit(1_i64)).alias(ROWS)];
    for batch in twice.aggregate(place.to_vec(), each)?.collect().await? {
        let (batches, keys) = (number(&batch, columns::BATCH_ID)?, number(&batch, ROWS)?);
        let text = |name: &str| batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
        let (Some(paths), Some(examples)) = (text(columns::FILE_PATH), text(EXAMPLE)) else {
            return Err(Error::internal("extracts have no file"));
        };
        for row in 0..batch.num_rows() {
            let is_it =
                |extract: &&mut Extract| extract.file.0 == batches.value(row) && extract.file.1 == paths.value(row);
            if let Some(extract) = extracts.iter_mut().find(is_it)
                && extract.fate == Fate::Taken
            {
                let others = keys.value(row) - 1;
                let others = if others > 0 { format!(", and {others} other keys") } else { String::new() };
                extract.fate = Fate::Refused(format!("it has a key twice: {}{others}", examples.value(row)));
            }
        }
    }
    Ok(())
}

/// Part by part, nulls first.
pub(super) fn order(left: &[ScalarValue], right: &[ScalarValue]) -> Ordering {
    let parts = left.iter().zip(right).map(|(left, right)| left.partial_cmp(right).unwrap_or(Ordering::Equal));
    parts.into_iter().find(|part| part.is_ne()).unwrap_or(Ordering::Equal)
}

pub(super) fn value(batch: &RecordBatch, name: &str, row: usize) -> Result<ScalarValue> {
    let column = batch.column_by_name(name).ok_or_else(|| Error::internal(format!("extracts have no `{name}`")))?;
    Ok(ScalarValue::try_from_array(column, row)?)
}

fn number<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b arrow::array::Int64Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| Error::internal(format!("extracts have no `{name}`")))
}
