//! Limits on memory, as users write them in `tracetool.toml`: on devices, and on rows of a grouping by glob.
//!
//! A limit is absolute (`max_peak = "10 GiB"`) or on the increase over the baseline, by size or by share
//! (`max_increase = "2 %"`). What a file does not name keeps its default; `"none"` takes a default away. Holding a trace
//! against limits is for [`check`](super::check).

use super::categories::place;
use super::grouping::GroupBy;
use crate::error::{Error, Result};
use crate::units::{Bytes, millionths};
use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// All limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Which devices are held to them; `None` for the accelerators, or all where there are none.
    pub device: Option<Pattern>,
    /// On the peak.
    pub peak: Bound,
    /// On the peak of reserved memory.
    pub reserved: Bound,
    /// On the number of allocations in a step.
    pub allocations: Bound,
    /// On the growth from step to step.
    pub growth: Bound,
    /// On rows of a grouping.
    pub rows: Vec<RowLimits>,
}

/// Limits on the rows of a grouping whose keys match.
#[derive(Clone, Debug)]
pub struct RowLimits {
    /// The grouping.
    pub group_by: GroupBy,
    /// Which keys.
    pub pattern: Pattern,
    /// On bytes live at the peak.
    pub live: Bound,
    /// On gross bytes allocated in a step.
    pub allocated: Bound,
    /// On the number of allocations in a step.
    pub allocations: Bound,
    /// What to do about rows that the baseline lacks.
    pub new: NewRows,
    /// What to do about rows that only the baseline has.
    pub vanished: VanishedRows,
}

/// What to do about rows that the baseline lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NewRows {
    /// Their increase counts from 0: any share of it is too much.
    #[default]
    Count,
    /// No limit on the increase applies to them.
    Allow,
    /// None may appear.
    Fail,
}

/// What to do about rows that only the baseline has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VanishedRows {
    /// They may be gone.
    #[default]
    Allow,
    /// None may be gone.
    Fail,
}

/// The most that a number may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// In itself.
    pub max: Option<i64>,
    /// Over the baseline.
    pub max_increase: Option<Increase>,
}

/// The most that a number may rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Increase {
    /// By so many bytes or things.
    By(i64),
    /// By this share of the baseline, in millionths: 20,000 is 2 %.
    Share(u64),
}

impl Increase {
    /// What `before` may rise to.
    pub fn allowed(self, before: i64) -> i64 {
        let before = i128::from(before);
        let most = match self {
            Self::By(n) => before + i128::from(n),
            Self::Share(millionths) => before + before.max(0) * i128::from(millionths) / 1_000_000,
        };
        most.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

impl fmt::Display for Increase {
    /// As it is written: `2 %`, or the bare number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(n) => write!(f, "{n}"),
            Self::Share(millionths) => {
                let text = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
                write!(f, "{} %", text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

impl FromStr for Increase {
    type Err = String;

    /// Reads `2 %`, `16 MiB`, `3`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse::<Bytes>().map(|b| Self::By(b.0)).map_err(|e| format!("{e}, or a share such as 2 %"));
        };
        let wrong = || format!("{text:?} is no share; expected such as 2 %");
        let millionths = millionths(percent.trim()).ok_or_else(wrong)? / 100;
        u64::try_from(millionths).map(Self::Share).map_err(|_| wrong())
    }
}

/// A limit as it is written: `None` for `none`, which takes a default away.
///
/// # Errors
///
/// Where it is neither that nor a `T`.
pub fn parse_limit<T: FromStr<Err = String>>(text: &str) -> std::result::Result<Option<T>, String> {
    if text.trim() == "none" { Ok(None) } else { text.parse().map(Some) }
}

/// A name, or a glob of names.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    glob: GlobMatcher,
}

impl Pattern {
    /// Whether it stands for `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.glob.is_match(name)
    }

    /// The text of it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        // A backslash is an escape on every system: names are no paths.
        let glob = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build();
        let glob = glob.map_err(|e| format!("expected a glob such as aten::*, found {text:?}: {}", e.kind()))?;
        Ok(Self { text: text.to_owned(), glob: glob.compile_matcher() })
    }
}

impl Default for Limits {
    /// The peak may rise by 5 %, growth a step by 1 MiB.
    fn default() -> Self {
        let increase = |limit| Bound { max: None, max_increase: Some(limit) };
        Self {
            device: None,
            peak: increase(Increase::Share(50_000)),
            reserved: Bound::default(),
            allocations: Bound::default(),
            growth: increase(Increase::By(1 << 20)),
            rows: Vec::new(),
        }
    }
}

