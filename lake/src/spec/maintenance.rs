//! What the spec says of the upkeep of tables: when it is due, not how often.

use schemars::JsonSchema;
use serde::Deserialize;

use super::scalars::{ByteSize, Duration};

/// When the upkeep of a table is due.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-not-yet" = ["window"]))]
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
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            optimize: OptimizeWhen::default(),
            vacuum: VacuumWhen::default(),
            log: LogWhen::default(),
            after_runs: true,
            budget: Duration::from_secs(600),
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
        Self { expired_files: 100 }
    }
}
