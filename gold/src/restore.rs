//! What a gold table that is taken back to an earlier version says about its sources, in the same commit: that its rows are
//! of the versions that they were of then. So the next run brings it up to date from there.

use lake::restore::{Along, Moved, Way};

/// Stands for a source, or a day, that the table did not hold yet.
const NEVER: i64 = -1;

/// What the commit says that takes a table back.
pub fn along(way: &Way, moved: &[Moved]) -> Along {
    let (own, recipe) = (format!("{}:", way.now.name()), format!("{}:recipe", way.now.name()));
    let goes_back = moved.iter().filter(|moved| moved.app.starts_with(&own) && moved.app != recipe);
    Along {
        txns: goes_back.map(|moved| (moved.app.clone(), moved.then.unwrap_or(NEVER))).collect(),
        ..Along::default()
    }
}
