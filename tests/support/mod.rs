//! What the tests stand on: temporary projects, the programs, typed comparison, and a plain fold of change files.

pub(crate) mod case;
pub(crate) mod csv;
pub(crate) mod days;
pub(crate) mod fold;
pub(crate) mod history;
pub(crate) mod parallel;
pub(crate) mod past;
pub(crate) mod program;
pub(crate) mod project;
pub(crate) mod queries;
pub(crate) mod rows;
pub(crate) mod summary;
pub(crate) mod tables;
pub(crate) mod watching;
