//! What was guessed as a spec, with the reason of each guess behind it.

use std::fmt::Write;

use bronze::spec::{Csv, DuplicateColumns};
use lake::report::{WIDTH, counted, many, wrapped};
use lake::schema::ColumnType;

use super::groups::format_name;
use super::guess::{Declared, Guess, Table};

/// Where comments begin, where there is room.
const COMMENT_COLUMN: usize = 40;
/// The begin of a comment on a column that has no room behind it.
const COMMENT: &str = "      # ";
/// Examples of models at most.
const MODELS_MAX: usize = 3;
/// Words in the names of amounts, the best first.
const AMOUNTS: [&str; 10] = ["amount", "revenue", "total", "price", "value", "cost", "fee", "quantity", "qty", "units"];

/// The whole spec.
pub(super) fn spec(name: &str, landing: &str, from: &str, guesses: &[Guess]) -> String {
    let mut out = String::new();
    let files: usize = guesses.iter().map(|guess| guess.group.files.len()).sum();
    let _ = write!(
        out,
        "{schema}\n# Guessed by `orchestrator init --from {from}` from {files}; the reason of each guess is behind it.\n\
         # `orchestrator validate` checks this file, `orchestrator run` makes the tables, `orchestrator query \"SELECT …\"` asks them.\n\
         # Every key is explained in docs/SPEC.md.\n\n\
         name: {name}\nstorage: ./lakehouse\nlanding: {landing}\n",
        schema = super::SCHEMA_LINE,
        files = counted(files, "file"),
        landing = scalar(landing),
    );
    line(&mut out, "timezone: UTC", "says when a day begins, and what times without an offset mean");
    out.push_str("\nbronze:\n");
    guesses.iter().for_each(|guess| source(&mut out, guess));
    let tables: Vec<(&Guess, &Table)> =
        guesses.iter().filter_map(|guess| Some((guess, guess.table.as_ref()?))).collect();
    if !tables.is_empty() {
        out.push_str("\nsilver:\n");
    }
    tables.iter().for_each(|(guess, silver)| table(&mut out, &guess.group.name, silver));
    let models: Vec<String> =
        tables.iter().filter_map(|(guess, table)| model(&guess.group.name, table)).take(MODELS_MAX).collect();
    if !models.is_empty() {
        out.push_str("\ngold:\n");
        out.push_str(&models.concat());
    }
    out
}

fn source(out: &mut String, guess: &Guess) {
    let (group, source) = (&guess.group, &guess.source);
    let compression = group.files.iter().find_map(|file| file.look.compression);
    let packed = compression.map(|name| format!(", {name} is told by itself")).unwrap_or_default();
    let seen = format!("{}, {} looked at{packed}", counted(group.files.len(), "file"), counted(guess.rows, "record"));
    line(out, &format!("  {}:", group.name), &seen);
    for note in &guess.notes {
        let _ = writeln!(out, "    # {}", note.replace('\n', " "));
    }
    let path = if group.folder.is_empty() { "./".to_owned() } else { format!("{}/", group.folder) };
    let _ = writeln!(out, "    path: {}", scalar(&path));
    for (key, globs) in [("include", &group.include), ("exclude", &group.exclude)] {
        if !globs.is_empty() {
            let _ = writeln!(out, "    {key}: {}", list(globs));
        }
    }
    if group.folder.is_empty() && group.files.iter().all(|file| !file.below.contains('/')) {
        line(out, "    recursive: false", "the files are in the folder itself");
    }
    if !group.partition_columns.is_empty() {
        line(out, &format!("    partition_columns: {}", list(&group.partition_columns)), "folders `key=value`");
    }
    let _ = writeln!(out, "    format: {}", format_name(source.format));
    if let Some(encoding) = &source.encoding {
        let _ = writeln!(out, "    encoding: {encoding}");
    }
    if source.duplicate_columns == DuplicateColumns::Rename {
        let _ = writeln!(out, "    duplicate_columns: rename");
    }
    if let Some(csv) = source.csv.as_ref().filter(|csv| **csv != Csv::default()) {
        dialect(out, csv);
    }
}

