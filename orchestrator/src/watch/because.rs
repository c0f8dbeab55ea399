//! What starts a run of a watch, as the event log tells it.

use std::collections::BTreeSet;

use chrono::{DateTime, SecondsFormat, Utc};
use lake::TableName;
use serde_json::{Value, json};

/// What starts a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Because {
    /// The watch begins; a moment of the schedule was missed, or none.
    Start(Option<DateTime<Utc>>),
    /// A moment of the schedule.
    Tick(DateTime<Utc>),
    /// These sources have files.
    Files(BTreeSet<TableName>),
    /// These tables have new versions.
    Tables(Vec<String>),
    /// So much time has passed.
    Periodic,
    /// The run before has ended.
    Continuous,
    /// These tasks failed in a way that may pass; a moment of the schedule is not made good yet, or none.
    Again(BTreeSet<TableName>, Option<DateTime<Utc>>),
    /// Files of this source may go.
    Cleaning(TableName),
}

impl Because {
    /// True when everything is run that the watch was asked for.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self, Self::Files(_) | Self::Again(..) | Self::Cleaning(_))
    }

    /// The moment of the schedule that the run stands for.
    pub(super) fn tick(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Start(tick) | Self::Again(_, tick) => *tick,
            Self::Tick(tick) => Some(*tick),
            _ => None,
        }
    }

    /// For the event log.
    pub(super) fn to_json(&self) -> Value {
        let moment = |at: &DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let named = |tables: &BTreeSet<TableName>| tables.iter().map(ToString::to_string).collect::<Vec<_>>();
        match self {
            Self::Start(missed) => json!({"kind": "start", "tick": missed.as_ref().map(moment)}),
            Self::Tick(tick) => json!({"kind": "schedule", "tick": moment(tick)}),
            Self::Files(sources) => json!({"kind": "file_arrival", "sources": named(sources)}),
            Self::Tables(tables) => json!({"kind": "table_update", "table_names": tables}),
            Self::Periodic => json!({"kind": "periodic"}),
            Self::Continuous => json!({"kind": "continuous"}),
            Self::Again(tasks, tick) => {
                json!({"kind": "retry", "tasks": named(tasks), "tick": tick.as_ref().map(moment)})
            }
            Self::Cleaning(source) => json!({"kind": "clean_source", "sources": [source.to_string()]}),
        }
    }
}
