//! What a person wants to know about the columns of a file.

use std::fmt;

use crate::spec::SchemaEvolutionMode;

/// With more columns than this on either side, a file holds other records and is not one with a renamed column.
const RENAMED_MAX: usize = 3;

/// What is worth a note about the columns of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNote {
    /// Columns of the table that the file lacks, when they may have been renamed.
    pub gone: Vec<String>,
    /// Columns of the file that the table did not have.
    pub new: Vec<String>,
    /// What became of the new ones where they did not join.
    pub mode: Option<SchemaEvolutionMode>,
}

impl FileNote {
    /// A note, when there is something to tell: new columns that did not join (`mode` says what became of them), or
    /// columns that vanish while others appear.
    pub(super) fn of(mode: Option<SchemaEvolutionMode>, gone: Vec<String>, new: Vec<String>) -> Option<Self> {
        let is_rename = (1..=RENAMED_MAX).contains(&gone.len()) && (1..=RENAMED_MAX).contains(&new.len());
        let note = Self { gone: if is_rename { gone } else { Vec::new() }, new, mode };
        (is_rename || (mode.is_some() && !note.new.is_empty())).then_some(note)
    }

    /// True when columns may have been renamed.
    pub fn is_rename(&self) -> bool {
        !self.gone.is_empty()
    }
}

impl fmt::Display for FileNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let new = quoted(&self.new);
        match self.gone.is_empty() {
            true => write!(f, "{new} not in the table")?,
            false => write!(f, "{} gone and {new} new: probably renamed", quoted(&self.gone))?,
        }
        match self.mode {
            Some(SchemaEvolutionMode::Rescue) => f.write_str(" (kept in `_rescued_data`)"),
            Some(SchemaEvolutionMode::None) => f.write_str(" (left out: `schema_evolution_mode: none`)"),
            _ => Ok(()),
        }
    }
}
