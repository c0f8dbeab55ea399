//! From bronze to silver: the current row of each entity, from any stream of changes.
//!
//! A record's walk is the reading order: `read` takes the records that the table has not seen,
//! [`change`] says what each does and types it ([`lake::cast`], [`written`], [`sequence`]; [`preset`] holds what each producer means), [`expect`] holds it to the spec's conditions,
//! [`order`] and [`dedup`] keep the last change of each key, `sift` holds it against the table, where [`tombstones`] and
//! `truncates` remember deletes, `settle` and `fold` put updates that do not send every column into the rows they meet
//! and `history` folds tables that keep more than current rows, and [`refine`] counts every row and commits. [`rebuild`] makes a table anew in its place,
//! [`restore`] says what taking it back means, [`waiting()`] what a run would take, [`verify`] asks whether it is right, and
//! [`account`] what became of each file.

pub mod account;
pub mod change;
mod condition;
pub mod dedup;
pub mod expect;
mod facts;
mod fits;
mod fold;
mod generated;
mod history;
pub mod order;
pub mod plan;
mod position;
pub mod preset;
mod read;
pub mod rebuild;
pub mod refine;
mod registers;
pub mod replay;
pub mod restore;
pub mod sequence;
mod set_at;
mod settle;
mod sift;
mod snapshot;
pub mod spec;
mod target;
pub mod tombstones;
mod truncates;
pub mod verify;
mod waiting;
pub mod written;

pub use plan::{Arriving, TablePlan, compile};
pub use refine::run;
pub use replay::{reach, replay};
pub use waiting::{Waiting, waiting};
