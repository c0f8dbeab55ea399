//! The commands of the `silver` program beside `run`, each in a file.

pub(crate) mod account;
pub(crate) mod rebuild;
pub(crate) mod verify;