fn dialect(out: &mut String, csv: &Csv) {
    out.push_str("    csv:\n");
    if csv.delimiter != "," {
        let _ = writeln!(out, "      delimiter: {}", quoted(&csv.delimiter.replace('\t', "\\t")));
    }
    if !csv.header {
        let _ = writeln!(out, "      header: false\n      columns: {}", list(&csv.columns));
    }
    if csv.leading_op {
        line(out, "      leading_op: true", "some files have one field more in front: the operation");
    }
    if !csv.null_values.is_empty() {
        let nulls: Vec<String> = csv.null_values.iter().map(|value| quoted(value)).collect();
        line(out, &format!("      null_values: [{}]", nulls.join(", ")), "where values are missing");
    }
}

fn table(out: &mut String, name: &str, table: &Table) {
    let _ = writeln!(out, "  {name}:\n    source: {name}");
    if !table.preset.is_empty() {
        line(out, &format!("    cdc: {}", table.preset), &format!("by {}", table.preset_reason));
    }
    if let Some(deletes) = &table.deletes {
        line(out, &format!("    {}", deletes.line), &deletes.reason);
    }
    if table.are_extracts {
        out.push_str(
            "    # Each file looks like a list of everything. A row that the next one lacks goes away with:\n",
        );
        out.push_str("    # from_snapshot: true\n");
    }
    line(out, &format!("    keys: {}", list(&table.keys.names)), &table.keys.reason);
    if let Some(sequence) = &table.sequence {
        let names: Vec<String> = sequence.name.iter().cloned().collect();
        line(out, &format!("    sequence_by: {}", list(&names)), &sequence.reason);
    }
    let renamed: Vec<String> = table
        .columns
        .iter()
        .filter_map(|column| Some(format!("{}: {}", column.name, scalar(column.source.as_ref()?))))
        .collect();
    if !renamed.is_empty() {
        line(out, &format!("    column_names: {{{}}}", renamed.join(", ")), "");
    }
    let formats: Vec<String> = table
        .columns
        .iter()
        .filter_map(|column| Some(format!("{}: {}", column.name, quoted(column.typed.format?))))
        .collect();
    if !formats.is_empty() {
        line(out, &format!("    formats: {{{}}}", formats.join(", ")), "");
    }
    out.push_str("    columns:\n");
    for column in &table.columns {
        let not_null = if column.is_key && table.keys.names.len() == 1 { " not null" } else { "" };
        let declared = format!("      {}: {}{not_null}", scalar(&column.name), column.typed.declaration);
        if declared.chars().count().max(COMMENT_COLUMN - 2) + 4 + column.typed.reason.chars().count() <= WIDTH {
            line(out, &declared, &column.typed.reason);
            continue;
        }
        for text in wrapped(COMMENT, COMMENT.len(), &column.typed.reason.replace('\n', " ")).lines() {
            let _ = writeln!(out, "{COMMENT}{}", text.get(COMMENT.len()..).unwrap_or_default());
        }
        let _ = writeln!(out, "{declared}");
    }
}

