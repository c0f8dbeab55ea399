//! The one place that writes to the terminal: data to stdout, all else to stderr.

use std::io::{self, Write};
use std::process::ExitCode;

use lake::report::{EXIT_DONE, EXIT_FAILED, EXIT_USAGE, error_text};
use lake::spec::Problems;
use lake::{Error, ErrorKind, secrets};

use crate::log;

/// Writes for the command line. Lines are complete: each text ends with a line break.
#[derive(Debug, Clone, Copy)]
pub struct Printer;

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// What is wrong with the spec.
    Problems(Problems),
    /// Anything else.
    Error(Error),
    /// Nobody reads the output any more.
    Closed,
}

impl Printer {
    /// Writes data.
    ///
    /// # Errors
    /// [`Failure::Closed`] when the reader has gone, as `head` does.
    pub fn data(self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Writes data that is no text.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Error(Error::from(error).context("writing the output")),
        })
    }

    /// Writes what is not data, without values that the spec took from the environment; as a line of the log where
    /// stderr is JSON.
    pub fn note(self, text: &str) {
        if log::is_json() {
            return tracing::info!(target: log::TOLD, "{}", text.trim_end());
        }
        self.plain(text);
    }

    /// The same of what went wrong.
    fn complain(self, text: &str) {
        if log::is_json() {
            return tracing::error!(target: log::TOLD, "{}", text.trim_end());
        }
        self.plain(text);
    }

    fn plain(self, text: &str) {
        // There is nowhere left to say that stderr is closed.
        let _ = io::stderr().lock().write_all(secrets::redacted(text).as_bytes());
    }

    /// Writes what went wrong, and says which exit code that is.
    pub fn failure(self, failure: &Failure) -> ExitCode {
        let code = match failure {
            Failure::Problems(problems) => {
                self.complain(&problems.to_string());
                EXIT_USAGE
            }
            Failure::Error(error) => {
                self.complain(&error_text(error));
                exit_code(error)
            }
            Failure::Closed => EXIT_DONE,
        };
        ExitCode::from(code)
    }
}

/// A wrong spec or query is the request's fault.
fn exit_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Spec | ErrorKind::Query => EXIT_USAGE,
        _ => EXIT_FAILED,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Problems(problems)
    }
}
