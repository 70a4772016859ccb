//! `Input Dims` and `Concrete Inputs` as values, and shapes as the text that PyTorch prints.
//!
//! The trace keeps both as JSON text, one a distinct [`Detail`](crate::trace::Detail); each is parsed once here.

use serde_json::Value;
use std::fmt::Write;

/// What the file says of an input: sizes of a tensor, or of each tensor of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A tensor's sizes; empty for a scalar, and for an input that is no tensor.
    Tensor(Vec<i64>),
    /// A list of tensors, or anything else.
    Other,
}

/// The shapes of the inputs; `None` for text that is no list.
pub(crate) fn parse(input_dims: &str) -> Option<Vec<Shape>> {
    let shape = |input: &Value| match input.as_array().map(|d| d.iter().map(Value::as_i64).collect()) {
        Some(Some(sizes)) => Shape::Tensor(sizes),
        _ => Shape::Other,
    };
    Some(list(input_dims)?.iter().map(shape).collect())
}

/// The concrete inputs, each as its text; empty for an input that is a tensor or not recorded.
pub(crate) fn parse_concrete(inputs: &str) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(list(inputs)?.iter().map(text).collect())
}

fn list(text: &str) -> Option<Vec<Value>> {
    serde_json::from_str(text).ok()
}

/// Shapes in PyTorch's spacing, `[[8192, 512], [[1], [2]]]`; text that is no list is kept as it is.
pub(crate) fn spaced(input_dims: &str) -> String {
    list(input_dims).map_or_else(|| input_dims.to_owned(), |inputs| print(&Value::Array(inputs)))
}

/// Shapes as PyTorch prints them: a list of tensors is `[]`, and so is knowing nothing.
pub(crate) fn as_torch_prints(input_dims: &str) -> String {
    if input_dims.is_empty() {
        return "[]".into();
    }
    let Some(mut inputs) = list(input_dims) else { return input_dims.to_owned() };
    for input in &mut inputs {
        if input.as_array().is_some_and(|sizes| sizes.iter().any(Value::is_array)) {
            *input = Value::Array(Vec::new());
        }
    }
    print(&Value::Array(inputs))
}

fn print(value: &Value) -> String {
    let mut text = String::new();
    print_into(&mut text, value);
    text
}

fn print_into(text: &mut String, value: &Value) {
    let Value::Array(items) = value else {
        // Writing to a string cannot fail.
        let _ = write!(text, "{value}");
        return;
    };
    text.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        print_into(text, item);
    }
    text.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_prints_a_list_of_tensors_and_nothing_known_as_an_empty_list() {
        assert_eq!(as_torch_prints("[[[524288],[2]],[],[3,4]]"), "[[], [], [3, 4]]");
        assert_eq!(as_torch_prints(""), "[]");
        assert_eq!(as_torch_prints("[]"), "[]");
    }

    #[test]
    fn shapes_are_spaced_as_torch_spaces_them_and_lists_kept() {
        assert_eq!(spaced("[[8192,512],[[1],[ 2]],\n[]]"), "[[8192, 512], [[1], [2]], []]");
        assert_eq!(spaced("no list"), "no list");
    }

    #[test]
    fn shapes_parse_into_sizes() {
        let tensor = |sizes: &[i64]| Shape::Tensor(sizes.to_vec());
        assert_eq!(parse("[[2,3],[],[[1]],7]"), Some(vec![tensor(&[2, 3]), tensor(&[]), Shape::Other, Shape::Other]));
        assert_eq!(parse("[[1,"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn concrete_inputs_are_text() {
        assert_eq!(parse_concrete(r#"["", "[1, 1]", 2]"#), Some(vec![String::new(), "[1, 1]".into(), "2".into()]));
    }
}