/// An example of a model: what a table amounts to by day.
fn model(name: &str, table: &Table) -> Option<String> {
    let is_free = |column: &&Declared| !column.is_key;
    let order = table.sequence.as_ref().and_then(|sequence| sequence.name.as_deref());
    let with = |kind: ColumnType| {
        let mut found: Vec<&Declared> =
            table.columns.iter().filter(is_free).filter(|column| column.typed.kind == kind).collect();
        found.sort_by_key(|column| Some(column.name.as_str()) == order);
        found.into_iter().next()
    };
    let day = with(ColumnType::Date).or_else(|| with(ColumnType::Timestamp))?;
    let numbers: Vec<&Declared> = table.columns.iter().filter(is_free).filter(|column| is_number(column)).collect();
    let amount =
        AMOUNTS.iter().find_map(|word| numbers.iter().find(|column| column.name.to_lowercase().contains(word)));
    let decimal =
        || numbers.iter().find(|column| matches!(column.typed.kind, ColumnType::Decimal(_, scale) if scale > 0));
    let amount = amount.or_else(decimal)?;
    let day_sql = match day.typed.kind {
        ColumnType::Timestamp => format!("CAST({} AT TIME ZONE 'UTC' AS DATE)", sql(&day.name)),
        _ => sql(&day.name),
    };
    let (total, table_sql) = (sql(&amount.name), format!("silver.{name}"));
    Some(format!(
        "  {name}_per_day:{pad}# an example: {amount_name} by {day_name}\n    query: |\n      SELECT {day_sql} AS day, count(*) AS records, sum({total}) AS total\n      FROM {table_sql}\n      GROUP BY {day_sql}\n",
        pad = " ".repeat(COMMENT_COLUMN.saturating_sub(name.len() + 11).max(1)),
        amount_name = amount.name,
        day_name = day.name,
    ))
}

fn is_number(column: &Declared) -> bool {
    matches!(
        column.typed.kind,
        ColumnType::Decimal(..) | ColumnType::Double | ColumnType::Bigint | ColumnType::Int | ColumnType::Float
    )
}

/// A line with a comment behind it.
fn line(out: &mut String, text: &str, comment: &str) {
    let comment = comment.replace('\n', " ");
    let width = text.chars().count();
    match comment.is_empty() {
        true => out.push_str(text),
        false => {
            let pad = COMMENT_COLUMN.saturating_sub(width).max(2);
            let _ = write!(out, "{text}{:pad$}# {comment}", "");
        }
    }
    out.push('\n');
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| scalar(item)).collect::<Vec<_>>().join(", "))
}

/// A text as a YAML value, in quotes where it needs them.
pub(super) fn scalar(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || "_-./$".contains(c);
    let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '.' || c == '/');
    let means_more = ["true", "false", "null"].contains(&text.to_ascii_lowercase().as_str()) || text.contains("${");
    match begins && text.chars().all(is_word) && !means_more && text.parse::<f64>().is_err() {
        true => text.to_owned(),
        false => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    // What JSON writes is YAML as well; `$${` stands for a plain `${`.
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

/// An identifier of SQL, in quotes where it needs them.
fn sql(name: &str) -> String {
    const WORDS: [&str; 14] = [
        "date",
        "timestamp",
        "time",
        "day",
        "order",
        "group",
        "select",
        "from",
        "value",
        "values",
        "total",
        "user",
        "end",
        "desc",
    ];
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain && !WORDS.contains(&name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// What was written, in a few words.
pub(super) fn summary(guesses: &[Guess]) -> String {
    let rows: u64 = guesses.iter().map(|guess| guess.rows as u64).sum();
    let tables = guesses.iter().filter(|guess| guess.table.is_some()).count();
    let files: usize = guesses.iter().map(|guess| guess.group.files.len()).sum();
    format!(
        "{} and {} from {}, {} looked at",
        counted(guesses.len(), "source"),
        counted(tables, "table"),
        counted(files, "file"),
        many(rows, "record")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_meaning_in_yaml() {
        for text in ["orders/", "Order ID", "true", "1.5", "a: b", "#x", "${HOME}", "é", "", "'", "-x", "op,x", "%d/%m"]
        {
            let back: String = serde_yaml::from_str(&scalar(text)).expect("YAML");
            assert_eq!(back.replace("$${", "${"), text);
        }
        assert_eq!(
            (sql("amount"), sql("Order ID"), sql("date")),
            ("amount".into(), "\"Order ID\"".into(), "\"date\"".into())
        );
    }
}
