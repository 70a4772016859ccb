//! The shapes of an operator's inputs (`Input Dims`), from their text.

/// The shape of each tensor in `text`, such as `[[8, 512], [], [[2], [3]]]`; scalars and other inputs are `[]`, and a
/// list of tensors stands as its tensors. Whatever is no such text gives what can be read of it.
pub(crate) fn shapes(text: &str) -> Vec<Vec<i64>> {
    let mut shapes = Vec::new();
    let mut open: Option<Vec<i64>> = None;
    let mut number: Option<i64> = None;
    for byte in text.bytes() {
        match byte {
            b'[' => open = Some(Vec::new()),
            b'0'..=b'9' => {
                let digit = i64::from(byte - b'0');
                number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
            }
            b',' | b']' => {
                if let (Some(shape), Some(size)) = (&mut open, number.take()) {
                    shape.push(size);
                }
                if byte == b']' {
                    shapes.extend(open.take());
                }
            }
            _ => {}
        }
    }
    shapes
}

/// The number of elements of a tensor of this shape.
pub(crate) fn elements(shape: &[i64]) -> i64 {
    shape.iter().fold(1, |n, size| n.saturating_mul(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_from_the_text_of_the_trace() {
        assert_eq!(shapes("[[8, 8, 1024, 64], [], [64]]"), vec![vec![8, 8, 1024, 64], vec![], vec![64]]);
        assert_eq!(shapes("[[[2, 3], [4]], []]"), vec![vec![2, 3], vec![4], vec![]]);
        assert_eq!(shapes("[[8,512],[ 3 ]]"), vec![vec![8, 512], vec![3]]);
        assert!(shapes("").is_empty() && shapes("[").is_empty());
        assert_eq!(elements(&[i64::MAX, 3]), i64::MAX);
    }
}
