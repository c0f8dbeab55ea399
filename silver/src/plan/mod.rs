//! From the options of a table to a plan with resolved names; every problem at once.

mod arriving;
mod check;
mod extracts;
mod kept;
mod known;
mod properties;
mod rules;
mod select;

use chrono_tz::Tz;
use lake::TableName;
use lake::columns;
use lake::expression::Expression;
use lake::schema::{Column, ColumnType};
use lake::spec::{Entry, Problems};
use lake::upsert::DELETE;
use lake::upsert::WriteMode;

pub use self::arriving::Arriving;
use self::check::Check;
pub(crate) use self::kept::position_names;
pub use self::kept::{Kept, Tracked};
use crate::preset::{Options, options};
use crate::sequence::SequenceType;
use crate::spec::{Action, DeleteFlag, OnBad, OnBadValue, OnNullKey, OnTruncate, Op, Preset, Table, Undeclared};
use crate::written::Written;

/// Deletes are remembered this long when the spec does not say.
const TOMBSTONE_RETENTION_MILLIS: u64 = 30 * 86_400_000;

/// A validated silver table.
#[derive(Debug, Clone)]
pub struct TablePlan {
    /// The table.
    pub table: TableName,
    /// The name of its bronze source.
    pub source: String,
    /// Where the values are in a record.
    pub paths: Paths,
    /// How a record says what it does.
    pub operation: Operation,
    /// SQL that is true for truncates, beside the operation.
    pub truncate_condition: Option<String>,
    /// What becomes of a truncate.
    pub truncates: OnTruncate,
    /// Which values of an update say nothing.
    pub partial: Partial,
    /// What becomes of an operation that is not listed.
    pub on_unknown_op: OnBad,
    /// The producer.
    pub preset: Preset,
    /// What the producer does.
    pub options: Options,
    /// The key columns.
    pub keys: Vec<String>,
    /// What becomes of a change without a key.
    pub on_null_key: OnNullKey,
    /// The parts of the sequence.
    pub sequence: Vec<SequencePart>,
    /// The columns of the table.
    pub columns: Columns,
    /// The columns that expressions make.
    pub select: Vec<SelectPlan>,
    /// Whether other columns of the source join the table, and which of them do not.
    pub joining: Option<Vec<String>>,
    /// What becomes of a value that does not fit.
    pub on_cast_error: OnBadValue,
    /// The conditions on rows.
    pub expectations: Vec<ExpectationPlan>,
    /// The CHECK constraints of the table.
    pub constraints: Vec<RulePlan>,
    /// Its generated columns.
    pub generated: Vec<RulePlan>,
    /// Whether files are full extracts, and what is allowed to them.
    pub snapshot: Option<SnapshotPlan>,
    /// What the table keeps of each key.
    pub kept: Kept,
    /// How long deletes are remembered.
    pub tombstone_retention_millis: u64,
    /// The partition columns.
    pub partition_by: Vec<String>,
    /// The columns that upkeep clusters the table by.
    pub zorder_by: Vec<String>,
    /// Properties of the Delta table, beside those that follow from other options.
    pub properties: Vec<(String, String)>,
    /// Whether the table has a change data feed.
    pub change_data_feed: bool,
    /// How rows are replaced.
    pub write_mode: WriteMode,
    /// Whether rows may be marked as deleted.
    pub deletion_vectors: bool,
    /// The zone of text timestamps without an offset.
    pub zone: Tz,
}

/// How files are full extracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// Whether one without records deletes every row.
    pub allow_empty: bool,
}

/// How a record says what it does.
#[derive(Debug, Clone)]
pub enum Operation {
    /// It does not: every record is an upsert.
    Upsert,
    /// By the value of a column.
    Column(Op),
    /// By a flag on deleted rows.
    Flag(DeleteFlag),
    /// By the value of a column and by a flag: a delete is what either calls so.
    Either(Op, DeleteFlag),
    /// By SQL that is true for deletes.
    Condition(String),
}

/// Which values of an update say nothing, so that the row keeps its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// Those that are not there.
    pub absent: bool,
    /// Those that are null.
    pub null: bool,
    /// Those that are one of these texts.
    pub placeholders: Vec<String>,
    /// They are refused instead: full extracts bring whole rows.
    pub is_refused: bool,
}

