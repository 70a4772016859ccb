//! Floating point operations of an operator, by the formulas that PyTorch's profiler counts with.
//!
//! From shapes and constants alone: what a kernel really did is not in the trace. Operators without a formula have none.

use super::shapes::{self, Shape};
use crate::trace::{DetailId, StrId, Trace};
use hashbrown::HashMap;

/// The operators that PyTorch has a formula for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Formula {
    /// `aten::conv2d`: input, weight, bias, stride, padding, dilation, groups.
    Conv2d,
    /// A product of two matrices (or batches of them), which are the inputs from this place on.
    Product { batched: bool, first: usize },
    /// One operation for each element of the first input.
    Elementwise,
}

const FORMULAS: [(&str, Formula); 7] = [
    ("aten::conv2d", Formula::Conv2d),
    ("aten::mm", Formula::Product { batched: false, first: 0 }),
    ("aten::addmm", Formula::Product { batched: false, first: 1 }),
    ("aten::bmm", Formula::Product { batched: true, first: 0 }),
    ("aten::baddbmm", Formula::Product { batched: true, first: 1 }),
    ("aten::add", Formula::Elementwise),
    ("aten::mul", Formula::Elementwise),
];

/// Counts operations of a trace's operators; each distinct detail is parsed once.
#[derive(Debug)]
pub(crate) struct FlopCounter<'t> {
    trace: &'t Trace,
    formulas: Vec<(StrId, Formula)>,
    known: HashMap<(Formula, DetailId), u64>,
}

impl<'t> FlopCounter<'t> {
    /// A counter for the operators of `trace`.
    pub(crate) fn new(trace: &'t Trace) -> Self {
        let formula = |(name, formula): &(&str, Formula)| Some((trace.strings().find(name)?, *formula));
        Self { trace, formulas: FORMULAS.iter().filter_map(formula).collect(), known: HashMap::new() }
    }

    /// The operations of one call of an operator; 0 where PyTorch has no formula or the shapes are not known.
    pub(crate) fn of(&mut self, name: StrId, detail: DetailId) -> u64 {
        let Some((_, formula)) = self.formulas.iter().find(|(known, _)| *known == name) else { return 0 };
        let trace = self.trace;
        *self.known.entry((*formula, detail)).or_insert_with(|| {
            let detail = trace.detail(detail);
            count(*formula, trace.str(detail.input_dims), trace.str(detail.concrete_inputs)).unwrap_or(0)
        })
    }
}

/// `None` where the shapes do not fit the formula or the number does not fit 64 bits.
fn count(formula: Formula, input_dims: &str, concrete: &str) -> Option<u64> {
    let shapes = shapes::parse(input_dims)?;
    let sizes = |i: usize| match shapes.get(i)? {
        Shape::Tensor(sizes) => sizes.iter().map(|d| u64::try_from(*d).ok()).collect::<Option<Vec<u64>>>(),
        Shape::Other => None,
    };
    match formula {
        Formula::Elementwise => product(&sizes(0)?),
        Formula::Product { batched, first } => matrix_product(&sizes(first)?, &sizes(first + 1)?, batched),
        Formula::Conv2d => conv2d(&sizes(0)?, &sizes(1)?, &shapes::parse_concrete(concrete)?),
    }
}

fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor))
}

/// 2 m n k, for each of a batch.
fn matrix_product(a: &[u64], b: &[u64], batched: bool) -> Option<u64> {
    let (batch, a, b) = match (batched, a, b) {
        (true, [x, a @ ..], [y, b @ ..]) if x == y => (*x, a, b),
        (false, a, b) => (1, a, b),
        _ => return None,
    };
    match (a, b) {
        ([m, k], [inner, n]) if k == inner => product(&[2, batch, *m, *k, *n]),
        _ => None,
    }
}

