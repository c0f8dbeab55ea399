//! The options of a table held to what they must be; every problem at once.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use chrono_tz::Tz;
use lake::columns;
use lake::schema::{ColumnType, TYPE_NAMES, type_meant};
use lake::session::Session;
use lake::spec::{Entry, Problem, Problems, SpecPath};
use lake::upsert::WriteMode;

use super::arriving::Arriving;
use super::{ColumnPlan, Columns, ExpectationPlan, Kept, Operation, Partial, Paths, SequencePart};
use crate::condition::condition;
use crate::preset::{Options, placeholders};
use crate::sequence::{SEQUENCE_TYPE_NAMES, SequenceType};
use crate::spec::{self, Op, Table, Undeclared};
use crate::written::{WRITTEN_TYPE_NAMES, Written};

/// A table's options on the way to its plan.
pub(super) struct Check<'a> {
    pub(super) entry: &'a Entry<Table>,
    pub(super) preset: &'a Options,
    /// What is known of the source.
    pub(super) source: Arriving,
    pub(super) zone: Tz,
    pub(super) problems: &'a mut Problems,
}

impl Check<'_> {
    pub(super) fn at(&self, key: &str) -> SpecPath {
        self.entry.path.key(key)
    }

    pub(super) fn operation(&mut self) -> Operation {
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
        if let Some(condition) = &raw.apply_as_deletes {
            return Operation::Condition(condition.clone());
        }
        match (self.preset.op.clone(), self.preset.delete_flag.clone()) {
            (Some(op), Some(flag)) => Operation::Either(op, flag),
            (Some(op), None) => Operation::Column(op),
            (None, Some(flag)) => Operation::Flag(flag),
            (None, None) => Operation::Upsert,
        }
    }

    fn op_values(&mut self, op: &Op) {
        let lists = [
            ("insert", &op.insert),
            ("update", &op.update),
            ("delete", &op.delete),
            ("truncate", &op.truncate),
            ("preimage", &op.preimage),
            ("ignore", &op.ignore),
        ];
        let all: Vec<_> =
            lists.iter().flat_map(|(list, values)| values.iter().map(move |value| (*list, value))).collect();
        for (number, (list, value)) in all.iter().enumerate() {
            if let Some((other, _)) = all[..number].iter().find(|(other, known)| known == value && other != list) {
                let path = self.at("op").key(*list);
                self.problems.add(Problem::at(&path, format!("`{value}` is a value of `{other}` as well")));
            }
        }
        if all.is_empty() && !self.problems.any_below(&self.at("op")) {
            let hint = "for example: op: {column: op, insert: [I], update: [U], delete: [D]}";
            self.problems.add(Problem::at(&self.at("op"), "no value means anything").hint(hint));
        }
    }

    /// Which values of an update say nothing.
    pub(super) fn partial(&mut self, kept: &Kept, columns: &Columns) -> Partial {
        let raw = &self.entry.raw;
        let placeholder = raw.unchanged_placeholder.as_deref().or(self.preset.placeholder);
        let absent = raw.partial_updates.unwrap_or(self.preset.partial_updates);
        let is_refused = raw.from_snapshot;
        let asked = [("partial_updates", absent), ("ignore_null_updates", raw.ignore_null_updates)];
        for (option, _) in asked.iter().filter(|(_, is_on)| *is_on) {
            let path = self.at(option);
            if is_refused {
                let problem = Problem::at(&path, format!("`{option}` says nothing of full extracts"));
                self.problems.add(problem.hint("an extract brings whole rows: leave it out"));
            } else if *kept != Kept::Current {
                self.partial_past(&path, columns);
            }
        }
        Partial {
            absent,
            null: raw.ignore_null_updates,
            placeholders: placeholder.filter(|text| !text.is_empty()).map(placeholders).unwrap_or_default(),
            is_refused,
        }
    }

    /// What a table that keeps deleted rows or versions cannot have where updates may leave out columns: a row as it was at
    /// some time is what had come until then, and may lack any of them.
    fn partial_past(&mut self, path: &SpecPath, columns: &Columns) {
        let raw = &self.entry.raw;
        if let Columns::Declared(declared) = columns {
            let required =
                declared.iter().filter(|plan| !plan.column.nullable && !raw.keys.contains(&plan.column.name));
            for column in required {
                let name = &column.column.name;
                let message = format!("`{name}` is `not null`, and an update may leave it out before anything set it");
                let place = self.at("columns").key(name);
                self.problems.add(Problem::at(&place, message).hint("declare it without `not null`"));
            }
        }
        if !raw.generated.is_empty() {
            let message = "a table with `generated` columns cannot keep deleted rows or versions of updates that leave out columns";
            self.problems.add(Problem::at(path, message).hint("make the column with `select`, or in a query"));
        }
    }

    pub(super) fn columns(&mut self) -> Columns {
        let raw = &self.entry.raw;
        let ordering = |name: &str| self.sequence_by().iter().any(|part| name_and_type(part).0 == name);
        let excepted = raw.except_column_list.iter().filter(|name| !raw.columns.contains_key(name));
        let unknown = excepted.filter(|name| raw.undeclared_columns.is_none() && !ordering(name));
        for name in unknown.collect::<Vec<_>>() {
            let path = self.at("except_column_list");
            let problem = Problem::at(&path, format!("`{name}` is not a declared column"));
            self.problems.add(problem.did_you_mean(name, raw.columns.keys()));
        }
        if raw.columns.is_empty() {
            if raw.column_list.is_empty() {
                let hint = "declare `columns:` (name: type), or list source columns in `column_list:`";
                self.problems.add(Problem::at(&self.entry.path, "the table has no columns").hint(hint));
            }
            // What an expression makes joins those that are listed.
            let made = raw.select.keys().filter(|name| !raw.column_list.iter().any(|listed| listed == name));
            let listed: Vec<String> =
                raw.column_list.iter().map(String::as_str).chain(made).map(str::to_owned).collect();
            self.names("column_list", listed.iter().map(String::as_str));
            return Columns::Listed(listed);
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
        let plans = declared.filter_map(|(name, declaration)| match Written::parse(name, declaration) {
            Ok((column, written)) => {
                let source = raw.column_names.get(name).cloned().unwrap_or_else(|| name.to_owned());
                let (written, zone) = self.text_of(name, column.kind, written);
                Some(ColumnPlan { column, source, written, zone })
            }
            Err(message) => {
                let word = declaration.trim().split([' ', '(']).next().unwrap_or_default();
                let known = TYPE_NAMES.iter().chain(WRITTEN_TYPE_NAMES);
                let known = known.map(|name| name.split('(').next().unwrap_or(name));
                let problem = Problem::at(&self.entry.path.key("columns").key(name), message);
                self.problems.add(match type_meant(word) {
                    Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
                    // The type is known, and what stands in its parentheses is wrong.
                    None if known.clone().any(|known| known == word) => problem.hint("for example `decimal(18,2)`"),
                    None => problem.did_you_mean(word, known),
                });
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

    pub(super) fn keys(&mut self, columns: &Columns) {
        let names = columns.names();
        // Without columns that is what is told.
        let unknown = |key: &&String| !names.is_empty() && !names.contains(&key.as_str());
        for key in self.entry.raw.keys.iter().filter(unknown) {
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

    pub(super) fn sequence(&mut self, columns: &Columns) -> Vec<SequencePart> {
        let path = self.at("sequence_by");
        let optional = self.entry.raw.sequence_by.is_none();
        let parts = self.sequence_by().into_iter().enumerate();
        let parts =
            parts.filter_map(|(number, text)| self.sequence_part(&text, optional, columns, &path.index(number)));
        parts.collect()
    }

    pub(super) fn sequence_by(&self) -> Vec<String> {
        let preset = || self.preset.sequence_by.iter().map(|part| (*part).to_owned()).collect();
        self.entry.raw.sequence_by.clone().unwrap_or_else(preset)
    }

    fn sequence_part(
        &mut self,
        text: &str,
        optional: bool,
        columns: &Columns,
        path: &SpecPath,
    ) -> Option<SequencePart> {
        let (name, kind) = name_and_type(text);
        // What a preset says is about the record around the row, whatever the row calls its columns.
        let is_around = optional && self.paths().row.is_some();
        let declared = columns.declared(name).filter(|_| !is_around);
        let part = SequencePart {
            source: declared.map_or_else(|| name.to_owned(), |column| column.source.clone()),
            kind: None,
            of_row: declared.is_some(),
            is_derived: !is_around && self.entry.raw.select.contains_key(name),
            optional,
            written: Written::Plain,
            zone: self.zone,
        };
        let kind = match (kind, declared, columns) {
            ("", Some(declared), _) => declared.written.sequence_type(declared.column.kind),
            ("", None, Columns::Listed(_)) => return Some(part),
            ("", None, Columns::Declared(_)) => {
                let hint = format!("write its type behind it: \"{name} timestamp\"; or declare it in `columns`");
                let message = format!("`{name}` has no type");
                self.problems.add(Problem::at(path, message).hint(hint));
                return None;
            }
            (kind, _, _) => kind.to_owned(),
        };
        match kind.parse() {
            Ok(kind) => {
                let moment = if kind == SequenceType::Plain(ColumnType::Date) {
                    ColumnType::Date
                } else {
                    ColumnType::Timestamp
                };
                let (written, zone) = match declared {
                    Some(declared) => (declared.written.clone(), declared.zone),
                    None => self.text_of(name, moment, Written::Plain),
                };
                Some(SequencePart { kind: Some(kind), written, zone, ..part })
            }
            Err(message) => {
                let problem = Problem::at(path, message);
                self.problems.add(problem.did_you_mean(&kind, SEQUENCE_TYPE_NAMES.iter().copied()));
                None
            }
        }
    }

    pub(super) fn partitions(&mut self, columns: &Columns) {
        let names = columns.names();
        let raw = &self.entry.raw;
        for (key, list) in [("partition_by", &raw.partition_by), ("zorder_by", &raw.zorder_by)] {
            for name in list.iter().filter(|name| !names.contains(&name.as_str())) {
                let problem = Problem::at(&self.at(key), format!("`{name}` is not a column of the table"));
                self.problems.add(problem.did_you_mean(name, names.iter().copied()));
            }
        }
        if let Columns::Declared(declared) = columns {
            let is_binary = |plan: &&ColumnPlan| plan.column.kind == ColumnType::Binary;
            for plan in declared.iter().filter(is_binary).filter(|plan| raw.partition_by.contains(&plan.column.name)) {
                let message = format!("`{}` is binary, and the value of a partition is a text", plan.column.name);
                self.problems.add(Problem::at(&self.at("partition_by"), message).hint("name another column"));
            }
        }
        for name in raw.zorder_by.iter().filter(|name| raw.partition_by.contains(name)) {
            let problem = Problem::at(&self.at("zorder_by"), format!("`{name}` is a partition column"));
            self.problems.add(problem.hint("its values lie apart already; name another one"));
        }
        if !names.is_empty() && names.iter().all(|name| self.entry.raw.partition_by.iter().any(|part| part == name)) {
            self.problems.add(Problem::at(&self.at("partition_by"), "every column is a partition column"));
        }
    }

    pub(super) fn write_mode(&mut self) -> WriteMode {
        match self.entry.raw.write_mode {
            spec::WriteMode::Auto => WriteMode::Auto,
            spec::WriteMode::CopyOnWrite => WriteMode::CopyOnWrite,
            spec::WriteMode::MergeOnRead => {
                if !self.entry.raw.deletion_vectors {
                    let message = "`merge_on_read` marks rows as deleted, and `deletion_vectors` is false";
                    self.problems
                        .add(Problem::at(&self.at("write_mode"), message).hint("add `deletion_vectors: true`"));
                }
                WriteMode::MergeOnRead
            }
        }
    }

    pub(super) fn expectations(&mut self, columns: &Columns) -> Vec<ExpectationPlan> {
        let path = self.at("expectations");
        if let Columns::Declared(declared) = columns
            && !self.entry.raw.expectations.is_empty()
            && self.entry.raw.undeclared_columns != Some(Undeclared::Add)
        {
            self.conditions(declared, &path);
        }
        let plans = self.entry.raw.expectations.iter().map(|(name, expectation)| {
            if expectation.check.trim().is_empty() {
                self.problems.add(Problem::at(&path.key(name).key("check"), "the condition is empty"));
            }
            let max_fraction = expectation.max_fraction;
            if max_fraction.is_some_and(|max| !(0.0..1.0).contains(&max)) {
                let problem =
                    Problem::at(&path.key(name).key("max_fraction"), "a part of all rows is from 0 to below 1");
                self.problems.add(problem.hint("0.05 lets 5 % of the rows miss it"));
            }
            let (name, check) = (name.to_owned(), expectation.check.clone());
            ExpectationPlan { name, check, action: expectation.action, max_fraction }
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
                let message = error.causes().into_iter().next().unwrap_or_else(|| error.to_string());
                let problem = Problem::at(&path.key(name).key("check"), message);
                self.problems.add(Problem { hint: error.hint_text().map(str::to_owned), ..problem });
            }
        }
    }
}

impl Check<'_> {
    /// Where the values are in a record.
    pub(super) fn paths(&self) -> Paths {
        let raw = &self.entry.raw;
        let path = |given: &Option<String>, preset: Option<&str>| given.clone().or_else(|| preset.map(str::to_owned));
        let row = path(&raw.row, self.preset.row);
        let before = path(&raw.before, self.preset.before);
        let delete_row = path(&raw.delete_row, self.preset.delete_row.filter(|_| raw.before.is_none()));
        Paths { delete_row: delete_row.or_else(|| before.clone()), row, before }
    }

    /// Undeclared columns can only join where the columns of the source are those of the row.
    pub(super) fn undeclared(&mut self, paths: &Paths) {
        let raw = &self.entry.raw;
        if raw.undeclared_columns == Some(Undeclared::Add) {
            if raw.columns.is_empty() {
                let message = "there is nothing undeclared without `columns`";
                self.problems.add(Problem::at(&self.at("undeclared_columns"), message));
            }
            if paths.row.is_some() || !self.preset.unwrap.is_empty() {
                let message =
                    "the values of a row are inside of a column, so columns of the source are none of the row";
                let hint = "declare every column in `columns`";
                self.problems.add(Problem::at(&self.at("undeclared_columns"), message).hint(hint));
            }
        }
        let needs_row = [("before", &raw.before), ("delete_row", &raw.delete_row)];
        for (key, _) in needs_row.iter().filter(|(_, path)| path.is_some() && paths.row.is_none()) {
            let message = format!("`{key}` says where values are, and `row` does not");
            self.problems.add(Problem::at(&self.at(key), message).hint("name the path of the new values in `row`"));
        }
    }

    /// `formats` and `zones` belong to columns, or to parts of the sequence.
    pub(super) fn texts(&mut self) {
        let raw = &self.entry.raw;
        let parts = self.sequence_by();
        let parts = parts.iter().map(|part| name_and_type(part).0);
        let known: Vec<&str> = raw.columns.keys().chain(parts).collect();
        let given = [("formats", &raw.formats), ("zones", &raw.zones)];
        for (option, names) in given {
            for name in names.keys().filter(|name| !known.contains(name)) {
                let message = format!("`{name}` is neither a declared column nor a part of the sequence");
                let problem = Problem::at(&self.at(option).key(name), message);
                self.problems.add(problem.did_you_mean(name, known.iter().copied()));
            }
        }
    }

    /// How the texts of a column are read.
    fn text_of(&mut self, name: &str, kind: ColumnType, written: Written) -> (Written, Tz) {
        let raw = &self.entry.raw;
        let (format, zone) = (raw.formats.get(name), raw.zones.get(name));
        let fits = matches!(kind, ColumnType::Timestamp) || (matches!(kind, ColumnType::Date) && zone.is_none());
        if (format.is_some() || zone.is_some()) && !(fits && matches!(written, Written::Plain)) {
            let option = if zone.is_some() { "zones" } else { "formats" };
            let message = format!("`{name}` is no text that {option} say something about");
            let hint = "formats are of `date` and `timestamp` columns, zones of `timestamp` columns";
            self.problems.add(Problem::at(&self.at(option).key(name), message).hint(hint));
            return (written, self.zone);
        }
        let zone = match zone.map(|zone| zone.parse::<Tz>()) {
            Some(Ok(zone)) => zone,
            Some(Err(_)) => {
                let message = format!("`{}` is not a time zone", raw.zones.get(name).map_or("", String::as_str));
                let hint = "an IANA name, such as Europe/Lisbon";
                self.problems.add(Problem::at(&self.at("zones").key(name), message).hint(hint));
                self.zone
            }
            None => self.zone,
        };
        let written = match format.map(|format| format.parse()) {
            Some(Ok(format)) => Written::Format(format),
            Some(Err(message)) => {
                self.problems.add(Problem::at(&self.at("formats").key(name), message));
                written
            }
            None => written,
        };
        (written, zone)
    }
}

/// `name type` of a part of the sequence; the type may be empty.
fn name_and_type(part: &str) -> (&str, &str) {
    let (name, kind) = part.trim().split_once(char::is_whitespace).unwrap_or((part.trim(), ""));
    (name, kind.trim())
}
