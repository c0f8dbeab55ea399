//! `orchestrator completions`: what shells need to complete the command line.

use clap::CommandFactory;
use clap_complete::Shell;
use lake::report::EXIT_DONE;

use cli::{Failure, Printer};

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orchestrator completions bash > ~/.local/share/bash-completion/completions/orchestrator
  orchestrator completions zsh > ~/.zfunc/_orchestrator
  orchestrator completions fish > ~/.config/fish/completions/orchestrator.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args, printer: &Printer) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "orchestrator", &mut text);
    printer.bytes(&text)?;
    Ok(EXIT_DONE)
}
