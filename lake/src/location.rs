//! Roots of storage and landing: a path or URL, and the object store that stands below it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::prefix::PrefixStore;
use url::Url;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::local::LocalStore;

/// A folder or bucket prefix. All paths used with its [`store`](Root::store) are relative to it.
#[derive(Debug, Clone)]
pub struct Root {
    url: Url,
    store: Arc<dyn ObjectStore>,
    local: Option<PathBuf>,
    is_synced: bool,
}

impl Root {
    /// Opens a root given as a URL (`s3://…`) or a path; a relative path starts at `base`.
    ///
    /// A local folder is made when it is missing, so that a first run needs no preparation.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when the text is neither a path nor a URL of a store that this build knows.
    pub fn open(text: &str, base: &Path) -> Result<Self> {
        match Url::parse(text) {
            Ok(url) if url.scheme() == "file" => {
                let path = url.to_file_path().map_err(|()| Error::spec(format!("`{text}` is not a local path")))?;
                Self::open_local(&path)
            }
            Ok(url) if text.contains("://") => Self::open_remote(url),
            _ => Self::open_local(&base.join(text)),
        }
    }

    /// The same for a root that must be there: nothing is made.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] also when a local folder is missing.
    pub fn open_existing(text: &str, base: &Path) -> Result<Self> {
        let folder = match Url::parse(text) {
            Ok(url) if url.scheme() == "file" => url.to_file_path().ok(),
            Ok(_) if text.contains("://") => None,
            _ => Some(base.join(text)),
        };
        match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => Err(Error::spec(format!("the folder `{}` does not exist", folder.display()))
                .hint("make it, or mend the path")),
            None => Self::open(text, base),
        }
    }

    fn open_local(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).context(|| format!("making the folder `{}`", path.display()))?;
        let path = path.canonicalize().context(|| format!("opening the folder `{}`", path.display()))?;
        let store = LocalStore::below(&path)?;
        let url = Url::from_directory_path(&path)
            .map_err(|()| Error::spec(format!("`{}` cannot be written as a URL", path.display())))?;
        Ok(Self { url, store: Arc::new(store), local: Some(path), is_synced: false })
    }

    fn open_remote(mut url: Url) -> Result<Self> {
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        let (store, prefix) = object_store::parse_url_opts(&url, std::env::vars()).map_err(|error| {
            Error::new(ErrorKind::Spec, format!("`{url}` names a store that cannot be opened"))
                .with_source(error)
                .hint("local folders always work; buckets need a build with that store's feature")
        })?;
        Ok(Self { url, store: Arc::new(PrefixStore::new(store, prefix)), local: None, is_synced: false })
    }

    /// The root as a URL that ends with `/`.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The store below the root.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    /// The folder on this machine, when the root is one.
    pub fn local_path(&self) -> Option<&Path> {
        self.local.as_deref()
    }

    /// The same root, whose tables have their commits synced to the disk, or not.
    #[must_use]
    pub fn synced(self, is_synced: bool) -> Self {
        Self { is_synced, ..self }
    }

    /// True when commits to tables below it are synced to the disk.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// True for a folder on this machine.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Looks whether the store answers, and a folder of this machine is there.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when it does not.
    pub async fn reach(&self) -> Result<()> {
        if let Some(path) = self.local_path().filter(|path| !path.is_dir()) {
            return Err(Error::new(ErrorKind::Store, format!("the folder `{}` is not there", path.display())));
        }
        // Few objects stand at this place.
        self.store.list_with_delimiter(Some(&"_state/leases".into())).await?;
        Ok(())
    }

    /// The URL of a folder below the root: `silver/orders` → `…/silver/orders/`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when the folder does not make a URL.
    pub fn folder_url(&self, folder: &str) -> Result<Url> {
        let mut url = self.url.clone();
        // Each part is a name as it is: `#`, `?` and `%` mean nothing in it.
        url.path_segments_mut()
            .map_err(|()| Error::spec(format!("`{folder}` is not a folder name")))?
            .pop_if_empty()
            .extend(folder.split('/'))
            .push("");
        Ok(url)
    }
}

impl std::fmt::Display for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.local {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "{}", self.url),
        }
    }
}
