//! One layer as a program of its own, for reruns against the same spec.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lake::report::{EXIT_DONE, EXIT_FAILED, RunSummary, TaskOutcome, TaskReport, WIDTH, error_text, many, record};
use lake::run::{RunContext, task_span};
use lake::spec::{Document, Header, Problems, did_you_mean};
use lake::{Clock, Error, Lake, Result, TableName};
use tracing::Instrument;

use crate::{Failure, LogArgs, Output, Printer, process};

/// How often people are told how far a table has come.
const PROGRESS: Duration = Duration::from_secs(5);

/// What a layer brings to its program.
pub trait Layer {
    /// A table of the layer, from the spec.
    type Plan;
    /// Commands of the layer beside `run`; [`NoExtra`] without any.
    type Extra: Subcommand + Debug;

    /// The name of the program and of the section of the spec.
    const NAME: &'static str;
    /// What the program does, in a line.
    const ABOUT: &'static str;

    /// The plans of the section, each behind those that it reads; what is wrong goes to `problems`.
    fn compile(document: &Document, header: &Header, problems: &mut Problems) -> Vec<Self::Plan>;

    /// The table that a plan writes.
    fn table(plan: &Self::Plan) -> TableName;

    /// Brings the table of a plan up to date.
    fn run(plan: &Self::Plan, place: &Place, context: &RunContext) -> impl Future<Output = Result<TaskReport>>;

    /// Does with the table of a plan what a command of the layer asks for, by default what `run` does.
    fn run_for(
        _: &Self::Extra,
        plan: &Self::Plan,
        place: &Place,
        context: &RunContext,
    ) -> impl Future<Output = Result<TaskReport>> {
        Self::run(plan, place, context)
    }

    /// How the summary is printed after a command of the layer.
    fn output(_: &Self::Extra) -> Output {
        Output::Table
    }

    /// Does what a command of the layer asks for, and names the tables to bring up to date then.
    fn prepare(
        _: &Self::Extra,
        plans: Vec<Self::Plan>,
        _: &Place,
        _: &RunContext,
        _: Printer,
    ) -> impl Future<Output = Result<Vec<Self::Plan>, Failure>> {
        std::future::ready(Ok(plans))
    }
}

/// A layer whose program has no command but `run`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum NoExtra {}

/// Where a layer works.
#[derive(Debug)]
pub struct Place {
    /// The tables.
    pub lake: Lake,
    /// The top of the spec.
    pub header: Header,
    /// The folder of the spec; relative paths start there.
    pub folder: PathBuf,
}

#[derive(Debug, Parser)]
#[command(max_term_width = WIDTH)]
struct Cli<E: Subcommand> {
    /// The spec
    #[arg(long, global = true, env = "PIPELINES_SPEC", default_value = "pipelines.yaml", value_name = "FILE")]
    spec: PathBuf,
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command<E>,
}

