//! A table taken back to an earlier version by one commit on top of the newest: its rows, columns and properties are what
//! they were, and no version is lost.
//!
//! What other tables and later runs know of the table they know by its transactions, and the log's newest word on each
//! counts. So the commit may take transactions back as well: which of them, [`Way::moved`] tells and the caller decides.
//! It takes away every file that came since and adds those that went, whoever put them there; where files are gone, it
//! is refused before anything is done.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use deltalake::kernel::{Action, Add, LogicalFileView, Metadata, Transaction};
use deltalake::protocol::DeltaOperation;
use serde_json::{Map, Value};

use crate::changes::{feed_files, own_feed};
use crate::commit::{ByHand, Outcome, actions_of, is_void};
use crate::error::{Error, ErrorKind, Result};
use crate::history::lost_files;
use crate::lakehouse::Lake;
use crate::listing::add_of;
use crate::names::{RunId, TableName};
use crate::schema::type_name;
use crate::table::{FileId, Table, file_id};
use crate::tags;
use crate::upsert::feed::is_enabled;
use crate::write::discard_paths;

/// Files that are named one by one.
const NAMED_MAX: usize = 5;

/// A table and what it is to be again.
#[derive(Debug)]
pub struct Way {
    /// As it is.
    pub now: Table,
    /// As it was.
    pub then: Table,
}

/// What taking a table back changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Data files that go, and their bytes.
    pub files_removed: (u64, u64),
    /// Data files that come again, and their bytes.
    pub files_restored: (u64, u64),
    /// Columns with their types that go.
    pub columns_removed: Vec<String>,
    /// Columns with their types that come again.
    pub columns_restored: Vec<String>,
    /// Properties by name: as they are, and as they were.
    pub properties: BTreeMap<String, (Option<String>, Option<String>)>,
}

impl Difference {
    /// True when nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A transaction that the table has seen since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The application.
    pub app: String,
    /// Its number then; `None` before its first.
    pub then: Option<i64>,
    /// Its number now.
    pub now: Option<i64>,
    /// All its numbers since, in their order.
    pub came: Vec<i64>,
}

impl Moved {
    /// True for an application that counts replays, when one was taken since: those have even numbers.
    pub fn took_records(&self) -> bool {
        self.came.iter().any(|number| number % 2 == 0)
    }
}

/// What the commit says beside files, columns and properties.
#[derive(Debug, Clone, Default)]
pub struct Along {
    /// Transactions and the numbers that they have from then on, also lower ones.
    pub txns: Vec<(String, i64)>,
    /// Properties that do not come back but get these values.
    pub properties: Vec<(String, String)>,
}

impl Along {
    /// The transactions as a commit has them.
    pub(crate) fn actions(&self) -> impl Iterator<Item = Action> {
        self.txns.iter().map(|(app, version)| Action::Txn(Transaction::new(app, *version)))
    }
}

impl Way {
    /// Opens the newest version of a table and an earlier one.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when there is no such earlier version, [`ErrorKind::Table`] when the log does not have it any
    /// more.
    pub async fn open(lake: &Lake, name: &TableName, version: u64) -> Result<Self> {
        let now = lake.existing(name).await?;
        if version >= now.version() {
            let error = Error::spec(format!("{name} has no version {version} to go back to"));
            return Err(error.hint(format!("its newest is {}: `orchestrator table history {name}`", now.version())));
        }
        let then = lake.table_at(name, version).await.map_err(|error| {
            error.hint(format!("what the log still has: `orchestrator table history {name} --limit 0`"))
        })?;
        if now.id()? != then.id()? {
            let message = format!("version {version} of {name} was another table: it was made anew since");
            return Err(Error::new(ErrorKind::Table, message));
        }
        Ok(Self { now, then })
    }

