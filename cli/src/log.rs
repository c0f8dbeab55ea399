//! The log of the programs, on stderr.

use std::io::IsTerminal;

use lake::secrets::Redacting;
use tracing_subscriber::EnvFilter;

/// Log lines that are shown without `-v` and without RUST_LOG: errors of our own; those of the libraries are told by
/// what comes of them.
const LOG_DEFAULT: &str = "off,lake=error,bronze=error,silver=error,gold=error,orchestrator=error";
/// With `-v`.
const LOG_VERBOSE: &str = "warn,lake=info,bronze=info,silver=info,gold=info,orchestrator=info";
/// With `-vv`.
const LOG_DEBUG: &str = "info,lake=debug,bronze=debug,silver=debug,gold=debug,orchestrator=debug";

/// Begins to log; `verbose` is how often `-v` was given. RUST_LOG overrides it.
pub fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => LOG_DEFAULT,
        1 => LOG_VERBOSE,
        _ => LOG_DEBUG,
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Redacting(std::io::stderr()))
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
