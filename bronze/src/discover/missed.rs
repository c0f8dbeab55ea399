//! Files that are there and that `include` does not take.

use super::Miss;

/// Paths that are kept of each kind at most.
const KEPT_MAX: usize = 100;

/// Files below the folder of a source that its `include` does not take, and that nothing else leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missed {
    /// How many there are.
    pub files: usize,
    /// Some that it would take with other capitals.
    pub by_case: Vec<String>,
    /// Some that it would take without the ending of their compression.
    pub by_packing: Vec<String>,
    /// The first of the others.
    pub other: Option<String>,
}

impl Missed {
    pub(super) fn add(&mut self, path: &str, miss: Option<Miss>) {
        let Some(miss) = miss else { return };
        self.files += 1;
        let kept = match miss {
            Miss::Name => {
                self.other.get_or_insert_with(|| path.to_owned());
                return;
            }
            Miss::Case => &mut self.by_case,
            Miss::Packed => &mut self.by_packing,
        };
        if kept.len() < KEPT_MAX {
            kept.push(path.to_owned());
        }
    }
}
