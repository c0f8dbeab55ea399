//! A bronze record becomes a change: what it does, its typed columns and sequence, or the reason why it cannot go on.

mod inline;
mod json;
mod moved;
mod operation;
mod record;
mod rescue;
mod resolve;
mod view;
mod whole;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use lake::columns::FileOrder;
use lake::quarantine::Rejected;
use lake::session::Session;
use lake::upsert::DELETE;
use lake::{Error, Result, columns};

use self::moved::OldKeys;
use self::operation::{Does, OperationReader};
use self::rescue::Restored;
use self::resolve::Resolved;
use self::view::{View, Viewed};
use crate::expect::{Expectations, Finding};
use crate::plan::TablePlan;
use crate::spec::{OnBad, OnBadValue, OnNullKey, Preset};

/// Which of two changes with one sequence is the later by what they do, where the producer says so; else 0.
pub(crate) const OP_RANK: &str = "__op_rank";

/// 0 for a file of the first load, 1 for a file of changes, where the producer has both.
pub(crate) const FILE_RANK: &str = "__file_rank";

/// The modification time of the file where the source takes its files in that order, else 0.
pub(crate) const FILE_TIME: &str = "__file_time";

/// What became of the records of one batch.
#[derive(Debug)]
pub struct Decoded {
    /// The changes: the table's columns, its technical columns, [`DELETE`], and what orders arrivals.
    pub changes: RecordBatch,
    /// Records that go to quarantine.
    pub rejected: Vec<Rejected>,
    /// Records read.
    pub read: u64,
    /// Changes beyond one a record: the delete of the old key, where a record changes the key.
    pub added: u64,
    /// Records that are no change by the spec's word.
    pub ignored: u64,
    /// Records left out by an expectation.
    pub dropped: u64,
    /// Rows that miss an expectation that only warns: how many, by the number of the expectation.
    pub warned: Vec<u64>,
}

/// Decodes the records of one bronze table for one silver table.
pub struct Decoder {
    plan: Arc<TablePlan>,
    bronze: SchemaRef,
    view: View,
    resolved: Resolved,
    operation: OperationReader,
    expectations: Expectations,
    schema: SchemaRef,
    file_order: FileOrder,
    notes: Vec<String>,
}

/// Where a row of the batch goes.
enum Fate {
    Upsert,
    Delete,
    Ignored,
    Dropped,
    Rejected(Reason),
}

struct Reason {
    kind: &'static str,
    text: String,
    column: Option<String>,
    value: Option<String>,
}

impl Decoder {
    /// A decoder for records with the columns of `bronze`, whose files were taken in `file_order`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when a key, a sequence column or a condition does not fit the
    /// records.
    pub fn new(plan: Arc<TablePlan>, bronze: &SchemaRef, file_order: FileOrder, session: &Session) -> Result<Self> {
        let view = View::new(&plan, bronze)?;
        let resolved = Resolved::new(&plan, &view)?;
        let operation = OperationReader::new(&plan, bronze, &view, session)?;
        let mut notes: Vec<String> = absent_operation(&operation, &plan, bronze)?.into_iter().collect();
        notes.extend(absent_sequence(&resolved, &plan));
        let expectations = Expectations::new(&plan.expectations, &resolved.rows(), session)?;
        let order = [
            Field::new(DELETE, DataType::Boolean, false),
            Field::new(OP_RANK, DataType::Int32, false),
            Field::new(FILE_RANK, DataType::Int32, false),
            Field::new(FILE_TIME, DataType::Int64, false),
            Field::new(columns::FILE_PATH, DataType::Utf8, false),
            Field::new(columns::ROW_NUMBER, DataType::Int64, false),
        ];
        let rows = resolved.rows();
        let fields = rows.fields().iter().map(|field| field.as_ref().clone());
        let schema = Arc::new(Schema::new(fields.chain(order).collect::<Vec<_>>()));
        let bronze = Arc::clone(bronze);
        Ok(Self { plan, bronze, view, resolved, operation, expectations, schema, file_order, notes })
    }

