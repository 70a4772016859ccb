//! What a summary finds: each a sentence with its numbers, a cause and what to do, only where the data carries it.
//!
//! One function a finding, one list of all. The thresholds stand here, each beside its sentence.

use super::sentence::sentence;
use super::{Cell, Finding, Sentence};
use crate::analysis::busy::DeviceBusy;
use crate::analysis::peak::DevicePeak;
use crate::analysis::steps::{DeviceSteps, LEAST_GROWTH, Verdict};
use crate::units::Bytes;

/// What is known of a device, for the findings.
pub(super) struct Known<'a> {
    /// The peak; its rows are by category.
    pub(super) peak: &'a DevicePeak,
    /// Live at the peak, of attention: what operators that are not fused hold.
    pub(super) attention_written_out: Bytes,
    /// Live at the peak, by the phase that allocated it.
    pub(super) by_phase: &'a [(String, Bytes)],
    /// The growth from step to step.
    pub(super) steps: Option<&'a DeviceSteps>,
    /// How busy the device was.
    pub(super) busy: Option<&'a DeviceBusy>,
    /// Bytes of memory that the device has.
    pub(super) capacity: Option<Bytes>,
}

impl Known<'_> {
    fn share(&self, part: Bytes) -> f64 {
        if self.peak.peak_allocated_bytes.0 > 0 { part.0 as f64 / self.peak.peak_allocated_bytes.0 as f64 } else { 0.0 }
    }

    fn phase(&self, name: &str) -> Bytes {
        self.by_phase.iter().filter(|(phase, _)| phase == name).map(|(_, bytes)| *bytes).sum()
    }

    fn category(&self, name: &str) -> Bytes {
        self.peak.rows.iter().filter(|row| row.key == name).map(|row| row.live_bytes).sum()
    }

    fn name(&self) -> &str {
        &self.peak.device
    }
}

/// All findings of a device, in the order in which they are worth reading.
const ALL: [fn(&Known<'_>) -> Option<Finding>; 7] =
    [attention, growth, reserved, activations, optimizer, casts, idle_but_full];

/// What there is to say of a device. Nothing of the host, whose allocator is another.
pub(super) fn findings(known: &Known<'_>) -> impl Iterator<Item = Finding> {
    ALL.iter().filter(|_| known.peak.device != "cpu").filter_map(|find| find(known))
}

fn found(code: &'static str, message: Sentence, advice: &str) -> Option<Finding> {
    Some(Finding { code, message, advice: advice.into() })
}

/// Scores of attention in memory: a fifth of the peak or more.
fn attention(known: &Known<'_>) -> Option<Finding> {
    let share = known.share(known.attention_written_out);
    if share < 0.2 {
        return None;
    }
    let message = sentence![
        known.name(),
        ": attention written out holds ",
        known.attention_written_out,
        " of the peak (",
        Cell::Ratio(share),
        "): scores, softmax and dropout are kept for the backward pass."
    ];
    found("attention-written-out", message, "scaled_dot_product_attention does not materialise the scores.")
}

/// Memory that grows in each step.
fn growth(known: &Known<'_>) -> Option<Finding> {
    let steps = known.steps.filter(|s| s.verdict == Verdict::Grows && s.growth_bytes_per_step >= LEAST_GROWTH)?;
    let mut message = sentence![known.name(), ": memory grows by ", steps.growth_bytes_per_step, " a step"];
    if let Some(keeper) = steps.keepers.first() {
        message = message.and("; the most is kept from ").and(keeper.owner.as_str());
    }
    found("grows", message.and("."), "'tracetool steps' shows who keeps it.")
}

/// Reserved memory that is far from being used: a fifth of it and at least 512 MiB.
fn reserved(known: &Known<'_>) -> Option<Finding> {
    let reserved = known.peak.reserved_at_peak_bytes?;
    let cached = reserved - known.peak.peak_allocated_bytes;
    if cached.0 < 512 << 20 || cached.0.saturating_mul(5) < reserved.0 {
        return None;
    }
    let message = sentence![
        known.name(),
        ": at the peak the allocator has reserved ",
        reserved,
        " and ",
        cached,
        " of it is not allocated: fragmentation, or a cache of an earlier, higher peak."
    ];
    let advice = "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; a snapshot tells the two apart.";
    found("reserved-unused", message, advice)
}

/// Most of the peak was allocated in forward, and there is a backward that it waits for.
fn activations(known: &Known<'_>) -> Option<Finding> {
    let forward = known.phase("forward");
    if known.share(forward) < 0.5 || known.phase("backward").is_zero() {
        return None;
    }
    let message = sentence![
        known.name(),
        ": ",
        forward,
        " of the peak (",
        Cell::Ratio(known.share(forward)),
        ") was allocated in forward: activations that wait for the backward pass."
    ];
    found("activations", message, "Checkpointing (torch.utils.checkpoint) trades them for time; so do smaller batches.")
}

/// Optimizer state that the trace saw being made: a quarter of the peak or more.
fn optimizer(known: &Known<'_>) -> Option<Finding> {
    let state = known.phase("optimizer");
    if known.share(state) < 0.25 {
        return None;
    }
    let message = sentence![
        known.name(),
        ": ",
        state,
        " of the peak (",
        Cell::Ratio(known.share(state)),
        ") was allocated by the optimizer and stays."
    ];
    found("optimizer-state", message, "Sharded, 8-bit or factored optimizers keep less of it.")
}

/// Copies in another precision: a twentieth of the peak and at least 32 MiB.
fn casts(known: &Known<'_>) -> Option<Finding> {
    let casts = known.category("cast");
    if casts.0 < 32 << 20 || known.share(casts) < 0.05 {
        return None;
    }
    let message = sentence![
        known.name(),
        ": ",
        casts,
        " of the peak (",
        Cell::Ratio(known.share(casts)),
        ") is copies of tensors in another precision, as autocast makes them of weights."
    ];
    found("cast-copies", message, "Parameters kept in the lower precision need no copies.")
}

/// More than half of the card in use, and it computes less than 40 % of the time.
fn idle_but_full(known: &Known<'_>) -> Option<Finding> {
    let (busy, capacity) = (known.busy?, known.capacity.filter(|c| c.0 > 0)?);
    let (used, share) = (known.peak.peak_allocated_bytes.0 as f64 / capacity.0 as f64, busy.share(busy.busy_ns));
    if used < 0.5 || share >= 0.4 {
        return None;
    }
    let message = sentence![
        known.name(),
        ": the peak is ",
        Cell::Ratio(used),
        " of the card's memory, but the card is busy ",
        Cell::Ratio(share),
        " of the time."
    ];
    found("full-but-idle", message, "The host does not keep up: larger launches, CUDA graphs or a faster data loader.")
}
