//! `orchestrator init`: the first spec of a project.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lake::report::{EXIT_DONE, counted};
use lake::{Context, Error, Result};

use crate::init;
use crate::spec::{Project, schema};
use cli::{Failure, Printer};

/// Write a first spec that runs at once: about files of yours, or an example
///
/// Asks nothing and overwrites nothing. With `--from`, or when there are files in ./landing, it looks at them: format,
/// delimiter, header, encoding, the producer of the changes, types that lose nothing, keys, and what orders changes. Each
/// guess says why, for you to check. Otherwise it writes an example with a few records.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator init                                an example, or a spec about ./landing
  orchestrator init --from ./landing
  orchestrator init --from orders.csv customers.json.gz
  orchestrator --spec shop/pipelines.yaml init --from /data/export")]
pub(super) struct Args {
    /// Sample files, or folders of them
    #[arg(long, value_name = "PATH", num_args = 1..)]
    from: Vec<PathBuf>,
}

pub(super) fn run(spec: &Path, args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let folder = match spec.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if spec.exists() {
        let error = Error::spec(format!("`{}` is there already, and init overwrites nothing", spec.display()));
        return Err(error.hint("name another file: `orchestrator --spec other.yaml init`").into());
    }
    fs::create_dir_all(folder).context(|| format!("making the folder {}", folder.display()))?;
    let landing = folder.join("landing");
    let paths = match args.from.is_empty() && has_files(&landing) {
        true => vec![landing.clone()],
        false => args.from.clone(),
    };
    let (text, told) = match paths.is_empty() {
        false => {
            let guessed = init::from_files(&paths, folder)?;
            guessed.notes.iter().for_each(|note| printer.note(&format!("note: {note}\n")));
            (guessed.spec, guessed.summary)
        }
        true => {
            for (path, content) in init::EXAMPLE_FILES {
                create(&landing.join(path), content)?;
            }
            let files = counted(init::EXAMPLE_FILES.len(), "file");
            (init::example_spec(folder), format!("an example, with {files} in {}", landing.display()))
        }
    };
    create(spec, &text)?;
    let schema_file = folder.join("pipelines.schema.json");
    if !schema_file.exists() {
        create(&schema_file, &schema::text())?;
    }
    printer.note(&format!("{}: {told}\n", spec.display()));
    // What was written is held to what every spec is held to.
    Project::load(spec)?;
    let named = match spec == Path::new("pipelines.yaml") {
        true => String::new(),
        false => format!(" --spec {}", spec.display()),
    };
    printer.note(&format!("next: read it, then `orchestrator{named} run`\n"));
    Ok(EXIT_DONE)
}

fn has_files(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().is_file() || has_files(&entry.path()))
}

/// Writes a file that is not there yet.
fn create(path: &Path, content: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context(|| format!("making the folder {}", folder.display()))?;
    }
    let mut file = File::create_new(path).context(|| format!("writing {}", path.display()))?;
    file.write_all(content.as_bytes()).context(|| format!("writing {}", path.display()))
}
