//! The top of the spec: its name, where tables and files are, the time zone, and what the engine may use.

use std::path::Path;

use chrono_tz::Tz;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::document::Document;
use super::maintenance::Maintenance;
use super::notifications::{self, Notifications};
use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::scalars::ByteSize;
use super::schedule::{Schedule, ScheduleEntry};
use super::trigger::{FileArrival, Trigger, TriggerEntry};
use crate::clock::Clock;
use crate::error::{Context, Result};
use crate::lakehouse::Lake;
use crate::location::Root;
use crate::session;

/// What the top of the spec says, with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Name of the pipeline.
    pub name: String,
    /// Root of all tables: a path or URL, relative to the folder of the spec. Default `./lakehouse`.
    pub storage: String,
    /// Root of the landing paths: a path or URL, relative to the folder of the spec. Default `./landing`.
    pub landing: String,
    /// Zone of days and of timestamps without an offset. Default UTC.
    pub timezone: Tz,
    /// What the engine may use.
    pub engine: Engine,
    /// What starts runs while somebody watches.
    pub trigger: Trigger,
    /// When runs start by the clock while somebody watches.
    pub schedule: Option<Schedule>,
    /// How many runs may work on the storage at the same time. Default 1.
    pub max_concurrent_runs: u16,
    /// Whether a run that comes when that many are at work waits for one of them to end. Default true.
    pub queue: bool,
    /// When the upkeep of tables is due; `None` when the spec does not say.
    pub maintenance: Option<Maintenance>,
    /// Whom to tell how runs ended.
    pub notifications: Notifications,
}

impl Header {
    /// Opens the lake at `storage`; `folder` is that of the spec.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn lake(&self, folder: &Path, clock: Clock) -> Result<Lake> {
        let threads = self.engine.threads.map(usize::from);
        let memory_bytes = self.engine.memory.map(|size| usize::try_from(size.as_bytes()).unwrap_or(usize::MAX));
        let root = Root::open(&self.storage, folder).context(|| format!("opening the storage `{}`", self.storage))?;
        let root = root.synced(self.engine.durability == Durability::Fsync);
        Ok(Lake::new(root, clock, session::Engine { memory_bytes, threads }))
    }

    /// Opens the root of the landing paths, which must be there; `folder` is that of the spec.
    ///
    /// # Errors
    /// As [`Root::open_existing`].
    pub fn landing_root(&self, folder: &Path) -> Result<Root> {
        Root::open_existing(&self.landing, folder).context(|| format!("opening the landing zone `{}`", self.landing))
    }
}

impl Default for Header {
    fn default() -> Self {
        let top = Top::default();
        Self {
            name: top.name,
            storage: top.storage,
            landing: top.landing,
            timezone: Tz::UTC,
            engine: top.engine,
            trigger: Trigger { file_arrival: Some(FileArrival::default()), ..Trigger::default() },
            schedule: None,
            max_concurrent_runs: top.max_concurrent_runs,
            queue: top.queue,
            maintenance: top.maintenance,
            notifications: top.notifications,
        }
    }
}

/// Memory and threads for queries and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// What the sorts and aggregates of one query may hold before they spill; by default there is no limit.
    pub memory: Option<ByteSize>,
    /// Threads, and so how many tasks run side by side; by default the cores of the machine.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u16>,
    /// Whether commits wait until they are on the disk of this machine. Default none.
    pub durability: Durability,
}

/// Whether commits wait for the disk. Buckets do so by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The system writes them when it likes: they outlast a crash of the program, and may be lost with the power.
    #[default]
    None,
    /// Files are synced before the log names them, and the log after.
    Fsync,
}

