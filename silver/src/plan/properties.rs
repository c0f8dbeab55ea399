//! The properties of the table: those that a user may set, beside those that follow from other options.

use lake::spec::Problem;

use super::check::Check;

/// Properties of Delta that say how long and how files and the log are kept, and change nothing that rows or their
/// writers depend on. <https://docs.delta.io/latest/table-properties.html>
const FREE: [&str; 9] = [
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.dataSkippingNumIndexedCols",
    "delta.deletedFileRetentionDuration",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
];
/// Properties that have an option of their own.
const OPTIONS: [(&str, &str); 2] =
    [("delta.enableChangeDataFeed", "change_data_feed"), ("delta.enableDeletionVectors", "deletion_vectors")];
/// The prefix of properties that the program keeps for itself.
const OWN: &str = "lakehouse.";

impl Check<'_> {
    /// The properties that the spec sets.
    pub(super) fn properties(&mut self) -> Vec<(String, String)> {
        let place = self.at("properties");
        let raw = &self.entry.raw.properties;
        for (key, value) in raw.iter() {
            let problem = |text: String| Problem::at(&place.key(key), text);
            if let Some((_, option)) = OPTIONS.iter().find(|(property, _)| *property == key) {
                self.problems.add(problem(format!("`{key}` has an option of its own")).hint(format!("`{option}: …`")));
            } else if key.starts_with(OWN) {
                self.problems.add(problem(format!("`{OWN}…` is the program's own")));
            } else if key.starts_with("delta.") && !FREE.contains(&key) {
                let problem = problem(format!("`{key}` cannot be set: rows or their writers depend on it"));
                self.problems.add(problem.hint(format!("what can be set of Delta's own: {}", FREE.join(", "))));
            } else if key.ends_with("RetentionDuration") && !is_interval(value) {
                let problem = problem(format!("`{value}` is not an interval"));
                self.problems.add(problem.hint("write `interval 30 days`"));
            }
        }
        raw.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// `interval 30 days`, as Delta has it.
fn is_interval(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let units = ["week", "day", "hour", "minute", "second"];
    matches!(&words[..], ["interval", number, unit]
        if number.parse::<u64>().is_ok() && units.contains(&unit.trim_end_matches('s')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_and_a_unit() {
        assert!(is_interval("interval 30 days") && is_interval("interval 1 week"));
        assert!(!is_interval("30 days") && !is_interval("interval x days") && !is_interval("interval 2 years"));
    }
}
