//! How the tables of a spec stand: how fresh they are, what they have not taken yet, what is refused, how they were run.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use lake::lease::{Holder, Lease};
use lake::quarantine::Quarantine;
use lake::report::grid::{Align, Grid, NOTHING};
use lake::report::{WIDTH, counted, size, thousands};
use lake::{Lake, Layer, Result, Table, TableName};
use serde_json::{Map, Value, json};

use super::history::last_of_tasks;
use super::outcome::refused;
use crate::run::Place;
use crate::spec::{Job, Project, Task};

/// How all tables stand.
#[derive(Debug)]
pub(crate) struct Status {
    now: DateTime<Utc>,
    at_work: Vec<Holder>,
    tables: Vec<Standing>,
}

#[derive(Debug)]
struct Standing {
    task: TableName,
    is_disabled: bool,
    version: Option<u64>,
    changed_at: Option<DateTime<Utc>>,
    behind: Behind,
    /// Records in quarantine that nothing was decided about.
    open: u64,
    last: Option<Last>,
}

/// What a table has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Behind {
    /// Files that wait, of how many bytes, and files that are refused.
    Files { new: u64, bytes: u64, refused: u64 },
    /// Batches of bronze that hold something for it, and rows in them.
    Batches { batches: u64, rows: u64 },
    /// Versions of each source that has newer ones.
    Versions(BTreeMap<TableName, u64>),
    /// There is nothing to take it from yet.
    NoSource,
}

#[derive(Debug)]
struct Last {
    run: String,
    status: String,
    /// Files that it refused.
    refused: usize,
    at: Option<DateTime<Utc>>,
}

/// Looks at the landing zone, the tables and the event log, and changes nothing.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Table`] when one of them cannot be read.
pub(crate) async fn status(project: &Project, place: &Place) -> Result<Status> {
    let lake = &place.lake;
    let mut last = last_of_tasks(lake).await?;
    let open = open_records(project, lake).await?;
    let mut tables = Vec::new();
    for task in project.graph.order().filter_map(|name| project.task(name)) {
        let table = lake.table(&task.name).await?;
        let changed_at = match &table {
            Some(table) => lake::history::history(table, 1).await?.first().and_then(|version| version.at),
            None => None,
        };
        let name = task.name.to_string();
        tables.push(Standing {
            task: task.name.clone(),
            is_disabled: task.disabled,
            version: table.as_ref().map(Table::version),
            changed_at,
            behind: behind(task, place, table.as_ref()).await?,
            open: open.get(&name).copied().unwrap_or(0),
            last: last.remove(&name).map(|event| Last {
                status: event.details["status"].as_str().unwrap_or_default().to_owned(),
                refused: refused(&event.details),
                run: event.run,
                at: event.at,
            }),
        });
    }
    let at_work = Lease::holders(lake).await?;
    Ok(Status { now: lake.clock().now(), at_work, tables })
}

/// Open records by the table that refused them.
async fn open_records(project: &Project, lake: &Lake) -> Result<BTreeMap<String, u64>> {
    let mut open: BTreeMap<String, u64> = BTreeMap::new();
    for task in project.tasks.iter().filter(|task| task.name.layer == Layer::Bronze) {
        let Some(quarantine) = Quarantine::open(lake, &task.name.name).await? else { continue };
        for (table, records) in quarantine.open_records()? {
            *open.entry(table).or_default() += records;
        }
    }
    Ok(open)
}

async fn behind(task: &Task, place: &Place, table: Option<&Table>) -> Result<Behind> {
    match &task.job {
        Job::Bronze(plan) => {
            let waiting = bronze::waiting(&place.lake, &place.landing, plan).await?;
            let files = waiting.planned.iter().chain(&waiting.new);
            Ok(Behind::Files {
                new: files.clone().count() as u64,
                bytes: files.map(|file| file.size).sum(),
                refused: waiting.refused.len() as u64,
            })
        }
        Job::Silver(plan) => {
            let waiting = silver::waiting(&place.lake, plan, false).await?;
            if waiting.no_source {
                return Ok(Behind::NoSource);
            }
            Ok(Behind::Batches { batches: waiting.batch_count, rows: waiting.rows })
        }
        Job::Gold(plan) => {
            let mut versions = BTreeMap::new();
            for name in plan.sources() {
                let Some(source) = place.lake.table(&name).await? else { return Ok(Behind::NoSource) };
                let held = match table {
                    Some(table) => table.txn_version(&format!("{}:{name}", plan.table())).await?,
                    None => None,
                };
                // The first version of a table is the one that makes it.
                let held = held.and_then(|held| u64::try_from(held).ok()).unwrap_or(0);
                versions.insert(name, source.version().saturating_sub(held));
            }
            versions.retain(|_, behind| *behind > 0);
            Ok(Behind::Versions(versions))
        }
    }
}

