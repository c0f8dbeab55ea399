//! From the options of a table to a plan with resolved names; every problem at once.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use chrono_tz::Tz;
use lake::TableName;
use lake::columns;
use lake::schema::{Column, ColumnType, TYPE_NAMES};
use lake::session::Session;
use lake::spec::{Entry, Problem, Problems, SpecPath};

use crate::condition::condition;
use crate::sequence::{SEQUENCE_TYPE_NAMES, SequenceType};
use crate::spec::{Action, DeleteFlag, OnBad, OnBadValue, OnNullKey, Op, Preset, Table};

/// Deletes are remembered this long when the spec does not say.
const TOMBSTONE_RETENTION_MILLIS: u64 = 30 * 86_400_000;

/// A validated silver table.
#[derive(Debug, Clone)]
pub struct TablePlan {
    /// The table.
    pub table: TableName,
    /// The name of its bronze source.
    pub source: String,
    /// How a record says what it does.
    pub operation: Operation,
    /// What becomes of an operation that is not listed.
    pub on_unknown_op: OnBad,
    /// The producer.
    pub preset: Preset,
    /// The key columns.
    pub keys: Vec<String>,
    /// What becomes of a change without a key.
    pub on_null_key: OnNullKey,
    /// The parts of the sequence.
    pub sequence: Vec<SequencePart>,
    /// The columns of the table.
    pub columns: Columns,
    /// What becomes of a value that does not fit.
    pub on_cast_error: OnBadValue,
    /// The conditions on rows.
    pub expectations: Vec<ExpectationPlan>,
    /// How long deletes are remembered.
    pub tombstone_retention_millis: u64,
    /// The partition columns.
    pub partition_by: Vec<String>,
    /// Whether the table has a change data feed.
    pub change_data_feed: bool,
    /// The zone of text timestamps without an offset.
    pub zone: Tz,
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
    /// By SQL that is true for deletes.
    Condition(String),
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
}

/// One part of the sequence.
#[derive(Debug, Clone)]
pub struct SequencePart {
    /// The column of the source.
    pub source: String,
    /// Its type; `None` is the type that the source has.
    pub kind: Option<SequenceType>,
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
}

/// Checks the options of a table. `sources` are the names of the bronze sources, `zone` is that of the pipeline.
/// Returns a plan when the options themselves are sound; problems go to `problems`.
pub fn compile(entry: &Entry<Table>, sources: &[String], zone: Tz, problems: &mut Problems) -> Option<TablePlan> {
    let before = problems.len();
    let mut check = Check { entry, problems };
    check.source(sources);
    let operation = check.operation();
    let columns = check.columns();
    check.keys(&columns);
    let sequence = check.sequence(&columns);
    check.partitions(&columns);
    let expectations = check.expectations(&columns);
    let raw = &entry.raw;
    (problems.len() == before).then(|| TablePlan {
        table: TableName::silver(&entry.name),
        source: raw.source.clone(),
        operation,
        on_unknown_op: raw.on_unknown_op,
        preset: raw.cdc,
        keys: raw.keys.clone(),
        on_null_key: raw.on_null_key,
        sequence,
        columns,
        on_cast_error: raw.on_cast_error,
        expectations,
        tombstone_retention_millis: raw.tombstone_retention.map_or(TOMBSTONE_RETENTION_MILLIS, |kept| kept.as_millis()),
        partition_by: raw.partition_by.clone(),
        change_data_feed: raw.change_data_feed.unwrap_or(true),
        zone,
    })
}

impl TablePlan {
    /// What decides which rows a change meets and what it does to them: keys, sequence and operation. Rows that were
    /// made by one of these cannot be brought up to date by another.
    pub fn identity(&self) -> String {
        let parts = self.sequence.iter().map(|part| match part.kind {
            Some(kind) => format!("{} {kind}", part.source),
            None => part.source.clone(),
        });
        let operation = match &self.operation {
            Operation::Upsert => "none".to_owned(),
            Operation::Column(op) => {
                let Op { column, insert, update, delete, ignore } = op;
                format!("{column}: insert {insert:?}, update {update:?}, delete {delete:?}, ignore {ignore:?}")
            }
            Operation::Flag(flag) => format!("{}: deleted when {:?} {:?}", flag.column, flag.values, flag.when),
            Operation::Condition(condition) => condition.clone(),
        };
        let sequence = parts.collect::<Vec<_>>().join(", ");
        format!("keys {}; sequence {sequence}; deletes by {operation}", self.keys.join(", "))
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

struct Check<'a> {
    entry: &'a Entry<Table>,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn at(&self, key: &str) -> SpecPath {
        self.entry.path.key(key)
    }