/// 2 N Cout Hout Wout Cin kh kw / groups, where PyTorch takes Cin from the input.
fn conv2d(input: &[u64], weight: &[u64], concrete: &[String]) -> Option<u64> {
    let ([batch, channels, height, width], [filters, _, kernel_height, kernel_width]) = (input, weight) else {
        return None;
    };
    let pair = |i: usize| pair_of_numbers(concrete.get(i)?);
    let (stride, padding, dilation) = (pair(3)?, pair(4)?, pair(5)?);
    let groups = concrete.get(6)?.trim().parse().ok().filter(|g: &u64| *g > 0)?;
    let outputs = |size: u64, kernel: u64, i: usize| {
        let reach = dilation[i].checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        let padded = size.checked_add(padding[i].checked_mul(2)?)?;
        Some(padded.checked_sub(reach)?.checked_div(stride[i])? + 1)
    };
    let (rows, columns) = (outputs(*height, *kernel_height, 0)?, outputs(*width, *kernel_width, 1)?);
    let all = product(&[2, *batch, *filters, rows, columns, *channels, *kernel_height, *kernel_width])?;
    Some(all / groups)
}

/// `[1, 2]`, or `[1]` for both.
fn pair_of_numbers(text: &str) -> Option<[u64; 2]> {
    match *serde_json::from_str::<Vec<u64>>(text).ok()?.as_slice() {
        [both] => Some([both, both]),
        [first, second] => Some([first, second]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flops(name: &str, dims: &str, concrete: &str) -> Option<u64> {
        let (_, formula) = FORMULAS.iter().find(|(known, _)| *known == name)?;
        count(*formula, dims, concrete)
    }

    #[test]
    fn a_product_of_matrices_is_two_operations_for_each_triple() {
        assert_eq!(flops("aten::mm", "[[2, 3], [3, 5]]", ""), Some(60));
        assert_eq!(flops("aten::addmm", "[[5], [2, 3], [3, 5], [], []]", ""), Some(60));
        assert_eq!(flops("aten::bmm", "[[7, 2, 3], [7, 3, 5]]", ""), Some(420));
        assert_eq!(flops("aten::baddbmm", "[[7, 2, 5], [7, 2, 3], [7, 3, 5], [], []]", ""), Some(420));
    }

    #[test]
    fn a_convolution_slides_over_the_padded_input_by_its_stride() {
        // 8 outputs a side: (16 + 2*3 - (7 - 1) - 1) / 2 + 1.
        let concrete = r#"["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "1"]"#;
        let dims = "[[4, 3, 16, 16], [6, 3, 7, 7], [], [], [], [], []]";
        assert_eq!(flops("aten::conv2d", dims, concrete), Some(2 * 4 * 6 * 8 * 8 * 3 * 7 * 7));
        let grouped = r#"["", "", "", "[2]", "[3]", "[1]", "3"]"#;
        assert_eq!(flops("aten::conv2d", dims, grouped), Some(2 * 4 * 6 * 8 * 8 * 7 * 7));
    }

    #[test]
    fn add_and_mul_are_one_operation_for_each_element_of_the_first_input() {
        assert_eq!(flops("aten::add", "[[4, 5], [1], []]", ""), Some(20));
        assert_eq!(flops("aten::mul", "[[], []]", ""), Some(1));
    }

    #[test]
    fn shapes_that_do_not_fit_count_nothing() {
        for (name, dims, concrete) in [
            ("aten::mm", "[[2, 3], [4, 5]]", ""),
            ("aten::mm", "[[2, 3]]", ""),
            ("aten::mm", "", ""),
            ("aten::mm", "[[-2, 3], [3, 5]]", ""),
            ("aten::bmm", "[[7, 2, 3], [8, 3, 5]]", ""),
            ("aten::add", "[[[4, 5]], []]", ""),
            ("aten::add", "[[4294967296, 4294967296], []]", ""),
            ("aten::conv2d", "[[4, 3, 16, 16], [6, 3, 7, 7]]", ""),
            ("aten::conv2d", "[[4, 3, 1, 1], [6, 3, 7, 7]]", r#"["", "", "", "[1]", "[0]", "[1]", "1"]"#),
            ("aten::conv2d", "[[4, 3, 16, 16], [6, 3, 7, 7]]", r#"["", "", "", "[0]", "[3]", "[1]", "1"]"#),
            ("aten::conv2d", "[[4, 3, 16, 16], [6, 3, 7, 7]]", r#"["", "", "", "[1]", "[3]", "[1]", "0"]"#),
        ] {
            assert_eq!(flops(name, dims, concrete), None, "{name} {dims} {concrete}");
        }
    }
}
