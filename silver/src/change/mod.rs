//! A bronze record becomes a change: what it does, its typed columns and sequence, or the reason why it cannot go on.

mod checks;
mod derived;
mod fate;
mod inline;
mod json;
mod moved;
mod notes;
mod operation;
mod prepare;
mod record;
mod rescue;
mod resolve;
mod rules;
mod unsent;
mod view;
mod whole;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch, nullif};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use lake::columns::FileOrder;
use lake::expression::Values;
use lake::quarantine::Rejected;
use lake::session::Session;
use lake::upsert::DELETE;
use lake::{Error, Result, columns};

use self::derived::Derived;
use self::fate::{Fate, NO_ROW, Reason, is_rejected, reject, reject_value};
use self::moved::OldKeys;
use self::notes::{absent_operation, absent_sequence};
use self::operation::{Does, OperationReader};
use self::prepare::Prepared;
use self::rescue::Restored;
use self::resolve::Resolved;
use self::rules::Constraints;
use self::unsent::Unsent;
use self::view::{View, Viewed};
use crate::expect::{Expectations, Tested};
use crate::generated::Generated;
use crate::plan::TablePlan;
use crate::spec::{OnBad, OnBadValue, OnTruncate};

/// Which of two changes with one sequence is the later by what they do, where the producer says so and the sequence of
/// the table does not; else 0.
pub(crate) const OP_RANK: &str = "__op_rank";

/// Which of two changes of one file is the later by what they do, where that is all the producer says; else 0.
pub(crate) const RANK_IN_FILE: &str = "__rank_in_file";

/// 0 for a file of the first load, 1 for a file of changes, where the producer has both.
pub(crate) const FILE_RANK: &str = "__file_rank";

/// The modification time of the file where the source takes its files in that order, else 0.
pub(crate) const FILE_TIME: &str = "__file_time";

/// The number of the change in its record.
pub(crate) const CHANGE_NUMBER: &str = "__change_number";

/// Which columns an update did not send, as bits by their places in the table; null for a change that sent all.
pub(crate) const UNSENT: &str = "__unsent";

/// What became of the records of one batch.
#[derive(Debug)]
pub struct Decoded {
    /// The changes: the table's columns, its technical columns, [`DELETE`], and what orders arrivals.
    pub changes: RecordBatch,
    /// Truncates, with the columns of changes: of these only what orders them.
    pub truncates: RecordBatch,
    /// Records that go to quarantine.
    pub rejected: Vec<Rejected>,
    /// Changes in them.
    pub refused: u64,
    /// Records read.
    pub read: u64,
    /// Changes beyond one a record: the delete of the old key, where a record changes the key.
    pub added: u64,
    /// Records that are no change by the spec's word.
    pub ignored: u64,
    /// Records left out by an expectation.
    pub dropped: u64,
    /// How rows did, by the number of the expectation.
    pub held: Vec<Tested>,
    /// Updates that did not send every column.
    pub partial: u64,
}

/// Decodes the records of one bronze table for one silver table.
pub struct Decoder {
    plan: Arc<TablePlan>,
    bronze: SchemaRef,
    view: View,
    derived: Derived,
    resolved: Resolved,
    operation: OperationReader,
    expectations: Expectations,
    constraints: Constraints,
    generated: Generated,
    schema: SchemaRef,
    sequence: Vec<String>,
    file_order: FileOrder,
    notes: Vec<String>,
}