    /// The columns of [`Decoded::changes`].
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The columns of the silver table.
    pub fn target(&self) -> SchemaRef {
        self.resolved.target()
    }

    /// Columns of the plan that the records do not have yet.
    pub fn missing(&self) -> &[String] {
        self.resolved.missing()
    }

    /// Columns of the source that are in the table without being declared.
    pub fn joined(&self) -> &[String] {
        self.resolved.joined()
    }

    /// What a person should know about how the records are read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Decodes a batch of records.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](lake::ErrorKind::Data) when a record breaks a rule that the spec says must stop the run.
    pub fn decode(&self, batch: &RecordBatch) -> Result<Decoded> {
        let restored = Restored::of(batch)?;
        let texts = self.view.texts(&restored.batch)?;
        let viewed = self.view.of(&texts, batch.num_rows());
        let mut records = restored.batch.columns().to_vec();
        let around = viewed.record_columns();
        records.extend(around.columns);
        let mut fates = self.operations(batch, &restored, &records, &viewed)?;
        let rows = viewed.row_columns(|row| matches!(fates[row], Fate::Delete));
        records.extend(rows.columns);
        for (row, path, text) in around.bad.into_iter().chain(rows.bad) {
            reject_value(&mut fates[row], text, &path, None);
        }
        let typed = self.typed(&records, batch, &mut fates)?;
        let old = self.old_keys(&viewed, &records, &typed, &mut fates)?;
        self.keys(&typed, &mut fates);
        self.not_null(&typed, &mut fates);
        let warned = self.expect(&typed, &mut fates)?;
        self.stop(batch, &fates)?;
        self.collect(batch, typed, old, &fates, warned)
    }

    fn operations(
        &self,
        batch: &RecordBatch,
        restored: &Restored,
        columns: &[ArrayRef],
        viewed: &Viewed<'_>,
    ) -> Result<Vec<Fate>> {
        let does = self.operation.read(columns, batch, restored)?;
        let fates = does.into_iter().enumerate().map(|(row, does)| match (does, self.plan.on_unknown_op) {
            (Does::Upsert, _) if viewed.is_tombstone(row) => Fate::Ignored,
            (Does::Upsert, _) if !viewed.has_row(row) => Fate::Rejected(Reason {
                kind: "no_row",
                text: "neither a delete nor a record with new values".to_owned(),
                column: self.plan.paths.row.clone(),
                value: None,
            }),
            (Does::Upsert, _) => Fate::Upsert,
            (Does::Delete, _) => Fate::Delete,
            (Does::Nothing, _) | (Does::Unknown(_), OnBad::Ignore) => Fate::Ignored,
            (Does::Unknown(value), OnBad::Quarantine | OnBad::Fail) => Fate::Rejected(Reason {
                kind: "unknown_op",
                text: format!("operation `{value}` is none of those that the spec lists"),
                column: self.operation.column().map(str::to_owned),
                value: Some(value),
            }),
            (Does::Unanswered(reason), _) => Fate::Rejected(Reason {
                kind: crate::expect::EVALUATION,
                text: format!("`apply_as_deletes` cannot be checked: {reason}"),
                column: None,
                value: None,
            }),
        });
        Ok(fates.collect())
    }

