//! `orchestrator table tag | untag`: versions that have a name, which upkeep keeps readable.

use lake::report::{EXIT_DONE, EXIT_FAILED, error_text};
use lake::run::RunContext;
use lake::tags::set_tag;
use lake::{Error, Lake, Retry};
use serde_json::{Value, json};

use super::{at_version, one_name};
use cli::{Failure, Output, Printer};

/// A version was given a name, or lost it. Details: `table`, `tag`, `version`.
const TAGGED: &str = "table_tag";

/// Give a version of a table a name: `vacuum` and log cleaning keep all that it needs, until the name is taken away
///
/// `describe` shows the names. The log is kept from the oldest named version on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table tag silver.orders year-end --version 41")]
pub(super) struct Tag {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The name
    name: String,
    /// The version. Default: the newest
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// Take the name of a version away: upkeep treats it as any other
#[derive(Debug, clap::Args)]
pub(super) struct Untag {
    /// The table: `silver.orders`, or the path of any Delta table
    pub(super) table: String,
    /// The name
    name: String,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn tag(lake: &Lake, args: &Tag, printer: &Printer) -> Result<u8, Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if args.name.is_empty() || !args.name.chars().all(is_plain) {
        let error = Error::spec(format!("`{}` is no name of a version", args.name));
        return Err(error.hint("write letters, digits, `-`, `_` and `.`").into());
    }
    let table = one_name(lake, &args.table).await?;
    let context = RunContext::new(lake);
    let mut version = 0;
    let done = lake::commit::redoing(lake.clock(), async || {
        let mut held = lake.existing(&table).await?;
        version = args.version.unwrap_or_else(|| held.version());
        // Fails when it cannot be read any more.
        at_version(lake, &held, version).await?;
        set_tag(&mut held, &args.name, Some(version), &context.run).await
    });
    let is_changed = done.await?.is_some();
    // A vacuum that looked before there was a name may have removed files meanwhile.
    if is_changed && let Err(error) = at_version(lake, &lake.existing(&table).await?, version).await {
        if error.retry() != Retry::Never {
            return Err(error
                .context(format!("version {version} of {table} is `{}`; looking at its files", args.name))
                .into());
        }
        let taken_back = async || set_tag(&mut lake.existing(&table).await?, &args.name, None, &context.run).await;
        lake::commit::redoing(lake.clock(), taken_back).await?;
        return Err(error.context(format!("the name `{}` was taken back", args.name)).into());
    }
    let told = json!({"table": table.to_string(), "tag": args.name, "version": version, "changed": is_changed});
    let text = format!("version {version} of {table} is `{}`", args.name);
    tell(lake, &context, args.output, told, text, printer).await
}

pub(super) async fn untag(lake: &Lake, args: &Untag, printer: &Printer) -> Result<u8, Failure> {
    let table = one_name(lake, &args.table).await?;
    let context = RunContext::new(lake);
    let done = lake::commit::redoing(lake.clock(), async || {
        let mut held = lake.existing(&table).await?;
        let tags = lake::tags::tags(&held)?;
        if !tags.contains_key(&args.name) {
            let error = Error::spec(format!("{table} has no version `{}`", args.name));
            let hint = lake::spec::did_you_mean(&args.name, tags.keys().map(String::as_str));
            return Err(error.hint(hint.unwrap_or_else(|| "`orchestrator table describe` shows them".to_owned())));
        }
        set_tag(&mut held, &args.name, None, &context.run).await
    });
    let is_changed = done.await?.is_some();
    let told = json!({"table": table.to_string(), "tag": args.name, "version": null, "changed": is_changed});
    tell(lake, &context, args.output, told, format!("no version of {table} is `{}` any more", args.name), printer).await
}

async fn tell(
    lake: &Lake,
    context: &RunContext,
    output: Output,
    told: Value,
    text: String,
    printer: &Printer,
) -> Result<u8, Failure> {
    match output {
        Output::Json => printer.data(&format!("{told}\n"))?,
        Output::Table => printer.data(&format!("{text}\n"))?,
    }
    if told["changed"] == true {
        let task = told["table"].as_str().map(str::to_owned);
        context.events.record(task.as_deref(), TAGGED, lake::events::Level::Info, text, told);
        if let Err(error) = context.events.flush(lake).await {
            printer.note(&error_text(&error.context("it is done, but that was not recorded")));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_DONE)
}
