//! One source and its table, guessed from the files of a group.

use std::collections::BTreeMap;

use bronze::look::records;
use bronze::spec::{Csv, Source};
use chrono_tz::Tz;
use lake::columns::is_reserved_in_silver;
use lake::report::error_text;
use lake::schema::ColumnType;

use super::changes::{self, Deletes, Keys, Sequence};
use super::envelope::{Envelope, recognise};
use super::groups::{Group, SampleFile, source_of};
use super::records::{Column, Records};
use super::values::{Typed, typed};

/// Records of a source that are looked at.
const ROWS_MAX: usize = 50_000;
/// Files of a source that are looked at, spread over all of them.
const FILES_MAX: usize = 60;

/// What is guessed of a source and its table.
pub(super) struct Guess {
    pub(super) group: Group,
    /// How its files are read.
    pub(super) source: Source,
    /// Records that were looked at.
    pub(super) rows: usize,
    /// What is to be said of the source: a comment each.
    pub(super) notes: Vec<String>,
    /// The table; none where no record could be read.
    pub(super) table: Option<Table>,
}

/// What is guessed of a silver table.
pub(super) struct Table {
    pub(super) preset: &'static str,
    pub(super) preset_reason: String,
    pub(super) deletes: Option<Deletes>,
    pub(super) keys: Keys,
    pub(super) sequence: Option<Sequence>,
    pub(super) columns: Vec<Declared>,
    /// True when each file looks like a list of everything.
    pub(super) are_extracts: bool,
}

/// A column of the table.
pub(super) struct Declared {
    /// Its name in the table.
    pub(super) name: String,
    /// Its name in the source, where it differs.
    pub(super) source: Option<String>,
    pub(super) typed: Typed,
    pub(super) is_key: bool,
}

/// Looks at the records of a group.
pub(super) fn guess(group: Group, zone: Tz) -> Guess {
    let mut notes = Vec::new();
    let mut source = source(&group.files, &mut notes);
    let records = sample(&group, &mut source, &mut notes);
    let rows = records.rows();
    let table = (rows > 0 && !records.columns.is_empty()).then(|| table(&group.name, &records, &mut source, zone));
    if table.is_none() {
        notes.push("no record could be read: a table of it is yours to write".to_owned());
    }
    Guess { group, source, rows, notes, table }
}

/// How the files are read, all of them alike.
fn source(files: &[SampleFile], notes: &mut Vec<String>) -> Source {
    let Some(first) = files.first() else { return Source::default() };
    let mut source = source_of(&first.look);
    source.duplicate_columns = bronze::spec::DuplicateColumns::Fail;
    if let Some(label) = files.iter().find_map(|file| file.look.encoding) {
        source.encoding = Some(label.to_owned());
        notes.push(format!("some bytes are no UTF-8: `encoding: {label}` is a guess"));
    }
    let texts: Vec<&Csv> = files.iter().filter_map(|file| file.look.csv.as_ref()).collect();
    let Some(usual) =
        texts.iter().max_by_key(|csv| texts.iter().filter(|other| other.delimiter == csv.delimiter).count())
    else {
        return source;
    };
    let delimiter = usual.delimiter.clone();
    let bare: Vec<usize> = texts.iter().filter(|csv| !csv.header).map(|csv| csv.columns.len()).collect();
    source.csv = Some(match bare.len() * 2 > texts.len() {
        false => Csv { delimiter, ..Csv::default() },
        true => {
            let (least, most) = (bare.iter().min().copied().unwrap_or(1), bare.iter().max().copied().unwrap_or(1));
            let leading_op = most == least + 1;
            let columns = (1..=least).map(|number| format!("column_{number}")).collect();
            notes.push("there is no header: give the columns their names, here and below".to_owned());
            Csv { header: false, delimiter, columns, leading_op, ..Csv::default() }
        }
    });
    source
}

/// Records of files of the group.
fn sample(group: &Group, source: &mut Source, notes: &mut Vec<String>) -> Records {
    let step = group.files.len().div_ceil(FILES_MAX).max(1);
    let chosen: Vec<&SampleFile> = group.files.iter().step_by(step).collect();
    let per_file = ROWS_MAX / chosen.len().max(1);
    let (mut all, mut rejected, mut reason) = (Records::default(), 0, None);
    for (number, file) in chosen.iter().enumerate() {
        let mut read = records(&file.path, source, per_file);
        let is_twice = |error: &lake::Error| error.hint_text().is_some_and(|hint| hint.contains("duplicate_columns"));
        if read.as_ref().is_err_and(is_twice) {
            source.duplicate_columns = bronze::spec::DuplicateColumns::Rename;
            notes.push("a name of a column comes twice: the second is called `…_2`".to_owned());
            read = records(&file.path, source, per_file);
        }
        match read {
            Err(error) => notes.push(format!("{} is refused: {}", file.below, first_line(&error_text(&error)))),
            Ok(sample) => {
                let before = all.rows();
                let added = sample.batches.iter().try_for_each(|batch| all.add(number, batch));
                if let Err(error) = added {
                    notes.push(format!("{}: {}", file.below, first_line(&error_text(&error))));
                }
                rejected += sample.rejected;
                reason = reason.or(sample.reason);
                for key in &group.partition_columns {
                    let value = file.below.split('/').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
                    all.fill(key, before, value);
                }
            }
        }
    }
    if let Some(reason) = reason {
        let noun = lake::report::counted(rejected, "record");
        notes.push(format!("{noun} of the sample cannot be read and will go to quarantine: {reason}"));
    }
    if let Some(csv) = source.csv.as_mut().filter(|csv| !csv.header && !csv.leading_op) {
        name_operation(csv, &mut all);
    }
    all
}

