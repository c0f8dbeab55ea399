//! From the options of a source to a plan; every problem at once.

use std::time::Duration;

use chrono_tz::Tz;
use lake::TableName;
use lake::columns;
use lake::schema::{Column, TYPE_NAMES, type_meant};
use lake::spec::{Entry, Problem, Problems, SpecPath};

use crate::decode::{
    self, Compression, Dialect, ENCODING_NAMES, Encoding, Header, JsonOptions, Packing, TextFormat, folded,
};
use crate::discover::Filter;
use crate::evolve::SchemaRules;
use crate::spec::{self, BadRecords, CleanMode, Csv, OnOverwrite, Order, Source};

/// A validated bronze source.
#[derive(Debug, Clone)]
pub struct SourcePlan {
    /// The table; its name is that of the source.
    pub table: TableName,
    /// The folder below the landing root, without slashes at its ends; empty for all of it.
    pub folder: String,
    /// Which files below the folder are taken.
    pub filter: Filter,
    /// Whether folders below the folder are searched.
    pub recursive: bool,
    /// Names of folders `key=value` below the folder that become columns.
    pub partition_columns: Vec<String>,
    /// How the files are read.
    pub format: Format,
    /// How long a file must stand unchanged before it is taken.
    pub settle: Duration,
    /// Whether files that are there at the first run are taken.
    pub include_existing_files: bool,
    /// What becomes of a path that comes back with other content.
    pub on_overwrite: OnOverwrite,
    /// The order in which new files are taken.
    pub order: Order,
    /// Files in one batch at most.
    pub max_files_per_batch: u64,
    /// Bytes in one batch at most.
    pub max_bytes_per_batch: u64,
    /// What the source wants of the columns of its table.
    pub schema: SchemaRules,
    /// What becomes of a record that cannot be read.
    pub bad_records: BadRecords,
    /// What becomes of a file whose records are in the table.
    pub clean: Clean,
}

/// What becomes of files whose records are in the table, once `retention` has passed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clean {
    /// They stay.
    Off,
    /// They are deleted.
    Delete {
        /// How long they stay.
        retention: Duration,
    },
    /// They are moved.
    Move {
        /// How long they stay.
        retention: Duration,
        /// The folder below the landing root, without slashes at its ends.
        to: String,
    },
}

/// How the files of a source are read.
#[derive(Debug, Clone)]
pub enum Format {
    /// As text, after undoing compression and encoding.
    Text(TextFormat, Packing),
    /// As Avro, after undoing the compression of the whole file.
    Avro(decode::DuplicateColumns, Compression),
    /// As Parquet.
    Parquet(decode::DuplicateColumns),
}

impl SourcePlan {
    /// Whether the table says of a null that it was there.
    pub fn tells_absent_from_null(&self) -> bool {
        matches!(&self.format, Format::Text(TextFormat::Json(JsonOptions { explicit_nulls: true }), _))
    }

    /// Whether the files are JSON.
    pub fn is_json(&self) -> bool {
        matches!(&self.format, Format::Text(TextFormat::Json(_), _))
    }

    /// Whether the files are delimited text.
    pub fn is_delimited(&self) -> bool {
        matches!(&self.format, Format::Text(TextFormat::Csv(_), _))
    }

    /// Whether all columns of the records are text.
    pub fn is_text(&self) -> bool {
        matches!(&self.format, Format::Text(..)) && self.schema.hints.is_empty()
    }

    /// The columns of the records, where the spec names them all.
    pub fn columns(&self) -> Option<Vec<String>> {
        let Format::Text(TextFormat::Csv(Dialect { header: Header::Given { columns, leading_op }, .. }), _) =
            &self.format
        else {
            return None;
        };
        let op = leading_op.then(|| "Op".to_owned());
        let hints = self.schema.hints.iter().map(|hint| hint.name.clone());
        Some(op.into_iter().chain(columns.iter().cloned()).chain(self.partition_columns.clone()).chain(hints).collect())
    }

    /// The name of the source.
    pub fn source(&self) -> &str {
        &self.table.name
    }

    /// The plan for a pipeline whose text timestamps without an offset are in this zone. Default UTC.
    #[must_use]
    pub fn in_zone(mut self, zone: Tz) -> Self {
        self.schema.zone = zone;
        self
    }
}