impl Partial {
    /// Whether there can be any.
    pub fn is_on(&self) -> bool {
        !self.is_refused && (self.absent || self.null || !self.placeholders.is_empty())
    }
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub enum Columns {
    /// Named and typed by the spec.
    Declared(Vec<ColumnPlan>),
    /// Taken from the source with the source's types.
    Listed(Vec<String>),
}

/// A declared column and where its values come from.
#[derive(Debug, Clone)]
pub struct ColumnPlan {
    /// The column.
    pub column: Column,
    /// The column of the source.
    pub source: String,
    /// How the source writes it.
    pub written: Written,
    /// The zone of its texts without an offset.
    pub zone: Tz,
}

/// A column that an expression over the record makes.
#[derive(Debug, Clone)]
pub struct SelectPlan {
    /// The column.
    pub name: String,
    /// The expression.
    pub expression: Expression,
}

/// A rule on the rows of a table: a constraint with its condition, a generated column with its expression.
#[derive(Debug, Clone)]
pub struct RulePlan {
    /// The name of the constraint, or the column.
    pub name: String,
    /// Its SQL over the columns of the table.
    pub expression: Expression,
}

/// Where the values are in a record, as paths; where the record itself is the row, there is none.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// The new values.
    pub row: Option<String>,
    /// The old values.
    pub before: Option<String>,
    /// The values of a delete.
    pub delete_row: Option<String>,
}

/// One part of the sequence.
#[derive(Debug, Clone)]
pub struct SequencePart {
    /// The column of the source.
    pub source: String,
    /// Its type; `None` is the type that the source has.
    pub kind: Option<SequenceType>,
    /// Whether it is a value of the row, and not of the record around it.
    pub of_row: bool,
    /// Whether it is a column that an expression makes; `source` is its name then.
    pub is_derived: bool,
    /// Whether the source may lack it: it is the preset's word, not the spec's.
    pub optional: bool,
    /// How the source writes it.
    pub written: Written,
    /// The zone of its texts without an offset.
    pub zone: Tz,
}

/// A condition on rows.
#[derive(Debug, Clone)]
pub struct ExpectationPlan {
    /// Its name.
    pub name: String,
    /// SQL over the typed columns.
    pub check: String,
    /// What becomes of a row that does not meet it.
    pub action: Action,
    /// The part of the rows that may miss it before the run fails.
    pub max_fraction: Option<f64>,
}

/// Checks the options of a table. `sources` are the bronze sources, `zone` is that of the pipeline.
/// Returns a plan when the options themselves are sound; problems go to `problems`.
pub fn compile(entry: &Entry<Table>, sources: &[Arriving], zone: Tz, problems: &mut Problems) -> Option<TablePlan> {
    let before = problems.len();
    let mut preset = options(entry.raw.cdc);
    // The row before an update is older than the row after it.
    preset.deletes_first |= entry.raw.op.as_ref().is_some_and(|op| !op.preimage.is_empty());
    let mut check = Check { entry, preset: &preset, source: Arriving::default(), zone, problems };
    check.source(sources);
    let paths = check.paths();
    let operation = check.operation();
    let columns = check.columns();
    let select = check.select(&columns);
    check.keys(&columns);
    let sequence = check.sequence(&columns);
    check.source_columns(&columns, &sequence);
    let snapshot = check.snapshot(&paths, &operation);
    let kept = check.kept(&columns);
    let partial = check.partial(&kept, &columns);
    check.texts();
    check.partitions(&columns);
    check.undeclared(&paths);
    let expectations = check.expectations(&columns);
    let constraints = check.constraints(&columns);
    let generated = check.generated(&columns, &sequence);
    let write_mode = check.write_mode();
    let properties = check.properties();
    let raw = &entry.raw;
    let adds = raw.undeclared_columns == Some(Undeclared::Add);
    (problems.len() == before).then(|| TablePlan {
        table: TableName::silver(&entry.name),
        source: raw.source.clone(),
        paths,
        operation,
        truncate_condition: raw.apply_as_truncates.clone(),
        truncates: raw.truncates,
        partial,
        on_unknown_op: raw.on_unknown_op,
        preset: raw.cdc,
        options: preset,
        keys: raw.keys.clone(),
        on_null_key: raw.on_null_key,
        sequence,
        columns,
        select,
        joining: adds.then(|| raw.except_column_list.clone()),
        on_cast_error: raw.on_cast_error,
        expectations,
        constraints,
        generated,
        snapshot,
        kept,
        tombstone_retention_millis: raw.tombstone_retention.map_or(TOMBSTONE_RETENTION_MILLIS, |kept| kept.as_millis()),
        partition_by: raw.partition_by.clone(),
        zorder_by: raw.zorder_by.clone(),
        change_data_feed: raw.change_data_feed.unwrap_or(true),
        properties,
        write_mode,
        deletion_vectors: raw.deletion_vectors,
        zone,
    })
}

