//! The families that people think in: which category an allocation belongs to.
//!
//! One table of rules ([`categories.toml`](DEFAULT_RULES), which says how a rule is written and tried) that users can
//! replace. Attention written out by hand is found by `attention`.

use super::attention;
use super::owners::{AttributeTo, NameTable, Owners};
use super::transfers;
use crate::error::{Error, Result};
use crate::trace::OpKind;
use serde::Deserialize;

/// The table that holds unless the user gives another.
pub const DEFAULT_RULES: &str = include_str!("categories.toml");

/// The category of what no rule matches.
pub const OTHER: &str = "other";

/// A table of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryRules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    category: String,
    #[serde(default)]
    operators: Vec<String>,
    #[serde(default)]
    annotations: Vec<String>,
    #[serde(default)]
    whole: bool,
    detect: Option<Detect>,
}

/// What a rule finds by other means than names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Detect {
    Attention,
    Transfer,
}

impl Default for CategoryRules {
    /// The table that comes with tracetool.
    fn default() -> Self {
        Self::from_toml(DEFAULT_RULES).unwrap_or(Self { rules: Vec::new() })
    }
}

impl CategoryRules {
    /// The rules written in `text`.
    ///
    /// # Errors
    ///
    /// Where it is no TOML or not of the form that [`DEFAULT_RULES`] explains; the error says where.
    pub fn from_toml(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| {
            let error = Error::format("category rules ([[rule]] tables in TOML)", e.message().replace('\n', " "));
            match e.span() {
                Some(span) => error.with_hint(place(text, span.start)).at_offset(span.start as u64),
                None => error,
            }
        })?;
        let says_nothing = |r: &&Rule| r.operators.is_empty() && r.annotations.is_empty() && r.detect.is_none();
        match file.rules.iter().find(says_nothing) {
            Some(rule) => Err(Error::format(
                "a rule with operators, annotations or detect",
                format!("a rule for {:?} with none of them", rule.category),
            )),
            None => Ok(Self { rules: file.rules }),
        }
    }

    /// Sixteen hexadecimal digits that differ between different rules, whatever the layout of their file (FNV-1a).
    pub fn fingerprint(&self) -> String {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", format!("{:?}", self.rules).bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    /// The names of the categories in the order of the rules, then [`OTHER`].
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.rules.iter().map(|r| r.category.as_str()).chain([OTHER]) {
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
        names
    }
}

/// Line and column of a place in a file, for people.
pub(super) fn place(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let column = before.len() - before.rfind('\n').map_or(0, |i| i + 1);
    format!("line {}, column {}", before.matches('\n').count() + 1, column + 1)
}

/// Whether `name` is matched by `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|p| !p.is_empty()) {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(tail)
}

/// The categories of all allocations of a trace.
#[derive(Debug)]
pub struct Categories {
    names: Vec<String>,
    /// For each operator the index of its category.
    of_op: Vec<u16>,
    other: u16,
    attention_is_guess: bool,
}

/// The index of a rule that matches, if any. Rules beyond the 65,535th are not tried.
type Match = Option<u16>;

impl Categories {
    /// The categories of a trace by these rules.
    pub fn build(owners: &Owners<'_>, rules: &CategoryRules) -> Self {
        let names = rules.names();
        let index = |name: &str| u16::try_from(names.iter().position(|n| n == name).unwrap_or(0)).unwrap_or(u16::MAX);
        let other = index(OTHER);
        let of_rule: Vec<u16> = rules.rules.iter().map(|r| index(&r.category)).collect();
        let matched = Matched::build(owners, rules);
        let of_op = (0..owners.trace().ops().len())
            .map(|op| {
                let forward = owners.forward(op);
                let find = |column: &[Match]| column[op].or_else(|| column[forward?]);
                let rule = find(&matched.whole).or_else(|| find(&matched.operator)).or(matched.annotation[op]);
                rule.map_or(other, |r| of_rule[usize::from(r)])
            })
            .collect();
        Self { names, of_op, other, attention_is_guess: matched.attention_is_guess }
    }

    /// The names of all categories, whether used or not.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The category, as an index into [`names`](Self::names), of the allocation `event`, a row of
    /// [`Trace::memory`](crate::trace::Trace::memory).
    pub fn of_event(&self, owners: &Owners<'_>, event: usize) -> usize {
        owners.owner(event, AttributeTo::Leaf).map_or(usize::from(self.other), |op| self.of_op(op))
    }

