//! Landing zone to bronze tables: every record of every file once, exactly as written.
//!
//! In the order of a record's walk: [`spec`] and [`plan`] are what the user asks for; [`discover`] finds files that are
//! ready; [`ledger`] makes them a batch; [`decode`] turns a file into rows and rejected records; [`evolve`] fits the
//! rows to the table; `append` brings a batch into it, once; `clean` clears files away that were taken. [`run()`] does
//! all of it, [`waiting()`] tells what it would do, [`again`] has files taken once more, [`replay()`]
//! records that were refused, [`watch`] sees them come; [`restore`] says what taking a table back means; [`look`] tells what files are that no spec speaks of yet.

pub mod again;
mod append;
mod clean;
pub mod decode;
pub mod discover;
pub mod evolve;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod ledger;
pub mod look;
pub mod plan;
mod progress;
mod replay;
pub mod restore;
mod run;
pub mod spec;
mod waiting;
pub mod watch;

pub use plan::{SourcePlan, check_together, compile};
pub use replay::replay;
pub use run::{Told, run};
pub use spec::Source;
pub use waiting::{Waiting, waiting};
