//! A file's bytes to events and metadata: where in the document we are, and how to go on after something broken.
//!
//! [`scan`] reads as much of a piece of the file as is decided by the bytes at hand, and says how far it came and in what
//! [`Place`] it stands; the caller comes back with the rest and more. So the result never depends on how the file was cut
//! into pieces.

use super::cursor::{Cursor, Fail, Interest, is_space, next_event_start};
use super::event::RawEvent;
use super::layout::Layout;
use super::pytorch::{Decoder, head_member};
use super::simd::{self, Level};
use crate::error::{Error, Result};
use crate::trace::{Info, Keep, Severity, TraceBuilder};

/// Where in the document the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the first bracket.
    Start,
    /// Among the members of the outer object.
    Members,
    /// Looking for the events behind metadata that cannot be read.
    Passing,
    /// Between events: in `traceEvents`, or in a bare array.
    Events {
        /// Whether the array is the whole document.
        bare: bool,
    },
    /// Looking for the next event after something broken. The first `context` bytes were looked at before.
    Lost { bare: bool, context: usize },
    /// Behind the document.
    End,
}

/// The longest event that is waited for. A broken one may seem to have no end.
pub(super) const LONGEST_EVENT: usize = 16 << 20;

/// Bytes before and after a brace that tell whether an event begins there.
const CONTEXT: usize = 64;

/// What a piece of the file gave.
pub(super) struct Scanned {
    /// The rows.
    pub(super) rows: TraceBuilder,
    /// Where the next byte stands.
    pub(super) place: Place,
    /// How many bytes are done with; the rest must come again, with more.
    pub(super) consumed: usize,
    /// Members of the outer object, with the text of their values.
    pub(super) members: Vec<(Vec<u8>, Vec<u8>)>,
    /// Objects among the events that were no events.
    pub(super) strangers: u64,
    /// Whether the list of events began here.
    pub(super) events_begin: bool,
}

impl Scanned {
    /// Adds the members to what is known of the file.
    pub(super) fn apply_members(&mut self, info: &mut Info) {
        for (key, value) in self.members.drain(..) {
            if !head_member(info, &key, &value) {
                let key = String::from_utf8_lossy(&key).into_owned();
                self.rows.diagnostics_mut().note("odd-metadata", Severity::Warning, None, || {
                    format!("metadata that is not as expected, first {key:?}; taken as not given")
                });
            }
        }
    }
}

/// A piece of the file.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// The place of its first byte in the file.
    pub(super) offset: u64,
    /// Where in the document it begins.
    pub(super) place: Place,
    /// Whether nothing follows.
    pub(super) last: bool,
}

