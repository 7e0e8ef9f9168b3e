//! Tests of the YAML tree.

use super::*;
use proptest::prelude::*;

fn scalar(node: &Node) -> &str {
    match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        Kind::List(_) | Kind::Map(_) => panic!("not a scalar: {node:?}"),
    }
}

fn map(node: &Node) -> &Map {
    match &node.kind {
        Kind::Map(map) => map,
        Kind::Scalar(_) | Kind::List(_) => panic!("not a map: {node:?}"),
    }
}

fn root(text: &str) -> Map {
    parse(text).expect(text).root
}

#[test]
fn scalars_keep_the_spelling_of_the_file() {
    let spelled = ["010", "1.10", "yes", "1e3", "2026-01-01", "0x1F", "1_000", "12:30:45", ".5", "+1", "No"];
    let text: String = spelled.iter().enumerate().map(|(i, s)| format!("k{i}: {s}\n")).collect();
    let read: Vec<String> = root(&text).entries.iter().map(|e| scalar(&e.value).to_owned()).collect();
    assert_eq!(read, spelled);
}

#[test]
fn null_is_bare_and_text_is_quoted() {
    for null in ["", "~", "null", "Null", "NULL"] {
        assert!(root(&format!("k: {null}\n")).get("k").expect("k").value.is_null(), "{null:?}");
    }
    for text in ["'~'", "\"null\"", "''", "!!str null", "!!str ~"] {
        assert!(!root(&format!("k: {text}\n")).get("k").expect("k").value.is_null(), "{text}");
    }
}

#[test]
fn every_key_knows_its_line_with_any_line_ending_and_a_byte_order_mark() {
    for text in ["a:\n  b: 1\n  # c\n  d: 2\n", "\u{feff}a:\r\n  b: 1\r\n  # c\r\n  d: 2\r\n"] {
        let root = root(text);
        let a = map(&root.get("a").expect("a").value);
        assert_eq!((a.get("b").expect("b").line, a.get("d").expect("d").line), (2, 4));
        assert_eq!(scalar(&a.get("d").expect("d").value), "2");
    }
}

#[test]
fn a_repeated_key_is_reported_with_both_lines_and_the_last_one_counts() {
    let root = root("a: 1\nb: 2\na: 3\n");
    assert_eq!(root.duplicates, [Duplicate { key: "a".into(), first: 1, second: 3 }]);
    assert_eq!(scalar(&root.get("a").expect("a").value), "3");
    assert_eq!(root.entries.len(), 2);
}

#[test]
fn merge_keys_fill_in_what_is_not_written() {
    let root = root("base: &b {x: 1, y: 2}\nmore: &m {y: 5, z: 6}\nc:\n  <<: [*b, *m]\n  x: 9\n");
    let c = map(&root.get("c").expect("c").value);
    let read: Vec<(&str, &str)> = c.entries.iter().map(|e| (e.key.as_str(), scalar(&e.value))).collect();
    assert_eq!(read, [("x", "9"), ("y", "2"), ("z", "6")]);
    assert!(c.duplicates.is_empty());
}

#[test]
fn an_alias_has_the_line_where_it_is_used() {
    let root = root("a: &v [1]\nb:\n  *v\n");
    assert_eq!(root.get("b").expect("b").value.line, 3);
}

#[test]
fn nested_aliases_that_would_grow_without_bound_are_refused() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for i in 1..30 {
        let below = vec![format!("*a{}", i - 1); 9].join(",");
        text.push_str(&format!("a{i}: &a{i} [{below}]\n"));
    }
    assert!(matches!(parse(&text), Err(FileError::TooManyNodes { .. })));
}

#[test]
fn aliases_of_one_long_text_are_counted_by_its_length() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(1000));
    assert!(matches!(parse(&text), Err(FileError::TooManyNodes { line: 2 })));
}

#[test]
fn brackets_may_close_at_the_left_margin_as_people_write_them() {
    let root = root("a:\n  args: [\n    x,\n  \"y\"\n  ]\n  env: {\n    A: 1\n  }   # end\n");
    assert_eq!(map(&root.get("a").expect("a").value).entries.len(), 2);
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    for text in ["[".repeat(100_000), "- ".repeat(5_000), format!("a: {}", "{a: ".repeat(5_000))] {
        assert!(parse(&text).is_err());
    }
    let mut chain = String::from("a0: &a0 [[[[[[[[[[1]]]]]]]]]]\n");
    for i in 1..20 {
        chain.push_str(&format!("a{i}: &a{i} [[[[[[[[[[*a{}]]]]]]]]]]\n", i - 1));
    }
    assert!(matches!(parse(&chain), Err(FileError::TooDeep { .. })));
}

#[test]
fn an_alias_inside_its_own_anchor_is_an_error_with_its_line() {
    assert_eq!(parse("a: &a\n  b: *a\n"), Err(FileError::SelfReference { line: 2 }));
}

#[test]
fn errors_say_the_line() {
    assert_eq!(parse("a: 1\nb: [1, 2\nc: 3\n").expect_err("unclosed").line(), 3);
    assert_eq!(parse("- a\n- b\n"), Err(FileError::NotAMapping { line: 1 }));
    assert_eq!(decode(b"a: 1\nb: \xff\n"), Err(FileError::NotUtf8 { line: 2 }));
}

#[test]
fn nothing_at_all_is_an_empty_mapping() {
    for text in ["", "\n", "# only a comment\n", "---\n", "~\n", "\u{feff}"] {
        assert_eq!(parse(text).expect(text).root, Map::default(), "{text:?}");
    }
}

#[test]
fn only_the_first_document_counts_and_the_second_is_remarked() {
    let document = parse("a: 1\n---\na: 2\n").expect("two documents");
    assert_eq!(scalar(&document.root.get("a").expect("a").value), "1");
    assert_eq!(document.remarks.iter().map(|r| r.1).collect::<Vec<_>>(), [Remark::SecondDocument]);
}

#[test]
fn what_python_writes_is_read() {
    let text = "mcp_servers:\n  a:\n    args:\n    - -y\n    - '@x/y'\n    - \"a\\tb\"\n    env: {A: '1', B: ''}\n    \
                long: one two\n      three\n  ? b\n  : command: x\n";
    let root = root(text);
    let servers = map(&root.get("mcp_servers").expect("mcp_servers").value);
    let a = map(&servers.get("a").expect("a").value);
    assert_eq!(scalar(&a.get("long").expect("long").value), "one two three");
    let Kind::List(args) = &a.get("args").expect("args").value.kind else { panic!("args") };
    assert_eq!(args.iter().map(scalar).collect::<Vec<_>>(), ["-y", "@x/y", "a\tb"]);
    assert!(servers.get("b").is_some());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ \\-:{}\\[\\],&*<>|!#'\"a-c\n\t~%@\\\\\u{feff}é]{0,80}") {
        let _ = parse(&text);
    }
}
