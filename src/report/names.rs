//! Names of columns as people type them: PyTorch's attribute names, with or without the unit, and with any
//! accelerator's name for the device's.

use crate::error::{Error, Result};

/// The name as all spellings of it share it: lower case, no unit, the accelerator called `device`.
fn canonical(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    let name = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("_ns")).unwrap_or(&name);
    name.split('_')
        .map(|word| if matches!(word, "cuda" | "xpu" | "hip" | "privateuse1" | "mtia") { "device" } else { word })
        .collect::<Vec<_>>()
        .join("_")
}

/// Where the column that `name` means stands in `known`.
pub(super) fn place(name: &str, known: &[&str]) -> Option<usize> {
    let name = canonical(name);
    known.iter().position(|k| canonical(k) == name)
}

/// The same, or an error that lists the names of the `what`s there are and the nearest one.
pub(super) fn find(name: &str, known: &[&str], what: &str) -> Result<usize> {
    place(name, known).ok_or_else(|| {
        let wanted = canonical(name);
        // What starts the same was most likely meant and cut short.
        let far = |k: &&&str| (!canonical(k).starts_with(&wanted), distance(&canonical(k), &wanted));
        let nearest = known.iter().min_by_key(far);
        let nearest = nearest.map(|k| format!("; did you mean {k}?")).unwrap_or_default();
        Error::usage(format!("there is no {what} {name:?}{nearest} There are {}", known.join(", ")))
    })
}

/// The least number of letters to change, add or take away to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    // A word typed by hand is short; what is longer is no near miss.
    let b: Vec<char> = b.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_accelerators_name_and_any_unit_mean_the_same_column() {
        let known = ["count", "self_device_memory_usage_bytes", "cpu_time_total_ns"];
        for name in [
            "self_cuda_memory_usage",
            "self_xpu_memory_usage",
            "self_device_memory_usage_bytes",
            "Self-HIP-memory-usage",
        ] {
            assert_eq!(place(name, &known), Some(1), "{name}");
        }
        assert_eq!(place("cpu_time_total", &known), Some(2));
        assert_eq!(place("count", &known), Some(0));
        assert_eq!(place("memory", &known), None);
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_and_all_there_are() {
        let error = find("self_cuda_memroy", &["count", "self_device_memory_usage"], "sort key").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did you mean self_device_memory_usage?"), "{text}");
        assert!(text.contains("count, self_device_memory_usage"), "{text}");
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