    /// The category, as an index into [`names`](Self::names), of what operator `op` allocates itself.
    pub fn of_op(&self, op: usize) -> usize {
        usize::from(self.of_op[op])
    }

    /// Whether attention written out by hand was found from names and order alone, because the trace has no shapes.
    pub fn attention_is_guess(&self) -> bool {
        self.attention_is_guess
    }
}

/// For each operator the rule that it or the innermost around it matches.
struct Matched {
    whole: Vec<Match>,
    operator: Vec<Match>,
    annotation: Vec<Match>,
    attention_is_guess: bool,
}

/// The first rules that a name matches.
#[derive(Clone, Copy, Default)]
struct NameMatch {
    whole_operator: Match,
    whole_annotation: Match,
    operator: Match,
    annotation: Match,
}

impl Matched {
    fn build(owners: &Owners<'_>, rules: &CategoryRules) -> Self {
        let by_name = by_name(owners, rules);
        let detected =
            |what| rules.rules.iter().position(|r| r.detect == Some(what)).and_then(|i| u16::try_from(i).ok());
        let (attention_rule, transfer_rule) = (detected(Detect::Attention), detected(Detect::Transfer));
        let attention = attention_rule.map(|_| attention::find(owners)).unwrap_or_default();
        let transfers = transfer_rule.map(|_| transfers::find(owners)).unwrap_or_default();
        let ops = owners.trace().ops();
        let of = |i: usize| (by_name.of(ops.name()[i]), ops.kind()[i] == OpKind::Annotation);
        let marked = |marks: &[bool], i: usize, rule: Match| rule.filter(|_| marks.get(i).copied().unwrap_or(false));
        let first = |a: Match, b: Match| a.into_iter().chain(b).min();
        let whole = owners.inherited(|i, outer: Option<&Match>| {
            let (name, is_annotation) = of(i);
            let named = if is_annotation { name.whole_annotation } else { name.whole_operator };
            let found = first(marked(&attention.marks, i, attention_rule), marked(&transfers, i, transfer_rule));
            first(named, found).or(outer.copied().flatten())
        });
        let operator = owners.inherited(|i, outer: Option<&Match>| {
            let (name, is_annotation) = of(i);
            name.operator.filter(|_| !is_annotation).or(outer.copied().flatten())
        });
        let annotation = owners.inherited(|i, outer: Option<&Match>| {
            let (name, is_annotation) = of(i);
            name.annotation.filter(|_| is_annotation).or(outer.copied().flatten())
        });
        Self { whole, operator, annotation, attention_is_guess: attention.is_guess }
    }
}

