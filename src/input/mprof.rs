//! Recordings of memory_profiler (`mprof run`): lines of `MEM`, `CHLD`, `FUNC` and `CMDLINE`.
//!
//! Source of the lines: `memory_profiler.py` and `mprof.py`. Sizes are MiB with six decimals, times Unix seconds.

use super::inflate::Block;
use super::log_lines;
use super::source::Source;
use crate::error::{Error, Result};
use crate::trace::Severity;
use crate::trace::host_memory::{Child, FunctionCall, HostMemory, HostSample};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;

/// Whether these first bytes are of a recording.
pub(super) fn is_mprof(first: &[u8]) -> bool {
    let first = first.trim_ascii_start();
    ["CMDLINE", "MEM ", "FUNC ", "CHLD "].iter().any(|word| first.starts_with(word.as_bytes()))
}

/// Reads a recording from a source whose first bytes are these.
pub(super) fn read(source: Source, first: Block) -> Result<HostMemory> {
    let (bytes, odd) = source.into_text(first)?;
    let mut memory = read_mprof(&bytes)?;
    memory.diagnostics.append(odd);
    Ok(memory)
}

/// Reads a recording from its bytes.
///
/// # Errors
///
/// Where it holds no sample.
pub fn read_mprof(bytes: &[u8]) -> Result<HostMemory> {
    let mut memory = HostMemory::default();
    let mut children = HashMap::new();
    memory.diagnostics = log_lines::lines(bytes, |place, line, odd| {
        if take(&mut memory, &mut children, line).is_none() {
            odd.note("no-sample", Severity::Warning, Some(place), || {
                "lines that are none of memory_profiler's were skipped".into()
            });
        }
    });
    if memory.samples.is_empty() && memory.children.is_empty() {
        let first = log_lines::first_line(bytes);
        return Err(Error::format("a recording of memory_profiler (mprof)", format!("{first:?}"))
            .with_hint("record one with `mprof run python train.py`"));
    }
    memory.samples.sort_by_key(|s| s.time);
    for child in &mut memory.children {
        child.samples.sort_by_key(|s| s.time);
    }
    Ok(memory)
}

fn take(memory: &mut HostMemory, children: &mut HashMap<String, usize>, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "" => {}
        "CMDLINE" => memory.command = Some(rest.trim().to_owned()).filter(|c| !c.is_empty()),
        "MEM" => {
            let mut fields = rest.split_whitespace();
            memory.samples.push(sample(fields.next()?, fields.next()?)?);
        }
        "CHLD" => {
            let mut fields = rest.split_whitespace();
            let id = fields.next()?;
            let sample = sample(fields.next()?, fields.next()?)?;
            let place = *children.entry(id.to_owned()).or_insert_with(|| {
                memory.children.push(Child { id: id.to_owned(), samples: Vec::new() });
                memory.children.len() - 1
            });
            memory.children[place].samples.push(sample);
        }
        "FUNC" => {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            // Names hold no blanks; newer versions add the depth of the call.
            let [name, start, started, end, ended, ..] = fields[..] else { return None };
            let call = FunctionCall { name: name.to_owned(), start: sample(start, started)?, end: sample(end, ended)? };
            memory.functions.push(call);
        }
        _ => return None,
    }
    Some(())
}

fn sample(mebibytes: &str, seconds: &str) -> Option<HostSample> {
    let time = decimal(seconds, 9)?;
    Some(HostSample { time: Nanos(time), bytes: bytes(mebibytes)? })
}

/// MiB in decimal as bytes. Resident memory is whole pages; where six decimals can mean one only, it is that one.
fn bytes(mebibytes: &str) -> Option<Bytes> {
    const PAGE: i128 = 4096;
    let millionths = i128::from(decimal(mebibytes, 6)?);
    let exact = (millionths * (1 << 20) + 500_000).div_euclid(1_000_000);
    let page = (exact + PAGE / 2).div_euclid(PAGE) * PAGE;
    let bytes = if (exact - page).abs() <= 1 { page } else { exact };
    i64::try_from(bytes).ok().map(Bytes)
}

/// A decimal number as an integer of its `places`-th decimals; digits beyond are cut off.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i64 = whole.parse().ok()?;
    for i in 0..places {
        let digit = fraction.as_bytes().get(i).map_or(0, |d| i64::from(d - b'0'));
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_children_and_calls_are_read_and_sizes_are_whole_pages() {
        let text = "CMDLINE python a.py\nMEM 0.125000 1754557655.6418\nMEM 32.976562 1754557655.9516\n\
                    CHLD 1 2.000001 1754557656.0\nFUNC __main__.f 1.0000 1754557655.0 2.5000 1754557656.5000\n\nCMDLINE\n";
        let m = read_mprof(text.as_bytes()).unwrap();
        assert_eq!(m.samples[0], HostSample { time: Nanos(1_754_557_655_641_800_000), bytes: Bytes(131_072) });
        assert_eq!(m.samples[1].bytes, Bytes(8442 * 4096));
        assert_eq!(m.children[0].samples[0].bytes, Bytes(2 << 20));
        assert_eq!((m.functions[0].name.as_str(), m.functions[0].end.bytes), ("__main__.f", Bytes(2_621_440)));
        assert_eq!(m.command, None);
        assert!(m.diagnostics.is_empty());
    }

    #[test]
    fn broken_lines_are_counted_and_a_file_without_samples_is_an_error() {
        let m = read_mprof(b"MEM 1.0 1.0\nMEM 1.0\nMEM x 2\nFUNC f 1 2\n").unwrap();
        assert_eq!(m.diagnostics.get("no-sample").map(|d| d.count), Some(3));
        assert!(read_mprof(b"CMDLINE x\n").is_err());
        assert!(read_mprof(b"").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(MEM|CHLD|FUNC|CMDLINE|[0-9. \n-]){0,60}") {
            let _ = read_mprof(text.as_bytes());
        }
    }
}
