//! Files that are full extracts: what goes with them, and what cannot.

use lake::spec::Problem;

use super::check::Check;
use super::{Operation, Paths, SnapshotPlan};

impl Check<'_> {
    /// Whether files are full extracts.
    pub(super) fn snapshot(&mut self, paths: &Paths, operation: &Operation) -> Option<SnapshotPlan> {
        let raw = &self.entry.raw;
        if !raw.from_snapshot {
            if raw.allow_empty_snapshot {
                let message = "`allow_empty_snapshot` says something about full extracts, and files are none here";
                let problem = Problem::at(&self.at("allow_empty_snapshot"), message);
                self.problems.add(problem.hint("it goes with `from_snapshot: true`"));
            }
            return None;
        }
        let path = self.at("from_snapshot");
        if !matches!(operation, Operation::Upsert) {
            let message = "a full extract says what there is, and this table has records that say what changes";
            let hint = "remove `op`, `delete_flag`, `apply_as_deletes` and the preset, or `from_snapshot`";
            self.problems.add(Problem::at(&path, message).hint(hint));
        }
        if paths.row.is_some() {
            let message = "the records of a full extract are rows, and `row` says that rows are inside of them";
            self.problems.add(Problem::at(&path, message));
        }
        Some(SnapshotPlan { allow_empty: raw.allow_empty_snapshot })
    }
}