impl TablePlan {
    /// The columns of which the table holds one row per value.
    pub fn row_keys(&self) -> Vec<String> {
        self.kept.row_keys(self)
    }

    /// What to do when the table cannot become what the spec asks for.
    pub(crate) fn rebuild_hint(&self) -> String {
        let name = &self.table.name;
        format!(
            "columns can be added; for any other change make the table anew from bronze, which has every record: `silver rebuild {name}` (`--dry-run` says what would change)"
        )
    }

    /// Whether a change needs a value of a column that can be read, or read as null only where the record says so: a
    /// key, a part of the sequence, a column that must not be null.
    pub fn needs(&self, column: &str) -> bool {
        self.keys.iter().any(|key| key == column)
            || self.sequence.iter().any(|part| part.source == column)
            || self.columns.declared(column).is_some_and(|plan| {
                !plan.column.nullable || self.sequence.iter().any(|part| part.of_row && part.source == plan.source)
            })
    }

    /// The names of the sequence columns of the table.
    pub fn sequence_columns(&self) -> Vec<String> {
        (0..self.sequence.len() + usize::from(self.ranks_deletes())).map(columns::sequence).collect()
    }

    /// The columns of the changes of which only the last counts: those of one key; where deletes do not take the row
    /// away, upserts and deletes apart, and where updates may leave out columns also each sequence; where every version
    /// counts, those at one position.
    pub(crate) fn once_per(&self) -> Vec<String> {
        let mut once_per = self.stands_per();
        if self.kept == Kept::Marked && self.partial.is_on() {
            once_per.extend(self.sequence_columns());
        }
        once_per
    }

    /// The columns of the changes of which one stands for all: those of one row, upserts and deletes apart where deletes
    /// do not take it away.
    pub(crate) fn stands_per(&self) -> Vec<String> {
        match &self.kept {
            Kept::Current => self.keys.clone(),
            Kept::Marked => self.keys.iter().cloned().chain([DELETE.to_owned()]).collect(),
            Kept::History(_) => self.kept.row_keys(self),
        }
    }

    /// Whether every change must bring a column that may be null or not.
    pub(crate) fn is_bound(&self, nullable: bool) -> bool {
        self.partial.is_refused || (self.kept != Kept::Current && !nullable)
    }

