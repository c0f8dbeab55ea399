//! What a run would do, without doing it: the files that wait, the tasks that have something to do, and why.

use std::collections::{BTreeMap, BTreeSet};

use bronze::SourcePlan;
use bronze::discover::FoundFile;
use lake::report::grid::{Align, Grid};
use lake::report::{counted, error_json, indented_error, size, wrapped};
use lake::{Error, Lake, Result, TableName};
use serde_json::{Value, json};
use silver::TablePlan;

use crate::run::{Decision, Dependency, Place, disabled_needs};
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
    /// What a run would fail with.
    error: Option<Error>,
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
    /// It would fail before it takes anything.
    Fails,
    /// It would not be run, because a task that it needs fails.
    Skipped,
    /// Its `run_if` asks for something that would not happen.
    Excluded,
    /// It is not part of the run.
    LeftOut,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Follows => "follows",
            Self::UpToDate => "up_to_date",
            Self::Fails => "fails",
            Self::Skipped => "skipped",
            Self::Excluded => "excluded",
            Self::LeftOut => "left_out",
        }
    }

    /// What the tasks that depend on it see of it; `None` for one that is not part of the run.
    fn as_dependency(self) -> Option<Dependency> {
        match self {
            Self::Runs | Self::Follows | Self::UpToDate => Some(Dependency::Succeeded),
            Self::Fails | Self::Skipped => Some(Dependency::Failed),
            Self::Excluded => Some(Dependency::Excluded),
            Self::LeftOut => None,
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
        let outlook = match (chosen.contains(&task.name), not_run(task, project, chosen, &verdicts)) {
            (false, _) => {
                let because = if task.disabled { "disabled in `tasks`" } else { "not selected" };
                Outlook::new(&task.name, Verdict::LeftOut, because)
            }
            (true, Some(not_run)) => not_run,
            (true, None) if anew.contains(&task.name) => Outlook::new(&task.name, Verdict::Runs, "it is made anew"),
            (true, None) => outlook(task, project, place, &verdicts).await?,
        };
        verdicts.insert(task.name.clone(), outlook.verdict);
        outlooks.push(outlook);
    }
    Ok(Forecast(outlooks))
}

/// The outlook of a task that would not be run, by what would become of those that it depends on.
fn not_run(
    task: &Task,
    project: &Project,
    chosen: &BTreeSet<TableName>,
    verdicts: &BTreeMap<TableName, Verdict>,
) -> Option<Outlook> {
    let needs = project.graph.needs_within(&task.name, chosen);
    let known = || needs.iter().filter_map(|need| Some((need, *verdicts.get(need)?)));
    let disabled = std::iter::repeat_n(Dependency::Disabled, disabled_needs(project, task, chosen));
    let dependencies: Vec<Dependency> =
        known().filter_map(|(_, verdict)| verdict.as_dependency()).chain(disabled).collect();
    match task.run_if.decide(&dependencies) {
        Decision::Run => None,
        Decision::Excluded(because) => Some(Outlook::new(&task.name, Verdict::Excluded, because)),
        Decision::UpstreamFailed => {
            let is = |wanted: Verdict| known().find(|(_, verdict)| *verdict == wanted);
            let failed = is(Verdict::Fails).map(|(need, _)| format!("{need} would fail"));
            let skipped = || is(Verdict::Skipped).map(|(need, _)| format!("{need} would be skipped"));
            let because = failed.or_else(skipped).unwrap_or_else(|| "what it depends on would fail".to_owned());
            Some(Outlook::new(&task.name, Verdict::Skipped, because))
        }
    }
}

async fn outlook(
    task: &Task,
    project: &Project,
    place: &Place,
    verdicts: &BTreeMap<TableName, Verdict>,
) -> Result<Outlook> {
    let moves = |name: &&TableName| matches!(verdicts.get(*name), Some(Verdict::Runs | Verdict::Follows));
    let before: Vec<String> =
        project.graph.needs(&task.name).into_iter().filter(moves).map(ToString::to_string).collect();
    let own = match &task.job {
        Job::Bronze(plan) => return of_source(plan, place).await,
        Job::Silver(plan) => {
            let waiting = silver::waiting(&place.lake, plan, !before.is_empty()).await?;
            if let Some(error) = waiting.unfit {
                return Ok(Outlook::failing(&task.name, error));
            }
            of_silver(plan, &waiting)
        }
        Job::Gold(plan) => of_gold(plan, place, project).await?,
    };
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
    if let Some(error) = waiting.unfit.or(waiting.gone.filter(|_| !place.elsewhere)) {
        return Ok(Outlook::failing(&plan.table, error));
    }
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
fn of_silver(plan: &TablePlan, waiting: &silver::Waiting) -> Option<String> {
    let source = TableName::bronze(&plan.source);
    let batches = waiting.batches.as_ref()?;
    Some(match waiting.applied {
        _ if !waiting.is_made => "the table does not exist yet".to_owned(),
        None => format!("no batch of {source} is applied yet"),
        Some(_) if batches.start() == batches.end() => format!("batch {} of {source}", batches.start()),
        Some(_) => format!("batches {} to {} of {source}", batches.start(), batches.end()),
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
        Self { task: task.clone(), verdict, because: because.into(), how: None, error: None, files: Vec::new() }
    }

    /// The outlook of a task that would fail.
    fn failing(task: &TableName, error: Error) -> Self {
        Self { error: Some(error), ..Self::new(task, Verdict::Fails, "for the reason below") }
    }

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
        let begins = grid.render(usize::MAX);
        let width = begins.lines().map(|line| line.chars().count()).max().unwrap_or(0) + 2;
        let whys = std::iter::once("why".to_owned()).chain(self.0.iter().map(Outlook::why));
        let lines =
            begins.lines().zip(whys).map(|(begin, why)| wrapped(&format!("{begin:<width$}"), width, &why) + "\n");
        let mut out: String = lines.collect();
        for (task, error) in self.0.iter().filter_map(|task| Some((&task.task, task.error.as_ref()?))) {
            out.push_str(&format!("\n{task} would fail\n{}", indented_error(error, 2)));
        }
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
                "why": task.error.as_ref().map_or_else(|| task.because.clone(), Error::to_string),
                "how": task.how,
                "error": task.error.as_ref().map(error_json),
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
        let long = Outlook::new(&TableName::gold("sales"), Verdict::Runs, "word ".repeat(20).trim());
        let text = Forecast(vec![long]).to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.starts_with("                     word")), "{text}");
    }
}
