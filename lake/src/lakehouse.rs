//! The lake: every table below one storage root, opened and made by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryPool;
use deltalake::kernel::{Action, Add};
use deltalake::{DeltaTable, DeltaTableBuilder};
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::clock::Clock;
use crate::commit;
use crate::durable;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::lease;
use crate::local::LocalStore;
use crate::location::Root;
use crate::names::{Layer, TableName};
use crate::opened::Opened;
use crate::run::Meter;
use crate::session::{Engine, Session, Texts};
use crate::table::{Definition, Table};

/// Everything below one storage root. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lake(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: Root,
    clock: Clock,
    engine: Engine,
    /// One for all sessions; without it each has its own.
    pool: Option<Arc<dyn MemoryPool>>,
    written: Meter,
    opened: Arc<Opened>,
    aside: Option<Aside>,
    /// The one table that there is, of one that is opened by its path.
    alone: Option<TableName>,
}

/// Tables of some layers that are not below the storage root.
#[derive(Debug, Clone)]
struct Aside {
    root: Root,
    layers: Vec<Layer>,
}

impl Inner {
    fn new(root: Root, clock: Clock, engine: Engine) -> Self {
        let (written, opened) = (Meter::default(), Arc::default());
        Self { root, clock, engine, pool: None, written, opened, aside: None, alone: None }
    }
}

impl Lake {
    /// The lake below `root`.
    pub fn new(root: Root, clock: Clock, engine: Engine) -> Self {
        Self(Arc::new(Inner::new(root, clock, engine)))
    }

    /// This lake for one of several tasks that work side by side, with memory and threads of its own: all its sessions
    /// share one pool of that memory. What it writes is counted anew.
    #[must_use]
    pub fn for_task(&self, engine: Engine) -> Self {
        let Inner { root, clock, aside, alone, opened, .. } = &*self.0;
        let (aside, alone, opened) = (aside.clone(), alone.clone(), Arc::clone(opened));
        let pool = engine.pool();
        Self(Arc::new(Inner { pool, opened, aside, alone, ..Inner::new(root.clone(), clock.clone(), engine) }))
    }

    /// Counts the bytes of data files that were committed to tables of this lake.
    pub fn written(&self) -> &Meter {
        &self.0.written
    }

    /// This lake with the tables of some layers in a temporary folder instead: what is made there is seen by nobody else
    /// and is gone with the folder, and what those layers have here is not seen by it.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when there is no place for a temporary folder.
    pub fn with_aside(&self, layers: Vec<Layer>) -> Result<(Self, tempfile::TempDir)> {
        let folder =
            tempfile::Builder::new().prefix("lake-aside-").tempdir().context(|| "making a temporary folder")?;
        let root = Root::open(&folder.path().display().to_string(), Path::new("/"))?;
        let Inner { root: own, clock, engine, pool, .. } = &*self.0;
        let (aside, pool) = (Some(Aside { root, layers }), pool.clone());
        let inner = Inner { pool, aside, ..Inner::new(own.clone(), clock.clone(), engine.clone()) };
        Ok((Self(Arc::new(inner)), folder))
    }

