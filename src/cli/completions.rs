//! `tracetool completions`.

use super::output::write_stdout;
use super::{Cli, Outcome};
use crate::error::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tracetool completions bash > ~/.local/share/bash-completion/completions/tracetool")]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tracetool", &mut script);
        write_stdout(&script)?;
        Ok(Outcome::Done)
    }
}
