//! Names that cross the layers: tables by layer, runs, and the application ids of their commits.

use std::fmt;

use crate::clock::Clock;

/// Where a table of the lake lives, and who writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Raw records, append only.
    Bronze,
    /// The current or historised state of an entity.
    Silver,
    /// Aggregates and daily history.
    Gold,
    /// Rows that could not go on, by bronze source.
    Quarantine,
    /// The file ledger, by bronze source.
    Files,
    /// Deletes remembered, by silver table.
    Tombstones,
    /// Changes that the rows of a silver table do not show, by silver table.
    Versions,
    /// The full extracts that a silver table was compared with, by silver table.
    Extracts,
    /// The newest truncate, by silver table.
    Truncates,
    /// What was refused by a silver table that is being made anew, by silver table.
    Refused,
    /// What the program keeps for itself as a whole: the event log.
    State,
    /// No layer of a lake: a table that is looked at by its path, in a lake of its own.
    Delta,
}

impl Layer {
    /// Every layer of a lake, those of the user first.
    pub const ALL: [Self; 11] = [
        Self::Bronze,
        Self::Silver,
        Self::Gold,
        Self::Quarantine,
        Self::Files,
        Self::Tombstones,
        Self::Versions,
        Self::Extracts,
        Self::Truncates,
        Self::Refused,
        Self::State,
    ];

    /// The name of the layer, also its schema in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bronze => "bronze",
            Self::Silver => "silver",
            Self::Gold => "gold",
            Self::Quarantine => "quarantine",
            Self::Files => "files",
            Self::Tombstones => "tombstones",
            Self::Versions => "versions",
            Self::Extracts => "extracts",
            Self::Truncates => "truncates",
            Self::Refused => "refused",
            Self::State => "state",
            Self::Delta => "delta",
        }
    }

    /// The folder of the layer below the storage root.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Delta => "",
            Self::Files => "_state/files",
            Self::Tombstones => "_state/tombstones",
            Self::Versions => "_state/versions",
            Self::Extracts => "_state/extracts",
            Self::Truncates => "_state/truncates",
            Self::Refused => "_state/refused",
            Self::State => "_state",
            user => user.as_str(),
        }
    }
}

/// A table of the lake: `silver.orders`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// Its layer.
    pub layer: Layer,
    /// Its name inside the layer, as the spec writes it.
    pub name: String,
}

impl TableName {
    /// A table of a layer.
    pub fn new(layer: Layer, name: impl Into<String>) -> Self {
        Self { layer, name: name.into() }
    }

    /// A bronze table.
    pub fn bronze(name: impl Into<String>) -> Self {
        Self::new(Layer::Bronze, name)
    }

    /// A silver table.
    pub fn silver(name: impl Into<String>) -> Self {
        Self::new(Layer::Silver, name)
    }

    /// A gold table.
    pub fn gold(name: impl Into<String>) -> Self {
        Self::new(Layer::Gold, name)
    }

    /// The quarantine of a bronze source.
    pub fn quarantine(source: impl Into<String>) -> Self {
        Self::new(Layer::Quarantine, source)
    }

    /// The file ledger of a bronze source.
    pub fn files(source: impl Into<String>) -> Self {
        Self::new(Layer::Files, source)
    }

    /// The event log.
    pub fn event_log() -> Self {
        Self::new(Layer::State, "event_log")
    }

    /// Reads `layer.name`; `None` when the layer is not one of ours or the name is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (layer, name) = text.split_once('.')?;
        let layer = Layer::ALL.into_iter().find(|known| known.as_str() == layer)?;
        (!name.is_empty() && !name.contains('.')).then(|| Self::new(layer, name))
    }

    /// The folder of the table below the storage root: `silver/orders`.
    pub fn folder(&self) -> String {
        match self.layer {
            Layer::Delta => self.name.clone(),
            layer => format!("{}/{}", layer.folder(), self.name),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.layer.as_str(), self.name)
    }
}

/// Identifies one run of the program. Sorts by the time the run started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

impl RunId {
    /// A new id: the time to the second and a random part, `20240501T101500-1f2e3d4c`.
    pub fn new(clock: &Clock) -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("{}-{}", clock.now().format("%Y%m%dT%H%M%S"), &random[..8]))
    }

    /// The id of a run that was.
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for a name that is safe as a folder, a SQL identifier and a key of the spec.
pub fn is_plain_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_a_layer_and_a_name() {
        assert_eq!(TableName::parse("silver.orders"), Some(TableName::silver("orders")));
        assert_eq!(TableName::parse("iron.orders"), None);
        assert_eq!(TableName::parse("silver."), None);
        assert_eq!(TableName::parse("a.silver.orders"), None);
        assert_eq!(TableName::gold("daily").to_string(), "gold.daily");
        assert_eq!(TableName::event_log().folder(), "_state/event_log");
    }
}
