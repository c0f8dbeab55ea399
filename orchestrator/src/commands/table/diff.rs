//! `orchestrator table diff`: what differs between two versions of a table.

use lake::report::grid::{Align, Grid};
use lake::report::{EXIT_DONE, WIDTH, thousands};
use lake::{Error, ErrorKind, Lake, TableName};
use serde_json::{Map, Value, json};

use super::{at_version, keys_of, one_name};
use crate::spec::{Job, Project};
use crate::tools::diff::{Asked, Changed, Diff, diff, plain};
use cli::{Failure, Output, Printer};

/// What differs between two versions of a table: rows added, removed and changed, column by column
///
/// Rows are told apart by the keys that the spec has for the table, by what a model groups by, or by `--keys`; without any,
/// a row is all of its values. Columns that the program keeps for itself are left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table diff silver.orders                 what the last version changed
  orchestrator table diff silver.orders --from 4
  orchestrator table diff silver.orders --from 4 --to 7 --limit 100
  orchestrator table diff gold.daily_sales --from 2 --keys order_date --output json")]
pub(super) struct Args {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The older version. Default: the one before the newer
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The newer version. Default: the newest
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// The columns that make a row, separated by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    keys: Vec<String>,
    /// Also columns that the program keeps for itself
    #[arg(long)]
    technical: bool,
    /// Rows that are shown of each sort; 0 shows counts alone
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let name = one_name(lake, &args.table).await?;
    let newest = lake.existing(&name).await?;
    let to = args.to.unwrap_or_else(|| newest.version());
    let from = args.from.or(to.checked_sub(1));
    let from = from.ok_or_else(|| Error::spec(format!("{name} has no version before version {to}")))?;
    if from > to {
        let error = Error::spec(format!("version {from} comes after version {to}"));
        return Err(error.hint("`--from` is the older one").into());
    }
    let (older, newer) = (at_version(lake, &newest, from).await?, at_version(lake, &newest, to).await?);
    let known = if args.keys.is_empty() { keys_of(project, &name) } else { args.keys.clone() };
    let grouped = if known.is_empty() { grouped_by(project, lake, &name).await } else { Vec::new() };
    let is_grouped = !grouped.is_empty();
    let keys = if is_grouped { grouped } else { known };
    // Keys of the spec may be younger than a version.
    let is_in_both = |key: &String| older.schema().index_of(key).is_ok() && newer.schema().index_of(key).is_ok();
    let keys = if args.keys.is_empty() && !keys.iter().all(is_in_both) { Vec::new() } else { keys };
    let asked = Asked { keys, technical: args.technical, examples: args.limit };
    let told = match diff(lake, &older, &newer, &asked).await {
        // A version may be by an older query, which had other groups.
        Err(error) if is_grouped && error.kind() == ErrorKind::Data => {
            diff(lake, &older, &newer, &Asked { keys: Vec::new(), ..asked }).await?
        }
        told => told?,
    };
    match args.output {
        Output::Json => printer.data(&format!("{}\n", object(&name, (from, to), &told)))?,
        Output::Table => printer.data(&text(&name, (from, to), &told))?,
    }
    Ok(EXIT_DONE)
}

/// The columns by which a model groups, or that its query shows to tell its rows apart; none for what is no model, or when
/// nobody knows.
async fn grouped_by(project: &Project, lake: &Lake, name: &TableName) -> Vec<String> {
    let Some(Job::Gold(plan)) = project.task(name).map(|task| &task.job) else { return Vec::new() };
    let Some(model) = plan.model() else { return Vec::new() };
    gold::row_keys(lake, model).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "what tells the rows of {name} apart could not be found out");
        Vec::new()
    })
}

