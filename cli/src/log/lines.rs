//! Writes what is logged, a line each, with the run and the task that it is about.

use std::io::{Write, stderr};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, SecondsFormat, Utc};
use lake::{Clock, secrets};
use serde_json::Value;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use super::fields::Fields;

/// The field of the span of a run.
const RUN: &str = "run_id";
/// The field of the span of a task.
const TASK: &str = "task";

/// The layer that writes lines to stderr.
pub(super) struct Lines {
    format: LogFormat,
    is_colored: bool,
    clock: Clock,
    /// The runs that go on: work that libraries do on threads of their own does not say what it is for.
    runs: Mutex<Vec<(Id, Value)>>,
}

impl Lines {
    /// Lines in a format, coloured or not.
    pub(super) fn new(format: LogFormat, is_colored: bool) -> Self {
        Self { format, is_colored, clock: Clock::system(), runs: Mutex::default() }
    }

    /// The only run that goes on.
    fn only_run(&self) -> Option<Value> {
        match &self.runs.lock().unwrap_or_else(PoisonError::into_inner)[..] {
            [(_, run)] => Some(run.clone()),
            _ => None,
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(run) = fields.get(RUN) {
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), run.clone()));
        }
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).retain(|(open, _)| *open != id);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(said) = span.extensions().get::<Fields>() {
                fields.extend(said);
            }
        }
        event.record(&mut fields);
        let run = fields.take(RUN).or_else(|| self.only_run());
        let line = Line {
            at: self.clock.now(),
            level: *event.metadata().level(),
            target: event.metadata().target(),
            message: fields.take("message").map(|message| plain(&message)).unwrap_or_default(),
            run,
            task: fields.take(TASK),
            fields,
        };
        let text = match self.format {
            LogFormat::Json => line.to_json(),
            LogFormat::Text => secrets::redacted(&line.into_text(self.is_colored)).into_owned(),
        };
        // There is nowhere left to say that stderr is closed.
        let _ = stderr().lock().write_all(text.as_bytes());
    }
}

/// One line of the log.
pub(super) struct Line<'a> {
    pub(super) at: DateTime<Utc>,
    pub(super) level: Level,
    pub(super) target: &'a str,
    pub(super) message: String,
    pub(super) run: Option<Value>,
    pub(super) task: Option<Value>,
    pub(super) fields: Fields,
}

impl Line<'_> {
    /// For programs: `timestamp`, `level`, `target`, `message`, `run_id` and `task` where there are some, then what else is
    /// said.
    pub(super) fn to_json(&self) -> String {
        let mut members: Vec<(&str, Value)> = vec![
            ("timestamp", self.at.to_rfc3339_opts(SecondsFormat::Micros, true).into()),
            ("level", self.level.as_str().to_lowercase().into()),
            ("target", self.target.into()),
            ("message", self.message.as_str().into()),
        ];
        members.extend(self.run.clone().map(|run| (RUN, run)));
        members.extend(self.task.clone().map(|task| (TASK, task)));
        members.extend(self.fields.iter().cloned());
        // Written by hand, so that the members stay in this order.
        let members: Vec<String> =
            members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        format!("{{{}}}\n", members.join(","))
    }

    /// For people.
    pub(super) fn into_text(mut self, is_colored: bool) -> String {
        self.fields.take_details();
        let mut level = format!("{:>5}", self.level.as_str());
        if is_colored {
            level = format!("\u{1b}[{}m{level}\u{1b}[0m", color(self.level));
        }
        let mut text = format!("{} {level}", self.at.to_rfc3339_opts(SecondsFormat::Micros, true));
        let about = [(RUN, &self.run), (TASK, &self.task)];
        for (name, value) in about.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            text.push_str(&format!(" {name}={}", plain(value)));
        }
        text.push_str(&format!(" {}: {}", self.target, self.message));
        for (name, value) in self.fields.iter() {
            text.push_str(&format!(" {name}={}", plain(value)));
        }
        text.push('\n');
        text
    }
}

/// A text without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn color(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}