impl Decoder {
    /// A decoder for records with the columns of `bronze`, whose files were taken in `file_order`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when a key, a sequence column or a condition does not fit the
    /// records.
    pub fn new(plan: Arc<TablePlan>, bronze: &SchemaRef, file_order: FileOrder, session: &Session) -> Result<Self> {
        let bronze = &prepare::schema(bronze, plan.options.prepare);
        let view = View::new(&plan, bronze);
        let derived = Derived::new(&plan, &view, session)?;
        let resolved = Resolved::new(&plan, &view, &derived)?;
        let operation = OperationReader::new(&plan, bronze, &view, session)?;
        let mut notes: Vec<String> = absent_operation(&operation, &plan, bronze)?.into_iter().collect();
        notes.extend(absent_sequence(&resolved, &plan));
        let expectations = Expectations::new(&plan.expectations, &resolved.rows(), session)?;
        let constraints = Constraints::new(&plan, &resolved.rows(), session)?;
        let generated = Generated::new(&plan, &resolved.rows(), session)?;
        let mut order = vec![
            Field::new(DELETE, DataType::Boolean, false),
            Field::new(OP_RANK, DataType::Int32, false),
            Field::new(FILE_RANK, DataType::Int32, false),
            Field::new(FILE_TIME, DataType::Int64, false),
            Field::new(columns::FILE_PATH, DataType::Utf8, false),
            Field::new(RANK_IN_FILE, DataType::Int32, false),
            Field::new(columns::ROW_NUMBER, DataType::Int64, false),
            Field::new(CHANGE_NUMBER, DataType::Int32, false),
        ];
        if plan.partial.is_on() {
            order.push(Field::new(UNSENT, DataType::Binary, true));
        }
        let rows = resolved.rows();
        let fields = rows.fields().iter().map(|field| field.as_ref().clone());
        let schema = Arc::new(Schema::new(fields.chain(order).collect::<Vec<_>>()));
        let sequence = plan.sequence_columns();
        let bronze = Arc::clone(bronze);
        Ok(Self {
            plan,
            bronze,
            view,
            derived,
            resolved,
            operation,
            expectations,
            constraints,
            generated,
            schema,
            sequence,
            file_order,
            notes,
        })
    }

    /// The columns that hold the sequence.
    pub(crate) fn sequence(&self) -> &[String] {
        &self.sequence
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
    /// [`ErrorKind::Data`](lake::ErrorKind::Data) when a record breaks a rule that the spec says must stop the run;
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) when a record needs the column that rows are in, and it is not there.
    pub fn decode(&self, landed: &RecordBatch) -> Result<Decoded> {
        let prepared = Prepared::of(landed, self.plan.options.prepare)?;
        let batch = &prepared.batch;
        let restored = Restored::of(batch)?;
        let texts = self.view.texts(&restored.batch)?;
        let viewed = self.view.of(&texts, batch.num_rows());
        let mut records = restored.batch.columns().to_vec();
        let around = viewed.record_columns();
        records.extend(around.columns);
        let mut fates = self.operations(&prepared, &restored, &records, &viewed)?;
        let paths = &self.plan.paths;
        let keys_elsewhere = paths.before.is_some() || paths.delete_row.is_some();
        let asks_row = |fate: &Fate| match fate {
            Fate::Upsert | Fate::Rejected(Reason { kind: NO_ROW, .. }) => true,
            Fate::Delete => !keys_elsewhere,
            _ => false,
        };
        if fates.iter().any(asks_row) {
            self.view.needs_row(&self.plan)?;
        }
        let rows = viewed.row_columns(|row| matches!(fates[row], Fate::Delete));
        records.extend(rows.columns);
        checks::repeated_keys(&viewed, &mut fates);
        for (row, path, text) in around.bad.into_iter().chain(rows.bad) {
            reject_value(&mut fates[row], text, &path, None);
        }
        let mut unsent = Unsent::none(batch.num_rows());
        let made = self.derived.values(&records, batch.num_rows())?;
        records.extend(made.iter().map(|made| Arc::clone(&made.array)));
        let mut typed = self.typed((&records, &made), batch, (&viewed, &restored), &mut fates, &mut unsent)?;
        let old = self.old_keys(&viewed, &records, &typed, &mut fates)?;
        if let Some(old) = &old {
            self.whole_under_new_key(old, &viewed, &mut typed, &mut fates, &mut unsent)?;
        }
        self.generate(&mut typed, &mut fates, &mut unsent)?;
        self.keys(&typed, &mut fates);
        self.not_null(&typed, &mut fates, &unsent);
        let held = self.expect(&typed, &mut fates, &unsent)?;
        self.constrain(&typed, &mut fates, &unsent)?;
        self.stop(batch, &fates)?;
        self.collect((landed, &prepared), typed, old, &fates, held, &unsent)
    }

