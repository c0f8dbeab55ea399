//! What the four programs share on the command line. Data goes to stdout, all else to stderr; the exit codes are
//! [`EXIT_DONE`](lake::report::EXIT_DONE), [`EXIT_FAILED`](lake::report::EXIT_FAILED) and
//! [`EXIT_USAGE`](lake::report::EXIT_USAGE).

mod layer;
mod log;
mod printer;
mod process;
pub mod rows;

pub use layer::{Layer, NoExtra, Place, chosen, main as layer_main};
pub use log::{LogArgs, LogFormat, LogLevel, is_json as logs_are_json};
pub use printer::{Failure, Printer};
pub use process::run as run_process;

/// How a command that reports prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// One JSON value
    Json,
}
