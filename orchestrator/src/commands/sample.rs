//! `orchestrator sample`: sample input of any size.

use std::path::PathBuf;

use lake::report::{EXIT_DONE, many, thousands};
use serde_json::json;

use crate::sample::{self, DEFAULT_DAYS, DEFAULT_ROWS, DEFAULT_SEED, Options};
use cli::{Failure, Output, Printer};

/// Write sample input that looks like life: change files of a shop's orders and daily extracts of its products
///
/// The same options give the same bytes. The folder may exist, but must not hold the sample's folders with something
/// in them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator sample landing
  orchestrator sample /tmp/big --rows 1000000 --seed 7 --days 60")]
pub(super) struct Args {
    /// The folder that gets orders/, web_orders/ and products/
    dir: PathBuf,
    /// Change events of orders, over all files
    #[arg(long, default_value_t = DEFAULT_ROWS)]
    rows: u64,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Days that the files cover
    #[arg(long, default_value_t = DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// `json` prints what was written on stdout
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) fn run(args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let options = Options { dir: args.dir.clone(), rows: args.rows, seed: args.seed, days: args.days };
    let written = sample::generate(&options)?;
    if args.output == Output::Json {
        let told = json!({
            "dir": args.dir.display().to_string(),
            "files": written.files,
            "events": written.events,
            "products": written.products,
            "bytes": written.bytes,
            "seed": args.seed,
        });
        printer.data(&format!("{told}\n"))?;
        return Ok(EXIT_DONE);
    }
    printer.note(&format!(
        "{}: {}, {} of orders, {} of products, {} bytes\n",
        args.dir.display(),
        many(written.files, "file"),
        many(written.events, "event"),
        many(written.products, "row"),
        thousands(written.bytes),
    ));
    Ok(EXIT_DONE)
}
