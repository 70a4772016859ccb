//! Attention written out by hand, found by what it does.
//!
//! A batched matrix product makes scores `[..., Tq, Tk]`, a softmax runs over them, and the next product that takes a
//! tensor of that size, contracting `Tk`, is batched too: these, and whatever makes or takes tensors of the scores'
//! shape between them (scale, mask, dropout, casts), are attention. Linear projections are not. The backward operators
//! of all these follow by their links to the forward ones, which is for [`categories`](super::categories) to do.
//!
//! A router, a classifier and a loss run a softmax as well, but over what an unbatched product made, or their weights go
//! into none. Shapes make this exact; in a trace without any, order and names decide and the result is a guess.

use super::owners::Owners;
use super::shapes::{self, Shape};
use crate::trace::{DetailId, OpKind, ThreadId};
use hashbrown::HashMap;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// For each row of `Trace::ops` whether it is a part of attention, and with it all inside it. Empty where none is.
    pub(super) marks: Vec<bool>,
    /// Whether order and names decided, for want of shapes.
    pub(super) is_guess: bool,
}

/// What an operator's name says of its part in attention.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    /// Calls a batched product to do the work, or is one.
    Wrapper,
    /// A batched product whose factors are the inputs from this one on.
    Batched(u8),
    /// Another product.
    Flat(u8),
    /// A projection or convolution, which is no part of attention whatever its shape.
    Projection,
    Softmax,
}

fn part(name: &str) -> Part {
    let short = name.rsplit("::").next().unwrap_or(name);
    match short {
        "bmm" => return Part::Batched(0),
        "baddbmm" | "baddbmm_" => return Part::Batched(1),
        "mm" | "mv" | "_scaled_mm" | "_int_mm" => return Part::Flat(0),
        "addmm" | "addmm_" | "_addmm_activation" | "addmv" | "addmv_" | "addbmm" => return Part::Flat(1),
        "linear" | "convolution" | "_convolution" => return Part::Projection,
        "matmul" | "einsum" => return Part::Wrapper,
        _ if short.ends_with("BmmBackward0") => return Part::Wrapper,
        _ => {}
    }
    let lower = short.to_ascii_lowercase();
    let other = ["log_softmax", "logsoftmax", "gumbel", "sparse"].iter().any(|w| lower.contains(w));
    // The engine's own wrapper carries no shapes and names the node, whose operators come next.
    if lower.contains("softmax") && !other && !name.starts_with("autograd::engine::") {
        Part::Softmax
    } else {
        Part::None
    }
}

/// Scores from the product that makes them to the one that takes them.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u32,
    to: u32,
    /// `Tq` and `Tk`, and the number of scores; 0 where shapes are not known.
    shape: (i64, i64, i64),
}

/// Finds attention written out by hand in all threads of a trace.
pub(super) fn find(owners: &Owners<'_>) -> Attention {
    let trace = owners.trace();
    let parts = owners.by_name(part);
    let names = trace.ops().name();
    let known = trace.details().iter().any(|d| !trace.str(d.input_dims).is_empty());
    let shapes: Vec<Vec<Vec<i64>>> =
        if known { trace.details().iter().map(|d| tensors(trace.str(d.input_dims))).collect() } else { Vec::new() };
    let part_of = |i: usize| if trace.ops().kind()[i] == OpKind::Operator { parts.of(names[i]) } else { Part::None };
    let stretches =
        Finder { owners, shapes: &shapes, part_of: &part_of, lanes: HashMap::new(), found: Vec::new() }.run();
    if stretches.is_empty() {
        return Attention::default();
    }
    Attention { marks: mark(owners, &shapes, part_of, &stretches), is_guess: !known }
}

