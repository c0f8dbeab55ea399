//! Files are taken once more: refused ones when their cause is gone, taken ones when somebody asks for just that.
//!
//! The wish is one note in the ledger for all files of a source. It says that nothing which the ledger knows of these
//! contents counts any more, up to the last batch that is planned: the next run finds them like new files and makes
//! them part of one batch. Who asks again before that run changes nothing, since then the files wait already.

use lake::events::Level;
use lake::report::{counted, grid::Align, grid::Grid};
use lake::run::RunContext;
use lake::{Error, ErrorKind, Lake, Result, Root, TableName};
use serde_json::json;

use crate::append::Target;
use crate::discover::{FoundFile, Globs, list};
use crate::ledger::{Entry, Ledger, Status};
use crate::plan::SourcePlan;
use crate::progress::named;
use crate::run::storage_inside;

/// How often the ledger is read again because another run wrote to it.
const READS_MAX: usize = 20;

/// Which files are wanted once more.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Their paths below the landing root.
    pub files: Globs,
    /// Whether files whose records are in the table are wanted as well.
    pub taken: bool,
}

/// What becomes of the files of one source that a wish names.
#[derive(Debug)]
pub struct Again {
    /// The table of the source.
    pub table: TableName,
    /// The files by path.
    pub files: Vec<(FoundFile, Outlook)>,
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outlook {
    /// It was refused, for this reason, and is tried again.
    Retried(String),
    /// It was left alone, for this reason, and is taken.
    Taken(String),
    /// Its records are in the table by this batch, and come once more.
    Repeated(i64),
    /// Its records are in the table by this batch, and it was not asked for in spite of that.
    Kept(i64),
    /// It waits for a run already.
    Waits,
    /// It cannot be read under its name.
    Unreadable(String),
}

impl Outlook {
    /// True when the wish changes something.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Retried(_) | Self::Taken(_) | Self::Repeated(_))
    }

