//! The bronze source of a table: whether it is there, and which names of its columns are known before anything landed.

use lake::columns;
use lake::spec::{Problem, SpecPath};

use super::check::Check;
use super::{Columns, SequencePart};

/// What is known of a bronze source from its options alone.
#[derive(Debug, Clone, Default)]
pub struct Arriving {
    /// Its name.
    pub name: String,
    /// Whether all its columns are text.
    pub is_text: bool,
    /// All its columns, where the spec names them.
    pub columns: Option<Vec<String>>,
}

impl Arriving {
    /// A source of which nothing is known but its name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl Check<'_> {
    /// Finds the source of the table.
    pub(super) fn source(&mut self, sources: &[Arriving]) {
        let name = &self.entry.raw.source;
        if let Some(source) = sources.iter().find(|source| source.name == *name) {
            self.source = source.clone();
        } else if !name.is_empty() {
            let message = format!("`{name}` is not a source of `bronze`");
            let known = sources.iter().map(|source| source.name.as_str());
            self.problems.add(Problem::at(&self.at("source"), message).did_you_mean(name, known));
        }
    }

    /// The columns of the source that the options name, held to those that it has, where the spec says which these are.
    pub(super) fn source_columns(&mut self, columns: &Columns, sequence: &[SequencePart]) {
        let raw = &self.entry.raw;
        let op = raw.op.iter().map(|op| ("op", op.column.clone()));
        let flag = raw.delete_flag.iter().map(|flag| ("delete_flag", flag.column.clone()));
        for (option, name) in op.chain(flag).collect::<Vec<_>>() {
            let path = self.at(option).key("column");
            self.known(&path, [name.as_str()].into_iter());
        }
        let is_made = |name: &str| raw.select.contains_key(name);
        match columns {
            Columns::Declared(declared) => {
                for plan in declared.iter().filter(|plan| !is_made(&plan.column.name)) {
                    let is_renamed = raw.column_names.contains_key(&plan.column.name);
                    let option = if is_renamed { "column_names" } else { "columns" };
                    let path = self.at(option).key(&plan.column.name);
                    self.known(&path, [plan.source.as_str()].into_iter());
                }
            }
            Columns::Listed(names) => {
                let path = self.at("column_list");
                self.known(&path, names.iter().map(String::as_str).filter(|name| !is_made(name)));
            }
        }
        let path = self.at("sequence_by");
        let own = sequence.iter().filter(|part| !part.optional && !part.is_derived && !part.of_row);
        let own: Vec<&str> = own.map(|part| part.source.as_str()).collect();
        self.known(&path, own.into_iter());
    }

    /// Holds names of columns of the record to those that it has, where the record is the row and they are known.
    pub(super) fn known<'n>(&mut self, path: &SpecPath, names: impl Iterator<Item = &'n str>) {
        let is_row = self.paths().row.is_none() && self.preset.unwrap.is_empty() && self.preset.prepare.is_none();
        let Some(known) = self.source.columns.clone().filter(|_| is_row) else { return };
        let has = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        for name in names {
            let first = name.split('.').next().unwrap_or(name);
            if !has(name) && !has(first) && !columns::is_technical(name) {
                let message = format!("`{}` has no column `{name}`", self.source.name);
                let problem = Problem::at(path, message);
                self.problems.add(problem.did_you_mean(name, known.iter().map(String::as_str)));
            }
        }
    }
}