    /// The table's columns of every row; values that do not fit decide the fate of their row.
    fn typed(&self, records: &[ArrayRef], batch: &RecordBatch, fates: &mut [Fate]) -> Result<Vec<ArrayRef>> {
        let mut typed = Vec::with_capacity(self.schema.fields().len());
        for column in self.resolved.columns() {
            let source = column.of(records, batch.num_rows());
            let cast = column.cast(&source);
            let is_key = self.plan.keys.contains(&column.name);
            self.refuse_unchanged(&source, &column.name, fates);
            for (row, text) in cast.bad {
                // A delete needs only its key.
                let needed = is_key || !matches!(fates[row], Fate::Delete);
                let lenient = self.plan.on_cast_error == OnBadValue::Null && !is_key && column.nullable;
                if needed && !lenient {
                    reject_value(&mut fates[row], text, &column.name, record::value(&source, row));
                }
            }
            typed.push(cast.array);
        }
        for (number, part) in self.resolved.sequence().iter().enumerate() {
            let source = part.column.of(records, batch.num_rows());
            let cast = part.cast(&source);
            for (row, text) in cast.bad {
                let text = format!("part {} of the sequence: {text}", number + 1);
                reject_value(&mut fates[row], text, &part.column.name, record::value(&source, row));
            }
            typed.push(cast.array);
        }
        let batch_id = batch.column_by_name(columns::BATCH_ID).ok_or_else(|| missing(columns::BATCH_ID))?;
        typed.push(Arc::clone(batch_id));
        Ok(typed)
    }

    /// Refuses rows with a text that stands for the value that the row has already: it is not that value.
    fn refuse_unchanged(&self, values: &ArrayRef, column: &String, fates: &mut [Fate]) {
        let placeholders = self.plan.options.placeholders;
        let Some(texts) = values.as_string_opt::<i32>().filter(|_| !placeholders.is_empty()) else { return };
        for (row, text) in texts.iter().enumerate() {
            let Some(text) = text.filter(|text| placeholders.contains(text)) else { continue };
            if matches!(fates[row], Fate::Upsert) {
                let reason =
                    format!("`{column}` did not change and was not sent, and the table's value cannot be kept yet");
                reject(&mut fates[row], "unchanged", reason, Some(column), Some(text.to_owned()));
            }
        }
    }

    fn keys(&self, typed: &[ArrayRef], fates: &mut [Fate]) {
        let keys: Vec<&ArrayRef> = self.resolved.key_positions().iter().map(|position| &typed[*position]).collect();
        for (row, fate) in fates.iter_mut().enumerate() {
            if matches!(fate, Fate::Upsert | Fate::Delete) && keys.iter().all(|key| key.is_null(row)) {
                let text = format!("the key is null: {}", self.plan.keys.join(", "));
                reject(fate, "null_key", text, self.plan.keys.first(), None);
            }
        }
    }

    fn not_null(&self, typed: &[ArrayRef], fates: &mut [Fate]) {
        for (column, values) in self.resolved.columns().iter().zip(typed) {
            if column.nullable || values.null_count() == 0 {
                continue;
            }
            let is_key = self.plan.keys.contains(&column.name);
            for (row, fate) in fates.iter_mut().enumerate() {
                let needed = matches!(fate, Fate::Upsert) || (is_key && matches!(fate, Fate::Delete));
                if needed && values.is_null(row) {
                    reject(
                        fate,
                        "not_null",
                        format!("`{}` is null and must not be", column.name),
                        Some(&column.name),
                        None,
                    );
                }
            }
        }
    }

    fn expect(&self, typed: &[ArrayRef], fates: &mut [Fate]) -> Result<Vec<u64>> {
        let mut warned = vec![0; self.expectations.len()];
        if self.expectations.is_empty() {
            return Ok(warned);
        }
        let rows = RecordBatch::try_new(self.resolved.rows(), typed.to_vec())?;
        for (number, misses) in self.expectations.misses(&rows)?.into_iter().enumerate() {
            for (row, text) in misses.failed {
                let kind = match misses.finding {
                    Finding::Reject { kind: crate::expect::FAIL } => crate::expect::FAIL,
                    _ => crate::expect::EVALUATION,
                };
                if matches!(fates[row], Fate::Upsert) {
                    reject(&mut fates[row], kind, text, None, None);
                }
            }
            for row in misses.rows {
                if !matches!(fates[row], Fate::Upsert) {
                    continue;
                }
                match misses.finding {
                    Finding::Warn => warned[number] += 1,
                    Finding::Drop => fates[row] = Fate::Dropped,
                    Finding::Reject { kind } => reject(&mut fates[row], kind, misses.text.clone(), None, None),
                }
            }
        }
        Ok(warned)
    }

