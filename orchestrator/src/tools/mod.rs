//! Looking at a lake without changing it: queries, earlier runs, what a run would do.

pub(crate) mod forecast;
pub(crate) mod history;
pub(crate) mod quarantine;
pub(crate) mod query;
mod record;
pub(crate) mod travel;
