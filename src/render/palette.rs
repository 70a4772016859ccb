//! Colours that people who do not see all colours still tell apart.
//!
//! The seven hues of Okabe and Ito ("Color Universal Design", 2008), which differ in lightness too; beyond seven the same
//! hues hatched, so that no two series differ by hue alone. Categories have their colours for good, so that pictures can
//! be compared; other keys take what is left in their order.

/// A way to fill an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fill {
    pub(super) color: &'static str,
    pub(super) hatched: bool,
}

const HUES: [&str; 7] = ["#d55e00", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#f0e442"];
const CATEGORIES: [&str; 14] = [
    "attention",
    "linear",
    "normalization",
    "activation",
    "convolution",
    "optimizer",
    "elementwise",
    "loss",
    "data",
    "embedding",
    "reduction",
    "cast",
    "communication",
    "indexing",
];

/// Of what was there before the trace.
pub(super) const BEFORE: Fill = Fill { color: "#c4c4c4", hatched: false };
/// Of all that has no series of its own, and of whatever comes when no other is left.
pub(super) const REST: Fill = Fill { color: "#777777", hatched: true };

/// Of the category of what is in no other.
const OTHER: Fill = Fill { color: "#777777", hatched: false };

fn slot(i: usize) -> Fill {
    if i < 2 * HUES.len() { Fill { color: HUES[i % HUES.len()], hatched: i >= HUES.len() } } else { REST }
}

/// The fill of each key.
pub(super) fn fills(keys: &[&str]) -> Vec<Fill> {
    let fixed: Vec<Option<usize>> = keys.iter().map(|k| CATEGORIES.iter().position(|c| c == k)).collect();
    let mut free = (0..2 * HUES.len()).filter(|i| !fixed.contains(&Some(*i)));
    let fill = |(key, place): (&&str, &Option<usize>)| match *key {
        "other" => OTHER,
        _ => place.or_else(|| free.next()).map_or(REST, slot),
    };
    keys.iter().zip(&fixed).map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_keep_their_colours_and_no_two_keys_share_one() {
        let fills = fills(&["mine", "linear", "attention", "theirs"]);
        assert_eq!(fills[1].color, "#0072b2");
        assert_eq!(fills[2].color, "#d55e00");
        let mut distinct = fills.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), fills.len());
    }
}