/// Reads a piece of the file into an empty builder. The layout is what is known of events from other pieces.
///
/// # Errors
///
/// Where the document is not a trace at all.
pub(super) fn scan(level: Level, piece: Piece<'_>, rows: TraceBuilder, layout: &mut Layout) -> Result<Scanned> {
    match level {
        // SAFETY: the level is AVX2 only where `Level::detect` found AVX2, BMI and LZCNT.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { scan_avx2(piece, rows, layout) },
        // SAFETY: the level is AVX-512 only where `Level::detect` found AVX-512F and BW besides the above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { scan_avx512(piece, rows, layout) },
        #[cfg(target_arch = "x86_64")]
        Level::Sse2 => scan_with::<simd::x86::Sse2>(piece, rows, layout),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => scan_with::<simd::arm::Neon>(piece, rows, layout),
        Level::Portable => scan_with::<simd::Portable>(piece, rows, layout),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn scan_avx2(piece: Piece<'_>, rows: TraceBuilder, layout: &mut Layout) -> Result<Scanned> {
    scan_with::<simd::x86::Avx2>(piece, rows, layout)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn scan_avx512(piece: Piece<'_>, rows: TraceBuilder, layout: &mut Layout) -> Result<Scanned> {
    scan_with::<simd::avx512::Avx512>(piece, rows, layout)
}

#[inline(always)]
fn scan_with<B: simd::Block>(piece: Piece<'_>, rows: TraceBuilder, layout: &mut Layout) -> Result<Scanned> {
    let Piece { bytes, offset, place, last } = piece;
    layout.begin();
    let mut scanner = Scanner {
        bytes,
        at: 0,
        place,
        last,
        offset,
        keep: rows.kept(),
        decoder: Decoder::new(rows, offset),
        layout,
        members: Vec::new(),
        events_begin: false,
    };
    loop {
        let before = (scanner.at, scanner.place);
        match scanner.place {
            Place::Start => scanner.start()?,
            Place::Members => scanner.members(),
            Place::Passing => scanner.find_events(),
            Place::Events { bare } => scanner.events::<B>(bare),
            Place::Lost { bare, context } => scanner.find_event(bare, context),
            Place::End => scanner.end(),
        }
        if (scanner.at, scanner.place) == before {
            break;
        }
    }
    Ok(Scanned {
        place: scanner.place,
        consumed: scanner.at,
        members: scanner.members,
        events_begin: scanner.events_begin,
        strangers: scanner.decoder.strangers(),
        rows: scanner.decoder.finish(),
    })
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    place: Place,
    last: bool,
    offset: u64,
    keep: Keep,
    decoder: Decoder,
    layout: &'a mut Layout,
    members: Vec<(Vec<u8>, Vec<u8>)>,
    events_begin: bool,
}

impl<'a> Scanner<'a> {
    /// The next byte that is no space, with `at` on it; `None` at the end of the piece.
    #[inline(always)]
    fn next_byte(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !is_space(*byte) {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn start(&mut self) -> Result<()> {
        if self.offset == 0 && self.at == 0 && self.bytes.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        match self.next_byte() {
            Some(b'{') => self.place = Place::Members,
            Some(b'[') => self.begin_events(true),
            Some(_) => {
                let rest = &self.bytes[self.at..self.bytes.len().min(self.at + 16)];
                let found = format!("{:?}", String::from_utf8_lossy(rest));
                return Err(Error::format(TRACE, found).at_offset(self.offset + self.at as u64));
            }
            None => return Ok(()),
        }
        self.at += 1;
        Ok(())
    }

    fn begin_events(&mut self, bare: bool) {
        self.events_begin = true;
        self.place = Place::Events { bare };
    }

    /// Reads one member of the outer object.
    fn members(&mut self) {
        match self.next_byte() {
            None => return,
            Some(b',') => return self.at += 1,
            Some(b'}') => {
                self.at += 1;
                return self.place = Place::End;
            }
            Some(_) => {}
        }
        let cursor = || Cursor::<simd::Portable, true>::new(self.bytes, self.at);
        match cursor().opens_array(b"traceEvents") {
            Ok(Some(at)) => {
                self.at = at;
                return self.begin_events(false);
            }
            Err(Fail::NeedMore) if self.waits() => return,
            _ => {}
        }
        match cursor().member() {
            Ok((key, value, end)) => {
                self.members.push((key.to_vec(), value.to_vec()));
                self.at = end;
            }
            Err(Fail::NeedMore) if self.waits() => {}
            Err(_) => self.broken_member(),
        }
    }

    /// Whether more bytes may come that decide what stands here.
    fn waits(&self) -> bool {
        !self.last && self.bytes.len() - self.at < LONGEST_EVENT
    }

    /// Metadata cannot be read from here on: what follows is not taken for members before the events are found.
    #[cold]
    fn broken_member(&mut self) {
        self.decoder.note("broken-metadata", Severity::Warning, self.at, "metadata that is no JSON; passed over");
        self.at += 1;
        self.place = Place::Passing;
    }

    /// Goes to the next place where the events seem to begin, or to the end.
    #[cold]
    fn find_events(&mut self) {
        let key = b"\"traceEvents\"";
        match memchr::memmem::find(&self.bytes[self.at..], key) {
            Some(found) => self.at += found,
            None if self.last => self.at = self.bytes.len(),
            // Enough stays to find the key across the edge of two pieces.
            None => return self.at = self.bytes.len().saturating_sub(key.len() - 1).max(self.at),
        }
        self.place = Place::Members;
    }

    /// Reads events until the bytes or the array end.
    #[inline(always)]
    fn events<B: simd::Block>(&mut self, bare: bool) {
        let keep = self.keep;
        while let Some(byte) = self.next_byte() {
            match byte {
                b'{' => {
                    let mut event = RawEvent::EMPTY;
                    let mut cursor = Cursor::<B, false>::new(self.bytes, self.at);
                    match cursor.event(&mut event, self.layout, |event| Decoder::interest(keep, event)) {
                        Ok(end) => self.push(&event, end),
                        Err(Fail::NeedMore) if self.waits() => return,
                        Err(_) => {
                            if !self.broken_event(bare) {
                                return;
                            }
                        }
                    }
                }
                b',' => self.at += 1,
                b']' => match self.behind_bracket() {
                    None if self.waits() => return,
                    Some(b'{') => self.stray_bracket(),
                    _ => {
                        self.at += 1;
                        self.place = if bare { Place::End } else { Place::Members };
                        return;
                    }
                },
                // The outer object ends without the array's bracket; unless events follow.
                b'}' if !bare && self.bytes[self.at + 1..].iter().all(|b| is_space(*b)) => {
                    if self.last {
                        self.place = Place::Members;
                    }
                    return;
                }
                _ => {
                    self.decoder.note("rubbish", Severity::Loss, self.at, "text between events; passed over");
                    return self.place = Place::Lost { bare, context: 1 };
                }
            }
        }
    }

    /// Adds the event from the cursor to `end`, and goes there.
    #[inline(always)]
    fn push(&mut self, event: &RawEvent<'_>, end: usize) {
        if event.phase == 0 {
            let is_empty = self.bytes[self.at + 1..end - 1].iter().all(|byte| is_space(*byte));
            self.decoder.stranger(is_empty, self.at);
        } else {
            self.decoder.push(event, self.at);
        }
        self.at = end;
    }

    /// The first byte behind the bracket at the cursor that is neither a space nor a comma, if that is at hand.
    fn behind_bracket(&self) -> Option<u8> {
        self.bytes[self.at + 1..].iter().copied().find(|byte| !is_space(*byte) && *byte != b',')
    }

    /// The list of events seems to end, and yet an object follows, as nowhere behind a list of events.
    #[cold]
    fn stray_bracket(&mut self) {
        let message = "text between events; passed over";
        self.decoder.note("rubbish", Severity::Loss, self.at, message);
        self.at += 1;
    }

    /// Reads the event at the cursor, which is no JSON, as far as it can be. `false` if more bytes are needed or the
    /// search for the next event must go on elsewhere.
    #[cold]
    fn broken_event(&mut self, bare: bool) -> bool {
        let mut event = RawEvent::EMPTY;
        let mut cursor = Cursor::<simd::Portable, true>::new(self.bytes, self.at);
        let cut_off = match cursor.event(&mut event, self.layout, |_| Interest::All) {
            Ok(end) => {
                self.decoder.note(
                    "repaired-event",
                    Severity::Warning,
                    self.at,
                    "events that are no JSON, repaired: a string ends where the next key shows it",
                );
                self.push(&event, end);
                return true;
            }
            Err(Fail::NeedMore) if self.waits() => return false,
            // Only what runs into the end of the file: whether more follows a broken event, a piece does not tell.
            Err(Fail::NeedMore) if self.last => next_event_start(self.bytes, self.at + 1).is_none(),
            Err(_) => false,
        };
        if cut_off {
            self.decoder.note(
                "cut-off-event",
                Severity::Loss,
                self.at,
                "an event cut off by the end of the file; left out",
            );
            self.at = self.bytes.len();
            return false;
        }
        self.decoder.note(
            "broken-event",
            Severity::Loss,
            self.at,
            "events that are no JSON and cannot be repaired; left out",
        );
        self.place = Place::Lost { bare, context: 1 };
        false
    }

    /// Goes to the next place where an event seems to begin.
    #[cold]
    fn find_event(&mut self, bare: bool, context: usize) {
        let from = self.at + context;
        let found = next_event_start(self.bytes, from);
        // A brace near the end is judged when what follows it is there.
        let decided = if self.last { self.bytes.len() } else { self.bytes.len().saturating_sub(CONTEXT) };
        match found {
            Some(at) if at < decided => {
                self.at = at;
                self.place = Place::Events { bare };
            }
            _ if self.last => {
                self.at = self.bytes.len();
                self.place = Place::Events { bare };
            }
            _ => {
                // What was searched can go, but for the bytes that may stand before the next event.
                let searched = decided.max(from);
                let keep_from = searched.saturating_sub(CONTEXT).max(self.at);
                self.place = Place::Lost { bare, context: searched - keep_from };
                self.at = keep_from;
            }
        }
    }

    fn end(&mut self) {
        if self.next_byte().is_some() {
            self.decoder.note(
                "trailing-text",
                Severity::Warning,
                self.at,
                "text behind the end of the document; passed over",
            );
            self.at = self.bytes.len();
        }
    }
}

/// What a trace looks like, for messages.
pub(super) const TRACE: &str = "a PyTorch trace (a JSON object with \"traceEvents\", or an array of events)";