    /// Copies the files of a table, as they are, into `other`, where it has the name `as_name`.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a file cannot be read or written.
    pub async fn copy_table(&self, name: &TableName, other: &Self, as_name: &TableName) -> Result<()> {
        let (from, to) = (self.root_of(name.layer).store(), other.root_of(as_name.layer).store());
        let (folder, to_folder) = (name.folder(), as_name.folder());
        let to_path = |location: &object_store::path::Path| {
            let below = location.as_ref().strip_prefix(&folder).unwrap_or_default();
            let path = object_store::path::Path::parse(format!("{to_folder}{below}"));
            path.map_err(|error| Error::internal("a file has no path").with_source(error))
        };
        // The log is listed first: the files that it names were written before it. It is copied last: until then there
        // is no table.
        let log = format!("{folder}/_delta_log");
        let mut entries: Vec<_> = from.list(Some(&log.as_str().into())).try_collect().await?;
        let mut files = from.list(Some(&folder.as_str().into()));
        let below = |location: &object_store::path::Path| {
            PathBuf::from(location.as_ref().strip_prefix(&folder).unwrap_or_default().trim_start_matches('/'))
        };
        let (synced, mut copied) = (other.synced_folder(as_name), BTreeSet::new());
        while let Some(file) = files.try_next().await? {
            if file.location.as_ref().starts_with(&format!("{log}/")) {
                continue;
            }
            match from.get(&file.location).await {
                Ok(held) => {
                    to.put(&to_path(&file.location)?, held.bytes().await?.into()).await?;
                    copied.insert(below(&file.location));
                }
                // A file that another writer gave up meanwhile: no version names it.
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(folder) = &synced {
            durable::paths(folder, std::mem::take(&mut copied)).await?;
        }
        entries.sort_by(|left, right| right.location.cmp(&left.location));
        for entry in entries {
            to.put(&to_path(&entry.location)?, from.get(&entry.location).await?.bytes().await?.into()).await?;
            copied.insert(below(&entry.location));
        }
        if let Some(folder) = &synced {
            durable::paths(folder, copied).await?;
        }
        Ok(())
    }

    /// Removes a table with all its files. Its log goes first, from the newest entry on: what is left of it, should the
    /// machine stop, is an older version, until there is no table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a file cannot be removed.
    pub async fn remove_table(&self, name: &TableName) -> Result<()> {
        let (store, folder) = (self.root_of(name.layer).store(), name.folder());
        for folder in [format!("{folder}/_delta_log"), folder] {
            let mut files: Vec<_> = store.list(Some(&folder.as_str().into())).try_collect().await?;
            files.sort_by(|one, other| other.location.cmp(&one.location));
            for file in files {
                match store.delete(&file.location).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if let Some(root) = self.root_of(name.layer).local_path() {
            // Folders are nothing to a store; an empty one that stays is no harm.
            drop(std::fs::remove_dir_all(root.join(name.folder())));
        }
        Ok(())
    }

    /// The names of the tables of one layer, without looking whether they are tables.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the folder cannot be listed.
    pub async fn folders_of(&self, layer: Layer) -> Result<Vec<TableName>> {
        let listed = self.root_of(layer).store().list_with_delimiter(Some(&layer.folder().into())).await?;
        let names = listed.common_prefixes.iter().filter_map(|folder| folder.filename());
        Ok(names.map(|name| TableName::new(layer, name)).collect())
    }

    fn root_of(&self, layer: Layer) -> &Root {
        match &self.0.aside {
            Some(aside) if aside.layers.contains(&layer) => &aside.root,
            _ => &self.0.root,
        }
    }

    /// Opens the lake at `storage`, a path (relative to `base`) or URL.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn open(storage: &str, base: &Path, clock: Clock, engine: Engine) -> Result<Self> {
        Ok(Self::new(Root::open(storage, base)?, clock, engine))
    }

    /// The Delta table at a path (relative to `base`) or URL, in a lake of its own that has nothing else: what is done to it
    /// is recorded nowhere but in its log.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when there is no such folder; as [`Root::open`].
    pub fn of_table(text: &str, base: &Path, clock: Clock, engine: Engine) -> Result<(Self, TableName)> {
        let is_url = text.contains("://");
        let place = match is_url {
            true => text.to_owned(),
            false => {
                let path = base
                    .join(text)
                    .canonicalize()
                    .map_err(|error| Error::spec(format!("there is no table at `{text}`")).with_source(error))?;
                path.display().to_string()
            }
        };
        let (parent, name) = place.trim_end_matches('/').rsplit_once('/').unwrap_or((".", &place));
        if name.is_empty() {
            return Err(Error::spec(format!("`{text}` is no path of a table")));
        }
        let root = Root::open_existing(if parent.is_empty() { "/" } else { parent }, base)?;
        let name = TableName::new(Layer::Delta, name);
        let inner = Inner { alone: Some(name.clone()), ..Inner::new(root, clock, engine) };
        Ok((Self(Arc::new(inner)), name))
    }

    /// The one table that there is, of a lake that was opened by the path of a table.
    pub fn alone(&self) -> Option<&TableName> {
        self.0.alone.as_ref()
    }

    /// The storage root.
    pub fn root(&self) -> &Root {
        &self.0.root
    }

    /// The clock of the lake.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Memory and threads that work on this lake may use.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// A new session for queries over tables of this lake.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the engine's settings are refused.
    pub fn session(&self) -> Result<Session> {
        Session::new(&self.0.engine, self.0.pool.clone(), Texts::Plain)
    }

    /// The same for queries whose answer is converted anyway: their scans give texts as views, which are cheaper to
    /// filter and to group by.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub fn query_session(&self) -> Result<Session> {
        Session::new(&self.0.engine, self.0.pool.clone(), Texts::Views)
    }

    /// The newest version of a table; `None` when it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] or [`ErrorKind::Table`] when the log cannot be read.
    pub async fn table(&self, name: &TableName) -> Result<Option<Table>> {
        let newest = self.0.opened.newest(name, self.unloaded(name)?).await?;
        newest.map(|delta| self.loaded(name, delta)).transpose()
    }

    /// Begins to open tables that will be asked for soon, side by side and beside what the caller does; those that are
    /// known are left alone. What goes wrong is told to who asks for the table.
    pub fn open_ahead(&self, names: impl IntoIterator<Item = TableName>) {
        for name in names {
            let lake = self.clone();
            tokio::spawn(async move { lake.0.opened.ahead(&name, lake.unloaded(&name)?).await });
        }
    }

    /// The newest version of a table that must exist.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when it does not exist.
    pub async fn existing(&self, name: &TableName) -> Result<Table> {
        self.table(name).await?.ok_or_else(|| {
            Error::new(ErrorKind::Table, format!("table {name} does not exist"))
                .hint("run the task that writes it first")
        })
    }

    /// A table as it was at `version`.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table or that version does not exist.
    pub async fn table_at(&self, name: &TableName, version: u64) -> Result<Table> {
        let mut delta = self.unloaded(name)?;
        delta.load_version(version).await.context(|| format!("opening table {name} at version {version}"))?;
        self.loaded(name, delta)
    }

    fn loaded(&self, name: &TableName, delta: DeltaTable) -> Result<Table> {
        let table = Table::new(name.clone(), delta, self.0.clock.clone(), self.0.written.clone())?;
        Ok(table.synced_in(self.synced_folder(name)))
    }

    /// The folder of a table, where commits to it are synced to the disk.
    fn synced_folder(&self, name: &TableName) -> Option<PathBuf> {
        let root = self.root_of(name.layer);
        root.local_path().filter(|_| root.is_synced()).map(|root| root.join(name.folder()))
    }

    /// Opens a table, or makes it as `definition` says when it does not exist.
    ///
    /// Several processes may do so at once: one makes the table, the others open it.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] or [`ErrorKind::Table`] when neither succeeds.
    pub async fn create_or_open(&self, name: &TableName, definition: &Definition) -> Result<Table> {
        if let Some(table) = self.table(name).await? {
            return Ok(table);
        }
        let created = commit::create(self.unloaded(name)?, name, definition, self.clock()).await;
        if let Some(folder) = self.synced_folder(name) {
            durable::entry(&folder, 0).await?;
        }
        match (self.table(name).await?, created) {
            (Some(table), _) => Ok(table),
            (None, Err(error)) => Err(error.context(format!("creating table {name}"))),
            (None, Ok(())) => Err(Error::internal(format!("table {name} was created and is not there"))),
        }
    }

    /// Makes a table that is the open version of another one, with these files, which are in its folder.
    pub(crate) async fn create_of(&self, name: &TableName, of: &Table, files: Vec<Add>) -> Result<Table> {
        let doing = || format!("creating table {name}");
        let synced = self.synced_folder(name);
        if let Some(folder) = &synced {
            durable::files_of(folder, &files.iter().cloned().map(Action::Add).collect::<Vec<_>>()).await?;
        }
        commit::create_of(self.unloaded(name)?, name, of, files).await.context(doing)?;
        if let Some(folder) = &synced {
            durable::entry(folder, 0).await?;
        }
        self.existing(name).await
    }

    /// The store below the folder of a table.
    pub(crate) fn store_of(&self, name: &TableName) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.unloaded(name)?.object_store())
    }

