//! Looking at a lake without changing it: queries, earlier runs, how tables stand, what a run would do.

pub(crate) mod diff;
pub(crate) mod extracts;
pub(crate) mod forecast;
pub(crate) mod history;
pub(crate) mod maintained;
mod outcome;
pub(crate) mod quarantine;
pub(crate) mod query;
mod record;
pub(crate) mod status;
pub(crate) mod travel;

pub(crate) use record::Recorded;