impl RowLimits {
    /// No limits on the rows of a grouping that match.
    pub fn new(group_by: GroupBy, pattern: Pattern) -> Self {
        Self {
            group_by,
            pattern,
            live: Bound::default(),
            allocated: Bound::default(),
            allocations: Bound::default(),
            new: NewRows::default(),
            vanished: VanishedRows::default(),
        }
    }
}

/// A limit in a file: a number, or text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(i64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    device: Option<String>,
    max_peak: Option<Written>,
    max_increase: Option<Written>,
    max_reserved: Option<Written>,
    max_reserved_increase: Option<Written>,
    max_allocations: Option<Written>,
    max_allocations_increase: Option<Written>,
    max_growth: Option<Written>,
    max_growth_increase: Option<Written>,
    #[serde(default)]
    op: BTreeMap<String, RowFile>,
    #[serde(default)]
    category: BTreeMap<String, RowFile>,
    #[serde(default)]
    module: BTreeMap<String, RowFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowFile {
    max: Option<Written>,
    max_increase: Option<Written>,
    max_allocated: Option<Written>,
    max_allocated_increase: Option<Written>,
    max_allocations: Option<Written>,
    max_allocations_increase: Option<Written>,
    #[serde(default)]
    new: NewRows,
    #[serde(default)]
    vanished: VanishedRows,
}

impl Limits {
    /// The limits that `text` writes, over the defaults.
    ///
    /// # Errors
    ///
    /// Where it is no TOML, or names something that is no limit; the error says where.
    pub fn from_toml(text: &str) -> Result<Self> {
        let mut limits = Self::default();
        limits.add_toml(text)?;
        Ok(limits)
    }

    /// Sets what `text` writes and adds its limits on rows.
    ///
    /// # Errors
    ///
    /// As [`from_toml`](Self::from_toml).
    pub fn add_toml(&mut self, text: &str) -> Result<()> {
        let file: File = toml::from_str(text).map_err(|e| {
            let error = Error::format("limits (TOML)", e.message().replace('\n', " "));
            match e.span() {
                Some(span) => error.with_hint(place(text, span.start)).at_offset(span.start as u64),
                None => error,
            }
        })?;
        let wrong = |message: String| Error::usage(format!("wrong limit: {message}"));
        if let Some(device) = file.device {
            self.device = Some(device.parse().map_err(wrong)?);
        }
        set(&mut self.peak, "max_peak", file.max_peak, "max_increase", file.max_increase)?;
        let (max, increase) = (file.max_reserved, file.max_reserved_increase);
        set(&mut self.reserved, "max_reserved", max, "max_reserved_increase", increase)?;
        let (max, increase) = (file.max_allocations, file.max_allocations_increase);
        set(&mut self.allocations, "max_allocations", max, "max_allocations_increase", increase)?;
        set(&mut self.growth, "max_growth", file.max_growth, "max_growth_increase", file.max_growth_increase)?;
        for (by, rows) in [(GroupBy::Op, file.op), (GroupBy::Category, file.category), (GroupBy::Module, file.module)] {
            for (pattern, row) in rows {
                self.rows.push(row.limits(RowLimits::new(by, pattern.parse().map_err(wrong)?))?);
            }
        }
        Ok(())
    }

    /// Sets the limit on devices that has this name in a file, such as `max_peak`.
    ///
    /// # Errors
    ///
    /// Where there is none of this name, or `text` is no such limit.
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        let (bound, is_increase) = match name {
            "max_peak" => (&mut self.peak, false),
            "max_increase" => (&mut self.peak, true),
            "max_reserved" => (&mut self.reserved, false),
            "max_reserved_increase" => (&mut self.reserved, true),
            "max_allocations" => (&mut self.allocations, false),
            "max_allocations_increase" => (&mut self.allocations, true),
            "max_growth" => (&mut self.growth, false),
            "max_growth_increase" => (&mut self.growth, true),
            _ => return Err(Error::usage(format!("there is no limit {name}"))),
        };
        let written = Some(Written::Text(text.to_owned()));
        if is_increase { set(bound, "", None, name, written) } else { set(bound, name, written, "", None) }
    }

    /// The same without what takes a baseline: those on increases, on new rows and on vanished ones.
    #[must_use]
    pub fn without_baseline(mut self) -> Self {
        let absolute = |bound: &mut Bound| bound.max_increase = None;
        [&mut self.peak, &mut self.reserved, &mut self.allocations, &mut self.growth].into_iter().for_each(absolute);
        for row in &mut self.rows {
            [&mut row.live, &mut row.allocated, &mut row.allocations].into_iter().for_each(absolute);
            (row.new, row.vanished) = (NewRows::default(), VanishedRows::default());
        }
        self
    }
}