fn by_name(owners: &Owners<'_>, rules: &CategoryRules) -> NameTable<NameMatch> {
    owners.by_name(|name| {
        let first = |whole: bool, patterns: fn(&Rule) -> &[String]| {
            let hit = |r: &Rule| r.whole == whole && patterns(r).iter().any(|p| matches(p, name));
            rules.rules.iter().position(hit).and_then(|i| u16::try_from(i).ok())
        };
        NameMatch {
            whole_operator: first(true, |r| &r.operators),
            whole_annotation: first(true, |r| &r.annotations),
            operator: first(false, |r| &r.operators),
            annotation: first(false, |r| &r.annotations),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, Span, span};
    use super::*;

    fn category(spans: Vec<Span>, tid: &str, at: i64) -> String {
        category_by(&CategoryRules::default(), spans, tid, at)
    }

    fn category_by(rules: &CategoryRules, spans: Vec<Span>, tid: &str, at: i64) -> String {
        let mut b = Build::default();
        spans.into_iter().for_each(|s| b.span(s));
        b.alloc_on(tid, at, 1, 8);
        let trace = b.finish();
        let owners = Owners::build(&trace);
        let categories = Categories::build(&owners, rules);
        categories.names()[categories.of_event(&owners, 0)].clone()
    }

    #[test]
    fn the_fingerprint_is_of_the_rules_and_not_of_their_layout() {
        let print = |text: &str| CategoryRules::from_toml(text).unwrap().fingerprint();
        let plain = print("[[rule]]\ncategory = \"x\"\noperators = [\"aten::mm\"]\n");
        assert_eq!(plain, print("# mine\n[[rule]]\noperators = ['aten::mm']\ncategory = 'x'\n"));
        assert_ne!(plain, print("[[rule]]\ncategory = \"x\"\noperators = [\"aten::bmm\"]\n"));
    }

    #[test]
    fn the_innermost_operator_that_a_rule_knows_decides() {
        let names = ["aten::layer_norm", "aten::native_layer_norm", "aten::empty"];
        let spans = names.iter().enumerate().map(|(i, n)| span(n, i as i64, 20 - i as i64)).collect();
        assert_eq!(category(spans, "1", 10), "normalization");
        let cast = vec![span("aten::linear", 0, 20), span("aten::_to_copy", 1, 19), span("aten::empty_strided", 2, 18)];
        assert_eq!(category(cast, "1", 10), "cast");
        assert_eq!(category(vec![span("mine::thing", 0, 20)], "1", 10), OTHER);
        assert_eq!(category(vec![], "1", 10), OTHER);
    }

    #[test]
    fn a_backward_operator_that_no_rule_knows_takes_the_category_of_its_forward_one() {
        let spans = vec![span("aten::gelu", 0, 9).sequence(3), span("mine::backward", 20, 40).on("2").backward(3, 1)];
        assert_eq!(category(spans, "2", 30), "activation");
    }

    #[test]
    fn everything_in_a_fused_attention_and_behind_its_backward_is_attention() {
        let sdpa = span("aten::_scaled_dot_product_attention_math", 0, 20);
        let inside = span("aten::bmm", 5, 15).sequence(4);
        assert_eq!(category(vec![sdpa.clone(), inside.clone()], "1", 10), "attention");
        let backward = span("BmmBackward0", 30, 50).on("2").backward(4, 1);
        let product = span("aten::bmm", 31, 49).on("2");
        assert_eq!(category(vec![sdpa, inside, backward, product], "2", 40), "attention");
    }

    #[test]
    fn everything_in_an_optimizers_step_is_the_optimizers() {
        let spans = vec![span("Optimizer.step#SGD.step", 0, 20), span("aten::mul", 5, 15)];
        assert_eq!(category(spans, "1", 10), "optimizer");
    }

    #[test]
    fn names_that_sound_alike_are_told_apart() {
        for (name, want) in [
            ("aten::upsample_bilinear2d", OTHER),
            ("aten::linalg_vector_norm", "reduction"),
            ("aten::log_softmax", "loss"),
            ("aten::softmax", "activation"),
            ("aten::nll_loss_forward", "loss"),
            ("aten::cudnn_convolution", "convolution"),
            ("aten::conv_transpose2d", "convolution"),
            ("aten::embedding_dense_backward", "embedding"),
            ("aten::addmm", "linear"),
            ("aten::addcmul", "elementwise"),
            ("aten::max_pool2d_with_indices", "reduction"),
        ] {
            assert_eq!(category(vec![span(name, 0, 9)], "1", 5), want, "{name}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, want) in [
            ("aten::mm", "aten::mm", true),
            ("aten::mm", "aten::mm_", false),
            ("aten::conv*", "aten::conv2d", true),
            ("*norm", "aten::norm", true),
            ("*a*b", "xaybzb", true),
            ("a*a", "a", false),
            ("*", "", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn users_replace_the_table_and_errors_say_where() {
        let rules = CategoryRules::from_toml("[[rule]]\ncategory = \"mine\"\noperators = [\"aten::*\"]\n").unwrap();
        assert_eq!(category_by(&rules, vec![span("aten::mm", 0, 9)], "1", 5), "mine");
        assert_eq!(rules.names(), ["mine", OTHER]);
        let error = |text: &str| CategoryRules::from_toml(text).unwrap_err().to_string();
        assert!(error("[[rule]]\ncategory = \"a\"\noperator = []\n").contains("line 3, column 1"));
        assert!(error("[[rule]]\noperators = [\"a\"]\n").contains("category"));
        assert!(error("[[rule]]\ncategory = \"a\"\n").contains("none of them"));
        assert!(error("[[rule]]\ncategory = \"a\"\ndetect = \"love\"\n").contains("attention"));
        assert!(!CategoryRules::default().rules.is_empty());
    }
}
