//! What the layers share: Delta tables below one storage root and the one way to change them.
//!
//! Reading order: [`error`], [`names`], [`clock`] and [`location`] are the words of the house; [`lakehouse`] opens
//! and makes a [`table`]; [`write`](mod@write) puts rows into files that nobody sees yet, [`commit`] makes them visible, once;
//! [`upsert`] applies changes by key; [`restore`] takes a table back, [`tags`] name its versions, [`taken_out`] tells
//! what went by hand; [`session`] reads, [`changes`] tells what is new; [`cast`] types values without loss. [`quarantine`], [`events`] and [`accounting`] keep the
//! promise that every row is accounted for. [`run`] and [`report`] carry what a task is told and what it answers.

pub mod accounting;
pub mod cast;
pub mod changes;
pub mod clock;
pub mod columns;
pub mod commit;
pub mod copy;
mod durable;
pub mod error;
pub mod events;
pub mod expression;
pub mod fault;
pub mod history;
pub mod lakehouse;
pub mod lease;
pub mod listing;
mod local;
pub mod location;
pub mod log;
pub mod names;
mod opened;
pub mod optimize;
pub mod quarantine;
pub mod report;
pub mod restore;
pub mod rounds;
pub mod rules;
pub mod run;
pub mod scan;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod skip;
pub mod spec;
pub mod stage;
pub mod table;
pub mod tags;
pub mod taken_out;
pub mod upsert;
pub mod vacuum;
mod vectors;
pub mod verify;
pub mod write;

pub use clock::Clock;
pub use error::{Context, Error, ErrorKind, Result, Retry};
pub use lakehouse::Lake;
pub use location::Root;
pub use names::{Layer, RunId, TableName};
pub use table::Table;