/// What a thread has done so far.
#[derive(Default)]
struct Lane {
    /// The latest product by number of elements and last size of its result.
    products: HashMap<(i64, i64), Product>,
    /// Scores that a softmax ran over, by their number, until a product takes them.
    pending: HashMap<i64, Scores>,
    /// Without shapes: the latest product, and the one before the latest softmax.
    latest: Option<Product>,
    guessed: Option<u32>,
}

#[derive(Clone, Copy)]
struct Product {
    op: u32,
    /// How many matrices it multiplied at once; `None` for a product of two matrices.
    batch: Option<i64>,
}

struct Scores {
    product: u32,
    shape: Vec<i64>,
}

struct Finder<'a, 't, F> {
    owners: &'a Owners<'t>,
    shapes: &'a [Vec<Vec<i64>>],
    part_of: &'a F,
    lanes: HashMap<ThreadId, Lane>,
    found: Vec<Stretch>,
}

impl<F: Fn(usize) -> Part> Finder<'_, '_, F> {
    fn run(mut self) -> Vec<Stretch> {
        let ops = self.owners.trace().ops();
        for i in 0..ops.len() {
            let part = (self.part_of)(i);
            if matches!(part, Part::None | Part::Wrapper | Part::Projection) {
                continue;
            }
            let mut lane = self.lanes.remove(&ops.thread()[i]).unwrap_or_default();
            match (self.shapes.get(ops.detail()[i].index()), part) {
                (Some(shapes), Part::Softmax) => Self::softmax(&mut lane, shapes),
                (Some(shapes), Part::Batched(first)) => self.product(&mut lane, i, shapes, first, true),
                (Some(shapes), Part::Flat(first)) => self.product(&mut lane, i, shapes, first, false),
                (None, Part::Softmax) => lane.guessed = lane.latest.filter(|p| p.batch.is_some()).map(|p| p.op),
                (None, _) => self.guess(&mut lane, i, matches!(part, Part::Batched(_))),
                _ => {}
            }
            self.lanes.insert(ops.thread()[i], lane);
        }
        self.found
    }

    fn softmax(lane: &mut Lane, shapes: &[Vec<i64>]) {
        let Some(shape) = shapes.first().filter(|s| s.len() >= 3) else { return };
        let count = elements(shape);
        let product = lane.products.get(&(count, shape[shape.len() - 1]));
        if let Some(Product { op, batch: Some(batch) }) = product
            && is_batch_of(*batch, shape)
        {
            lane.pending.insert(count, Scores { product: *op, shape: shape.clone() });
        }
    }

    fn product(&mut self, lane: &mut Lane, i: usize, shapes: &[Vec<i64>], first: u8, batched: bool) {
        let (Some(left), Some(right)) = (shapes.get(usize::from(first)), shapes.get(usize::from(first) + 1)) else {
            return;
        };
        let (Some(rows), Some(columns)) = (left.len().checked_sub(2), right.len().checked_sub(2)) else { return };
        let batch = batched.then(|| elements(&left[..rows]));
        // What contracts the last size of the scores: they stand left, or transposed on the right.
        for (factor, contracted) in [(left, left[rows + 1]), (right, right[columns])] {
            let count = elements(factor);
            let takes = |s: &Scores| s.shape[s.shape.len() - 1] == contracted;
            if lane.pending.get(&count).is_some_and(takes)
                && let Some(scores) = lane.pending.remove(&count)
                && batch.is_some_and(|b| is_batch_of(b, &scores.shape))
            {
                let [.., queries, keys] = scores.shape[..] else { continue };
                self.found.push(self.stretch(scores.product, i as u32, (queries, keys, count)));
            }
        }
        let count = elements(&left[..=rows]).saturating_mul(right[columns + 1]);
        lane.products.insert((count, right[columns + 1]), Product { op: i as u32, batch });
    }

    fn guess(&mut self, lane: &mut Lane, i: usize, batched: bool) {
        if let Some(product) = lane.guessed.take().filter(|_| batched) {
            self.found.push(self.stretch(product, i as u32, (0, 0, 0)));
        }
        lane.latest = Some(Product { op: i as u32, batch: batched.then_some(0) });
    }