    /// Fails when a record broke a rule that must stop the run.
    fn stop(&self, batch: &RecordBatch, fates: &[Fate]) -> Result<()> {
        for (row, fate) in fates.iter().enumerate() {
            let Fate::Rejected(reason) = fate else { continue };
            let option = match reason.kind {
                "unknown_op" if self.plan.on_unknown_op == OnBad::Fail => "on_unknown_op: fail",
                "null_key" if self.plan.on_null_key == OnNullKey::Fail => "on_null_key: fail",
                "cast" | "not_null" if self.plan.on_cast_error == OnBadValue::Fail => "on_cast_error: fail",
                crate::expect::FAIL => "action: fail",
                _ => continue,
            };
            let arrival = record::Arrival::of(batch, row)?;
            let column = reason.column.as_ref().map(|column| format!(", column `{column}`")).unwrap_or_default();
            let message = format!(
                "{}: file `{}`, record {}{column}: {}",
                self.plan.table, arrival.file_path, arrival.row_number, reason.text
            );
            return Err(Error::data(message).hint(format!(
                "`{option}` stops the run at such a record and nothing was committed; mend the file, or send such records to quarantine"
            )));
        }
        Ok(())
    }

    fn collect(
        &self,
        batch: &RecordBatch,
        mut typed: Vec<ArrayRef>,
        old: Option<OldKeys>,
        fates: &[Fate],
        warned: Vec<u64>,
    ) -> Result<Decoded> {
        let mut decoded = Decoded {
            changes: RecordBatch::new_empty(self.schema()),
            rejected: Vec::new(),
            read: fates.len() as u64,
            added: 0,
            ignored: 0,
            dropped: 0,
            warned,
        };
        for (row, fate) in fates.iter().enumerate() {
            match fate {
                Fate::Upsert | Fate::Delete => {}
                Fate::Ignored => decoded.ignored += 1,
                Fate::Dropped => decoded.dropped += 1,
                Fate::Rejected(reason) => decoded.rejected.push(self.rejected(batch, row, reason)?),
            }
        }
        let deletes: BooleanArray = fates.iter().map(|fate| Some(matches!(fate, Fate::Delete))).collect();
        let paths = batch.column_by_name(columns::FILE_PATH).ok_or_else(|| missing(columns::FILE_PATH))?;
        typed.push(Arc::new(deletes));
        typed.push(Arc::new(self.op_ranks(fates)));
        typed.push(Arc::new(self.file_ranks(paths)));
        typed.push(self.file_times(batch)?);
        typed.push(Arc::clone(paths));
        typed.push(Arc::clone(batch.column_by_name(columns::ROW_NUMBER).ok_or_else(|| missing(columns::ROW_NUMBER))?));
        let all = RecordBatch::try_new(self.schema(), typed)?;
        let kept: BooleanArray = fates.iter().map(|fate| Some(matches!(fate, Fate::Upsert | Fate::Delete))).collect();
        decoded.changes = filter_record_batch(&all, &kept)?;
        if let Some(old) = old {
            let deletes = old.deletes(&all, fates)?;
            decoded.added = deletes.num_rows() as u64;
            decoded.changes = concat_batches(&self.schema(), [&decoded.changes, &deletes])?;
        }
        Ok(decoded)
    }

    fn rejected(&self, batch: &RecordBatch, row: usize, reason: &Reason) -> Result<Rejected> {
        let arrival = record::Arrival::of(batch, row)?;
        Ok(Rejected {
            batch_id: arrival.batch_id,
            file_path: arrival.file_path.to_owned(),
            row_number: arrival.row_number,
            refused_by: self.plan.table.clone(),
            reason_kind: reason.kind,
            reason: reason.text.clone(),
            column: reason.column.clone(),
            value: reason.value.clone(),
            record: Some(record::as_json(batch, row)),
            header: None,
        })
    }

