//! What a run would do, without doing it: the files that wait, the tasks that have something to do, and why.

use std::collections::{BTreeMap, BTreeSet};

use bronze::SourcePlan;
use bronze::discover::FoundFile;
use lake::report::grid::{Align, Grid};
use lake::report::{counted, size};
use lake::{Lake, Result, TableName};
use serde_json::{Value, json};
use silver::TablePlan;

use crate::run::Place;
use crate::spec::{Job, Project, Task};

/// Waiting files that are listed for a person, per source.
const LISTED_MAX: usize = 5;

/// The outlook of a run.
#[derive(Debug)]
pub(crate) struct Forecast(Vec<Outlook>);

#[derive(Debug)]
struct Outlook {
    task: TableName,
    verdict: Verdict,
    because: String,
    /// How a model follows its sources, in a few words.
    how: Option<String>,
    /// Files that wait, in the order of their names.
    files: Vec<FoundFile>,
}

/// What a task would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It has something to do.
    Runs,
    /// It has something to do if a task before it changes its table.
    Follows,
    /// There is nothing new for it.
    UpToDate,
    /// It is not part of the run.
    LeftOut,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Follows => "follows",
            Self::UpToDate => "up_to_date",
            Self::LeftOut => "left_out",
        }
    }
}

/// Looks at the landing zone and the tables, and changes nothing. `anew` are the tasks whose tables a run would make anew.
///
/// # Errors
/// [`lake::ErrorKind::Store`] or [`lake::ErrorKind::Table`] when one of them cannot be read.
pub(crate) async fn forecast(
    project: &Project,
    place: &Place,
    chosen: &BTreeSet<TableName>,
    anew: &BTreeSet<TableName>,
) -> Result<Forecast> {
    let mut verdicts: BTreeMap<TableName, Verdict> = BTreeMap::new();
    let mut outlooks = Vec::new();
    for task in project.graph.order().filter_map(|name| project.task(name)) {
        let outlook = match chosen.contains(&task.name) {
            true if anew.contains(&task.name) => Outlook::new(&task.name, Verdict::Runs, "it is made anew"),
            true => outlook(task, project, place, &verdicts).await?,
            false => {
                let because = if task.disabled { "disabled in `tasks`" } else { "not selected" };
                Outlook::new(&task.name, Verdict::LeftOut, because)
            }
        };
        verdicts.insert(task.name.clone(), outlook.verdict);
        outlooks.push(outlook);
    }
    Ok(Forecast(outlooks))
}

async fn outlook(
    task: &Task,
    project: &Project,
    place: &Place,
    verdicts: &BTreeMap<TableName, Verdict>,
) -> Result<Outlook> {
    let own = match &task.job {
        Job::Bronze(plan) => return of_source(plan, place).await,
        Job::Silver(plan) => of_silver(plan, &place.lake).await?,
        Job::Gold(plan) => of_gold(plan, place, project).await?,
    };
    let moves = |name: &&TableName| matches!(verdicts.get(*name), Some(Verdict::Runs | Verdict::Follows));
    let before: Vec<String> =
        project.graph.needs(&task.name).into_iter().filter(moves).map(ToString::to_string).collect();
    let outlook = match own {
        Some(because) => Outlook::new(&task.name, Verdict::Runs, because),
        None if before.is_empty() => return Ok(Outlook::new(&task.name, Verdict::UpToDate, "nothing new")),
        None => Outlook::new(&task.name, Verdict::Follows, format!("if {} brings something", before.join(" or "))),
    };
    let how = match &task.job {
        Job::Gold(plan) => how(plan, &place.lake).await?,
        _ => None,
    };
    Ok(Outlook { how, ..outlook })
}

/// How a model follows its sources; `None` before there is a table, or when a source has none.
async fn how(plan: &gold::Plan, lake: &Lake) -> Result<Option<String>> {
    let Some(model) = plan.model() else { return Ok(None) };
    for table in model.sources.iter().chain([&model.table]) {
        if lake.table(table).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(gold::explain::explain(lake, model).await?.in_short()))
}

async fn of_source(plan: &SourcePlan, place: &Place) -> Result<Outlook> {
    let waiting = bronze::waiting(&place.lake, &place.landing, plan).await?;
    let mut because = Vec::new();
    if !waiting.planned.is_empty() {
        because.push("a planned batch is not finished".to_owned());
    }
    if !waiting.new.is_empty() {
        let bytes = waiting.new.iter().map(|file| file.size).sum();
        because.push(format!("{}, {}", counted(waiting.new.len(), "new file"), size(bytes)));
    }
    let verdict = if because.is_empty() { Verdict::UpToDate } else { Verdict::Runs };
    if because.is_empty() {
        because.push(if waiting.missing { format!("no folder `{}`", plan.folder) } else { "no new files".to_owned() });
    }
    Ok(Outlook { files: waiting.new, ..Outlook::new(&plan.table, verdict, because.join(", ")) })
}