#[derive(Debug, Subcommand)]
enum Command<E: Subcommand> {
    /// Bring the tables of this layer up to date with what they read
    Run {
        /// Only these tables; may be given several times, or separated by commas
        #[arg(long, value_name = "TABLE", value_delimiter = ',')]
        select: Vec<String>,
        /// How the summary is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
    #[command(flatten)]
    Extra(E),
}

/// The whole program of a layer.
pub fn main<L: Layer>() -> ExitCode {
    use clap::{CommandFactory, FromArgMatches};
    let command =
        Cli::<L::Extra>::command().name(L::NAME).bin_name(L::NAME).about(L::ABOUT).version(env!("CARGO_PKG_VERSION"));
    let cli = Cli::<L::Extra>::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    cli.log.begin();
    process::run(run::<L>(&cli.spec, &cli.command, Printer))
}

async fn run<L: Layer>(spec: &Path, command: &Command<L::Extra>, printer: Printer) -> Result<u8, Failure> {
    let document = Document::load(spec)?;
    let mut problems = document.problems();
    let header = document.header(&mut problems);
    document.check_names(L::NAME, &mut problems);
    let plans = L::compile(&document, &header, &mut problems);
    let plans = problems.finish(plans)?;
    let lake = header.lake(document.folder(), Clock::of_program())?;
    lake.open_ahead([TableName::event_log()]);
    let place = Place { lake, header, folder: document.folder().to_owned() };
    let context = RunContext::new(&place.lake);
    let (spec, span) = (spec.display().to_string(), context.span());
    carry_out::<L>(plans, command, &place, &context, spec, printer).instrument(span).await
}

/// Brings the tables of plans up to date, one by one, as a run.
async fn carry_out<L: Layer>(
    plans: Vec<L::Plan>,
    command: &Command<L::Extra>,
    place: &Place,
    context: &RunContext,
    spec: String,
    printer: Printer,
) -> Result<u8, Failure> {
    let (plans, output) = match command {
        Command::Run { select, output } => (chosen::<L>(plans, select)?, *output),
        Command::Extra(extra) => {
            let plans = L::prepare(extra, plans, place, context, printer).await?;
            if plans.is_empty() {
                return Ok(EXIT_DONE);
            }
            (plans, L::output(extra))
        }
    };
    let names: Vec<String> = plans.iter().map(|plan| L::table(plan).to_string()).collect();
    record::run_started(&context.events, L::NAME, &place.header.name, &spec, &names);
    let (started_at, mut tasks) = (place.lake.clock().now(), Vec::new());
    for plan in &plans {
        let started = place.lake.clock().now();
        let context = context.for_task();
        let work = async {
            match command {
                Command::Run { .. } => L::run(plan, place, &context).await,
                Command::Extra(extra) => L::run_for(extra, plan, place, &context).await,
            }
        };
        let table = L::table(plan);
        let answer = progress(&table, work, place, &context, printer).instrument(task_span(&table)).await;
        let elapsed = (place.lake.clock().now() - started).to_std().unwrap_or_default();
        let outcome = match answer {
            Ok(report) => TaskOutcome::done(report, 1, elapsed),
            Err(error) => {
                TaskOutcome { report: context.earlier.take(), ..TaskOutcome::failed(L::table(plan), error, 1, elapsed) }
            }
        };
        record::task_ended(&context.events, &outcome);
        tasks.push(outcome);
    }
    let elapsed = (place.lake.clock().now() - started_at).to_std().unwrap_or_default();
    let summary = RunSummary { run: context.run.to_string(), spec, started_at, elapsed, tasks };
    record::run_ended(&context.events, &summary);
    let recorded = context.events.flush(&place.lake).await;
    printer.data(&match output {
        Output::Table => summary.to_text(),
        Output::Json => format!("{}\n", summary.to_json()),
    })?;
    let code = summary.exit_code();
    match recorded {
        Ok(()) => {
            if let Err(error) = context.events.pack(&place.lake).await {
                tracing::warn!(%error, "the event log was not looked after");
            }
            Ok(code)
        }
        Err(error) => {
            printer.note(&error_text(&error.context("the run is done, but its events were not recorded")));
            Ok(code.max(EXIT_FAILED))
        }
    }
}

/// Does work that may take long, and tells people now and then how far it has come.
async fn progress<T>(
    table: &TableName,
    work: impl Future<Output = T>,
    place: &Place,
    context: &RunContext,
    printer: Printer,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            answer = &mut work => return answer,
            () = place.lake.clock().sleep(PROGRESS) => {
                printer.note(&format!("{table}: {} read\n", many(context.meter.rows(), "row")));
            }
        }
    }
}

/// The plans of these names, with or without the name of the layer; all without names.
///
/// # Errors
/// [`ErrorKind::Spec`](lake::ErrorKind::Spec) for a name that the spec does not have.
pub fn chosen<L: Layer>(plans: Vec<L::Plan>, select: &[String]) -> Result<Vec<L::Plan>> {
    let known: Vec<String> = plans.iter().map(|plan| L::table(plan).to_string()).collect();
    let full: Vec<String> = select
        .iter()
        .map(|name| if name.contains('.') { name.clone() } else { format!("{}.{name}", L::NAME) })
        .collect();
    if let Some(unknown) = full.iter().find(|name| !known.contains(name)) {
        let error = Error::spec(format!("the spec has no table `{unknown}`"));
        return Err(match did_you_mean(unknown, known.iter().map(String::as_str)) {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    let wanted = |plan: &L::Plan| full.is_empty() || full.contains(&L::table(plan).to_string());
    Ok(plans.into_iter().filter(wanted).collect())
}