    /// Why every change must bring such a column.
    pub(crate) fn why_bound(&self) -> &'static str {
        match self.partial.is_refused {
            true => "comes with full extracts",
            false => "must not be null in a table that keeps deleted rows or versions",
        }
    }

    /// The column of the table that says what updates left out, where they may leave out something.
    pub(crate) fn partial_column(&self) -> Option<&'static str> {
        let name = if self.kept == Kept::Current { columns::SET_AT } else { columns::NOT_SENT };
        self.partial.is_on().then_some(name)
    }

    /// What decides which rows a change meets and what it does to them: keys, sequence and operation. Rows that were
    /// made by one of these cannot be brought up to date by another.
    pub fn identity(&self) -> String {
        let parts = self.sequence.iter().map(|part| {
            let made = self.select.iter().find(|made| part.is_derived && made.name == part.source);
            let source = made.map_or_else(|| part.source.clone(), SelectPlan::text);
            match part.kind {
                Some(kind) => format!("{source} {kind}"),
                None => source,
            }
        });
        let operation = match &self.operation {
            Operation::Upsert => "none".to_owned(),
            Operation::Column(op) => by_values(op),
            Operation::Flag(flag) => by_flag(flag),
            Operation::Either(op, flag) => format!("{}; or {}", by_values(op), by_flag(flag)),
            Operation::Condition(condition) => condition.clone(),
        };
        let sequence = parts.collect::<Vec<_>>().join(", ");
        let made = |key: &String| self.select.iter().find(|made| made.name == *key).map(SelectPlan::text);
        let keys: Vec<String> = self.keys.iter().map(|key| made(key).unwrap_or_else(|| key.clone())).collect();
        let Paths { row, before, delete_row } = &self.paths;
        let named = [("row", row), ("before", before), ("delete_row", delete_row)];
        let paths = named.iter().filter_map(|(name, path)| Some(format!("; {name} {}", path.as_ref()?)));
        let paths = paths.collect::<String>();
        let extracts = if self.snapshot.is_some() { "; full extracts" } else { "" };
        let truncates = self.truncate_condition.iter().map(|condition| format!("; truncates by {condition}"));
        let Partial { absent, null, placeholders, .. } = &self.partial;
        let kept = [(*absent, "what is absent"), (*null, "null")].into_iter().filter(|(is_on, _)| *is_on);
        let kept = kept.map(|(_, what)| what).chain(placeholders.first().map(String::as_str));
        let kept = kept.map(|what| format!("; keeps a value for {what}"));
        let more = truncates.chain(kept).collect::<String>();
        format!(
            "keys {}; sequence {sequence}; deletes by {operation}{paths}{extracts}{}{more}",
            keys.join(", "),
            self.kept.identity()
        )
    }

    /// Whether a change may delete every key.
    pub fn can_truncate(&self) -> bool {
        let values = match &self.operation {
            Operation::Column(op) | Operation::Either(op, _) => !op.truncate.is_empty(),
            Operation::Upsert | Operation::Flag(_) | Operation::Condition(_) => false,
        };
        self.snapshot.is_none() && (values || self.truncate_condition.is_some())
    }

    /// Whether the source must tell columns that are absent from those that are null: where they are in objects, it
    /// does.
    pub fn needs_explicit_nulls(&self) -> bool {
        self.partial.absent && self.paths.row.is_none()
    }

    /// Whether the sequence of the table ends with what a change did: deletes are older than what is alike otherwise.
    pub fn ranks_deletes(&self) -> bool {
        self.options.deletes_first && !self.sequence.is_empty() && self.kept == Kept::Current && self.snapshot.is_none()
    }
}

impl SelectPlan {
    /// The column with its expression.
    fn text(&self) -> String {
        format!("{} = {}", self.name, self.expression.sql().trim())
    }
}

impl Columns {
    /// The names of the table's columns.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Declared(columns) => columns.iter().map(|column| column.column.name.as_str()).collect(),
            Self::Listed(names) => names.iter().map(String::as_str).collect(),
        }
    }

    fn declared(&self, name: &str) -> Option<&ColumnPlan> {
        match self {
            Self::Declared(columns) => columns.iter().find(|column| column.column.name == name),
            Self::Listed(_) => None,
        }
    }
}

fn by_values(op: &Op) -> String {
    let Op { column, insert, update, delete, truncate, preimage, ignore } = op;
    let more = [("truncate", truncate), ("preimage", preimage)].into_iter().filter(|(_, values)| !values.is_empty());
    let more = more.map(|(name, values)| format!(", {name} {values:?}")).collect::<String>();
    format!("{column}: insert {insert:?}, update {update:?}, delete {delete:?}{more}, ignore {ignore:?}")
}

fn by_flag(flag: &DeleteFlag) -> String {
    format!("{}: deleted when {:?} {:?}", flag.column, flag.values, flag.when)
}

/// The column type of a sequence part that the spec leaves to the source.
pub(crate) fn sequence_type_of(kind: ColumnType) -> Option<SequenceType> {
    kind.to_string().parse().ok()
}