/// Checks the options of a source. Returns a plan when they are sound; problems go to `problems`.
pub fn compile(entry: &Entry<Source>, problems: &mut Problems) -> Option<SourcePlan> {
    let before = problems.len();
    let raw = &entry.raw;
    let mut check = Check { entry, problems };
    let folder = check.folder();
    let filter = check.filter();
    let format = check.format();
    let hints = check.hints();
    let partition_columns = check.partition_columns();
    let clean = check.clean(&folder, &filter);
    if raw.max_bytes_per_batch.as_bytes() == 0 {
        check.add("max_bytes_per_batch", "a batch cannot hold 0 bytes");
    }
    (problems.len() == before).then(|| SourcePlan {
        table: TableName::bronze(&entry.name),
        folder,
        filter,
        recursive: raw.recursive,
        partition_columns,
        format,
        settle: raw.settle.as_std(),
        include_existing_files: raw.include_existing_files,
        on_overwrite: raw.on_overwrite,
        order: raw.order,
        max_files_per_batch: raw.max_files_per_batch,
        max_bytes_per_batch: raw.max_bytes_per_batch.as_bytes(),
        schema: SchemaRules { mode: raw.schema_evolution_mode, hints, ..SchemaRules::default() },
        bad_records: raw.bad_records,
        clean,
    })
}

/// Checks what only all sources together can tell: a folder that one source moves its files to must not be one that
/// another takes files from.
pub fn check_together(plans: &[&SourcePlan], problems: &mut Problems) {
    for plan in plans.iter().filter(|plan| !matches!(plan.clean, Clean::Off)) {
        let shared = |other: &&SourcePlan| {
            let path = plan.filter.shared_with(&plan.folder, &other.filter, &other.folder)?;
            let depth = |folder: &str| if folder.is_empty() { 0 } else { folder.split('/').count() };
            let is_deep = |one: &SourcePlan| path.split('/').count() > depth(&one.folder) + 1;
            let misses = |one: &SourcePlan| !one.recursive && is_deep(one);
            (other.table != plan.table && !misses(plan) && !misses(other)).then(|| (other.source().to_owned(), path))
        };
        if let Some((other, path)) = plans.iter().copied().find_map(|other| shared(&other)) {
            let place = SpecPath::of(["bronze", plan.source()]).key("clean_source");
            let problem = Problem::at(&place, format!("files such as `{path}` are also read by `{other}`"));
            problems.add(problem.hint(
                "they could be cleared away before that source has them: keep the two apart by `path` or `include`",
            ));
        }
        let Clean::Move { to, .. } = &plan.clean else { continue };
        let takes = |other: &&&SourcePlan| {
            other.table != plan.table
                && (other.recursive || *to == other.folder)
                && other.filter.takes_below(&other.folder, to)
        };
        if let Some(other) = plans.iter().find(takes) {
            let place = SpecPath::of(["bronze", plan.source()]).key("clean_source").key("move_destination");
            let problem = Problem::at(&place, format!("`{to}` is inside the folder of `{}`", other.source()));
            problems.add(problem.hint("files there would be taken by that source: name a folder elsewhere"));
        }
    }
}

