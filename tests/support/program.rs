//! The built programs, started as a user starts them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) line: String,
    /// `None` when it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The end of a program that a test started in its own way.
    pub(crate) fn of(output: Output) -> Self {
        Self::new("a program".to_owned(), output)
    }

    fn new(line: String, output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8 output");
        Self { line, code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Fails unless the program ended with `code`.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert!(self.code == Some(code), "{} where {code} is right", self.story());
        self
    }

    /// Fails unless the program was killed by its armed fault.
    pub(crate) fn expect_killed(self) -> Self {
        assert!(self.code.is_none(), "the armed fault was never crossed: {}", self.story());
        self
    }

    /// The command, its end and its whole output.
    pub(crate) fn story(&self) -> String {
        let Self { line, code, stdout, stderr } = self;
        format!("`{line}` ended with {code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---")
    }
}

/// A program that is running.
pub(crate) struct Running {
    line: String,
    child: Child,
}

impl Running {
    /// The process, for one that is watched while it runs.
    pub(crate) fn into_child(self) -> Child {
        self.child
    }

    /// True when the program has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_some()
    }

    /// Waits for the end.
    pub(crate) fn wait(self) -> Outcome {
        let output = self.child.wait_with_output().expect("the program's output");
        Outcome::new(self.line, output)
    }
}

/// Starts `program` in `folder`. `fault` arms one fault point, as `point:action`.
pub(crate) fn start(program: &str, folder: &Path, args: &[&str], fault: Option<&str>) -> Running {
    start_with(program, folder, args, fault.map(|fault| (lake::fault::VARIABLE, fault)))
}

/// Runs `program` to its end with a clock that stands at a time.
pub(crate) fn run_at(program: &str, folder: &Path, args: &[&str], at: &str) -> Outcome {
    start_with(program, folder, args, Some((lake::clock::VARIABLE, at))).wait()
}

fn start_with(program: &str, folder: &Path, args: &[&str], variable: Option<(&str, &str)>) -> Running {
    let mut command = Command::new(path_of(program));
    command.current_dir(folder).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["PIPELINES_SPEC", "PIPELINES_LOG_LEVEL", "PIPELINES_LOG_FORMAT", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.env_remove(lake::fault::VARIABLE).env_remove(lake::clock::VARIABLE).env("NO_COLOR", "1");
    if let Some((name, value)) = variable {
        command.env(name, value);
    }
    let set = variable.map(|(_, value)| value).unwrap_or_default();
    let line = format!("{set} {program} {}", args.join(" ")).trim().to_owned();
    Running { line, child: command.spawn().expect("the program starts") }
}

/// Runs `program` to its end.
pub(crate) fn run(program: &str, folder: &Path, args: &[&str], fault: Option<&str>) -> Outcome {
    start(program, folder, args, fault).wait()
}

/// The file of a program; `PROGRAMS=folder` names those that were built before.
pub(crate) fn path_of(program: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("PROGRAMS") {
        return PathBuf::from(folder).join(format!("{program}{}", std::env::consts::EXE_SUFFIX));
    }
    let orchestrator = PathBuf::from(env!("CARGO_BIN_EXE_orchestrator"));
    if program == "orchestrator" {
        return orchestrator;
    }
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build_all(&orchestrator));
    orchestrator.with_file_name(format!("{program}{}", std::env::consts::EXE_SUFFIX))
}

/// Builds the layers' programs beside the orchestrator's: for a test, cargo builds only those of the package that the
/// test belongs to. The tests are named too, so that the same features and so the same dependencies are used; and what
/// cargo told this process about its own package is taken away, since build scripts look at it and would build anew.
fn build_all(orchestrator: &Path) {
    let folder = orchestrator.parent().expect("a folder of programs");
    let profile = folder.file_name().and_then(|name| name.to_str()).expect("a profile's folder");
    let profile = if profile == "debug" { "dev" } else { profile };
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--workspace",
            "--bins",
            "--tests",
            "--locked",
            "--quiet",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(folder.parent().expect("a target folder"))
        .current_dir(workspace());
    let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "CARGO_TARGET_TMPDIR"];
    for (name, _) in std::env::vars_os() {
        if told.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    assert!(cargo.status().expect("cargo starts").success(), "the programs of the layers do not build");
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}