    fn stretch(&self, from: u32, to: u32, shape: (i64, i64, i64)) -> Stretch {
        Stretch { from: self.called(from), to: self.called(to), shape }
    }

    /// The operator that was called to run this product: `aten::matmul` around `aten::bmm`, with its copies and casts.
    fn called(&self, product: u32) -> u32 {
        let wraps = |op: &usize| matches!((self.part_of)(*op), Part::Wrapper | Part::Batched(_));
        self.owners.chain(product as usize).take_while(wraps).last().map_or(product, |op| op as u32)
    }
}

/// The shape of each input; `[]` for one that is no tensor.
fn tensors(input_dims: &str) -> Vec<Vec<i64>> {
    let sizes = |shape| match shape {
        Shape::Tensor(sizes) => sizes,
        Shape::Other => Vec::new(),
    };
    shapes::parse(input_dims).unwrap_or_default().into_iter().map(sizes).collect()
}

/// The number of elements of a tensor of this shape.
fn elements(shape: &[i64]) -> i64 {
    shape.iter().fold(1, |n, size| n.saturating_mul(*size))
}

/// Whether `batch` matrices at once make up scores of this shape: the product of its sizes from the first on, short of
/// the last two. A product that shares one factor over the whole batch, as a router's does, has a batch of 1.
fn is_batch_of(batch: i64, scores: &[i64]) -> bool {
    let mut product = 1i64;
    scores[..scores.len() - 2].iter().any(|size| {
        product = product.saturating_mul(*size);
        product == batch
    })
}

/// Marks the products at both ends of each stretch and what makes or takes tensors of the scores' shape between them.
fn mark(
    owners: &Owners<'_>,
    shapes: &[Vec<Vec<i64>>],
    part_of: impl Fn(usize) -> Part,
    stretches: &[Stretch],
) -> Vec<bool> {
    let ops = owners.trace().ops();
    let mut marks = vec![false; ops.len()];
    let mut starts: Vec<&Stretch> = stretches.iter().collect();
    let mut ends = starts.clone();
    starts.sort_by_key(|s| s.from);
    ends.sort_by_key(|s| s.to);
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    let mut open: HashMap<ThreadId, Open> = HashMap::new();
    for i in 0..ops.len() {
        while let Some(s) = starts.next_if(|s| s.from as usize <= i) {
            marks[s.from as usize] = true;
            open.entry(ops.thread()[s.from as usize]).or_default().count(s.shape, 1);
        }
        while let Some(s) = ends.next_if(|s| s.to as usize <= i) {
            marks[s.to as usize] = true;
            open.entry(ops.thread()[s.to as usize]).or_default().count(s.shape, -1);
        }
        if open.is_empty() || ops.kind()[i] != OpKind::Operator {
            continue;
        }
        if let Some(scores) = open.get(&ops.thread()[i]).filter(|o| o.any > 0)
            && !matches!(part_of(i), Part::Flat(_) | Part::Projection)
        {
            marks[i] |= scores.take(shapes.get(DetailId::index(ops.detail()[i])));
        }
    }
    marks
}

/// The scores that are on their way in a thread.
#[derive(Default)]
struct Open {
    any: i64,
    by_sizes: HashMap<(i64, i64), i64>,
    by_count: HashMap<(i64, i64), i64>,
}

impl Open {
    fn count(&mut self, (queries, keys, count): (i64, i64, i64), change: i64) {
        self.any += change;
        *self.by_sizes.entry((queries, keys)).or_default() += change;
        *self.by_count.entry((count, keys)).or_default() += change;
    }