    /// What would change.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when a table is not loaded.
    pub fn difference(&self) -> Result<Difference> {
        let (gone, come) = self.files()?;
        let sum = |files: &[LogicalFileView]| {
            let bytes = files.iter().map(|file| u64::try_from(file.size()).unwrap_or(0)).sum();
            (files.len() as u64, bytes)
        };
        let columns = |table: &Table| -> Vec<String> {
            let named = |field: &arrow::datatypes::FieldRef| {
                let not_null = if field.is_nullable() { "" } else { " not null" };
                format!("{} {}{not_null}", field.name(), type_name(field.data_type()))
            };
            table.schema().fields().iter().map(named).collect()
        };
        let (now, then) = (columns(&self.now), columns(&self.then));
        let without = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|one| !those.contains(one)).cloned().collect()
        };
        let (held, wanted) = (self.now.properties()?, self.then.properties()?);
        let keys = held.keys().chain(wanted.keys()).filter(|key| *key != tags::PROPERTY);
        let keys: BTreeSet<&String> = keys.collect();
        let changed = keys.into_iter().filter(|key| held.get(*key) != wanted.get(*key));
        let properties = changed.map(|key| (key.clone(), (held.get(key).cloned(), wanted.get(key).cloned())));
        Ok(Difference {
            files_removed: sum(&gone),
            files_restored: sum(&come),
            columns_removed: without(&now, &then),
            columns_restored: without(&then, &now),
            properties: properties.collect(),
        })
    }

    /// Fails when files of the earlier version are gone.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] with their names.
    pub async fn check(&self) -> Result<()> {
        let lost = lost_files(&self.then, &self.now).await?;
        if lost.is_empty() {
            return Ok(());
        }
        let named = lost.iter().take(NAMED_MAX).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
        let more = if lost.len() > NAMED_MAX { format!(" and {} more", lost.len() - NAMED_MAX) } else { String::new() };
        let (version, name) = (self.then.version(), self.then.name());
        let message = format!("version {version} of {name} cannot be restored: its files {named}{more} are gone");
        Err(Error::new(ErrorKind::Table, message)
            .hint("`vacuum` removes what no version within the retention has; go back to a later version"))
    }

    /// The transactions that came since, by application.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub async fn moved(&self) -> Result<Vec<Moved>> {
        let mut apps: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for number in self.then.version() + 1..=self.now.version() {
            for action in actions_of(&self.now, number).await? {
                if let Action::Txn(txn) = action {
                    apps.entry(txn.app_id).or_default().push(txn.version);
                }
            }
        }
        let mut moved = Vec::with_capacity(apps.len());
        for (app, came) in apps {
            moved.push(Moved { then: self.then.txn_version(&app).await?, now: came.last().copied(), app, came });
        }
        Ok(moved)
    }

    /// Makes the table what it was. Its newest version must still be the one that is open.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another writer came first: open it again. As [`Table::commit`].
    pub async fn restore(&mut self, along: &Along, run: &RunId) -> Result<Outcome> {
        let (gone, come) = self.files()?;
        let metadata = self.metadata(&along.properties)?;
        let mut actions: Vec<Action> = metadata.into_iter().map(Action::Metadata).collect();
        actions.extend(along.actions());
        actions.extend(gone.iter().map(|file| Action::Remove(file.remove_action(true))));
        let adds: Vec<Add> = come.iter().map(add_of).collect();
        actions.extend(adds.iter().cloned().map(Action::Add));
        if is_enabled(&self.then)? {
            actions.extend(own_feed(&self.now, &self.then, &actions).await?);
        }
        let size = |files: &[LogicalFileView]| files.iter().map(|file| u64::try_from(file.size()).unwrap_or(0)).sum();
        let metrics = BTreeMap::from([
            ("numRemovedFiles", gone.len() as u64),
            ("removedFilesSize", size(&gone)),
            ("numRestoredFiles", come.len() as u64),
            ("restoredFilesSize", size(&come)),
            ("numOfFilesAfterRestore", self.then.file_count()? as u64),
        ]);
        let version = Some(self.then.version());
        let operation = DeltaOperation::Restore { version, datetime: None };
        let feed = feed_files(&actions);
        let hand = ByHand { point: "restore_committed", operation, actions, metrics };
        let outcome = self.now.commit_by_hand(hand, run).await;
        if is_void(&outcome) {
            discard_paths(&self.now, feed.into_iter()).await;
        }
        outcome
    }

    /// The files that only the newest version has, and those that only the earlier one has.
    fn files(&self) -> Result<(Vec<LogicalFileView>, Vec<LogicalFileView>)> {
        let all = |table: &Table| -> Result<Vec<LogicalFileView>> {
            Ok(table.delta().snapshot()?.log_data().iter().collect())
        };
        let (now, then) = (all(&self.now)?, all(&self.then)?);
        let ids = |files: &[LogicalFileView]| -> HashSet<FileId> { files.iter().map(file_id).collect() };
        let (held, wanted) = (ids(&now), ids(&then));
        let gone = now.into_iter().filter(|file| !wanted.contains(&file_id(file))).collect();
        let come = then.into_iter().filter(|file| !held.contains(&file_id(file))).collect();
        Ok((gone, come))
    }

    /// The metadata of the earlier version with these properties; `None` when the table has it.
    fn metadata(&self, properties: &[(String, String)]) -> Result<Option<Metadata>> {
        let (held, then) = (self.now.delta().snapshot()?.metadata(), self.then.delta().snapshot()?.metadata());
        let mut wanted = to_json(then)?;
        let mut all = wanted.get("configuration").and_then(Value::as_object).cloned().unwrap_or_default();
        // Names of versions are no part of what a version is.
        match held.configuration().get(tags::PROPERTY) {
            Some(tags) => drop(all.insert(tags::PROPERTY.to_owned(), Value::from(tags.clone()))),
            None => drop(all.remove(tags::PROPERTY)),
        }
        all.extend(properties.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))));
        wanted.insert("configuration".to_owned(), Value::Object(all));
        let wanted: Metadata = serde_json::from_value(Value::Object(wanted)).map_err(broken)?;
        Ok((wanted != *held).then_some(wanted))
    }
}

fn to_json(metadata: &Metadata) -> Result<Map<String, Value>> {
    match serde_json::to_value(metadata).map_err(broken)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::internal("what describes a table is no object")),
    }
}

fn broken(error: serde_json::Error) -> Error {
    Error::internal("what describes a table does not convert").with_source(error)
}
