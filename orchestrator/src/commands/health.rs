//! `orchestrator health`: whether a watch that runs is well.

use cli::{Failure, Printer};
use lake::report::{EXIT_DONE, EXIT_FAILED};

use crate::health::ask;

/// Ask a running watch whether it is well
///
/// For health checks of containers and scripts: the watch runs with `--listen` and the same address. Prints what it
/// says, as JSON; the exit code is 0 when it is well, else 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator watch --listen 127.0.0.1:8080 &
  orchestrator health --listen 127.0.0.1:8080           alive: its loop turns
  orchestrator health --ready                           it watches, reaches its storage, and the last run did not fail")]
pub(super) struct Args {
    /// The address that the watch listens at
    #[arg(long, env = "PIPELINES_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Ask whether it is ready, not only alive
    #[arg(long)]
    ready: bool,
}

pub(super) async fn run(args: &Args, printer: &Printer) -> Result<u8, Failure> {
    // A watch that listens everywhere is asked on this machine.
    let address = match args.listen.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => args.listen.clone(),
    };
    let (is_well, body) = ask(&address, if args.ready { "/readyz" } else { "/healthz" }).await?;
    printer.data(&body)?;
    Ok(if is_well { EXIT_DONE } else { EXIT_FAILED })
}
