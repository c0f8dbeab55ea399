//! The properties of the table: those that a user may set, beside those that follow from other options.

use super::check::Check;

/// Properties that have an option of their own.
const OPTIONS: [(&str, &str); 2] =
    [("delta.enableChangeDataFeed", "change_data_feed"), ("delta.enableDeletionVectors", "deletion_vectors")];

impl Check<'_> {
    /// The properties that the spec sets.
    pub(super) fn properties(&mut self) -> Vec<(String, String)> {
        lake::spec::properties(&self.entry.raw.properties, &self.at("properties"), &OPTIONS, self.problems)
    }
}
