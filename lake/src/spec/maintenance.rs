//! What the spec says of the upkeep of tables: when it is due, not how often.

use schemars::JsonSchema;
use serde::Deserialize;

use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::scalars::{ByteSize, Duration};
use super::window::Window;

/// What files that nothing needs are kept for at least: readers and writers may be that old.
const RETAIN_LEAST: Duration = Duration::from_days(7);

/// When the upkeep of a table is due.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Maintenance {
    /// When files are put together.
    pub optimize: OptimizeWhen,
    /// What files that nothing needs are kept for.
    pub vacuum: VacuumWhen,
    /// When the log is cleaned.
    pub log: LogWhen,
    /// Whether a run looks after the tables that it has changed, when its tasks are done. Default true.
    pub after_runs: bool,
    /// How long upkeep may begin with further tables. Default `10m`.
    pub budget: Duration,
    /// A time of the day, in `timezone` unless it names another zone: `01:00-05:00`, `22:00-04:00 Europe/Lisbon`; or a while
    /// from each moment of a cron pattern on: `{cron: '0 2 * * SUN', duration: 4h}`, with a `timezone` of its own if need be.
    /// Runs look after tables only then, and after all of them, not only those that they have changed. Default: at any time.
    pub window: Option<Window>,
}

/// What is otherwise for one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TableMaintenance {
    /// When its files are put together.
    pub optimize: OptimizeTable,
    /// What files that nothing needs are kept for.
    pub vacuum: VacuumWhen,
    /// When its log is cleaned.
    pub log: LogTable,
    /// Whether runs look after it.
    pub after_runs: Option<bool>,
}

/// When the files of one table are put together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizeTable {
    /// So many files that would gain.
    #[schemars(range(min = 2))]
    pub small_files: Option<u64>,
    /// Or more than this part of the rows marked as deleted.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub deleted_fraction: Option<f64>,
    /// How large files should be.
    pub target_file_size: Option<ByteSize>,
}

/// When the log of one table is cleaned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogTable {
    /// So many files of the log that no version within `delta.logRetentionDuration` needs.
    #[schemars(range(min = 1))]
    pub expired_files: Option<u64>,
    /// Or so many bytes of them.
    pub expired_size: Option<ByteSize>,
}

impl Maintenance {
    /// What is wanted of one table.
    #[must_use]
    pub fn of_table(self, table: &TableMaintenance) -> Self {
        let TableMaintenance { optimize, vacuum, log, after_runs } = *table;
        Self {
            optimize: OptimizeWhen {
                small_files: optimize.small_files.unwrap_or(self.optimize.small_files),
                deleted_fraction: optimize.deleted_fraction.unwrap_or(self.optimize.deleted_fraction),
                target_file_size: optimize.target_file_size.unwrap_or(self.optimize.target_file_size),
            },
            vacuum: VacuumWhen { retain: vacuum.retain.or(self.vacuum.retain) },
            log: LogWhen {
                expired_files: log.expired_files.unwrap_or(self.log.expired_files),
                expired_size: log.expired_size.unwrap_or(self.log.expired_size),
            },
            after_runs: after_runs.unwrap_or(self.after_runs),
            ..self
        }
    }
}

impl VacuumWhen {
    /// Refuses a short retention; `at` is the place of `maintenance`.
    pub fn check(&self, at: &SpecPath, problems: &mut Problems) {
        let Some(retain) = self.retain.filter(|retain| *retain < RETAIN_LEAST) else { return };
        let problem = Problem::at(&at.key("vacuum").key("retain"), format!("{retain} is less than 7 days"));
        let hint = "`orchestrator table vacuum --force` removes younger files, when nothing else writes";
        problems.add(problem.hint(hint));
    }
}

/// When files are put together.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizeWhen {
    /// So many files that would gain. Default 20.
    #[schemars(range(min = 2))]
    pub small_files: u64,
    /// Or more than this part of the rows marked as deleted. Default 0.2.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub deleted_fraction: f64,
    /// How large files should be. Default `128MiB`.
    pub target_file_size: ByteSize,
}

/// What files that nothing needs are kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VacuumWhen {
    /// How long; 7 days at least. Default: what the table says, or else 7 days.
    pub retain: Option<Duration>,
}

/// When the log is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogWhen {
    /// So many files of the log that no version within `delta.logRetentionDuration` needs. Default 100.
    #[schemars(range(min = 1))]
    pub expired_files: u64,
    /// Or so many bytes of them. Default `64MiB`.
    pub expired_size: ByteSize,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            optimize: OptimizeWhen::default(),
            vacuum: VacuumWhen::default(),
            log: LogWhen::default(),
            after_runs: true,
            budget: Duration::from_secs(600),
            window: None,
        }
    }
}

impl Default for OptimizeWhen {
    fn default() -> Self {
        let target_file_size = ByteSize::from_bytes(crate::optimize::FILE_SIZE_BYTES);
        Self { small_files: 20, deleted_fraction: 0.2, target_file_size }
    }
}

impl Default for LogWhen {
    fn default() -> Self {
        Self { expired_files: 100, expired_size: ByteSize::from_mib(64) }
    }
}
