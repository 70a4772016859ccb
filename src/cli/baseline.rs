//! `tracetool baseline`.

use super::Outcome;
use super::input::InputArgs;
use super::memory::MemoryArgs;
use super::output::Destination;
use crate::analysis::baseline::Baseline;
use crate::error::{Error, Result};
use crate::render::write_document;
use crate::report::baseline::MakeBaseline;
use clap::Args;

/// Write the small file that check and diff hold later traces against
#[derive(Debug, Args)]
#[command(after_help = "\
The file holds what each operator, category and module keeps at the peak and allocates in a step, no
addresses, times or names of hosts: commit it beside the code.

Examples:
  tracetool baseline trace.json.gz -o memory-baseline.json
  tracetool check other.json.gz --baseline memory-baseline.json")]
pub(super) struct BaselineArgs {
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    input: InputArgs,
}

impl BaselineArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.destination.check()?;
        let make = make(&self.memory)?;
        let trace = self.input.read(make.keep())?;
        self.destination.write(&file_of(&make.run(&trace)?)?)?;
        Ok(Outcome::Done)
    }
}

/// How these arguments make a baseline.
pub(super) fn make(memory: &MemoryArgs) -> Result<MakeBaseline> {
    Ok(MakeBaseline { memory: memory.options()?, attribute_to: memory.attribute_to, ..MakeBaseline::default() })
}

/// A baseline as its file.
pub(super) fn file_of(baseline: &Baseline) -> Result<Vec<u8>> {
    let value = serde_json::to_value(baseline).map_err(|e| Error::from(std::io::Error::from(e)))?;
    let mut bytes = Vec::new();
    write_document(&value, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyBaseline {
        #[command(flatten)]
        baseline: BaselineArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyBaseline::parse_from(["test", "x.json"]).baseline;
        let made = make(&parsed.memory).unwrap();
        assert_eq!(format!("{made:?}"), format!("{:?}", MakeBaseline::default()));
    }
}