impl RowFile {
    fn limits(self, mut to: RowLimits) -> Result<RowLimits> {
        set(&mut to.live, "max", self.max, "max_increase", self.max_increase)?;
        let (max, increase) = (self.max_allocated, self.max_allocated_increase);
        set(&mut to.allocated, "max_allocated", max, "max_allocated_increase", increase)?;
        let (max, increase) = (self.max_allocations, self.max_allocations_increase);
        set(&mut to.allocations, "max_allocations", max, "max_allocations_increase", increase)?;
        (to.new, to.vanished) = (self.new, self.vanished);
        Ok(to)
    }
}

/// Overwrites what is written.
fn set(
    bound: &mut Bound,
    max_key: &str,
    max: Option<Written>,
    increase_key: &str,
    increase: Option<Written>,
) -> Result<()> {
    if let Some(max) = max {
        bound.max = read::<Bytes>(max_key, max, Bytes)?.map(|b| b.0);
    }
    if let Some(increase) = increase {
        bound.max_increase = read(increase_key, increase, Increase::By)?;
    }
    Ok(())
}

fn read<T: FromStr<Err = String>>(key: &str, written: Written, number: fn(i64) -> T) -> Result<Option<T>> {
    let wrong = |e: String| Error::usage(format!("wrong limit: {key}: {e}"));
    match written {
        Written::Number(n) if n < 0 => Err(wrong(format!("{n} is negative"))),
        Written::Number(n) => Ok(Some(number(n))),
        Written::Text(text) => parse_limit(&text).map_err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_overwrites_the_defaults_and_none_takes_one_away() {
        let limits = Limits::from_toml(
            "max_peak = \"10 GiB\"\nmax_growth_increase = \"none\"\nmax_allocations = 500\n\
             [op.\"aten::bmm\"]\nmax_increase = \"16 MiB\"\nnew = \"allow\"\n[category.attention]\nmax = \"2 GiB\"\n",
        )
        .unwrap();
        let five_percent = Some(Increase::Share(50_000));
        assert_eq!(limits.peak, Bound { max: Some(10 << 30), max_increase: five_percent });
        assert_eq!((limits.growth, limits.allocations.max), (Bound::default(), Some(500)));
        assert_eq!(limits.rows[0].live.max_increase, Some(Increase::By(16 << 20)));
        assert_eq!((limits.rows[0].new, limits.rows[0].pattern.text()), (NewRows::Allow, "aten::bmm"));
        assert_eq!((limits.rows[1].group_by, limits.rows[1].live.max), (GroupBy::Category, Some(2 << 30)));
        let bare = limits.without_baseline();
        assert_eq!(bare.peak, Bound { max: Some(10 << 30), max_increase: None });
        assert_eq!((bare.rows[0].live, bare.rows[0].new), (Bound::default(), NewRows::Count));
    }

    #[test]
    fn wrong_limits_are_said_with_their_place() {
        let error = |text: &str| Limits::from_toml(text).unwrap_err().to_string();
        assert!(error("max_peek = 1").contains("line 1, column 1"), "{}", error("max_peek = 1"));
        assert!(error("max_peak = \"10 parsecs\"").contains("max_peak: \"parsecs\" is no unit"));
        assert!(error("max_peak = -1").contains("max_peak: -1 is negative"));
        assert!(error("max_increase = \"-2 %\"").contains("is no share"));
        assert!(error("[op.\"a[\"]\nmax = 1").contains("expected a glob"));
        assert!(error("[op.x]\nnew = \"maybe\"").contains("expected one of"), "{}", error("[op.x]\nnew = \"maybe\""));
    }

    #[test]
    fn a_share_allows_no_more_than_itself_and_is_written_as_it_was_read() {
        let read = |text: &str| text.parse::<Increase>();
        assert_eq!(read("2 %").map(|i| i.allowed(1_000)), Ok(1_020));
        assert_eq!(read("0.5%").map(|i| i.allowed(999)), Ok(1_003));
        assert_eq!(read("5 %").map(|i| i.allowed(0)), Ok(0));
        assert_eq!(read("1 MiB").map(|i| i.allowed(7)), Ok((1 << 20) + 7));
        for text in ["2 %", "0.5 %", "12.25 %", "1048576"] {
            assert_eq!(read(text).map(|i| i.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(Increase::Share(u64::MAX).allowed(i64::MAX), i64::MAX);
    }

    #[test]
    fn a_pattern_is_a_name_or_a_glob() {
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        assert!(pattern("aten::*").matches("aten::bmm"));
        assert!(pattern("*").matches("nn.Module: A/nn.Module: B"));
        assert!(pattern("f(x)[0]").matches("f(x)[0]"), "a name stands for itself whatever is in it");
        assert!(!pattern("aten::bm").matches("aten::bmm"));
    }
}
