//! `orchestrator table restore`: a table taken back to an earlier version.

use lake::history::{moment, version_at};
use lake::report::{EXIT_DONE, EXIT_FAILED, counted, error_text, size, thousands, wrapped};
use lake::restore::{Along, Difference, Moved, Way};
use lake::run::RunContext;
use lake::{Error, Lake, Layer, TableName};
use serde_json::{Value, json};

use super::one_name;
use crate::spec::Project;
use cli::{Failure, Output, Printer};

/// A table was taken back. Details: `table`, `to`, and the figures.
const RESTORED: &str = "restore";

/// Take a table back to an earlier version: rows, columns and properties as they were, as a new version
///
/// What comes after is told first, and nothing is changed without `--yes`. The next run goes on from there: a silver table
/// applies the batches of bronze again that came since (mend the spec before, or say `--keep-offset`), a gold table is
/// brought up to date. Batches that leave a bronze table do not come back by themselves: `bronze reingest` brings files
/// again. To take out a bad file, restore its bronze table and the silver table.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table restore silver.orders --version 4
  orchestrator table restore silver.orders --version 4 --yes
  orchestrator table restore silver.orders --timestamp '2024-05-01 10:00' --yes")]
pub(super) struct Args {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The version: `orchestrator table history` shows them
    #[arg(long, value_name = "N", required_unless_present = "timestamp", conflicts_with = "timestamp")]
    version: Option<u64>,
    /// The version that was the newest at this time (in the pipeline's zone unless it has an offset)
    #[arg(long, value_name = "TIME")]
    timestamp: Option<String>,
    /// Silver: what came since is not applied again
    #[arg(long)]
    keep_offset: bool,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// What taking a table back means.
struct Preview {
    name: TableName,
    from: u64,
    to: u64,
    rows: (Option<u64>, Option<u64>),
    difference: Difference,
    along: Along,
    /// What the next run does, and what else is to be known.
    next: Vec<String>,
}

impl Preview {
    fn is_empty(&self) -> bool {
        self.difference.is_empty() && self.along.txns.is_empty()
    }
}

pub(super) async fn run(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let name = one_name(lake, &args.table).await?;
    if !matches!(name.layer, Layer::Bronze | Layer::Silver | Layer::Gold | Layer::Delta) {
        let error = Error::spec(format!("{name} is the program's own: what it holds follows from other tables"));
        return Err(error.hint("restore the bronze, silver or gold table that it belongs to").into());
    }
    if args.keep_offset && name.layer != Layer::Silver {
        let error = Error::spec(format!("`--keep-offset` is for silver tables, and {name} is none"));
        return Err(error.hint("batches of bronze stay taken; gold is what its sources make of it").into());
    }
    let to = version(project, lake, args, &name).await?;
    let context = RunContext::new(lake);
    let mut preview = None;
    let done = lake::commit::redoing(lake.clock(), async || {
        let mut way = Way::open(lake, &name, to).await?;
        let known = look(&way, args.keep_offset, project.task(&name).is_some()).await?;
        let is_wanted = args.yes && !args.dry_run && !known.is_empty();
        let along = known.along.clone();
        preview = Some(known);
        if !is_wanted {
            return Ok(None);
        }
        way.restore(&along, &context.run).await.map(|outcome| Some(outcome.version()))
    });
    let done = done.await?;
    let preview = preview.ok_or_else(|| Error::internal("nothing was looked at"))?;
    match args.output {
        Output::Json => printer.data(&format!("{}\n", object(&preview, done)))?,
        Output::Table => printer.data(&text(&preview, done))?,
    }
    if done.is_none() && !args.dry_run && !preview.is_empty() {
        return Err(Error::spec("nothing was changed").hint("add `--yes` to do it").into());
    }
    if done.is_some() {
        let task = name.to_string();
        let message = format!("{task} is what it was in version {to}");
        let details = object(&preview, done);
        context.events.record(Some(&task), RESTORED, lake::events::Level::Info, message, details);
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("the table is restored, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_DONE)
}

async fn version(project: &Project, lake: &Lake, args: &Args, name: &TableName) -> Result<u64, Error> {
    match (args.version, &args.timestamp) {
        (Some(version), _) => Ok(version),
        (None, Some(text)) => {
            let at = moment(text, project.header.timezone).map_err(|error| {
                let hint = error.hint_text().unwrap_or_default().to_owned();
                Error::spec(error.to_string()).hint(hint)
            })?;
            version_at(&lake.existing(name).await?, at).await
        }
        (None, None) => Err(Error::internal("neither a version nor a time was given")),
    }
}

/// Finds out what taking the table back means, and that it can be done. `is_task` says whether a run writes it.
async fn look(way: &Way, keep_offset: bool, is_task: bool) -> Result<Preview, Error> {
    way.check().await?;
    let moved = way.moved().await?;
    let name = way.now.name().clone();
    let along = match name.layer {
        Layer::Silver => silver::restore::along(way, &moved, keep_offset)?,
        Layer::Gold => gold::restore::along(way, &moved),
        Layer::Bronze => bronze::restore::along(way, &moved)?,
        _ => Along::default(),
    };
    let difference = way.difference()?;
    Ok(Preview {
        from: way.now.version(),
        to: way.then.version(),
        rows: (way.now.row_count()?, way.then.row_count()?),
        next: if is_task { next(&name, &moved, keep_offset) } else { Vec::new() },
        name,
        difference,
        along,
    })
}

/// What follows, in words.
fn next(name: &TableName, moved: &[Moved], keep_offset: bool) -> Vec<String> {
    let batches = |first: i64, last: i64| match first >= last {
        true => format!("batch {last}"),
        false => format!("batches {first} to {last}"),
    };
    let span = |moved: &Moved| batches(moved.then.unwrap_or(0) + 1, moved.now.unwrap_or(0));
    match name.layer {
        Layer::Bronze => {
            let own = moved.iter().filter(|moved| moved.app == name.name);
            own.map(|moved| {
                format!(
                    "gone from the table for good: {} (`bronze reingest` brings files again). Silver tables keep what \
                     they applied of it: restore them as well",
                    span(moved)
                )
            })
            .collect()
        }
        Layer::Silver => {
            let own = format!("{name}:bronze.");
            let sources = moved.iter().filter_map(|moved| Some((moved.app.strip_prefix(&own)?, moved)));
            sources
                .map(|(source, moved)| match keep_offset {
                    true => format!("the next run does not apply again: {} of bronze.{source}", span(moved)),
                    false => format!(
                        "the next run applies {} of bronze.{source} again: mend the spec or the source before, or say \
                         `--keep-offset`",
                        span(moved)
                    ),
                })
                .collect()
        }
        _ => vec!["the next run brings the table up to date with its sources".to_owned()],
    }
}

fn object(preview: &Preview, done: Option<u64>) -> Value {
    let Preview { name, from, to, rows, difference, next, .. } = preview;
    let properties =
        difference.properties.iter().map(|(key, (now, then))| json!({"name": key, "from": now, "to": then}));
    json!({
        "table": name.to_string(),
        "from": from,
        "to": to,
        "version": done,
        "rows": {"from": rows.0, "to": rows.1},
        "files_removed": difference.files_removed.0,
        "bytes_removed": difference.files_removed.1,
        "files_restored": difference.files_restored.0,
        "bytes_restored": difference.files_restored.1,
        "columns_removed": difference.columns_removed,
        "columns_restored": difference.columns_restored,
        "properties": properties.collect::<Vec<_>>(),
        "next": next,
    })
}

fn text(preview: &Preview, done: Option<u64>) -> String {
    let Preview { name, from, to, rows, difference, next, .. } = preview;
    if preview.is_empty() {
        return format!("{name} is what it was in version {to}: there is nothing to do\n");
    }
    let mut lines = vec![match done {
        Some(version) => format!("{name} is what it was in version {to} (version {version}, it was {from})"),
        None => format!("{name} would become what it was in version {to} (it is at {from})"),
    }];
    let count = |rows: Option<u64>| rows.map_or("unknown".to_owned(), thousands);
    lines.push(format!("  rows        {} -> {}", count(rows.0), count(rows.1)));
    let files = |(number, bytes): (u64, u64)| {
        format!("{} ({})", counted(usize::try_from(number).unwrap_or(usize::MAX), "file"), size(bytes))
    };
    let (gone, come) = (files(difference.files_removed), files(difference.files_restored));
    lines.push(format!("  data        {gone} out, {come} back"));
    lines.extend(difference.columns_removed.iter().map(|column| format!("  column      without `{column}`")));
    lines.extend(difference.columns_restored.iter().map(|column| format!("  column      with `{column}`")));
    let shown = difference.properties.iter().filter(|(key, _)| !key.starts_with("lakehouse."));
    lines.extend(shown.map(|(key, (now, then))| {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        format!("  property    {key}: {} -> {}", value(now), value(then))
    }));
    lines.extend(next.iter().map(|line| wrapped("  then        ", 14, line)));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_names_the_batches() {
        let moved = |app: &str, then, now| Moved { app: app.to_owned(), then, now: Some(now), came: vec![now] };
        let all = [moved("silver.orders:bronze.orders_cdc", Some(4), 6), moved("silver.orders:columns", None, 9)];
        let told = next(&TableName::silver("orders"), &all, false);
        assert!(told[0].starts_with("the next run applies batches 5 to 6 of bronze.orders_cdc again"), "{told:?}");
        assert_eq!(told.len(), 1);
        let told = next(&TableName::silver("orders"), &all, true);
        assert_eq!(told, ["the next run does not apply again: batches 5 to 6 of bronze.orders_cdc"]);
        let told = next(&TableName::bronze("s"), &[moved("s", None, 1)], false);
        assert!(told[0].starts_with("gone from the table for good: batch 1 ("), "{told:?}");
    }
}
