//! What samplers say of things that come and go, such as processes.

use crate::units::{Bytes, Nanos};

/// The usual time from one sample to the next.
pub(super) fn usual_step(times: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let times: Vec<Nanos> = times.collect();
    let mut steps: Vec<Nanos> = times.windows(2).map(|w| w[1] - w[0]).filter(|s| *s > Nanos::ZERO).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

/// What each sample of a thing says, and that it holds nothing from a sample after the last on: it is gone by then.
pub(super) fn with_end(seen: Vec<(Nanos, Bytes)>) -> impl Iterator<Item = (Nanos, Bytes)> {
    let step = usual_step(seen.iter().map(|(time, _)| *time)).unwrap_or(Nanos(1_000_000_000));
    let gone = seen.last().map(|(last, _)| (*last + step, Bytes::ZERO));
    seen.into_iter().chain(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_gone_a_usual_step_after_it_was_last_seen() {
        let seen = [0, 10, 20, 50].map(|time| (Nanos(time), Bytes(7)));
        assert_eq!(with_end(seen.into()).last(), Some((Nanos(60), Bytes::ZERO)));
        assert_eq!(with_end(Vec::new()).count(), 0);
    }
}