struct Check<'a> {
    entry: &'a Entry<Source>,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn add(&mut self, key: &str, message: impl Into<String>) {
        self.problems.add(Problem::at(&self.entry.path.key(key), message));
    }

    fn folder(&mut self) -> String {
        let path = &self.entry.raw.path;
        let place = self.entry.path.key("path");
        if path.contains(['*', '?']) {
            let hint = "globs belong into `include`; `path` is a folder";
            self.problems.add(Problem::at(&place, format!("`{path}` is not a folder")).hint(hint));
        }
        below_landing(path, &place, self.problems)
    }

    fn partition_columns(&mut self) -> Vec<String> {
        let names = &self.entry.raw.partition_columns;
        self.names(names, &self.entry.path.key("partition_columns"));
        names.clone()
    }

    fn clean(&mut self, folder: &str, filter: &Filter) -> Clean {
        let raw = &self.entry.raw.clean_source;
        let retention = raw.retention_duration.as_std();
        let place = self.entry.path.key("clean_source").key("move_destination");
        match (raw.mode, &raw.move_destination) {
            (CleanMode::Off, None) => Clean::Off,
            (CleanMode::Delete, None) => Clean::Delete { retention },
            (CleanMode::Off | CleanMode::Delete, Some(_)) => {
                let problem = Problem::at(&place, "`move_destination` says nothing without `mode: move`");
                self.problems.add(problem);
                Clean::Off
            }
            (CleanMode::Move, None) => {
                let problem = Problem::at(&place, "`mode: move` needs a folder to move files to");
                self.problems.add(problem.hint("move_destination: _archive/orders/"));
                Clean::Off
            }
            (CleanMode::Move, Some(text)) => {
                let to = below_landing(text, &place, self.problems);
                if to.is_empty() {
                    let problem = Problem::at(&place, format!("`{text}` is the landing root itself"));
                    self.problems.add(problem.hint("name a folder below it: move_destination: _archive/orders/"));
                } else if self.entry.raw.recursive && filter.takes_below(folder, &to) || to == folder {
                    let problem = Problem::at(&place, format!("`{text}` is inside the folder of the source"));
                    self.problems.add(problem.hint(
                        "files there would be taken again: name a folder elsewhere, or one that begins with `_`",
                    ));
                }
                Clean::Move { retention, to }
            }
        }
    }

    /// Names of columns, each once.
    fn names(&mut self, names: &[String], place: &SpecPath) {
        for (index, name) in names.iter().enumerate() {
            let twin = names[..index].iter().any(|other| folded(other) == folded(name));
            let message = match () {
                () if name.is_empty() => "a column needs a name".to_owned(),
                () if columns::is_technical(name) => format!("`{name}` is a technical column of every bronze table"),
                () if twin => format!("`{name}` is named twice"),
                () => continue,
            };
            self.problems.add(Problem::at(&place.index(index), message));
        }
    }

    fn filter(&mut self) -> Filter {
        let raw = &self.entry.raw;
        for (key, globs) in [("include", &raw.include), ("exclude", &raw.exclude)] {
            for (index, glob) in globs.iter().enumerate() {
                if let Err(reason) = Filter::check(glob) {
                    let place = self.entry.path.key(key).index(index);
                    self.problems.add(Problem::at(&place, format!("`{glob}` is not a glob: {reason}")));
                }
            }
        }
        Filter::new(&raw.include, &raw.exclude, raw.default_excludes)
    }

    fn format(&mut self) -> Format {
        let raw = &self.entry.raw;
        if raw.csv.is_some() && raw.format != spec::Format::Csv {
            self.add("csv", "`csv` says nothing about files of another format");
        }
        if raw.json.is_some() && raw.format != spec::Format::Json {
            self.add("json", "`json` says nothing about files of another format");
        }
        let compression = match raw.compression {
            spec::Compression::Auto => Compression::Auto,
            spec::Compression::None => Compression::None,
            spec::Compression::Gzip => Compression::Gzip,
            spec::Compression::Zstd => Compression::Zstd,
            spec::Compression::Bzip2 => Compression::Bzip2,
        };
        let packing = Packing { compression, encoding: self.encoding() };
        match raw.format {
            spec::Format::Csv => Format::Text(TextFormat::Csv(self.dialect()), packing),
            spec::Format::Json => {
                let explicit_nulls = raw.json.as_ref().is_some_and(|json| json.explicit_nulls);
                Format::Text(TextFormat::Json(JsonOptions { explicit_nulls }), packing)
            }
            spec::Format::Avro => Format::Avro(duplicates(raw.duplicate_columns), compression),
            spec::Format::Parquet => {
                if raw.compression != spec::Compression::Auto {
                    self.add("compression", "`compression` says nothing about Parquet, which has its own inside");
                }
                Format::Parquet(duplicates(raw.duplicate_columns))
            }
        }
    }

    fn encoding(&mut self) -> Encoding {
        let raw = &self.entry.raw;
        let Some(label) = &raw.encoding else { return Encoding::default() };
        let place = self.entry.path.key("encoding");
        if !matches!(raw.format, spec::Format::Csv | spec::Format::Json) {
            self.problems.add(Problem::at(&place, "`encoding` says nothing about files that are not text"));
        }
        Encoding::for_label(label).unwrap_or_else(|| {
            let problem = Problem::at(&place, format!("`{label}` is no encoding of the WHATWG list"));
            self.problems.add(problem.did_you_mean(label, ENCODING_NAMES));
            Encoding::default()
        })
    }

    /// The columns of `schema_hints`, in their order.
    fn hints(&mut self) -> Vec<Column> {
        let (raw, place) = (&self.entry.raw.schema_hints, self.entry.path.key("schema_hints"));
        let mut hints: Vec<Column> = Vec::new();
        for (name, kind) in raw.iter() {
            let place = place.key(name);
            let problem = match kind.trim().to_ascii_lowercase().parse() {
                _ if columns::is_technical(name) => {
                    Problem::at(&place, format!("`{name}` is a technical column of every bronze table"))
                }
                _ if hints.iter().any(|hint| folded(&hint.name) == folded(name)) => {
                    Problem::at(&place, format!("`{name}` is named twice"))
                }
                Ok(kind) => {
                    hints.push(Column { name: name.to_owned(), kind, nullable: true });
                    continue;
                }
                Err(message) => {
                    let known = TYPE_NAMES.iter().map(|name| name.split('(').next().unwrap_or(name));
                    match type_meant(kind) {
                        Some(meant) => Problem::at(&place, message).hint(format!("did you mean `{meant}`?")),
                        None => Problem::at(&place, message).did_you_mean(kind, known),
                    }
                }
            };
            self.problems.add(problem);
        }
        hints
    }

    fn dialect(&mut self) -> Dialect {
        let raw = self.entry.raw.csv.clone().unwrap_or_default();
        let place = self.entry.path.key("csv");
        let mut of = |key: &str, text: &str| character(text, &place.key(key), self.problems);
        let delimiter = of("delimiter", &raw.delimiter).unwrap_or(b',');
        let quote = raw.quote.as_deref().and_then(|text| of("quote", text));
        let escape = raw.escape.as_deref().and_then(|text| of("escape", text));
        let comment = raw.comment.as_deref().and_then(|text| of("comment", text));
        let named = [("quote", quote), ("escape", escape), ("comment", comment)];
        for (key, _) in named.iter().filter(|(_, character)| *character == Some(delimiter)) {
            self.problems.add(Problem::at(&place.key(*key), format!("`{key}` and `delimiter` are the same character")));
        }
        if quote.is_some() && quote == comment {
            self.problems.add(Problem::at(&place.key("comment"), "`comment` and `quote` are the same character"));
        }
        Dialect {
            header: self.header(&raw, &place),
            delimiter,
            quote,
            escape,
            comment,
            null_values: raw.null_values,
            empty_is_null: match raw.empty_is_null {
                spec::EmptyIsNull::Unquoted => decode::EmptyIsNull::Unquoted,
                spec::EmptyIsNull::Always => decode::EmptyIsNull::Always,
                spec::EmptyIsNull::Never => decode::EmptyIsNull::Never,
            },
            duplicate_columns: duplicates(self.entry.raw.duplicate_columns),
        }
    }

    fn header(&mut self, raw: &Csv, place: &SpecPath) -> Header {
        let columns = place.key("columns");
        match (raw.header, raw.columns.is_empty()) {
            (true, false) => {
                let hint = "`header: false` when the files have no header";
                self.problems.add(Problem::at(&columns, "the header names the columns already").hint(hint));
            }
            (false, true) => {
                let message = "without a header the columns must be named";
                self.problems.add(Problem::at(&columns, message).hint("columns: [order_id, status, amount]"));
            }
            _ => {}
        }
        if raw.leading_op && raw.header {
            let problem = Problem::at(&place.key("leading_op"), "`leading_op` needs `header: false`");
            self.problems.add(problem.hint("with a header the operation is a column like the others"));
        }
        self.names(&raw.columns, &columns);
        match raw.header {
            true => Header::Present,
            false => Header::Given { columns: raw.columns.clone(), leading_op: raw.leading_op },
        }
    }
}

