//! The process that a program is: its runtime, and its exit code.

use std::process::ExitCode;

use crate::printer::{Failure, Printer};

/// Threads that may block, at most. Every task of a run holds some while it waits for others of them: with too few, all
/// would wait. Those that nobody needs are not made.
const BLOCKING_THREADS_MAX: usize = 8192;

/// Does all the work of a program, and prints what went wrong with it.
///
/// What goes on beside the work when it ends (a table that is opened ahead, a look at a mount that hangs) ends with the
/// process, as if it was killed. To stop it by dropping the runtime would wait for threads that block, and cancel what
/// other threads wait for: libraries panic then.
pub fn run(work: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build();
    let runtime = match runtime {
        Ok(runtime) => std::mem::ManuallyDrop::new(runtime),
        Err(error) => return Printer.failure(&Failure::Error(error.into())),
    };
    match runtime.block_on(work) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => Printer.failure(&failure),
    }
}
