//! `orchestrator table verify`: whether tables are sound.

use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit};
use lake::report::{EXIT_DONE, counted, thousands};
use lake::verify::{Found, Problem, verify};
use lake::{Error, ErrorKind, Lake, Table, TableName};
use serde_json::{Value, json};

use super::{chosen, keys_of};
use crate::spec::Project;
use crate::tools::diff::{objects, plain};
use cli::{Failure, Output, Printer};

/// Problems that are named one by one.
const NAMED_MAX: usize = 10;
const COUNT: &str = "__count";

/// Whether tables are sound: log and files agree, statistics are right, no key comes twice
///
/// Every data file is looked for and read. Exit code 1 when something is wrong, with what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator table verify
  orchestrator table verify silver.orders --output json
  orchestrator table verify --quick")]
pub(super) struct Args {
    /// The tables: `silver.orders`; none is every table of the lake
    pub(super) tables: Vec<String>,
    /// Files are looked for and opened, but their values not read
    #[arg(long)]
    quick: bool,
    /// How it is told
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// What was found out about a table.
struct Verdict {
    name: TableName,
    version: Option<u64>,
    found: Found,
    /// What is wrong beside files: the table cannot be opened, keys come twice.
    others: Vec<String>,
}

impl Verdict {
    fn holds(&self) -> bool {
        self.found.problems.is_empty() && self.others.is_empty()
    }
}

pub(super) async fn run(project: &Project, lake: &Lake, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let mut verdicts = Vec::new();
    for name in chosen(lake, &args.tables).await? {
        let verdict = match lake.table(&name).await {
            Ok(Some(table)) => one(project, lake, &table, args.quick).await?,
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::Table => {
                let why = error.causes().pop().unwrap_or_else(|| error.to_string());
                let others = vec![format!("it cannot be opened: {why}")];
                Verdict { name, version: None, found: Found::default(), others }
            }
            Err(error) => return Err(error.into()),
        };
        verdicts.push(verdict);
    }
    match args.output {
        Output::Json => {
            printer.data(&format!("{}\n", verdicts.iter().map(object).collect::<Value>()))?;
        }
        Output::Table => printer.data(&verdicts.iter().map(text).collect::<String>())?,
    }
    let broken: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.holds()).collect();
    if broken.is_empty() {
        return Ok(EXIT_DONE);
    }
    let names = broken.iter().map(|verdict| verdict.name.to_string()).collect::<Vec<_>>().join(", ");
    let is_loss = broken.iter().any(|verdict| verdict.found.problems.iter().any(|problem| problem.is_loss));
    let hint = match is_loss {
        true => {
            "files that are gone or damaged: put them back from a copy, go back to a version without them (`orchestrator \
             table restore`), or make the table anew (`silver rebuild`, `gold rebuild`)"
        }
        false => {
            "the rows are there, but queries may miss or double them: make the table anew (`silver rebuild`, `gold \
             rebuild`), or have its writer write it again"
        }
    };
    Err(Error::new(ErrorKind::Data, format!("not sound: {names}")).hint(hint).into())
}

async fn one(project: &Project, lake: &Lake, table: &Table, quick: bool) -> Result<Verdict, Error> {
    let found = verify(lake, table, !quick).await?;
    let mut others = Vec::new();
    // Rows of files that are gone cannot be asked.
    let has_loss = found.problems.iter().any(|problem| problem.is_loss);
    let keys = keys_of(project, table.name());
    let known = keys.iter().all(|key| table.schema().index_of(key).is_ok());
    if !has_loss && !quick && !keys.is_empty() && known {
        others.extend(twice(lake, table, &keys).await?);
    }
    Ok(Verdict { name: table.name().clone(), version: Some(table.version()), found, others })
}

/// What is wrong when keys come twice.
async fn twice(lake: &Lake, table: &Table, keys: &[String]) -> Result<Option<String>, Error> {
    let session = lake.session()?;
    let rows = session.context().read_table(session.provider(table).await?)?;
    let columns: Vec<Expr> = keys.iter().map(ident).collect();
    let order = columns.iter().map(|key| key.clone().sort(true, true)).collect();
    let twice = rows.aggregate(columns, vec![count(lit(1)).alias(COUNT)])?.filter(ident(COUNT).gt(lit(1)))?;
    let all = twice.clone().count().await?;
    if all == 0 {
        return Ok(None);
    }
    let first = objects(&twice.sort(order)?.limit(0, Some(3))?.collect().await?)?;
    let words = first
        .iter()
        .map(|row| keys.iter().map(|key| format!("{key} {}", plain(&row[key]))).collect::<Vec<_>>().join(", "));
    let more = if all > first.len() { "; …" } else { "" };
    let what = format!("{} come more than once: ", counted(all, "key"));
    Ok(Some(format!("{what}{}{more}", words.collect::<Vec<_>>().join("; "))))
}

fn object(verdict: &Verdict) -> Value {
    let problem = |problem: &Problem| json!({"file": problem.path, "what": problem.what, "is_loss": problem.is_loss});
    json!({
        "table": verdict.name.to_string(),
        "version": verdict.version,
        "holds": verdict.holds(),
        "files": verdict.found.files,
        "rows": verdict.found.rows,
        "problems": verdict.found.problems.iter().map(problem).collect::<Vec<_>>(),
        "others": verdict.others,
        "unasked": verdict.found.unasked,
    })
}

fn text(verdict: &Verdict) -> String {
    let Verdict { name, version, found, others } = verdict;
    let word = if verdict.holds() { "ok     " } else { "BROKEN " };
    let at = version.map(|version| format!(" version {version}")).unwrap_or_default();
    let files = counted(usize::try_from(found.files).unwrap_or(usize::MAX), "file");
    let mut text = format!("{word} {name}{at}, {files}, {} rows\n", thousands(found.rows));
    others.iter().chain(&found.unasked).for_each(|line| text.push_str(&format!("          {line}\n")));
    for problem in found.problems.iter().take(NAMED_MAX) {
        text.push_str(&format!("          `{}`\n            {}\n", problem.path, problem.what));
    }
    if found.problems.len() > NAMED_MAX {
        text.push_str(&format!("          and {} more\n", found.problems.len() - NAMED_MAX));
    }
    text
}
