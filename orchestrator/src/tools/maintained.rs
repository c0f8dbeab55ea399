//! What upkeep a table has had last, as its log and the event log tell it.

use chrono::{DateTime, SecondsFormat, Utc};
use lake::{Lake, Result, Table};
use serde_json::{Value, json};

use super::history::last_upkeep;

/// Versions that are looked through for the last time that files were put together.
const VERSIONS_LOOKED_AT: usize = 1_000;

/// The last upkeep of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// The version that put files together last, and when.
    optimized: Option<(u64, Option<DateTime<Utc>>)>,
    /// The version of the newest checkpoint.
    checkpoint: Option<u64>,
    /// Entries of the log.
    entries: u64,
    /// When files were removed that nothing needed.
    vacuumed_at: Option<DateTime<Utc>>,
}

/// What is known of the upkeep of a table.
///
/// # Errors
/// [`lake::ErrorKind::Store`] when log or event log cannot be read.
pub(crate) async fn last(lake: &Lake, table: &Table) -> Result<Last> {
    let versions = lake::history::history(table, VERSIONS_LOOKED_AT).await?;
    let optimized = versions.iter().find(|version| version.operation == "OPTIMIZE");
    let log = lake::log::look(lake, table).await?;
    Ok(Last {
        optimized: optimized.map(|version| (version.version, version.at)),
        checkpoint: log.last_checkpoint,
        entries: log.entries,
        vacuumed_at: last_upkeep(lake, &table.name().to_string()).await?,
    })
}

impl Last {
    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        let at = |at: Option<DateTime<Utc>>| at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true));
        json!({
            "optimized_version": self.optimized.map(|(version, _)| version),
            "optimized_at": at(self.optimized.and_then(|(_, at)| at)),
            "checkpoint_version": self.checkpoint,
            "log_entries": self.entries,
            "vacuumed_at": at(self.vacuumed_at),
        })
    }

    /// For people: names and values.
    pub(crate) fn to_lines(&self) -> Vec<(&'static str, String)> {
        let at = |at: DateTime<Utc>| at.format("%Y-%m-%d %H:%M UTC").to_string();
        let optimized = self.optimized.map(|(version, when)| {
            format!("version {version}{}", when.map(|when| format!(", {}", at(when))).unwrap_or_default())
        });
        let checkpoint = self.checkpoint.map_or("none".to_owned(), |version| format!("version {version}"));
        let lines = [
            ("optimized", optimized),
            ("vacuumed", self.vacuumed_at.map(at)),
            ("checkpoint", Some(format!("{checkpoint}; {} versions in the log", self.entries))),
        ];
        lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_done_is_left_out() {
        let last = Last { checkpoint: Some(100), entries: 7, ..Last::default() };
        assert_eq!(last.to_lines(), [("checkpoint", "version 100; 7 versions in the log".to_owned())]);
        let at = DateTime::from_timestamp(0, 0);
        let last = Last { optimized: Some((4, at)), vacuumed_at: at, ..last };
        assert_eq!(last.to_lines()[0], ("optimized", "version 4, 1970-01-01 00:00 UTC".to_owned()));
        assert_eq!(last.to_json()["vacuumed_at"], "1970-01-01T00:00:00.000Z");
    }
}
