//! The program that does everything: files of changes in, right tables out.
//!
//! Exit codes: 0 done, 1 a task failed or a file was refused, 2 the request or the spec is wrong.

mod commands;
mod fixture;
mod graph;
mod health;
mod init;
mod maintain;
mod notify;
mod run;
mod sample;
mod spec;
mod tools;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main()
}
