//! Gold: results of queries and daily history, from any tables of the lake.
//!
//! Reading order: [`spec`] is what the user writes, [`plan`] what is left when it is right ([`sources`] finds the tables
//! that a query reads, [`known`] plans it against their columns). [`run`](run()) brings one table up to date: a `model` is
//! the result of a query, a `snapshot` the state of a table day by day. Both ask `recipe` whether there is something to
//! do, and hand their rows to `publish`, which `write`s files and commits once; a model whose query allows it is refreshed
//! by groups instead (`refresh`). [`explain`] and [`verify`] tell of a model how it follows its sources and whether it has,
//! [`row_keys`] which columns tell its rows apart.

mod about;
mod answer;
mod checks;
pub mod explain;
mod keys;
pub mod known;
mod model;
pub mod order;
mod output;
pub mod plan;
mod publish;
mod recipe;
mod refresh;
pub mod restore;
mod run;
mod snapshot;
pub mod sources;
pub mod spec;
pub mod verify;
mod write;

pub use keys::row_keys;
pub use known::check_models;
pub use order::in_order;
pub use plan::{Keys, ModelPlan, Plan, SnapshotPlan, compile};
pub use run::{backfill, record, run};
pub use snapshot::{AsOf, Check, as_of, check, swapped};
