//! The `bronze` program: brings what has landed into bronze tables, against the same spec as the orchestrator.

use std::process::ExitCode;

use bronze::again::{Again, Wish};
use bronze::discover::{Filter, Globs};
use bronze::{SourcePlan, Told};
use clap::Subcommand;
use cli::{Failure, Layer, Output, Place, Printer};
use lake::report::TaskReport;
use lake::run::RunContext;
use lake::spec::{Document, Header, Problems};
use lake::{Error, Result, TableName};

struct Bronze;

#[derive(Debug, Subcommand)]
enum Extra {
    /// Take files once more: those that were refused or left alone, and with `--taken` also those that were taken
    ///
    /// Says of each file what becomes of it, notes the wish in the file ledger, and brings the files into bronze at
    /// once; a run that is interrupted leaves the rest to the next one. The records of a file that was taken come once
    /// more, under a new batch: silver knows them by key and sequence and changes nothing where they say nothing new.
    Reingest {
        /// The files: a path below the landing root or a glob of one; without `/` a glob of file names at any depth.
        /// May be given several times
        #[arg(long, value_name = "GLOB", required = true)]
        files: Vec<String>,
        /// Only of this source; may be given several times
        #[arg(long, value_name = "SOURCE")]
        source: Vec<String>,
        /// Also files whose records are in the table
        #[arg(long)]
        taken: bool,
        /// Only say what would become of the files
        #[arg(long)]
        dry_run: bool,
        /// How the summary is printed; what becomes of the files goes to stderr unless it is all that is asked for
        #[arg(long, value_enum, default_value = "table")]
        output: Output,
    },
}

impl Layer for Bronze {
    type Plan = SourcePlan;
    type Extra = Extra;

    const NAME: &'static str = "bronze";
    const ABOUT: &'static str = "Brings what has landed into bronze tables: every record of every file, once";

    fn compile(document: &Document, header: &Header, problems: &mut Problems) -> Vec<SourcePlan> {
        let entries = document.section("bronze", problems);
        let plans = entries.iter().filter_map(|entry| bronze::compile(entry, problems));
        let plans: Vec<SourcePlan> = plans.map(|plan| plan.in_zone(header.timezone)).collect();
        bronze::check_together(&plans.iter().collect::<Vec<_>>(), problems);
        plans
    }

    fn table(plan: &SourcePlan) -> TableName {
        plan.table.clone()
    }

    async fn run(plan: &SourcePlan, place: &Place, context: &RunContext) -> Result<TaskReport> {
        let landing = place.header.landing_root(&place.folder)?;
        bronze::run(&place.lake, &landing, plan, Told::default(), context).await
    }

    fn output(extra: &Extra) -> Output {
        let Extra::Reingest { output, .. } = extra;
        *output
    }

    /// Notes which files are wanted once more; the sources that have such files are run then.
    async fn prepare(
        extra: &Extra,
        plans: Vec<SourcePlan>,
        place: &Place,
        context: &RunContext,
        printer: Printer,
    ) -> Result<Vec<SourcePlan>, Failure> {
        let Extra::Reingest { files, source, taken, dry_run, output } = extra;
        for glob in files {
            if let Err(reason) = Filter::check(glob) {
                return Err(Error::spec(format!("`{glob}` is not a glob: {reason}")).into());
            }
        }
        let landing = place.header.landing_root(&place.folder)?;
        let wish = Wish { files: Globs::new(files), taken: *taken };
        let plans = cli::chosen::<Self>(plans, source)?;
        let mut found = Vec::new();
        for plan in plans {
            let again = Again::find(&place.lake, &landing, &plan, &wish).await?;
            found.push((plan, again));
        }
        let (mut answers, mut wanted) = (Vec::new(), Vec::new());
        for (plan, again) in found {
            let again = if *dry_run { again } else { again.note(&place.lake, &landing, &plan, &wish, context).await? };
            if again.has_work() && !dry_run {
                wanted.push(plan);
            }
            answers.push(again);
        }
        if answers.iter().all(|again| again.files.is_empty()) {
            let error = Error::spec(format!("no file matches {}", files.join(", ")));
            return Err(error.hint("a glob with `/` is one of the path below the landing root").into());
        }
        match (dry_run, output) {
            (true, Output::Json) => printer.data(&format!("{}\n", bronze::again::to_json(&answers)))?,
            (true, Output::Table) => printer.data(&bronze::again::to_text(&answers))?,
            (false, _) => printer.note(&bronze::again::to_text(&answers)),
        }
        Ok(wanted)
    }
}

fn main() -> ExitCode {
    cli::layer_main::<Bronze>()
}