    /// A delete comes before what has the same sequence, where the producer says so.
    fn op_ranks(&self, fates: &[Fate]) -> Int32Array {
        let ranked = self.plan.options.deletes_first && !self.plan.sequence.is_empty();
        let rank = |fate: &Fate| i32::from(ranked && !matches!(fate, Fate::Delete));
        fates.iter().map(|fate| Some(rank(fate))).collect()
    }

    /// What orders the files of a batch before their paths do.
    fn file_times(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let times = batch.column_by_name(columns::FILE_MODIFICATION_TIME);
        Ok(match self.file_order {
            FileOrder::Path => Arc::new(Int64Array::from_value(0, batch.num_rows())),
            FileOrder::ModificationTime => {
                arrow::compute::cast(times.ok_or_else(|| missing(columns::FILE_MODIFICATION_TIME))?, &DataType::Int64)?
            }
        })
    }

    /// Files of the first load come before the files of changes, where the producer has both.
    fn file_ranks(&self, paths: &ArrayRef) -> Int32Array {
        let rank = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            i32::from(!self.plan.options.load_files.is_some_and(|load| name.starts_with(load)))
        };
        paths.as_string::<i32>().iter().map(|path| path.map(rank)).collect()
    }
}

/// What to say when nothing of a preset's sequence is there.
fn absent_sequence(resolved: &Resolved, plan: &TablePlan) -> Option<String> {
    let parts = resolved.sequence();
    let names: Vec<String> = parts.iter().map(|part| format!("`{}`", part.column.name)).collect();
    (!parts.is_empty() && !parts.iter().any(|part| part.column.is_there())).then(|| {
        let source = lake::TableName::bronze(&plan.source);
        format!(
            "{} is not in {source}: arrival alone orders the changes; say what does in `sequence_by`",
            names.join(", ")
        )
    })
}

/// What to say when the column of the operation is not there. Only files of a preset's own may lack it.
fn absent_operation(operation: &OperationReader, plan: &TablePlan, bronze: &SchemaRef) -> Result<Option<String>> {
    let Some(column) = operation.absent() else { return Ok(None) };
    let known = bronze.fields().iter().map(|field| field.name().as_str()).filter(|name| !columns::is_technical(name));
    let hint = lake::spec::did_you_mean(column, known);
    let source = lake::TableName::bronze(&plan.source);
    if plan.preset == Preset::Plain {
        let error =
            Error::spec(format!("{source} has no column `{column}`, which says what a record of {} does", plan.table));
        return Err(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    Ok(Some(format!("`{column}`, which says what a record does, is not in {source}: every record is an upsert{hint}")))
}

/// A value that does not fit; the column and the value of the first stand, the reason names each.
fn reject_value(fate: &mut Fate, text: String, column: &str, value: Option<String>) {
    match fate {
        Fate::Rejected(reason) if reason.kind == "cast" => {
            let known = reason.column.as_deref() == Some(column);
            if !known {
                reason.text.push_str(&format!("; `{column}`: {text}"));
            }
        }
        _ => reject(fate, "cast", text, Some(&column.to_owned()), value),
    }
}

/// The first reason stands.
fn reject(fate: &mut Fate, kind: &'static str, text: String, column: Option<&String>, value: Option<String>) {
    if matches!(fate, Fate::Upsert | Fate::Delete) {
        *fate = Fate::Rejected(Reason { kind, text, column: column.cloned(), value });
    }
}

fn missing(column: &str) -> Error {
    Error::internal(format!("a bronze table has no column `{column}`"))
}

/// Numbers of a technical column of bronze.
fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name).ok_or_else(|| missing(name))?;
    column.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name))
}