fn object(name: &TableName, (from, to): (u64, u64), diff: &Diff) -> Value {
    let changed = |one: &Changed| {
        let values = one.values.iter().map(|(name, old, new)| (name.clone(), json!({"from": old, "to": new})));
        json!({"key": one.key, "columns": values.collect::<Map<String, Value>>()})
    };
    let columns = diff.columns.iter().map(|(name, rows)| (name.clone(), Value::from(*rows)));
    json!({
        "table": name.to_string(),
        "from": from,
        "to": to,
        "keys": diff.keys,
        "rows": {"from": diff.rows.0, "to": diff.rows.1},
        "added": diff.added,
        "removed": diff.removed,
        "changed": diff.changed,
        "columns": columns.collect::<Map<String, Value>>(),
        "columns_added": diff.schema.0,
        "columns_removed": diff.schema.1,
        "examples": {
            "added": diff.examples.added,
            "removed": diff.examples.removed,
            "changed": diff.examples.changed.iter().map(changed).collect::<Vec<_>>(),
        },
    })
}

fn text(name: &TableName, (from, to): (u64, u64), diff: &Diff) -> String {
    let by = match diff.keys.is_empty() {
        true => "by all values".to_owned(),
        false => format!("by {}", diff.keys.join(", ")),
    };
    let mut text = format!("{}\n", cut(&format!("{name}, version {from} to {to}, {by}")));
    let (was, is) = (thousands(diff.rows.0), thousands(diff.rows.1));
    text.push_str(&format!("  rows     {was} -> {is}\n"));
    let (added, removed) = (thousands(diff.added), thousands(diff.removed));
    text.push_str(&format!("  added    {added}\n  removed  {removed}\n"));
    if !diff.keys.is_empty() {
        text.push_str(&format!("  changed  {}\n", thousands(diff.changed)));
    }
    for (what, columns) in [("new", &diff.schema.0), ("gone", &diff.schema.1)] {
        columns.iter().for_each(|column| text.push_str(&format!("  {}\n", cut(&format!("column {what}: {column}")))));
    }
    if !diff.columns.is_empty() {
        let mut grid = Grid::new();
        grid.fitted("column", 30, diff.columns.iter().map(|(name, _)| name.clone()));
        grid.column("rows changed", None, Align::Right, diff.columns.iter().map(|(_, rows)| thousands(*rows)));
        text.push_str(&format!("\n{}", grid.render(WIDTH)));
    }
    let changed = diff.examples.changed.iter().map(changed_line).collect();
    let (added, removed) = (&diff.examples.added, &diff.examples.removed);
    let row = |row: &Map<String, Value>| {
        let cells = diff.names.iter().map(|name| format!("{name} {}", plain(&row[name])));
        cells.collect::<Vec<_>>().join(", ")
    };
    let lists: [(&str, u64, Vec<String>); 3] = [
        ("changed", diff.changed, changed),
        ("added", diff.added, added.iter().map(row).collect()),
        ("removed", diff.removed, removed.iter().map(row).collect()),
    ];
    for (what, all, lines) in lists.into_iter().filter(|(_, _, lines)| !lines.is_empty()) {
        let first = if all > lines.len() as u64 { format!(", the first {}", lines.len()) } else { String::new() };
        text.push_str(&format!("\n{what}{first}\n"));
        lines.iter().for_each(|line| text.push_str(&format!("  {}\n", cut(line))));
    }
    text
}

fn changed_line(one: &Changed) -> String {
    let key = one.key.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>();
    let values = one.values.iter().map(|(name, old, new)| format!("{name} {} -> {}", plain(old), plain(new)));
    format!("{}: {}", key.join(", "), values.collect::<Vec<_>>().join(", "))
}

/// A line of 80 columns at most, on one line.
pub(super) fn cut(line: &str) -> String {
    let line: String =
        line.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect();
    match line.chars().count() > WIDTH - 2 {
        true => line.chars().take(WIDTH - 3).chain(['…']).collect(),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_row_tells_its_key_and_both_values() {
        let key = Map::from_iter([("id".to_owned(), json!(7))]);
        let one = Changed { key, values: vec![("status".to_owned(), json!("new"), Value::Null)] };
        assert_eq!(changed_line(&one), "id 7: status new -> NULL");
        assert_eq!(cut(&"x".repeat(90)).chars().count(), 78);
        assert_eq!(cut("a\nb"), "a\\nb");
    }
}