/// A folder below the landing root, without slashes at its ends.
fn below_landing(path: &str, place: &SpecPath, problems: &mut Problems) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if path.contains("://") || path.starts_with('/') {
        let problem = Problem::at(place, format!("`{path}` is not below the landing root"));
        problems.add(problem.hint("write `orders/`"));
    } else if parts.contains(&"..") {
        problems.add(Problem::at(place, format!("`{path}` leaves the landing root")));
    }
    parts.join("/")
}

/// One ASCII character, which may be written `\t`.
fn character(text: &str, place: &SpecPath, problems: &mut Problems) -> Option<u8> {
    match text.as_bytes() {
        b"\\t" => Some(b'\t'),
        [b'\n' | b'\r'] => {
            problems.add(Problem::at(place, "a line break ends a record and cannot be anything else"));
            None
        }
        [character] => Some(*character),
        _ => {
            let message = format!("expected one ASCII character, found `{text}`");
            problems.add(Problem::at(place, message));
            None
        }
    }
}

fn duplicates(duplicates: spec::DuplicateColumns) -> decode::DuplicateColumns {
    match duplicates {
        spec::DuplicateColumns::Fail => decode::DuplicateColumns::Fail,
        spec::DuplicateColumns::Rename => decode::DuplicateColumns::Rename,
    }
}

#[cfg(test)]
mod tests;