/// Files without a header whose first field is an operation are those of DMS.
fn name_operation(csv: &mut Csv, records: &mut Records) {
    let Some(first) = records.columns.first() else { return };
    let values = first.few(3).unwrap_or_default();
    if !values.is_empty() && values.iter().all(|value| matches!(*value, "I" | "U" | "D")) {
        csv.columns[0] = "Op".to_owned();
        *records = records.renamed(0, "Op");
    }
}

fn table(name: &str, records: &Records, source: &mut Source, zone: Tz) -> Table {
    let Envelope { preset, reason, rows, has_sequence, schema } = recognise(records);
    let deletes = if preset.is_empty() { changes::deletes(&rows) } else { None };
    let own = deletes.as_ref().and_then(|deletes| deletes.own.clone());
    let columns: Vec<&Column> = rows.columns.iter().filter(|column| Some(&column.name) != own.as_ref()).collect();
    let types: Vec<Typed> = columns
        .iter()
        .map(|column| match schema.get(&column.name) {
            Some(declaration) => Typed::new(declaration, kind_of(declaration), "as the inline schema says"),
            None => typed(column, zone),
        })
        .collect();
    let mut tokens: Vec<&str> = types.iter().flat_map(|typed| typed.null_tokens.iter().copied()).collect();
    // What DMS writes for null, unless it was told another word.
    if preset == "dms" && columns.iter().any(|column| column.present().any(|value| value == "NULL")) {
        tokens.push("NULL");
    }
    tokens.sort_unstable();
    tokens.dedup();
    if let Some(csv) = &mut source.csv {
        csv.null_values = tokens.into_iter().map(str::to_owned).collect();
    }
    let pairs: Vec<(&Column, &Typed)> = columns.iter().copied().zip(&types).collect();
    let sequence = (!has_sequence).then(|| changes::sequence(&pairs));
    let order = sequence.as_ref().and_then(|sequence| sequence.name.clone());
    let keys = changes::keys(name, &rows, &pairs, order.as_deref());
    let are_extracts = preset.is_empty() && deletes.is_none() && changes::are_extracts(&keys.names, &rows);
    let names = silver_names(&columns);
    let of = |source: &String| names.get(source).cloned().unwrap_or_else(|| source.clone());
    let declared = columns.iter().zip(types.iter()).map(|(column, typed)| {
        let name = of(&column.name);
        Declared {
            source: (name != column.name).then(|| column.name.clone()),
            is_key: keys.names.contains(&column.name),
            typed: typed.clone(),
            name,
        }
    });
    Table {
        preset,
        preset_reason: reason.to_owned(),
        columns: declared.collect(),
        sequence: sequence.map(|sequence| Sequence { name: sequence.name.map(|name| of(&name)), ..sequence }),
        keys: Keys { names: keys.names.iter().map(of).collect(), ..keys },
        deletes,
        are_extracts,
    }
}

/// Names of columns in the table: those of the source, or plain ones where they are odd or the program's own.
fn silver_names(columns: &[&Column]) -> BTreeMap<String, String> {
    let is_plain = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !is_reserved_in_silver(name)
    };
    let mut taken: Vec<String> =
        columns.iter().filter(|column| is_plain(&column.name)).map(|column| column.name.to_lowercase()).collect();
    let mut names = BTreeMap::new();
    for column in columns.iter().filter(|column| !is_plain(&column.name)) {
        let words = column.name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let mut name = words.collect::<Vec<_>>().join("_").to_lowercase();
        if !name.starts_with(|c: char| c.is_alphabetic()) {
            name = format!("column_{name}");
        }
        while taken.contains(&name) || is_reserved_in_silver(&name) {
            name.push_str("_2");
        }
        taken.push(name.clone());
        names.insert(column.name.clone(), name);
    }
    names
}

fn kind_of(declaration: &str) -> ColumnType {
    declaration.parse().unwrap_or(ColumnType::String)
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default().trim_start_matches("error: ")
}
