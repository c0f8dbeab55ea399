//! `orchestrator watch`: runs whenever files arrive, and by the clock.

use std::net::SocketAddr;
use std::path::Path;

use bronze::watch::Intervals;
use lake::Clock;
use lake::report::{EXIT_DONE, RunSummary};
use lake::spec::Duration;

use crate::health::{Health, serve};
use crate::run::stops;
use crate::spec::Project;
use crate::watch::{Listener, Outside, Over, Prepared, SpecFile, Wanted, watch};
use cli::{Failure, Output, Printer};

/// Watch the landing zone and run what new files touch, or everything by `schedule`, until it is stopped
///
/// What landed before is run first, and once for moments of the schedule that were missed. With a `schedule` in the spec
/// files start runs only where `trigger` is written as well. When the spec changes the watch goes on with it; one that is
/// wrong is told, and the old one stays. A file is taken when it has not changed for its source's `settle`, or at once when
/// it was renamed into place. What happens is told on stderr, a line for each thing. Failures end nothing: what may
/// pass is tried again. Ctrl-C (or SIGTERM) lets the running tasks come to a safe end and exits with 0; a second one
/// ends the process at once, which loses nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator watch
  orchestrator watch --select bronze.orders_cdc,silver.orders
  orchestrator watch --poll 10s                      folders that send no events (network mounts)
  orchestrator watch --output json >> runs.jsonl     the summary of each run on stdout, a line each")]
pub(super) struct Args {
    /// Only these tasks: `bronze.orders_cdc`; may be given several times, or separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    select: Vec<String>,
    /// Watch this folder instead of the spec's `landing`
    #[arg(long, value_name = "DIR")]
    landing: Option<String>,
    /// List the folders this often instead of waiting for events; buckets and network mounts are listed every 5s anyway
    #[arg(long, value_name = "DURATION")]
    poll: Option<Duration>,
    /// List the folders this often although events tell of changes, in case some were lost
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    rescan: Duration,
    /// Answer whether the watch is alive (`/healthz`) and ready (`/readyz`) by HTTP at this address
    #[arg(long, env = "PIPELINES_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// What is printed on stdout: nothing, or the summary of each run
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) async fn run(file: &Path, args: &Args, clock: Clock, printer: &Printer) -> Result<u8, Failure> {
    let mut spec = SpecFile::of(file);
    let project = Project::load(file)?;
    let usual = Intervals::default();
    let intervals = Intervals {
        rescan: args.rescan.as_std(),
        poll: args.poll.map_or(usual.poll, Duration::as_std),
        always_poll: args.poll.is_some(),
    };
    for (option, interval) in [("rescan", intervals.rescan), ("poll", intervals.poll)] {
        if interval.is_zero() {
            return Err(lake::Error::spec(format!("`--{option}` needs some time, 1s for instance")).into());
        }
    }
    let mut listener = Told { printer: *printer, output: args.output };
    let mut stop = stops();
    let health = Health::new(clock.clone());
    if let Some(address) = args.listen {
        let address = serve(address, health.clone()).await?;
        printer.note(&format!("health is told at http://{address}/healthz and /readyz\n"));
    }
    let wanted = Wanted { select: args.select.clone(), landing: args.landing.clone(), intervals };
    let mut prepared = Prepared::new(project, &wanted, clock.clone()).await?;
    loop {
        let (stop, listener) = (&mut stop, &mut listener);
        let outside = Outside { wanted: &wanted, spec: &mut spec, health: &health, stop, listener };
        prepared = match watch(prepared, outside).await {
            Over::Stopped => {
                health.stops();
                return Ok(EXIT_DONE);
            }
            Over::Reloaded(new) => *new,
        };
    }
}

struct Told {
    printer: Printer,
    output: Output,
}

impl Listener for Told {
    fn say(&mut self, line: &str) {
        self.printer.note(line);
    }

    fn ran(&mut self, summary: &RunSummary) {
        if self.output == Output::Json {
            // Tables are kept right also when nobody reads the summaries any more.
            let _ = self.printer.data(&format!("{}\n", summary.to_json()));
        }
    }
}