    fn text(&self) -> String {
        let first = |reason: &str| reason.lines().next().unwrap_or_default().to_owned();
        match self {
            Self::Retried(reason) => format!("tried again; it was refused: {}", first(reason)),
            Self::Taken(reason) => format!("taken; so far: {}", first(reason)),
            Self::Repeated(batch) => format!("taken once more; its records are in the table by batch {batch} already"),
            Self::Kept(batch) => {
                format!("left: its records are in the table by batch {batch} (`--taken` takes it again)")
            }
            Self::Waits => "waits for the next run already".to_owned(),
            Self::Unreadable(reason) => format!("left: {reason}"),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Retried(_) => "retried",
            Self::Taken(_) => "taken",
            Self::Repeated(_) => "repeated",
            Self::Kept(_) => "kept",
            Self::Waits => "waits",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl Again {
    /// Finds the files that a wish names, and what becomes of them. Nothing is changed.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the landing zone or the ledger cannot be read, [`ErrorKind::Spec`] when the first run of
    /// the source is still to come and would leave the files.
    pub async fn find(lake: &Lake, landing: &Root, plan: &SourcePlan, wish: &Wish) -> Result<Self> {
        let ledger = Ledger::open(lake, plan.source()).await?;
        Self::of(lake, landing, plan, wish, &ledger).await
    }

    async fn of(lake: &Lake, landing: &Root, plan: &SourcePlan, wish: &Wish, ledger: &Ledger) -> Result<Self> {
        let done = Target::open(lake, &plan.table).await?.done().await?;
        let skip = storage_inside(lake.root(), landing)?;
        let listing = list(landing, plan, skip.as_deref()).await?;
        let named = listing.files.into_iter().filter(|file| wish.files.takes(&file.path));
        let mut files: Vec<_> = named.map(|file| (outlook(&file, ledger, done, wish.taken), file)).collect();
        files.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        if !files.is_empty() && !plan.include_existing_files && ledger.is_new() {
            let message = format!(
                "the first run of {} leaves the files that are there (`include_existing_files: false`), and is still to come",
                plan.table
            );
            return Err(Error::spec(message).hint("run it once, then ask for the files"));
        }
        Ok(Self {
            table: plan.table.clone(),
            files: files.into_iter().map(|(outlook, file)| (file, outlook)).collect(),
        })
    }

    /// True when a run has something to do for the files.
    pub fn has_work(&self) -> bool {
        self.files.iter().any(|(_, outlook)| outlook.is_change() || *outlook == Outlook::Waits)
    }

    /// Notes the wish in the ledger, all of it or nothing; returns what becomes of the files as they are then.
    ///
    /// # Errors
    /// As [`Again::find`], and [`ErrorKind::Conflict`] when other runs always come first.
    pub async fn note(
        self,
        lake: &Lake,
        landing: &Root,
        plan: &SourcePlan,
        wish: &Wish,
        ctx: &RunContext,
    ) -> Result<Self> {
        let mut ledger = Ledger::open(lake, plan.source()).await?;
        for _ in 0..READS_MAX {
            let again = Self::of(lake, landing, plan, wish, &ledger).await?;
            let (upto, changed) = (ledger.planned(), again.files.iter().filter(|(_, outlook)| outlook.is_change()));
            let entry = |(file, outlook): &(FoundFile, Outlook)| {
                Entry::new(Some(upto), file, Status::Again, format!("asked for: {}", outlook.text()))
            };
            let entries: Vec<Entry> = changed.map(entry).collect();
            if entries.is_empty() {
                return Ok(again);
            }
            let paths: Vec<String> = entries.iter().map(|entry| entry.file.path.clone()).collect();
            if ledger.note(entries, &ctx.run).await? {
                let message = format!("asked for once more: {}", named(&paths));
                let task = self.table.to_string();
                ctx.events.record(Some(&task), "files_asked_for", Level::Info, message, json!({"paths": paths}));
                return Ok(again);
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("the ledger of {} is written to all the time", self.table)))
    }
}

fn outlook(file: &FoundFile, ledger: &Ledger, done: i64, taken: bool) -> Outlook {
    if let Some(reason) = &file.unreadable {
        return Outlook::Unreadable(reason.clone());
    }
    match (ledger.taken(file), ledger.left_out(file)) {
        (Some((batch, _)), _) if batch > done => Outlook::Waits,
        (Some((batch, _)), _) if taken => Outlook::Repeated(batch),
        (Some((batch, _)), _) => Outlook::Kept(batch),
        (None, Some(entry)) => {
            let reason = entry.reason.clone().unwrap_or_default();
            if entry.status == Status::Failed { Outlook::Retried(reason) } else { Outlook::Taken(reason) }
        }
        (None, None) => Outlook::Waits,
    }
}

/// What becomes of the files, for a person.
pub fn to_text(answers: &[Again]) -> String {
    let mut text = String::new();
    for again in answers.iter().filter(|again| !again.files.is_empty()) {
        let changed = again.files.iter().filter(|(_, outlook)| outlook.is_change()).count();
        text.push_str(&format!("{}: {} of {}\n", again.table, changed, counted(again.files.len(), "file")));
        let mut grid = Grid::new();
        grid.column("file", None, Align::Left, again.files.iter().map(|(file, _)| file.path.clone()));
        grid.column("what becomes of it", None, Align::Left, again.files.iter().map(|(_, outlook)| outlook.text()));
        text.push_str(&grid.render(usize::MAX));
    }
    text
}

/// What becomes of the files, as JSON.
pub fn to_json(answers: &[Again]) -> serde_json::Value {
    let file = |(file, outlook): &(FoundFile, Outlook)| json!({"path": file.path, "size": file.size, "outlook": outlook.word(), "because": outlook.text()});
    let answer = |again: &Again| {
        let files: Vec<_> = again.files.iter().map(file).collect();
        json!({"table": again.table.to_string(), "files": files})
    };
    json!({"sources": answers.iter().map(answer).collect::<Vec<_>>()})
}