    /// Whether a tensor of these has the shape of scores: their sizes `Tq` and `Tk` last (a mask may lack the others),
    /// or their number with `Tk` last. Any operator counts where shapes are not known.
    fn take(&self, shapes: Option<&Vec<Vec<i64>>>) -> bool {
        let is = |map: &HashMap<(i64, i64), i64>, key| map.get(&key).is_some_and(|n| *n > 0);
        let fits = |shape: &Vec<i64>| match shape[..] {
            [.., queries, keys] => is(&self.by_sizes, (queries, keys)) || is(&self.by_count, (elements(shape), keys)),
            _ => false,
        };
        shapes.is_none_or(|shapes| shapes.iter().any(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;

    /// Operators one after the other (name, shapes), each 8 ns long; an indented name stands in the one before it.
    fn marked(ops: &[(&str, &str)]) -> Vec<String> {
        let mut b = Build::default();
        let mut time = 0;
        for (i, (name, dims)) in ops.iter().enumerate() {
            let inside = |k: usize| ops.get(k).is_some_and(|(n, _)| n.starts_with("  "));
            time += if inside(i) { 1 } else { 10 };
            let end = if inside(i) { time + 1 } else { time + 9 };
            b.span(span(name.trim_start(), time, end).dims(dims));
        }
        let trace = b.finish();
        let found = find(&Owners::build(&trace));
        let names = trace.ops().name().iter().map(|n| trace.str(*n));
        names.zip(&found.marks).filter(|(_, m)| **m).map(|(n, _)| n.to_owned()).collect()
    }

    #[test]
    fn scores_are_followed_from_the_product_that_makes_them_to_the_one_that_takes_them() {
        let got = marked(&[
            ("aten::linear", "[[2, 16, 32], [32, 32], [32]]"),
            ("  aten::addmm", "[[32], [32, 32], [32, 32]]"),
            ("aten::matmul", "[[2, 4, 16, 8], [2, 4, 8, 16]]"),
            ("  aten::bmm", "[[8, 16, 8], [8, 8, 16]]"),
            ("aten::div", "[[2, 4, 16, 16], []]"),
            ("aten::triu", "[[16, 16], []]"),
            ("aten::masked_fill", "[[2, 4, 16, 16], [16, 16], []]"),
            ("aten::softmax", "[[2, 4, 16, 16], [], []]"),
            ("aten::gelu", "[[2, 16, 32], []]"),
            ("aten::dropout", "[[2, 4, 16, 16], [], []]"),
            ("aten::matmul", "[[2, 4, 16, 16], [2, 4, 16, 8]]"),
            ("  aten::bmm", "[[8, 16, 16], [8, 16, 8]]"),
            ("aten::reshape", "[[2, 16, 4, 8], []]"),
            ("aten::linear", "[[2, 16, 32], [32, 32], [32]]"),
            ("  aten::addmm", "[[32], [32, 32], [32, 32]]"),
        ]);
        // What runs inside the products is theirs.
        let want =
            ["matmul", "div", "triu", "masked_fill", "softmax", "dropout", "matmul"].map(|n| format!("aten::{n}"));
        assert_eq!(got, want);
    }

    #[test]
    fn attention_across_two_lengths_and_with_shared_keys_is_found() {
        let across = [
            ("aten::bmm", "[[8, 5, 4], [8, 4, 7]]"),
            ("aten::softmax", "[[2, 4, 5, 7], [], []]"),
            ("aten::bmm", "[[8, 5, 7], [8, 7, 4]]"),
        ];
        // Multi-query: keys are shared by the heads, which fold into the queries. Grouped: five sizes.
        let multi_query = [
            ("aten::bmm", "[[2, 20, 4], [2, 4, 7]]"),
            ("aten::softmax", "[[2, 4, 5, 7], [], []]"),
            ("aten::bmm", "[[2, 20, 7], [2, 7, 4]]"),
        ];
        let grouped = [
            ("aten::bmm", "[[4, 10, 4], [4, 4, 7]]"),
            ("aten::softmax", "[[2, 2, 2, 5, 7], [], []]"),
            ("aten::bmm", "[[4, 10, 7], [4, 7, 4]]"),
        ];
        let one_token = [
            ("aten::baddbmm", "[[8, 1, 7], [8, 1, 4], [8, 4, 7], [], []]"),
            ("aten::softmax", "[[8, 1, 7], [], []]"),
            ("aten::bmm", "[[8, 1, 7], [8, 7, 4]]"),
        ];
        // Values to the left, so that the weights stand transposed on the right.
        let transposed = [
            ("aten::bmm", "[[8, 5, 4], [8, 4, 7]]"),
            ("aten::softmax", "[[2, 4, 5, 7], [], []]"),
            ("aten::bmm", "[[8, 4, 7], [8, 7, 5]]"),
        ];
        for ops in [across, multi_query, grouped, one_token, transposed] {
            assert_eq!(marked(&ops).len(), 3, "{ops:?}");
        }
    }

    #[test]
    fn routers_classifiers_and_losses_are_no_attention() {
        let linear_router = [
            ("aten::mm", "[[32, 16], [16, 8]]"),
            ("aten::softmax", "[[2, 16, 8], [], []]"),
            ("aten::bmm", "[[32, 1, 8], [32, 8, 16]]"),
        ];
        let einsum_router = [
            ("aten::bmm", "[[1, 32, 16], [1, 16, 8]]"),
            ("aten::softmax", "[[2, 16, 8], [], []]"),
            ("aten::bmm", "[[32, 1, 8], [32, 8, 16]]"),
        ];
        let classifier = [
            ("aten::addmm", "[[10], [32, 64], [64, 10]]"),
            ("aten::softmax", "[[32, 10], [], []]"),
            ("aten::mm", "[[32, 10], [10, 4]]"),
        ];
        let vocabulary = [
            ("aten::mm", "[[32, 64], [64, 512]]"),
            ("aten::log_softmax", "[[2, 16, 512], [], []]"),
            ("aten::bmm", "[[2, 16, 512], [2, 512, 4]]"),
        ];
        // A product of the right size went before, but another made what the softmax ran over.
        let stale = [
            ("aten::bmm", "[[2, 16, 4], [2, 4, 8]]"),
            ("aten::mm", "[[32, 64], [64, 8]]"),
            ("aten::softmax", "[[2, 16, 8], [], []]"),
        ];
        for ops in [linear_router, einsum_router, classifier, vocabulary, stale] {
            assert!(marked(&ops).is_empty(), "{ops:?}");
        }
        let ends_in_no_product = [("aten::bmm", "[[2, 16, 4], [2, 4, 8]]"), ("aten::softmax", "[[2, 16, 8], [], []]")];
        assert!(marked(&ends_in_no_product).is_empty());
    }

    #[test]
    fn without_shapes_order_decides_and_the_result_is_a_guess() {
        let mut b = Build::default();
        let names = [
            "aten::mm",
            "aten::bmm",
            "aten::div",
            "aten::softmax",
            "aten::bmm",
            "aten::mm",
            "aten::softmax",
            "aten::bmm",
        ];
        for (i, name) in names.iter().enumerate() {
            let at = 10 * i as i64;
            b.span(span(name, at, at + 9));
        }
        let trace = b.finish();
        let found = find(&Owners::build(&trace));
        assert_eq!(found.marks, [false, true, true, true, true, false, false, false]);
        assert!(found.is_guess);
    }

    #[test]
    fn threads_do_not_mix() {
        let mut b = Build::default();
        b.span(span("aten::bmm", 0, 9).dims("[[8, 5, 4], [8, 4, 7]]"));
        b.span(span("aten::softmax", 10, 19).on("2").dims("[[8, 5, 7]]"));
        b.span(span("aten::bmm", 20, 29).dims("[[8, 5, 7], [8, 7, 4]]"));
        assert!(find(&Owners::build(&b.finish())).marks.is_empty());
    }
}