    fn operations(
        &self,
        prepared: &Prepared,
        restored: &Restored,
        columns: &[ArrayRef],
        viewed: &Viewed<'_>,
    ) -> Result<Vec<Fate>> {
        let does = self.operation.read(columns, &prepared.batch, restored)?;
        let fates = does.into_iter().enumerate().map(|(row, does)| match (does, self.plan.on_unknown_op) {
            (Does::Upsert, _) if prepared.is_nothing(row) || viewed.is_tombstone(row) => Fate::Ignored,
            (Does::Upsert, _) if !viewed.has_row(row) => Fate::Rejected(Reason {
                kind: NO_ROW,
                text: "neither a delete nor a record with new values".to_owned(),
                column: self.plan.paths.row.clone(),
                value: None,
            }),
            (Does::Upsert, _) => Fate::Upsert,
            (Does::Delete, _) => Fate::Delete,
            (Does::Truncate, _) if self.plan.can_truncate() || self.plan.truncates == OnTruncate::Fail => {
                Fate::Truncate
            }
            (Does::Truncate, _) => Fate::Rejected(Reason {
                kind: "truncate",
                text: "a full extract says what there is, and none of its records is a truncate".to_owned(),
                column: self.operation.column().map(str::to_owned),
                value: None,
            }),
            (Does::Nothing, _) | (Does::Unknown(_), OnBad::Ignore) => Fate::Ignored,
            (Does::Unknown(value), OnBad::Quarantine | OnBad::Fail) => Fate::Rejected(Reason {
                kind: "unknown_op",
                text: format!("operation `{value}` is none of those that the spec lists"),
                column: self.operation.column().map(str::to_owned),
                value: Some(value),
            }),
            (Does::Unanswered { option, reason }, _) => Fate::Rejected(Reason {
                kind: crate::expect::EVALUATION,
                text: format!("`{option}` cannot be checked: {reason}"),
                column: None,
                value: None,
            }),
        });
        Ok(fates.collect())
    }

