//! `silver account`: what became of the records of each source file.

use std::collections::BTreeMap;

use cli::{Failure, Output, Place, Printer};
use lake::quarantine::FileGlob;
use lake::report::grid::{Align, Grid, NOTHING};
use lake::report::{WIDTH, counted, thousands};
use lake::{Error, ErrorKind};
use serde_json::{Value, json};
use silver::TablePlan;
use silver::account::{Fates, account};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Account {
    /// The tables, with or without `silver.`; none is every table of the spec
    pub(crate) tables: Vec<String>,
    /// Only such files: a glob of their names, or with a slash of their paths below the landing folder
    #[arg(long, value_name = "GLOB")]
    file: Option<String>,
    /// How the figures are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

impl Account {
    /// Asks, prints, and fails when a record is nowhere.
    pub(crate) async fn answer(&self, plans: Vec<TablePlan>, place: &Place, printer: Printer) -> Result<(), Failure> {
        let glob = self.file.as_deref().map(FileGlob::parse).transpose()?;
        let (mut objects, mut wrong) = (Vec::new(), Vec::new());
        for plan in plans {
            if self.tables.is_empty() && place.lake.table(&plan.table).await?.is_none() {
                printer.note(&format!("{} does not exist yet\n", plan.table));
                continue;
            }
            let mut account = account(&place.lake, &plan).await?;
            account.files.retain(|(_, path), _| glob.as_ref().is_none_or(|glob| glob.matches(path)));
            wrong.extend(offenders(&account));
            match self.output {
                Output::Json => objects.push(to_json(&account)),
                Output::Table => printer.data(&to_text(&account))?,
            }
        }
        if self.output == Output::Json {
            printer.data(&format!("{}\n", Value::from(objects)))?;
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Accounting, format!("records are not accounted for: {}", wrong.join("; ")));
        Err(error
            .hint(
                "when the spec has come to refuse more since they arrived, `silver rebuild` holds the table to it; \
                 otherwise records are missing: `silver verify --rebuild` shows which",
            )
            .into())
    }
}

/// The files that do not add up, in words.
fn offenders(account: &silver::account::Account) -> impl Iterator<Item = String> {
    let wrong = account.files.iter().filter(|(_, fates)| !fates.adds_up());
    wrong.map(|((_, path), fates)| format!("{path} of {}: {} unexplained", account.table, thousands(fates.unexplained)))
}

fn to_json(account: &silver::account::Account) -> Value {
    let file = |((batch, path), fates): (&(i64, String), &Fates)| {
        json!({
            "batch": batch,
            "file": path,
            "records": fates.records,
            "changes": fates.records + fates.added,
            "in_effect": fates.in_effect,
            "superseded": fates.superseded,
            "quarantined": fates.quarantined,
            "dropped": fates.dropped,
            "ignored": fates.ignored,
            "unexplained": fates.unexplained,
        })
    };
    json!({
        "table": account.table.to_string(),
        "version": account.version,
        "batch": account.batch,
        "waiting": account.waiting,
        "files": account.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn to_text(account: &silver::account::Account) -> String {
    let all = account.files.values().fold(Fates::default(), |sum, fates| sum.and(*fates));
    let count = |number: u64, thing| counted(usize::try_from(number).unwrap_or(usize::MAX), thing);
    let mut text = format!(
        "{} version {}: {} of {}\n",
        account.table,
        account.version,
        count(all.records, "record"),
        counted(account.files.len(), "file")
    );
    if account.waiting > 0 {
        text.push_str(&format!("{} of later batches wait for the next run\n", count(account.waiting, "record")));
    }
    if account.files.is_empty() {
        return text;
    }
    let again = repeated(account);
    let name = |(batch, path): &(i64, String)| match again.get(path).copied().unwrap_or_default() > 1 {
        true => format!("{path} (batch {batch})"),
        false => path.clone(),
    };
    let mut grid = Grid::new();
    let total = (account.files.len() > 1).then(|| ("total".to_owned(), all));
    let rows: Vec<(String, Fates)> =
        account.files.iter().map(|(file, fates)| (name(file), *fates)).chain(total).collect();
    let figure = |of: fn(&Fates) -> u64| {
        let cells = rows.iter().map(move |(_, fates)| of(fates));
        cells.map(|number| if number == 0 { NOTHING.to_owned() } else { thousands(number) }).collect::<Vec<_>>()
    };
    grid.column("file", None, Align::Left, rows.iter().map(|(name, _)| name.clone()));
    grid.column("records", None, Align::Right, figure(|fates| fates.records));
    grid.column("added", None, Align::Right, figure(|fates| fates.added));
    grid.column("in effect", None, Align::Right, figure(|fates| fates.in_effect));
    grid.column("superseded", Some("super."), Align::Right, figure(|fates| fates.superseded));
    grid.column("quarantined", Some("quar."), Align::Right, figure(|fates| fates.quarantined));
    grid.column("dropped", None, Align::Right, figure(|fates| fates.dropped));
    grid.column("ignored", None, Align::Right, figure(|fates| fates.ignored));
    text.push('\n');
    text.push_str(&grid.render(WIDTH));
    text
}

/// How many batches each path arrived in.
fn repeated(account: &silver::account::Account) -> BTreeMap<&String, usize> {
    let mut batches = BTreeMap::new();
    account.files.keys().for_each(|(_, path)| *batches.entry(path).or_default() += 1);
    batches
}
