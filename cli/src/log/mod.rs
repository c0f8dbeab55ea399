//! The log of the programs, on stderr: how much of it, and whether people or programs read it.

mod fields;
mod lines;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, registry};

use lines::Lines;

/// Crates whose lines are ours; those of the libraries are asked for one level louder.
const OURS: [&str; 6] = ["lake", "bronze", "silver", "gold", "cli", "orchestrator"];
/// The target of what a program tells people, where stderr is JSON.
pub(crate) const TOLD: &str = "told";

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// The options by which every program logs.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct LogArgs {
    /// Log more to stderr: what runs do; twice for details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How much is logged to stderr; libraries one level less. Default: errors, with `--log-format json` info. RUST_LOG
    /// overrides
    #[arg(long, global = true, env = "PIPELINES_LOG_LEVEL", value_enum, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// What stderr is: text for people, or one JSON object a line, whatever is told
    #[arg(
        long,
        global = true,
        env = "PIPELINES_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing
    Off,
    /// What failed
    Error,
    /// What somebody should look at when there is time
    Warn,
    /// What runs do
    Info,
    /// What they meet on their way
    Debug,
    /// Everything
    Trace,
}

/// What stderr is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

impl LogLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// One level less.
    fn below(self) -> Self {
        match self {
            Self::Off | Self::Error => Self::Off,
            Self::Warn => Self::Error,
            Self::Info => Self::Warn,
            Self::Debug => Self::Info,
            Self::Trace => Self::Debug,
        }
    }
}

impl LogArgs {
    /// Begins to log.
    pub fn begin(self) {
        let format = *FORMAT.get_or_init(|| self.log_format);
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(self.directives()));
        // Spans say which run and which task a line is about, and what is told is told: neither is ever left out.
        let always = filter_fn(|line| line.target() == TOLD || (line.is_span() && is_ours(line.target())));
        let filter = filter.or(always.with_max_level_hint(LevelFilter::INFO));
        let lines = Lines::new(format, std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
        registry().with(lines.with_filter(filter)).init();
    }

    /// What is logged when RUST_LOG says nothing.
    fn directives(self) -> String {
        let by_verbose = match self.verbose {
            0 => None,
            1 => Some(LogLevel::Info),
            _ => Some(LogLevel::Debug),
        };
        match (self.log_level.max(by_verbose), self.log_format) {
            (Some(level), _) => directives(level, level.below()),
            (None, LogFormat::Json) => directives(LogLevel::Info, LogLevel::Off),
            // People read what failed in the summary: the event log says the same once more.
            (None, LogFormat::Text) => format!("{},lake::events=off", directives(LogLevel::Error, LogLevel::Off)),
        }
    }
}

/// True when stderr holds JSON lines and nothing else.
pub fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

fn is_ours(target: &str) -> bool {
    OURS.contains(&target.split("::").next().unwrap_or(target))
}

/// Levels for our own lines and those of the libraries.
fn directives(ours: LogLevel, libraries: LogLevel) -> String {
    let named: Vec<String> = OURS.iter().map(|name| format!("{name}={}", ours.as_str())).collect();
    format!("{},{}", libraries.as_str(), named.join(","))
}