    /// The table's columns of every row; values that do not fit decide the fate of their row.
    fn typed(
        &self,
        (records, made): (&[ArrayRef], &[Values]),
        batch: &RecordBatch,
        sent: (&Viewed<'_>, &Restored),
        fates: &mut [Fate],
        unsent: &mut Unsent,
    ) -> Result<Vec<ArrayRef>> {
        let mut typed = Vec::with_capacity(self.schema.fields().len());
        for (number, column) in self.resolved.columns().iter().enumerate() {
            let source = column.of(records, batch.num_rows());
            let source = match self.derived.of(&column.name) {
                Some(_) => self.made_without_unsent((number, column), source, (records, made), sent, fates, unsent),
                None => self.without_unsent((number, column), source, sent, fates, unsent),
            };
            let mut cast = sent.1.cast(column.position(), &source, |values| column.cast(values))?;
            self.derived.add_failed(&column.name, made, &mut cast, |row| !unsent.has(row, number));
            let is_key = self.plan.keys.contains(&column.name);
            for (row, text) in cast.bad {
                // A delete needs only its key, a truncate not even that.
                let needed = match fates[row] {
                    Fate::Delete => is_key,
                    Fate::Truncate => false,
                    _ => true,
                };
                let lenient = self.plan.on_cast_error == OnBadValue::Null && !is_key && column.nullable;
                if needed && !lenient {
                    let value = record::value(&source, row);
                    let value = value.or_else(|| self.derived.of(&column.name)?.told(records, row));
                    reject_value(&mut fates[row], text, &column.name, value);
                }
            }
            let is_partition = self.plan.partition_by.contains(&column.name);
            typed.push(if is_partition { without_empty(cast.array)? } else { cast.array });
        }
        for (number, part) in self.resolved.sequence().iter().enumerate() {
            let source = part.column.of(records, batch.num_rows());
            let mut cast = sent.1.cast(part.column.position(), &source, |values| part.cast(values))?;
            if part.is_derived {
                self.derived.add_failed(&part.column.name, made, &mut cast, |_| true);
            }
            for (row, text) in cast.bad {
                let text = format!("part {} of the sequence: {text}", number + 1);
                let value = record::value(&source, row);
                let value = value.or_else(|| self.derived.of(&part.column.name)?.told(records, row));
                reject_value(&mut fates[row], text, &part.column.name, value);
            }
            typed.push(cast.array);
        }
        if self.plan.ranks_deletes() {
            typed.push(Arc::new(op_ranks(fates, true)));
        }
        let batch_id = batch.column_by_name(columns::BATCH_ID).ok_or_else(|| missing(columns::BATCH_ID))?;
        typed.push(Arc::clone(batch_id));
        if self.plan.partial.is_on() {
            typed.push(arrow::array::new_null_array(&DataType::Utf8, batch.num_rows()));
        }
        Ok(typed)
    }

    fn collect(
        &self,
        (landed, prepared): (&RecordBatch, &Prepared),
        mut typed: Vec<ArrayRef>,
        old: Option<OldKeys>,
        fates: &[Fate],
        held: Vec<Tested>,
        unsent: &Unsent,
    ) -> Result<Decoded> {
        let batch = &prepared.batch;
        let mut decoded = Decoded {
            changes: RecordBatch::new_empty(self.schema()),
            truncates: RecordBatch::new_empty(self.schema()),
            rejected: Vec::new(),
            refused: 0,
            read: landed.num_rows() as u64,
            partial: 0,
            added: (fates.len() - landed.num_rows()) as u64,
            ignored: 0,
            dropped: 0,
            held,
        };
        for (row, fate) in fates.iter().enumerate() {
            match fate {
                Fate::Upsert => decoded.partial += u64::from(unsent.is_partial(row)),
                Fate::Delete | Fate::Truncate => {}
                Fate::Ignored => decoded.ignored += 1,
                Fate::Dropped => decoded.dropped += 1,
                Fate::Rejected(reason) => {
                    decoded.refused += 1;
                    let is_same = row > 0 && prepared.origin(row) == prepared.origin(row - 1);
                    match decoded.rejected.last_mut().filter(|_| is_same && is_rejected(&fates[row - 1])) {
                        // A record is put aside once, with the reasons of all its changes.
                        Some(rejected) => rejected.reason.push_str(&format!("; {}", reason.text)),
                        None => decoded.rejected.push(self.rejected(landed, prepared.origin(row), reason)?),
                    }
                }
            }
        }
        let deletes: BooleanArray = fates.iter().map(|fate| Some(matches!(fate, Fate::Delete))).collect();
        let paths = batch.column_by_name(columns::FILE_PATH).ok_or_else(|| missing(columns::FILE_PATH))?;
        typed.push(Arc::new(deletes));
        let (is_ranked, has_sequence) = (self.plan.options.deletes_first, !self.plan.sequence.is_empty());
        typed.push(Arc::new(op_ranks(fates, is_ranked && has_sequence && !self.plan.ranks_deletes())));
        typed.push(Arc::new(self.file_ranks(paths)));
        typed.push(self.file_times(batch)?);
        typed.push(Arc::clone(paths));
        typed.push(Arc::new(op_ranks(fates, is_ranked && !has_sequence)));
        typed.push(Arc::clone(batch.column_by_name(columns::ROW_NUMBER).ok_or_else(|| missing(columns::ROW_NUMBER))?));
        typed.push(Arc::new(prepared.numbers()));
        if self.plan.partial.is_on() {
            typed.push(Arc::new(unsent.column()));
        }
        if let Ok(place) = self.schema.index_of(columns::NOT_SENT) {
            typed[place] = Arc::new(unsent.names(self.resolved.columns().iter().map(|column| column.name.as_str())));
        }
        let all = RecordBatch::try_new(self.schema(), typed)?;
        let kept: BooleanArray = fates.iter().map(|fate| Some(matches!(fate, Fate::Upsert | Fate::Delete))).collect();
        decoded.changes = filter_record_batch(&all, &kept)?;
        let truncates: BooleanArray = fates.iter().map(|fate| Some(matches!(fate, Fate::Truncate))).collect();
        decoded.truncates = filter_record_batch(&all, &truncates)?;
        if let Some(old) = old {
            let deletes = old.deletes(&all, fates)?;
            decoded.added += deletes.num_rows() as u64;
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

/// A delete comes before what is alike otherwise, where the producer says so.
fn op_ranks(fates: &[Fate], is_ranked: bool) -> Int32Array {
    fates.iter().map(|fate| Some(i32::from(is_ranked && matches!(fate, Fate::Upsert)))).collect()
}

/// Texts of a partition column with null for the empty one: it is the name of a folder, where nobody can tell the two
/// apart. Delta: <https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization>.
pub(crate) fn without_empty(values: ArrayRef) -> Result<ArrayRef> {
    let Some(texts) = values.as_string_opt::<i32>() else { return Ok(values) };
    let empty: BooleanArray = texts.iter().map(|text| Some(text == Some(""))).collect();
    Ok(if empty.true_count() == 0 { values } else { nullif(&values, &empty)? })
}

fn missing(column: &str) -> Error {
    Error::internal(format!("a bronze table has no column `{column}`"))
}

/// Numbers of a technical column of bronze.
fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name).ok_or_else(|| missing(name))?;
    column.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name))
}