/// The top level as written. The sections are read by those who own them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend(
    "required" = ["name"],
))]
struct Top {
    /// Name of the pipeline.
    name: String,
    /// Root of all tables: a path or URL, relative to the folder of the spec. Default `./lakehouse`.
    storage: String,
    /// Root of the landing paths: a path or URL, relative to the folder of the spec. Default `./landing`.
    landing: String,
    /// An IANA zone: says when a day begins, and what texts of timestamps without an offset mean. Default UTC.
    timezone: String,
    /// What the engine may use.
    engine: Engine,
    /// What starts runs while somebody watches.
    trigger: Option<TriggerEntry>,
    /// Runs of everything that `watch` was asked for, one after the other; after one that finds nothing new they rest, from
    /// 1 s up to a minute. Default false.
    continuous: bool,
    /// Runs by the clock, of everything that `watch` was asked for. With it files that arrive start runs only where
    /// `trigger` is written as well.
    schedule: Option<ScheduleEntry>,
    /// How many runs, from whatever machine, work on the storage at the same time. Default 1.
    #[schemars(range(min = 1, max = 1000))]
    max_concurrent_runs: u16,
    /// Whether one run more waits for its turn; else it does nothing. Default true.
    queue: bool,
    /// When the upkeep of tables is due.
    maintenance: Option<Maintenance>,
    /// Whom to tell how runs ended.
    notifications: Notifications,
    #[schemars(with = "serde_json::Value")]
    bronze: IgnoredAny,
    #[schemars(with = "serde_json::Value")]
    silver: IgnoredAny,
    #[schemars(with = "serde_json::Value")]
    gold: IgnoredAny,
    #[schemars(with = "serde_json::Value")]
    tasks: IgnoredAny,
}

impl Default for Top {
    fn default() -> Self {
        Self {
            name: String::new(),
            storage: "./lakehouse".to_owned(),
            landing: "./landing".to_owned(),
            timezone: "UTC".to_owned(),
            engine: Engine::default(),
            trigger: None,
            continuous: false,
            schedule: None,
            max_concurrent_runs: 1,
            queue: true,
            maintenance: None,
            notifications: Notifications::default(),
            bronze: IgnoredAny,
            silver: IgnoredAny,
            gold: IgnoredAny,
            tasks: IgnoredAny,
        }
    }
}

/// The JSON Schema of the top of a spec, whose sections their owners describe.
pub fn top_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    Top::json_schema(generator)
}

impl Document {
    /// The top of the spec; refuses top-level keys that no one reads.
    pub fn header(&self, problems: &mut Problems) -> Header {
        if !self.is_readable() {
            return Header::default();
        }
        let top: Top = self.whole(problems);
        let at = |key: &str| SpecPath::root().key(key);
        for (key, value) in [("name", &top.name), ("storage", &top.storage), ("landing", &top.landing)] {
            if value.trim().is_empty() && !problems.any_below(&at(key)) {
                problems.add(Problem::at(&at(key), format!("`{key}` is empty")));
            }
        }
        let timezone = zone(&top.timezone, &at("timezone"), problems);
        if let Some(wanted) = &top.maintenance {
            wanted.vacuum.check(&at("maintenance"), problems);
        }
        notifications::check(&top.notifications, problems);
        let Top { name, storage, landing, engine, trigger, continuous, schedule, .. } = top;
        let (max_concurrent_runs, queue) = (top.max_concurrent_runs, top.queue);
        let (maintenance, notifications) = (top.maintenance, top.notifications);
        let trigger = Trigger::compile(trigger, continuous, schedule.is_some(), problems);
        let schedule = schedule.and_then(|entry| Schedule::compile(entry, timezone, problems));
        Header {
            name,
            storage,
            landing,
            timezone,
            engine,
            trigger,
            schedule,
            max_concurrent_runs,
            queue,
            maintenance,
            notifications,
        }
    }
}

/// The zone of a name; UTC and a problem where there is none.
pub(super) fn zone(name: &str, at: &SpecPath, problems: &mut Problems) -> Tz {
    name.parse().unwrap_or_else(|_| {
        if problems.any_below(at) {
            return Tz::UTC;
        }
        let known = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
        let problem = Problem::at(at, format!("`{name}` is not a time zone"));
        let problem = problem.hint("write an IANA name such as `Europe/Lisbon`");
        problems.add(match super::nearest(name, known) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem,
        });
        Tz::UTC
    })
}