/// Why a silver table has something to do by what bronze holds already.
async fn of_silver(plan: &TablePlan, lake: &Lake) -> Result<Option<String>> {
    let source = TableName::bronze(&plan.source);
    let Some(bronze) = lake.table(&source).await? else { return Ok(None) };
    let Some(last) = bronze.txn_version(&plan.source).await? else { return Ok(None) };
    let applied = match lake.table(&plan.table).await? {
        None => return Ok(Some("the table does not exist yet".to_owned())),
        Some(table) => table.txn_version(&format!("{}:{source}", plan.table)).await?,
    };
    Ok(match applied {
        None => Some(format!("no batch of {source} is applied yet")),
        Some(applied) if applied < last => Some(format!("batches {} to {last} of {source}", applied + 1)),
        Some(_) => None,
    })
}

/// Why a gold table has something to do by what its sources hold already.
async fn of_gold(plan: &gold::Plan, place: &Place, project: &Project) -> Result<Option<String>> {
    let mut newest = Vec::new();
    for name in plan.sources() {
        match place.lake.table(&name).await? {
            Some(table) => newest.push((name, i64::try_from(table.version()).unwrap_or(i64::MAX))),
            None => return Ok(None),
        }
    }
    let Some(table) = place.lake.table(plan.table()).await? else {
        return Ok(Some("the table does not exist yet".to_owned()));
    };
    for (name, newest) in newest {
        match table.txn_version(&format!("{}:{name}", plan.table())).await? {
            Some(held) if held >= newest => {}
            Some(held) => return Ok(Some(format!("{name} is at version {newest}, and {held} is in"))),
            None => return Ok(Some(format!("nothing of {name} is in yet"))),
        }
    }
    Ok(match plan {
        gold::Plan::Model(model) if !model.unstable.is_empty() => {
            let functions: Vec<&str> = model.unstable.iter().map(String::as_str).collect();
            Some(format!("{} differs from run to run", functions.join(", ")))
        }
        gold::Plan::Snapshot(snapshot) if snapshot.strategy == gold::spec::Strategy::Full => {
            let day = place.lake.clock().today(project.header.timezone);
            let of_day = table.txn_version(&format!("{}:{}:{day}", snapshot.table, snapshot.source)).await?;
            of_day.is_none().then(|| format!("{day} is not recorded yet"))
        }
        _ => None,
    })
}

impl Outlook {
    fn new(task: &TableName, verdict: Verdict, because: impl Into<String>) -> Self {
        Self { task: task.clone(), verdict, because: because.into(), how: None, files: Vec::new() }
    }
}

impl Outlook {
    fn why(&self) -> String {
        match &self.how {
            Some(how) => format!("{}; {how}", self.because),
            None => self.because.clone(),
        }
    }
}

impl Forecast {
    /// The outlook for a person.
    pub(crate) fn to_text(&self) -> String {
        let mut grid = Grid::new();
        grid.column("task", None, Align::Left, self.0.iter().map(|task| task.task.to_string()));
        let verdicts = self.0.iter().map(|task| task.verdict.as_str().replace('_', " "));
        grid.column("outlook", None, Align::Left, verdicts);
        grid.column("why", None, Align::Left, self.0.iter().map(Outlook::why));
        let mut out = grid.render(usize::MAX);
        for task in self.0.iter().filter(|task| !task.files.is_empty()) {
            out.push_str(&format!("\n{} would take\n", task.task));
            for file in task.files.iter().take(LISTED_MAX) {
                out.push_str(&format!("  {}  {}\n", file.path, size(file.size)));
            }
            if task.files.len() > LISTED_MAX {
                out.push_str(&format!("  and {}\n", counted(task.files.len() - LISTED_MAX, "more file")));
            }
        }
        out
    }

    /// The outlook for a program.
    pub(crate) fn to_json(&self) -> Value {
        let file = |file: &FoundFile| json!({"path": file.path, "size": file.size});
        let object = |task: &Outlook| {
            json!({
                "task": task.task.to_string(),
                "outlook": task.verdict.as_str(),
                "why": task.because,
                "how": task.how,
                "files": task.files.iter().map(file).collect::<Vec<_>>(),
            })
        };
        json!({"tasks": self.0.iter().map(object).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outlook_names_waiting_files() {
        let file =
            |path: &str| FoundFile { path: path.to_owned(), size: 2_048, modified_us: 0, etag: None, unreadable: None };
        let orders = TableName::bronze("orders_cdc");
        let files = (0..7).map(|n| file(&format!("orders/{n}.csv"))).collect();
        let forecast = Forecast(vec![
            Outlook { files, ..Outlook::new(&orders, Verdict::Runs, "7 new files, 14.0 KiB") },
            Outlook::new(&TableName::silver("orders"), Verdict::Follows, "if bronze.orders_cdc brings something"),
            Outlook::new(&TableName::gold("sales"), Verdict::LeftOut, "not selected"),
        ]);
        assert_eq!(
            forecast.to_text(),
            "\
task               outlook   why
bronze.orders_cdc  runs      7 new files, 14.0 KiB
silver.orders      follows   if bronze.orders_cdc brings something
gold.sales         left out  not selected

bronze.orders_cdc would take
  orders/0.csv  2.0 KiB
  orders/1.csv  2.0 KiB
  orders/2.csv  2.0 KiB
  orders/3.csv  2.0 KiB
  orders/4.csv  2.0 KiB
  and 2 more files
"
        );
        assert_eq!(forecast.to_json()["tasks"][2]["outlook"], "left_out");
    }
}
