//! What went wrong, where, and what to do: the one error of the workspace and its one retry policy.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The result of everything in the lake.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The spec or the request is wrong; nothing was run.
    Spec,
    /// Input data broke a rule that the spec says must stop the run.
    Data,
    /// A file of the landing zone cannot be read.
    File,
    /// Figures that must add up do not; nothing was committed.
    Accounting,
    /// The table moved between reading and committing; the work must be done again from its new state.
    Conflict,
    /// The store did not answer, or answered with a passing failure.
    Store,
    /// A table is not what the program expects: missing, of another schema, with an unknown feature.
    Table,
    /// A query cannot be planned or computed.
    Query,
    /// A broken invariant of the program itself.
    Internal,
}

/// What the caller may do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Trying again cannot help before something is changed.
    Never,
    /// The same work may succeed later: wait, then try again.
    AfterBackoff,
    /// The inputs moved: read them again and redo the work at once.
    Redo,
}

impl ErrorKind {
    /// The retry policy, the only one of the workspace.
    pub fn retry(self) -> Retry {
        match self {
            Self::Spec | Self::Data | Self::File | Self::Accounting | Self::Internal => Retry::Never,
            Self::Table | Self::Query => Retry::Never,
            Self::Conflict => Retry::Redo,
            Self::Store => Retry::AfterBackoff,
        }
    }

    /// A word for logs, the event log and JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Data => "data",
            Self::File => "file",
            Self::Accounting => "accounting",
            Self::Conflict => "conflict",
            Self::Store => "store",
            Self::Table => "table",
            Self::Query => "query",
            Self::Internal => "internal",
        }
    }
}

/// A failure with its kind, what was being done, its cause and a hint for the reader.
///
/// The message is lowercase without a closing period and names the table, file, line or key.
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<String>,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync + 'static>>,
}

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), context: Vec::new(), hint: None, source: None }))
    }

    /// A wrong spec or request.
    pub fn spec(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Spec, message)
    }

    /// Input data that breaks a rule which must stop the run.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// A broken invariant of the program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Keeps what caused this error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync + 'static>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Adds what was being done, outermost last: `committing silver.orders`.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context.push(context.into());
        self
    }

    /// Says what the reader can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What may be done about it.
    pub fn retry(&self) -> Retry {
        self.0.kind.retry()
    }

    /// The hint, when there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The causes below the message, outermost first, without repetitions.
    pub fn causes(&self) -> Vec<String> {
        let mut causes: Vec<String> = Vec::new();
        let mut text = self.to_string();
        if !self.0.context.is_empty() {
            causes.push(self.0.message.clone());
            text = self.0.message.clone();
        }
        let mut cause = self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static));
        while let Some(error) = cause {
            let line = error.to_string();
            if !text.contains(&line) {
                causes.push(line.clone());
                text = line;
            }
            cause = error.source();
        }
        causes
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.context.last().unwrap_or(&self.0.message))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Adds what was being done to the error of a result.
pub trait Context<T> {
    /// Adds a context line, made only on failure.
    fn context<C: Into<String>>(self, context: impl FnOnce() -> C) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context<C: Into<String>>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }
}

// === conversions: one place decides which kind a library's error is ===

impl From<deltalake::DeltaTableError> for Error {
    fn from(error: deltalake::DeltaTableError) -> Self {
        use deltalake::DeltaTableError as D;
        use deltalake::kernel::transaction::TransactionError as T;
        let kind = match &error {
            D::Transaction { source: T::MaxCommitAttempts(_) | T::CommitConflict(_) } => ErrorKind::Conflict,
            D::VersionAlreadyExists(_) => ErrorKind::Conflict,
            D::Transaction { source: T::ObjectStore { .. } | T::LogStoreError { .. } } => ErrorKind::Store,
            D::ObjectStore { .. } | D::Io { .. } => ErrorKind::Store,
            _ => ErrorKind::Table,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError as D;
        // Plans wrap what their streams fail with; an error of ours comes back as itself.
        let ours = match error.find_root() {
            D::External(inner) => inner.downcast_ref::<Self>().cloned(),
            D::ArrowError(inner, _) => match inner.as_ref() {
                arrow::error::ArrowError::ExternalError(inner) => inner.downcast_ref::<Self>().cloned(),
                _ => None,
            },
            _ => None,
        };
        let is_out_of_memory = matches!(error.find_root(), D::ResourcesExhausted(_));
        match (ours, error) {
            (Some(ours), _) => ours,
            (None, other) if is_out_of_memory => {
                let error = Self::new(ErrorKind::Query, other.strip_backtrace());
                error.hint("raise `engine.memory`, or in `tasks` the `memory` of the task alone")
            }
            (None, D::ObjectStore(inner)) => Self::from(*inner),
            (None, other) => Self::new(ErrorKind::Query, other.strip_backtrace()),
        }
    }
}

impl From<Error> for datafusion::error::DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        Self::new(ErrorKind::Store, error.to_string()).with_source(error)
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::new(ErrorKind::Query, error.to_string()).with_source(error)
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::new(ErrorKind::File, error.to_string()).with_source(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Store, error.to_string()).with_source(error)
    }
}
