//! Gold: results of queries and daily history, from any tables of the lake.
//!
//! Reading order: [`spec`] is what the user writes, [`plan`] what is left when it is right ([`sources`] finds the tables
//! that a query reads). [`run`] brings one table up to date: a `model` is the result of a query, a `snapshot` the
//! state of a table day by day. Both ask `recipe` whether there is something to do, and hand their rows to
//! `publish`, which `write`s files and commits once.

mod answer;
mod model;
pub mod order;
mod output;
pub mod plan;
mod publish;
mod recipe;
mod run;
mod snapshot;
pub mod sources;
pub mod spec;
mod write;

pub use order::in_order;
pub use plan::{ModelPlan, Plan, SnapshotPlan, compile};
pub use run::{backfill, record, run};
pub use snapshot::{AsOf, Check, as_of, check};
