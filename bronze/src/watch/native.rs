//! Events of the operating system, as hints: which paths were touched since somebody looked last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{ModifyKind, RenameMode};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::sightings::Touch;

/// Paths that are remembered at most between two looks; beyond them everything is listed again.
const PATHS_MAX: usize = 10_000;

/// What happened since somebody looked last.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Paths with the gravest thing that happened to them.
    pub(super) touched: BTreeMap<PathBuf, Touch>,
    /// Why all must be listed again.
    pub(super) lost: Option<String>,
    /// True when a limit of the system keeps folders from being watched.
    pub(super) limited: bool,
}

/// The events of this machine for some folders. The thread of the library sleeps until something happens.
pub(super) struct Native {
    watcher: RecommendedWatcher,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    hints: Mutex<Hints>,
    bell: Notify,
}

impl Queue {
    fn hints(&self) -> MutexGuard<'_, Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: notify::Result<Event>) {
        let mut hints = self.hints();
        match event {
            Ok(event) if event.need_rescan() => {
                hints.lost = Some("more happened than the system could tell".to_owned())
            }
            Ok(event) => {
                let Some(touch) = touch_of(event.kind) else { return };
                let Some(path) = event.paths.into_iter().next_back() else { return };
                if hints.touched.len() >= PATHS_MAX {
                    hints.lost = Some(format!("more than {PATHS_MAX} paths were touched at once"));
                } else {
                    hints.add(path, touch);
                }
            }
            Err(error) => {
                hints.limited |= matches!(error.kind, ErrorKind::MaxFilesWatch);
                hints.lost = Some(explain(&error));
            }
        }
        drop(hints);
        self.bell.notify_one();
    }
}

impl Hints {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.lost.is_none()
    }

    /// What was written to after it was renamed is not whole any more; new attributes take nothing from it.
    fn add(&mut self, path: PathBuf, touch: Touch) {
        let held = self.touched.entry(path).or_insert(touch);
        if touch != Touch::Found {
            *held = touch;
        }
    }
}

/// What an event means for a file; nothing when it was only read.
fn touch_of(kind: EventKind) -> Option<Touch> {
    match kind {
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => Some(Touch::Renamed),
        EventKind::Modify(ModifyKind::Metadata(_)) | EventKind::Remove(_) => Some(Touch::Found),
        EventKind::Modify(ModifyKind::Name(_)) => Some(Touch::Found),
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Any | EventKind::Other => Some(Touch::Written),
    }
}

impl Native {
    /// # Errors
    /// Why the system gives no events, and what to set.
    pub(super) fn new() -> Result<Self, String> {
        let queue = Arc::new(Queue::default());
        let heard = Arc::clone(&queue);
        let watcher = notify::recommended_watcher(move |event| heard.take(event));
        Ok(Self { watcher: watcher.map_err(|error| explain(&error))?, queue })
    }

    /// Asks for the events of a folder, with all below it or of itself alone.
    ///
    /// # Errors
    /// Why the system gives no events, and what to set.
    pub(super) fn watch(&mut self, folder: &Path, recursive: bool) -> Result<(), String> {
        let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        self.watcher.watch(folder, mode).map_err(|error| explain(&error))
    }

    /// Takes back what was asked for a folder, which may be gone.
    pub(super) fn unwatch(&mut self, folder: &Path) {
        if let Err(error) = self.watcher.unwatch(folder) {
            tracing::debug!(folder = %folder.display(), %error, "the folder was not watched any more");
        }
    }

    /// Waits until there are hints. May be dropped and asked for again.
    pub(super) async fn rings(&self) {
        while self.queue.hints().is_empty() {
            self.queue.bell.notified().await;
        }
    }

    /// What happened since the last time.
    pub(super) fn hints(&self) -> Hints {
        std::mem::take(&mut *self.queue.hints())
    }
}

/// The limits of the system are the common reason, and easily raised.
fn explain(error: &notify::Error) -> String {
    let watches = "the limit of watched folders is reached: raise it with `sysctl fs.inotify.max_user_watches=1048576`";
    let instances = "the limit of watchers is reached: raise it with `sysctl fs.inotify.max_user_instances=1024`, or \
                     the open files of the process with `ulimit -n`";
    match &error.kind {
        ErrorKind::MaxFilesWatch => watches.to_owned(),
        ErrorKind::Io(io) if io.raw_os_error() == Some(28) => watches.to_owned(),
        ErrorKind::Io(io) if matches!(io.raw_os_error(), Some(23 | 24)) => instances.to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, AccessMode, CreateKind, DataChange, Flag, MetadataKind, RemoveKind};

    fn event(kind: EventKind, path: &str) -> notify::Result<Event> {
        Ok(Event::new(kind).add_path(path.into()))
    }

    #[test]
    fn the_last_writing_counts_and_reading_is_nothing() {
        let queue = Queue::default();
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let attributes = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
        for (kind, path) in [
            (EventKind::Create(CreateKind::File), "slow"),
            (renamed, "whole"),
            (attributes, "whole"),
            (renamed, "spoiled"),
            (written, "spoiled"),
            (EventKind::Remove(RemoveKind::File), "gone"),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), "read"),
        ] {
            queue.take(event(kind, path));
        }
        let touched = queue.hints().touched.clone();
        let of = |path: &str| touched.get(Path::new(path)).copied();
        assert_eq!(
            (of("slow"), of("whole"), of("spoiled")),
            (Some(Touch::Written), Some(Touch::Renamed), Some(Touch::Written))
        );
        assert_eq!((of("gone"), of("read")), (Some(Touch::Found), None));
    }

    #[test]
    fn an_overflow_and_an_error_ask_for_a_new_listing() {
        let queue = Queue::default();
        queue.take(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        assert!(queue.hints().lost.take().is_some_and(|why| why.contains("more happened")));
        queue.take(Err(notify::Error::new(ErrorKind::MaxFilesWatch)));
        assert!(queue.hints().limited);
        assert!(queue.hints().lost.take().is_some_and(|why| why.contains("fs.inotify.max_user_watches")));
        let instances = explain(&notify::Error::io(std::io::Error::from_raw_os_error(24)));
        assert!(instances.contains("fs.inotify.max_user_instances"), "{instances}");
    }
}