    /// The tables that there are, by layer and name.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when a folder cannot be listed.
    pub async fn tables(&self) -> Result<Vec<TableName>> {
        if let Some(name) = self.alone() {
            return Ok(vec![name.clone()]);
        }
        let mut found = Vec::new();
        for layer in Layer::ALL {
            let listed = self.0.root.store().list_with_delimiter(Some(&layer.folder().into())).await?;
            let folders = listed.common_prefixes.iter().filter_map(|folder| folder.filename());
            found.extend(folders.map(|name| TableName::new(layer, name)));
        }
        // Folders of layers, and the leases, lie beside the tables of another one.
        let other = |folder: &str| folder == lease::FOLDER || Layer::ALL.iter().any(|layer| layer.folder() == folder);
        found.retain(|name| !other(&name.folder()));
        Ok(found)
    }

    pub(crate) fn unloaded(&self, name: &TableName) -> Result<DeltaTable> {
        let root = self.root_of(name.layer);
        let url = root.folder_url(&name.folder())?;
        let doing = || format!("opening table {name}");
        let builder = DeltaTableBuilder::from_url(url.clone()).context(doing)?;
        let builder = match root.is_local() {
            true => builder.with_storage_backend(Arc::new(LocalStore::whole()), url),
            false => builder,
        };
        builder.build().context(doing)
    }
}