    fn source(&mut self, sources: &[String]) {
        let name = &self.entry.raw.source;
        if !name.is_empty() && !sources.contains(name) {
            let message = format!("`{name}` is not a source of `bronze`");
            let known = sources.iter().map(String::as_str);
            self.problems.add(Problem::at(&self.at("source"), message).did_you_mean(name, known));
        }
    }

    fn operation(&mut self) -> Operation {
        let raw = &self.entry.raw;
        let given = [
            ("op", raw.op.is_some()),
            ("delete_flag", raw.delete_flag.is_some()),
            ("apply_as_deletes", raw.apply_as_deletes.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if let [first, second, ..] = given[..] {
            let message = format!("`{first}` and `{second}` both say what a delete is");
            self.problems.add(Problem::at(&self.at(second), message).hint("keep one of them"));
        }
        if let Some(op) = &raw.op {
            self.op_values(op);
            return Operation::Column(op.clone());
        }
        if let Some(flag) = &raw.delete_flag {
            if flag.values.is_empty() == flag.when.is_none() {
                let message = "a delete flag needs `values` or `when: not_null`, one of the two";
                self.problems.add(Problem::at(&self.at("delete_flag"), message));
            }
            return Operation::Flag(flag.clone());
        }
        match (&raw.apply_as_deletes, raw.cdc) {
            (Some(condition), _) => Operation::Condition(condition.clone()),
            (None, Preset::Plain) => Operation::Upsert,
            (None, Preset::Dms) => Operation::Column(dms_op()),
        }
    }

    fn op_values(&mut self, op: &Op) {
        let lists = [("insert", &op.insert), ("update", &op.update), ("delete", &op.delete), ("ignore", &op.ignore)];
        let all: Vec<_> =
            lists.iter().flat_map(|(list, values)| values.iter().map(move |value| (*list, value))).collect();
        for (number, (list, value)) in all.iter().enumerate() {
            if let Some((other, _)) = all[..number].iter().find(|(other, known)| known == value && other != list) {
                let path = self.at("op").key(*list);
                self.problems.add(Problem::at(&path, format!("`{value}` is a value of `{other}` as well")));
            }
        }
        if all.is_empty() {
            let hint = "for example: op: {column: op, insert: [I], update: [U], delete: [D]}";
            self.problems.add(Problem::at(&self.at("op"), "no value means anything").hint(hint));
        }
    }

    fn columns(&mut self) -> Columns {
        let raw = &self.entry.raw;
        for name in raw.except_column_list.iter().filter(|name| !raw.columns.contains_key(name)) {
            let path = self.at("except_column_list");
            let problem = Problem::at(&path, format!("`{name}` is not a declared column"));
            self.problems.add(problem.did_you_mean(name, raw.columns.keys()));
        }
        if raw.columns.is_empty() {
            if raw.column_list.is_empty() {
                let hint = "declare `columns:` (name: type), or list source columns in `column_list:`";
                self.problems.add(Problem::at(&self.entry.path, "the table has no columns").hint(hint));
            }
            self.names("column_list", raw.column_list.iter().map(String::as_str));
            return Columns::Listed(raw.column_list.clone());
        }
        if !raw.column_list.is_empty() {
            let message = "`columns` and `column_list` both say which columns the table has";
            self.problems.add(Problem::at(&self.at("column_list"), message).hint("keep one of them"));
        }
        self.names("columns", raw.columns.keys());
        for name in raw.column_names.keys().filter(|name| !raw.columns.contains_key(name)) {
            let problem = Problem::at(&self.at("column_names").key(name), format!("`{name}` is not a declared column"));
            self.problems.add(problem.did_you_mean(name, raw.columns.keys()));
        }
        let declared = raw.columns.iter().filter(|(name, _)| !raw.except_column_list.iter().any(|left| left == name));
        let plans = declared.filter_map(|(name, declaration)| match Column::parse(name, declaration) {
            Ok(column) => {
                let source = raw.column_names.get(name).cloned().unwrap_or_else(|| name.to_owned());
                Some(ColumnPlan { column, source })
            }
            Err(message) => {
                let word = declaration.trim().split([' ', '(']).next().unwrap_or_default();
                let known = TYPE_NAMES.iter().map(|name| name.split('(').next().unwrap_or(name));
                let problem = Problem::at(&self.entry.path.key("columns").key(name), message);
                self.problems.add(problem.did_you_mean(word, known));
                None
            }
        });
        Columns::Declared(plans.collect())
    }

    fn names<'n>(&mut self, key: &str, names: impl Iterator<Item = &'n str>) {
        let mut seen: Vec<&str> = Vec::new();
        for name in names {
            if columns::is_reserved_in_silver(name) {
                let message = format!("`{name}` is a name of the program's own");
                let hint = "give it another name in `columns` and its source name in `column_names`";
                self.problems.add(Problem::at(&self.at(key).key(name), message).hint(hint));
            }
            if let Some(twin) = seen.iter().find(|other| other.eq_ignore_ascii_case(name)) {
                let message = format!("`{name}` and `{twin}` are the same column name");
                self.problems.add(Problem::at(&self.at(key).key(name), message));
            }
            seen.push(name);
        }
    }

    fn keys(&mut self, columns: &Columns) {
        let names = columns.names();
        for key in self.entry.raw.keys.iter().filter(|key| !names.contains(&key.as_str())) {
            let problem = Problem::at(&self.at("keys"), format!("key `{key}` is not a column of the table"));
            self.problems.add(problem.did_you_mean(key, names.iter().copied()));
        }
        let keys = &self.entry.raw.keys;
        if let Some((_, key)) = keys.iter().enumerate().find(|(number, key)| keys[..*number].contains(key)) {
            self.problems.add(Problem::at(&self.at("keys"), format!("key `{key}` is named twice")));
        }
        if self.entry.raw.keys.is_empty() {
            self.problems
                .add(Problem::at(&self.at("keys"), "a table needs keys").hint("name the columns that identify a row"));
        }
    }

    fn sequence(&mut self, columns: &Columns) -> Vec<SequencePart> {
        let path = self.at("sequence_by");
        let parts = self.entry.raw.sequence_by.iter().enumerate().filter_map(|(number, text)| {
            let (name, kind) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
            let declared = columns.declared(name);
            let source = declared.map_or_else(|| name.to_owned(), |column| column.source.clone());
            let kind = match (kind.trim(), declared, columns) {
                ("", Some(declared), _) => declared.column.kind.to_string(),
                ("", None, Columns::Listed(_)) => return Some(SequencePart { source, kind: None }),
                ("", None, Columns::Declared(_)) => {
                    let hint = format!("write its type behind it: \"{name} timestamp\"; or declare it in `columns`");
                    let message = format!("`{name}` has no type");
                    self.problems.add(Problem::at(&path.index(number), message).hint(hint));
                    return None;
                }
                (kind, _, _) => kind.to_owned(),
            };
            match kind.parse() {
                Ok(kind) => Some(SequencePart { source, kind: Some(kind) }),
                Err(message) => {
                    let problem = Problem::at(&path.index(number), message);
                    self.problems.add(problem.did_you_mean(&kind, SEQUENCE_TYPE_NAMES.iter().copied()));
                    None
                }
            }
        });
        parts.collect()
    }

    fn partitions(&mut self, columns: &Columns) {
        let names = columns.names();
        for name in self.entry.raw.partition_by.iter().filter(|name| !names.contains(&name.as_str())) {
            let problem = Problem::at(&self.at("partition_by"), format!("`{name}` is not a column of the table"));
            self.problems.add(problem.did_you_mean(name, names.iter().copied()));
        }
        if !names.is_empty() && names.iter().all(|name| self.entry.raw.partition_by.iter().any(|part| part == name)) {
            self.problems.add(Problem::at(&self.at("partition_by"), "every column is a partition column"));
        }
    }

    fn expectations(&mut self, columns: &Columns) -> Vec<ExpectationPlan> {
        let path = self.at("expectations");
        if let Columns::Declared(declared) = columns
            && !self.entry.raw.expectations.is_empty()
        {
            self.conditions(declared, &path);
        }
        let plans = self.entry.raw.expectations.iter().map(|(name, expectation)| {
            if expectation.check.trim().is_empty() {
                self.problems.add(Problem::at(&path.key(name).key("check"), "the condition is empty"));
            }
            ExpectationPlan { name: name.to_owned(), check: expectation.check.clone(), action: expectation.action }
        });
        plans.collect()
    }
}

impl Check<'_> {
    /// Holds the conditions to the declared columns.
    fn conditions(&mut self, declared: &[ColumnPlan], path: &SpecPath) {
        let fields = declared.iter().map(|plan| plan.column.field().with_nullable(true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        for (name, expectation) in self.entry.raw.expectations.iter() {
            let checked = Session::detached().and_then(|session| condition(&expectation.check, &schema, &session));
            if let Err(error) = checked.map(drop)
                && !expectation.check.trim().is_empty()
            {
                let cause = error.causes().into_iter().next();
                let message = format!("`{}` is not a condition on the columns of the table", expectation.check);
                let problem = Problem::at(&path.key(name).key("check"), message);
                self.problems.add(match cause {
                    Some(cause) => problem.hint(cause),
                    None => problem,
                });
            }
        }
    }
}

/// What AWS DMS writes: <https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html>.
fn dms_op() -> Op {
    let one = |value: &str| vec![value.to_owned()];
    Op { column: "Op".into(), insert: one("I"), update: one("U"), delete: one("D"), ignore: Vec::new() }
}

/// The column type of a sequence part that the spec leaves to the source.
pub(crate) fn sequence_type_of(kind: ColumnType) -> Option<SequenceType> {
    kind.to_string().parse().ok()
}
