//! What a person sees while tasks run: live lines on a terminal, one plain line per event elsewhere. All on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use cli::Printer;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use lake::report::{TaskOutcome, TaskStatus, duration, thousands};
use lake::run::Meter;
use lake::{Error, TableName, secrets};

use super::dispatcher::Observer;

/// How often a live line is drawn again.
const TICK: Duration = Duration::from_millis(120);

/// The progress for this process: live when stderr is a terminal. JSON lines tell the same as the event log.
pub(crate) fn for_stderr() -> Box<dyn Observer> {
    match std::io::stderr().is_terminal() {
        _ if cli::logs_are_json() => Box::new(Silent),
        true => Box::new(Live::new(ProgressDrawTarget::stderr())),
        false => Box::new(Plain),
    }
}

/// Nobody watches.
pub(crate) struct Silent;

impl Observer for Silent {
    fn started(&mut self, _: &TableName, _: &Meter) {}
    fn retrying(&mut self, _: &TableName, _: u32, _: Duration, _: &Error) {}
    fn ended(&mut self, _: &TaskOutcome) {}
    fn stopping(&mut self, _: usize) {}
}

/// A line per running task, with its rows and time so far.
struct Live {
    bars: MultiProgress,
    running: BTreeMap<TableName, ProgressBar>,
}

impl Live {
    fn new(target: ProgressDrawTarget) -> Self {
        Self { bars: MultiProgress::with_draw_target(target), running: BTreeMap::new() }
    }

    fn say(&self, text: &str) {
        // A terminal that went away does not stop the run.
        let _ = self.bars.println(secrets::redacted(text));
    }
}

impl Observer for Live {
    fn waiting(&mut self, others: &str) {
        self.say(&wait_line(others));
    }

    fn started(&mut self, task: &TableName, meter: &Meter) {
        let meter = meter.clone();
        let rows = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            if meter.rows() > 0 {
                let _ = write!(out, "{} rows", thousands(meter.rows()));
            }
        };
        let style = ProgressStyle::with_template("{spinner} {prefix}  {rows}  {elapsed}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner())
            .with_key("rows", rows);
        let bar = self.bars.add(ProgressBar::new_spinner().with_style(style).with_prefix(task.to_string()));
        bar.enable_steady_tick(TICK);
        self.running.insert(task.clone(), bar);
    }

    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error) {
        self.say(&retry_line(task, attempt, wait, error));
        if let Some(bar) = self.running.get(task) {
            bar.set_message(format!("attempt {}", attempt + 1));
        }
    }

    fn ended(&mut self, outcome: &TaskOutcome) {
        if let Some(bar) = self.running.remove(&outcome.task) {
            bar.finish_and_clear();
        }
        if let Some(line) = end_line(outcome) {
            self.say(&line);
        }
    }

    fn stopping(&mut self, running: usize) {
        self.say(&stop_line(running));
    }
}

/// A line per event.
struct Plain;

impl Plain {
    fn say(&self, text: &str) {
        Printer.note(&format!("{text}\n"));
    }
}

impl Observer for Plain {
    fn waiting(&mut self, others: &str) {
        self.say(&wait_line(others));
    }

    fn started(&mut self, _: &TableName, _: &Meter) {}

    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error) {
        self.say(&retry_line(task, attempt, wait, error));
    }

    fn ended(&mut self, outcome: &TaskOutcome) {
        if let Some(line) = end_line(outcome) {
            self.say(&line);
        }
    }

    fn stopping(&mut self, running: usize) {
        self.say(&stop_line(running));
    }
}

fn retry_line(task: &TableName, attempt: u32, wait: Duration, error: &Error) -> String {
    let wait = if wait.is_zero() { "at once".to_owned() } else { format!("in {}", duration(wait)) };
    let causes: String = error.causes().iter().map(|cause| format!(": {cause}")).collect();
    format!("{task}  attempt {attempt} failed, again {wait}: {error}{causes}")
}

/// Nothing for a task without news: the summary counts those.
fn end_line(outcome: &TaskOutcome) -> Option<String> {
    let task = &outcome.task;
    let elapsed = duration(outcome.elapsed);
    Some(match outcome.status {
        TaskStatus::UpToDate | TaskStatus::Excluded => return None,
        TaskStatus::Succeeded => {
            let rows = outcome.figures().read;
            let rows = if rows == 1 { "1 row".to_owned() } else { format!("{} rows", thousands(rows)) };
            format!("{task}  done in {elapsed}, {rows} in")
        }
        TaskStatus::Failed => {
            let error = outcome.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            format!("{task}  failed after {elapsed}{error}")
        }
        TaskStatus::Skipped => {
            let because = outcome.skipped_because.as_deref().unwrap_or("not started");
            format!("{task}  skipped: {because}")
        }
    })
}

fn wait_line(others: &str) -> String {
    format!("waiting for {others}; Ctrl-C ends the wait")
}

fn stop_line(running: usize) -> String {
    match running {
        0 => "stopping".to_owned(),
        1 => "stopping: 1 task ends first; Ctrl-C again stops at once (nothing is lost)".to_owned(),
        running => format!("stopping: {running} tasks end first; Ctrl-C again stops at once (nothing is lost)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lake::ErrorKind;
    use lake::report::TaskReport;

    #[test]
    fn lines_say_what_happened() {
        let table = TableName::silver("orders");
        let error = Error::new(ErrorKind::Store, "no answer").context("opening table silver.orders");
        assert_eq!(
            retry_line(&table, 1, Duration::from_secs(5), &error),
            "silver.orders  attempt 1 failed, again in 5.00 s: opening table silver.orders: no answer"
        );
        let current = TaskOutcome::done(TaskReport::up_to_date(table.clone(), Some(1)), 1, Duration::ZERO);
        assert_eq!(end_line(&current), None);
        let skipped = TaskOutcome::skipped(table, "bronze.orders_cdc failed");
        assert_eq!(end_line(&skipped).as_deref(), Some("silver.orders  skipped: bronze.orders_cdc failed"));
    }

    #[test]
    fn live_lines_come_and_go() {
        let mut live = Live::new(ProgressDrawTarget::hidden());
        let table = TableName::silver("orders");
        live.started(&table, &Meter::default());
        assert_eq!(live.running.len(), 1);
        live.ended(&TaskOutcome::done(TaskReport::up_to_date(table, None), 1, Duration::ZERO));
        assert!(live.running.is_empty());
    }
}
