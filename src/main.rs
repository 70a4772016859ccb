//! The command line of tracetool; see the library's `cli` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracetool::cli::main(std::env::args_os())
}
