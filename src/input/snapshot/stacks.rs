//! Frames of a snapshot to the trace's stacks, each distinct frame and stack once.

use crate::input::pickle::{Dict, Document, Key, List, Value};
use crate::trace::{StackId, StrId, TraceBuilder};
use hashbrown::HashMap;
use std::fmt::Write;

/// What is known of the frames and stacks met so far.
pub(super) struct Stacks<'a> {
    name: Key,
    filename: Key,
    line: Key,
    frames: HashMap<usize, StrId>,
    stacks: HashMap<u64, StackId>,
    text: String,
    document: std::marker::PhantomData<&'a Document>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(document: &'a Document) -> Self {
        Self {
            name: document.key("name"),
            filename: document.key("filename"),
            line: document.key("line"),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            text: String::new(),
            document: std::marker::PhantomData,
        }
    }

    /// The stack in the list of frames at `key`, innermost frame first.
    pub(super) fn at(&mut self, dict: Dict<'a>, key: Key, builder: &mut TraceBuilder) -> StackId {
        let Some(list) = dict.get(key).and_then(Value::as_list).filter(|list| list.len() > 0) else {
            return StackId::NONE;
        };
        match self.stacks.get(&list.identity()) {
            Some(known) => *known,
            None => self.build(list, builder),
        }
    }

    fn build(&mut self, list: List<'a>, builder: &mut TraceBuilder) -> StackId {
        let mut stack = StackId::NONE;
        for dict in list.iter().rev().filter_map(Value::as_dict) {
            let frame = self.frame(dict, builder);
            stack = builder.stack(stack, frame);
        }
        self.stacks.insert(list.identity(), stack);
        stack
    }

    fn frame(&mut self, dict: Dict<'a>, builder: &mut TraceBuilder) -> StrId {
        if let Some(known) = self.frames.get(&dict.identity()) {
            return *known;
        }
        let text = |key| dict.get(key).and_then(Value::as_str).unwrap_or("");
        let (name, file) = (text(self.name), text(self.filename));
        let line = dict.get(self.line).and_then(Value::as_i64).unwrap_or(0);
        self.text.clear();
        // `??` is what the unwinder calls a file that it does not know.
        let written = match file {
            "" | "??" => self.text.write_str(name),
            _ => write!(self.text, "{file}({line}): {name}"),
        };
        debug_assert!(written.is_ok(), "writing to a string does not fail");
        let frame = builder.intern(&self.text);
        self.frames.insert(dict.identity(), frame);
        frame
    }
}
