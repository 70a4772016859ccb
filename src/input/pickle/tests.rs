use super::*;
use crate::error::Error;
use proptest::prelude::*;

fn read_all(bytes: &[u8]) -> crate::error::Result<Document> {
    read(bytes, u64::MAX)
}

fn refused(bytes: &[u8]) -> Error {
    read_all(bytes).expect_err("refused")
}

/// What `value` is, as Python would print it.
fn repr(value: Value<'_>, depth: usize) -> String {
    if depth > 6 {
        return "...".into();
    }
    match value {
        Value::None => "None".into(),
        Value::Bool(b) => if b { "True" } else { "False" }.into(),
        Value::Int(n) => n.to_string(),
        Value::Unsigned(n) => n.to_string(),
        Value::BigInt => "big".into(),
        Value::Float(x) => format!("{x:?}"),
        Value::Str(_, text) => format!("'{text}'"),
        Value::Bytes => "bytes".into(),
        Value::List(list) => {
            format!("[{}]", list.iter().map(|v| repr(v, depth + 1)).collect::<Vec<_>>().join(", "))
        }
        Value::Dict(dict) => {
            let entry = |(k, v)| format!("{}: {}", repr(k, depth + 1), repr(v, depth + 1));
            format!("{{{}}}", dict.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn printed(bytes: &[u8]) -> String {
    repr(read_all(bytes).unwrap().root(), 0)
}

include!("samples.rs");

#[test]
fn every_protocol_of_python_gives_the_same_value() {
    for (protocol, bytes) in SAMPLES.iter().enumerate() {
        assert_eq!(printed(bytes), SAMPLE, "protocol {protocol}");
    }
    for bytes in BYTES_SAMPLES {
        assert_eq!(printed(bytes), "[bytes, bytes, bytes, [1]]");
    }
}

#[test]
fn strings_of_the_oldest_protocol_are_unescaped() {
    assert_eq!(printed(b"S'a\\n\\x41\\'\\\\\\101\\q'\n."), "'a\nA'\\A\\q'");
    assert_eq!(printed(b"Vgr\xfc\\u00df \\U0001f525\n."), "'gr\u{fc}\u{df} \u{1f525}'");
    assert_eq!(printed(b"S\"it's\"\n."), "'it's'");
}

#[test]
fn code_is_refused_by_its_name_and_place() {
    let text = refused(b"cposix\nsystem\n(S'rm -rf ~'\ntR.").to_string();
    assert!(text.contains("posix.system") && text.contains("at byte 0"), "{text}");
    // torch.load's favourite: protocol 4's STACK_GLOBAL.
    let text = refused(b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.").to_string();
    assert!(text.contains("posix.system") && text.contains("at byte 19"), "{text}");
    let text = refused(b"(ios\nsystem\n.").to_string();
    assert!(text.contains("os.system"), "{text}");
    let text = refused(b"cos\nsystem\n(S'id'\ntR.").to_string();
    assert!(text.contains("os.system") && text.contains("at byte 0"), "{text}");
    // What follows the refused instruction is not read: the call comes after the name.
    let opcodes: [(&[u8], u64, &str); 13] = [
        (b"NR.", 1, "REDUCE"),
        (b"}}b.", 2, "BUILD"),
        (b"(No.", 2, "OBJ"),
        (b"(Nios\nsystem\n.", 2, "os.system"),
        (b"N)\x81.", 2, "NEWOBJ"),
        (b"N)}\x92.", 3, "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", 2, "EXT"),
        (b"\x83\x01\x00.", 0, "EXT"),
        (b"\x84\x01\x00\x00\x00.", 0, "EXT"),
        (b"Pid\n.", 0, "PERSID"),
        (b"NQ.", 1, "PERSID"),
        (b"\x80\x05\x97.", 2, "NEXT_BUFFER"),
        (b"N\x98.", 1, "NEXT_BUFFER"),
    ];
    for (bytes, offset, name) in opcodes {
        let error = refused(bytes);
        let text = error.to_string();
        assert!(text.contains("plain data") && text.contains(name) && text.contains("nothing was run"), "{text}");
        assert_eq!(error.offset(), Some(offset), "{text}");
    }
}

#[test]
fn an_object_referred_to_twice_is_stored_once_and_equal_lists_share_their_items() {
    // x = {'k': 1}; [x, x], [x, x]
    let d = read_all(b"(}\x8c\x01kK\x01sq\x00h\x00\x86h\x00h\x00\x86t.").unwrap();
    assert_eq!(repr(d.root(), 0), "[[{'k': 1}, {'k': 1}], [{'k': 1}, {'k': 1}]]");
    assert_eq!(d.dict_entries(), 1);
    let lists: Vec<_> = d.root().as_list().unwrap().iter().filter_map(Value::as_list).collect();
    assert_eq!(lists[0].identity(), lists[1].identity());
}

#[test]
fn a_list_that_grows_after_being_shared_leaves_its_twin_alone() {
    // a = [1]; b = [1]; b.append(2); [a, b]
    assert_eq!(printed(b"(]K\x01a]K\x01aK\x02at."), "[[1], [1, 2]]");
    assert_eq!(printed(b"}K\x01K\x02sK\x01K\x03sK\x04K\x05s."), "{1: 2, 1: 3, 4: 5}");
}

#[test]
fn a_key_set_twice_has_the_last_value() {
    for bytes in [&b"}\x8c\x01aK\x01s\x8c\x01aK\x02s."[..], b"}(\x8c\x01aK\x01\x8c\x01aK\x02u."] {
        let d = read_all(bytes).unwrap();
        assert_eq!(d.root().as_dict().unwrap().get(d.key("a")).and_then(Value::as_i64), Some(2));
        assert!(d.root().as_dict().unwrap().get(d.key("b")).is_none());
    }
}

/// Python's list of dictionaries `rows`, whose values are pickled already, each with keys `a`, `b`, ...
fn rows_of(rows: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = b"](".to_vec();
    for row in rows {
        bytes.extend(b"}(");
        for (key, value) in (b'a'..).zip(row) {
            bytes.extend([0x8c, 1, key]);
            bytes.extend(value);
        }
        bytes.push(b'u');
    }
    bytes.extend(b"e.");
    bytes
}

fn long(n: i64) -> Vec<u8> {
    [&b"\x8a\x08"[..], &n.to_le_bytes()].concat()
}

#[test]
fn many_dictionaries_of_one_layout_take_little_room_and_say_the_same() {
    let row = |i: i64| vec![long(i << 40), b"K\x07".to_vec(), long(-i << 33), b"N".to_vec()];
    let rows: Vec<_> = (1..10_000).map(row).collect();
    let d = read_all(&rows_of(&rows)).unwrap();
    assert!(d.wide.len() < 100, "integers stand in their column alone: {}", d.wide.len());
    assert!(d.items.len() < 11_000, "{}", d.items.len());
    for (i, value) in (1i64..).zip(d.root().as_list().unwrap().iter()) {
        let dict = value.as_dict().unwrap();
        let int = |key| dict.get(d.key(key)).and_then(Value::as_i64);
        assert_eq!((int("a"), int("b"), int("c")), (Some(i << 40), Some(7), Some(-i << 33)));
        assert_eq!(dict.iter().map(|(_, v)| repr(v, 0)).collect::<Vec<_>>()[3], "None");
    }
}

#[test]
fn an_integer_that_is_referred_to_again_outlives_its_row() {
    // The number is put into the memo and recalled in the next value, or doubled on the stack for the next key.
    for (again, told) in [(&b"q\x00\x8c\x01bh\x00"[..], "'b': {n}"), (&b"2N"[..], "{n}: None")] {
        let row = |i: i64| [&b"}(\x8c\x01a"[..], &long(i << 40), again, b"\x8c\x01c", &long(i << 41), b"u"].concat();
        let rows = (1..100).flat_map(row);
        let bytes: Vec<u8> = b"](".iter().copied().chain(rows).chain(*b"e.").collect();
        let text = |i: i64| {
            let n = (i << 40).to_string();
            format!("{{'a': {n}, {}, 'c': {}}}", told.replace("{n}", &n), i << 41)
        };
        assert_eq!(printed(&bytes), format!("[{}]", (1..100).map(text).collect::<Vec<_>>().join(", ")));
    }
}

#[test]
fn a_list_that_holds_itself_is_read() {
    let d = read_all(b"]q\x00h\x00a.").unwrap();
    let outer = d.root().as_list().unwrap();
    assert_eq!(outer.len(), 1);
    assert_eq!(outer.iter().next().and_then(Value::as_list).unwrap().len(), 1);
}

#[test]
fn integers_of_any_size_are_told_apart() {
    assert_eq!(printed(b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), i64::MIN.to_string());
    assert_eq!(printed(b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."), u64::MAX.to_string());
    assert_eq!(printed(b"\x8a\x00."), "0");
    assert_eq!(printed(b"\x8a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01."), "big");
    assert_eq!(printed(b"L18446744073709551615L\n."), u64::MAX.to_string());
    assert_eq!(printed(b"L-9223372036854775809L\n."), "big");
    for n in [268_435_455i32, 268_435_456, -268_435_456, -268_435_457, i32::MIN, i32::MAX] {
        let bytes = [&b"J"[..], &n.to_le_bytes(), b"."].concat();
        assert_eq!(printed(&bytes), n.to_string());
    }
}

#[test]
fn lengths_and_numbers_that_only_claim_to_be_large_cost_nothing() {
    for bytes in [
        &b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."[..], // a string of 2^63 bytes
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x96\x00\x00\x00\x00\x00\x00\x00\x10.",
        b"X\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(refused(bytes).to_string().contains("end of the input"));
    }
    assert_eq!(printed(b"K\x07r\xff\xff\xff\xff0j\xff\xff\xff\xff."), "7");
    assert_eq!(printed(b"K\x07p18446744073709551615\n0g18446744073709551615\n."), "7");
}

#[test]
fn a_pickle_cut_short_or_wrong_is_an_error_with_its_place() {
    for sample in SAMPLES {
        for end in 0..sample.len() {
            assert!(read_all(&sample[..end]).is_err(), "{end}");
        }
    }
    for bytes in [
        &b"."[..],
        b"a.",
        b"]a.",
        b"u.",
        b"NK\x01a.",
        b"}K\x01s.",
        b"}(K\x01u.",
        b"(.",
        b"h\x00.",
        b"\x80\x06.",
        b"\xff.",
        b"(0K\x010.",
    ] {
        assert!(refused(bytes).offset().is_some(), "{bytes:?}");
    }
    // A mark protects what lies below it.
    assert!(read_all(b"]K\x01(a.").is_err());
}

#[test]
fn the_limit_on_the_input_holds() {
    let error = read(&[b'N'; 1 << 20][..], 1000).expect_err("too large");
    assert!(error.to_string().contains("1000"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_all(&bytes);
    }

    #[test]
    fn any_instructions_are_read_or_refused(ops in proptest::collection::vec(
        proptest::sample::select(b"(}]NK\x01aseut\x85\x86\x87h\x00q\x010\x31\x32d\x90\x91\x94l".to_vec()), 0..200)) {
        let bytes = [&b"NNNN"[..], &ops, b"."].concat();
        if let Ok(d) = read_all(&bytes) {
            let _ = repr(d.root(), 3);
        }
    }

    #[test]
    fn tables_hold_what_was_put_in(rows in proptest::collection::vec((0usize..4, any::<i64>(), 0usize..6), 0..200)) {
        // Three keys whose values are small, wide, missing, in a list, or a row that grows later.
        let value = |kind: usize, n: i64| match kind {
            0 => (long(n >> 40), (n >> 40).to_string()),
            1 => (long(n), n.to_string()),
            2 => (b"N".to_vec(), "None".to_owned()),
            _ => ([&long(n), &b"\x85"[..]].concat(), format!("[{n}]")),
        };
        let mut bytes = b"](".to_vec();
        let mut told = Vec::new();
        for (kind, n, then) in rows {
            let (a, b) = (value(kind, n), value(then.min(3), n ^ 0x55));
            bytes.extend([&b"}(\x8c\x01a"[..], &a.0, b"\x8c\x01b", &b.0, b"\x8c\x01c", &long(n), b"u"].concat());
            let mut text = format!("{{'a': {}, 'b': {}, 'c': {n}", a.1, b.1);
            if then == 5 {
                bytes.extend([&b"\x8c\x01d"[..], &long(n), b"s"].concat());
                text += &format!(", 'd': {n}");
            }
            told.push(text + "}");
        }
        bytes.extend(b"e.");
        prop_assert_eq!(printed(&bytes), format!("[{}]", told.join(", ")));
    }

    #[test]
    fn one_changed_byte_never_panics(at in 0usize..400, to in any::<u8>()) {
        for sample in SAMPLES {
            let mut bytes = sample.to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            let _ = read_all(&bytes);
        }
    }
}