impl Behind {
    fn to_text(&self) -> String {
        let more = |number: u64, noun: &str| counted(usize::try_from(number).unwrap_or(usize::MAX), noun);
        match self {
            Self::Files { new, bytes, refused } => {
                let files = (*new > 0).then(|| more(*new, "file"));
                let bytes = (*new > 0 && *refused == 0).then(|| size(*bytes));
                let refused = (*refused > 0).then(|| format!("{refused} refused"));
                let parts: Vec<String> = files.into_iter().chain(bytes).chain(refused).collect();
                if parts.is_empty() { NOTHING.to_owned() } else { parts.join(", ") }
            }
            Self::Batches { batches: 0, .. } => NOTHING.to_owned(),
            // Extracts without records.
            Self::Batches { batches: 1, rows: 0 } => "1 batch".to_owned(),
            Self::Batches { batches, rows: 0 } => format!("{batches} batches"),
            Self::Batches { rows, .. } => more(*rows, "row"),
            Self::Versions(versions) if versions.is_empty() => NOTHING.to_owned(),
            Self::Versions(versions) => more(versions.values().sum(), "version"),
            Self::NoSource => "no source yet".to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Files { new, bytes, refused } => json!({"files": new, "bytes": bytes, "refused_files": refused}),
            Self::Batches { batches, rows } => json!({"batches": batches, "rows": rows}),
            Self::Versions(versions) => {
                let versions: Map<String, Value> =
                    versions.iter().map(|(table, behind)| (table.to_string(), json!(behind))).collect();
                json!({"versions": versions})
            }
            Self::NoSource => Value::Null,
        }
    }
}

impl Status {
    /// The tables for a person.
    pub(crate) fn to_text(&self) -> String {
        let mut grid = Grid::new();
        let tables = || self.tables.iter();
        grid.column("table", None, Align::Left, tables().map(|table| table.task.to_string()));
        let version = |table: &Standing| table.version.map_or(NOTHING.to_owned(), |version| version.to_string());
        grid.column("version", Some("ver."), Align::Right, tables().map(version));
        grid.column("age", None, Align::Right, tables().map(|table| self.ago(table.changed_at)));
        grid.column("waiting", None, Align::Left, tables().map(|table| table.behind.to_text()));
        let open = |table: &Standing| if table.open == 0 { NOTHING.to_owned() } else { thousands(table.open) };
        grid.column("quarantined", Some("quar."), Align::Right, tables().map(open));
        grid.column("last run", None, Align::Left, tables().map(|table| self.last(table)));
        let mut out = grid.render(WIDTH);
        for holder in &self.at_work {
            out.push_str(&format!("\n{} is at work: {holder}\n", holder.what));
        }
        out
    }

    fn last(&self, table: &Standing) -> String {
        match (&table.last, table.is_disabled) {
            (_, true) => "disabled".to_owned(),
            (None, false) => "never".to_owned(),
            (Some(last), false) => {
                let word = match last.status.as_str() {
                    "succeeded" | "up_to_date" if last.refused > 0 => "refused",
                    "succeeded" | "up_to_date" => "ok",
                    other => other,
                };
                format!("{word} {}", self.ago(last.at))
            }
        }
    }

    /// How long ago something was: `45s`, `12m`, `3h`, `5d`.
    fn ago(&self, at: Option<DateTime<Utc>>) -> String {
        let Some(at) = at else { return NOTHING.to_owned() };
        let seconds = (self.now - at).to_std().unwrap_or(Duration::ZERO).as_secs();
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3_600 => format!("{}m", seconds / 60),
            3_600..172_800 => format!("{}h", seconds / 3_600),
            _ => format!("{}d", seconds / 86_400),
        }
    }

    /// The tables for a program.
    pub(crate) fn to_json(&self) -> Value {
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        let object = |table: &Standing| {
            let last = table.last.as_ref();
            json!({
                "table": table.task.to_string(),
                "version": table.version,
                "changed_at": table.changed_at.map(time),
                "waiting": table.behind.to_json(),
                "quarantine_open": table.open,
                "disabled": table.is_disabled,
                "last_run": last.map(|last| json!({
                    "run_id": last.run, "status": last.status, "refused_files": last.refused, "at": last.at.map(time),
                })),
            })
        };
        json!({
            "at": time(self.now),
            "at_work": self.at_work.iter().map(|holder| holder.run.as_str()).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(object).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(task: TableName, behind: Behind) -> Standing {
        let (version, changed_at, last) = (None, None, None);
        Standing { task, is_disabled: false, version, changed_at, behind, open: 0, last }
    }

    #[test]
    fn tables_are_told_in_eighty_columns() {
        let now: DateTime<Utc> = "2024-05-03T10:15:00Z".parse().expect("a time");
        let at = |text: &str| text.parse::<DateTime<Utc>>().ok();
        let last = |status: &str, text: &str| {
            let (run, status) = ("20240503T101000-1f2e3d4c".to_owned(), status.to_owned());
            Some(Last { run, status, refused: 0, at: at(text) })
        };
        let waits = BTreeMap::from([(TableName::silver("orders"), 2)]);
        let tables = vec![
            Standing {
                version: Some(12),
                changed_at: at("2024-05-03T10:10:00Z"),
                open: 1_204,
                last: last("up_to_date", "2024-05-03T10:14:15Z"),
                ..table(TableName::bronze("orders_cdc"), Behind::Files { new: 2, bytes: 14_336, refused: 1 })
            },
            Standing {
                last: last("failed", "2024-05-02T22:14:15Z"),
                ..table(TableName::silver("orders"), Behind::Batches { batches: 1, rows: 45_000 })
            },
            Standing {
                is_disabled: true,
                ..table(TableName::gold("products_daily_snapshot"), Behind::Versions(waits))
            },
            table(TableName::gold("sales"), Behind::NoSource),
        ];
        let status = Status { now, at_work: Vec::new(), tables };
        let text = status.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(
            text,
            "\
table                         ver.  age  waiting             quar.  last run
bronze.orders_cdc               12   5m  2 files, 1 refused  1,204  ok 45s
silver.orders                    -    -  45,000 rows             -  failed 12h
gold.products_daily_snapshot     -    -  2 versions              -  disabled
gold.sales                       -    -  no source yet           -  never
"
        );
    }
}
