//! Edits against all ways in which people write the file, checked by another YAML reader.

use super::edit::{EditError, Step, apply};
use super::tree::{self, Path};
use super::value::Value;
use super::value::tests::values;
use proptest::prelude::*;
use serde_yaml::Value as Yaml;

/// How one entry is written.
#[derive(Debug, Clone, Copy)]
enum Look {
    Block,
    Flow,
    Merge,
    Literal,
    SameIndentList,
    Null,
    Wrapped,
}

/// One file, with a comment of its own number wherever one may be.
#[derive(Debug, Clone)]
struct Layout {
    looks: Vec<Look>,
    step: usize,
    end: &'static str,
    bom: bool,
    final_newline: bool,
    marker: bool,
    key_last: bool,
    blank: bool,
}

fn layouts() -> impl Strategy<Value = Layout> {
    use Look::{Block, Flow, Literal, Merge, Null, SameIndentList, Wrapped};
    let look = prop::sample::select(vec![Block, Flow, Merge, Literal, SameIndentList, Null, Wrapped]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let shape = (prop::sample::select(vec![2, 3, 4]), prop::sample::select(vec!["\n", "\r\n"]));
    (prop::collection::vec(look, 1..5), shape, flags).prop_map(
        |(looks, (step, end), (bom, final_newline, marker, key_last, blank))| Layout {
            looks,
            step,
            end,
            bom,
            final_newline,
            marker,
            key_last,
            blank,
        },
    )
}

impl Layout {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut comment = 0;
        let mut note = || {
            comment += 1;
            format!("# note {comment}.")
        };
        lines.push(note());
        if self.marker {
            lines.push("---".to_owned());
        }
        lines.push(format!("base: &base {{timeout: 5}} {}", note()));
        if !self.key_last {
            lines.push(format!("mcp_servers: {}", note()));
            self.servers(&mut lines, &mut note);
            lines.push(note());
            lines.push("model: {default: big} ".to_owned());
        } else {
            lines.push(format!("model: big {}", note()));
            lines.push(format!("mcp_servers: {}", note()));
            self.servers(&mut lines, &mut note);
        }
        let mut text = lines.join(self.end);
        // Readers do not agree about a block text that ends with the file in the middle of a line.
        let ends_in_text = self.key_last && matches!(self.looks.last(), Some(Look::Literal));
        if self.final_newline || ends_in_text {
            text.push_str(self.end);
        }
        if self.bom { format!("\u{feff}{text}") } else { text }
    }

    fn servers(&self, lines: &mut Vec<String>, note: &mut dyn FnMut() -> String) {
        let (one, two, three) = (" ".repeat(self.step), " ".repeat(2 * self.step), " ".repeat(3 * self.step));
        for (number, look) in self.looks.iter().enumerate() {
            lines.push(format!("{one}{}", note()));
            let key = format!("{one}s{number}:");
            match look {
                Look::Block => lines.extend([
                    format!("{key} {}", note()),
                    format!("{two}command: npx {}", note()),
                    format!("{two}env:"),
                    format!("{three}{}", note()),
                    format!("{three}KEY: '${{KEY}}' {}", note()),
                ]),
                Look::Flow => lines.push(format!("{key} {{command: x, args: [a, 'b # c']}} {}", note())),
                Look::Merge => lines.extend([
                    key,
                    format!("{two}<<: *base {}", note()),
                    format!("{two}command: \"a\\tb\""),
                ]),
                Look::Literal => lines.extend([
                    key,
                    format!("{two}command: sh"),
                    format!("{two}note: |"),
                    format!("{three}first"),
                    String::new(),
                    format!("{three}# no comment"),
                ]),
                Look::SameIndentList => lines.extend([
                    key,
                    format!("{two}args: {}", note()),
                    format!("{two}- one {}", note()),
                    format!("{two}- two"),
                ]),
                Look::Null => lines.push(key),
                Look::Wrapped => lines.extend([
                    key,
                    format!("{two}command: a long"),
                    format!("{three}text"),
                    format!("{two}'enabled': yes {}", note()),
                ]),
            }
            if self.blank {
                lines.push(String::new());
            }
        }
    }
}

fn read(text: &str) -> Yaml {
    let mut yaml: Yaml = serde_yaml::from_str(text.trim_start_matches('\u{feff}'))
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    yaml.apply_merge().expect("merges are maps");
    yaml
}

fn comments(text: &str) -> Vec<&str> {
    text.match_indices("# note ")
        .map(|(at, _)| &text[at..=at + text[at..].find('.').expect("it ends")])
        .collect()
}

/// Lines of `text` that are not in `edited` and the reverse, by the longest equal start and end.
fn middle<'t>(text: &'t str, edited: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let (mut a, mut b): (Vec<&str>, Vec<&str>) = (text.lines().collect(), edited.lines().collect());
    while !a.is_empty() && a.first() == b.first() {
        a.remove(0);
        b.remove(0);
    }
    while !a.is_empty() && a.last() == b.last() {
        a.pop();
        b.pop();
    }
    (a, b)
}

fn edited(text: &str, step: Step) -> String {
    apply(text, std::slice::from_ref(&step)).unwrap_or_else(|error| panic!("{error}\n{step:?}\n{text}"))
}

fn same_frame(layout: &Layout, after: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(after.starts_with('\u{feff}'), layout.bom);
    if layout.end == "\r\n" {
        prop_assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{:?}", after);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_added_entry_changes_nothing_else(layout in layouts(), value in values()) {
        let text = layout.text();
        let entry = Value::Map(vec![("command".to_owned(), Value::text("x")), ("v".to_owned(), value)]);
        let after = edited(&text, Step::Set(Path::of(["mcp_servers", "new"]), entry.clone()));
        let mut wanted = read(&text);
        wanted["mcp_servers"]["new"] = read(&entry.block());
        prop_assert_eq!(read(&after), wanted, "{}", after);
        prop_assert_eq!(comments(&after), comments(&text));
        prop_assert_eq!(middle(&text, &after).0, Vec::<&str>::new(), "{}", after);
        same_frame(&layout, &after)?;
    }

    #[test]
    fn a_switched_entry_changes_in_one_line(layout in layouts(), which in 0_usize..5, on in any::<bool>()) {
        let text = layout.text();
        let name = format!("s{}", which % layout.looks.len());
        let path = Path::of(["mcp_servers", name.as_str(), "enabled"]);
        let after = edited(&text, Step::Set(path, Value::Bool(on)));
        let mut wanted = read(&text);
        if wanted["mcp_servers"][name.as_str()].is_null() {
            wanted["mcp_servers"][name.as_str()] = Yaml::Mapping(Default::default());
        }
        wanted["mcp_servers"][name.as_str()]["enabled"] = Yaml::Bool(on);
        prop_assert_eq!(read(&after), wanted, "{}", after);
        prop_assert_eq!(comments(&after), comments(&text));
        let (old, new) = middle(&text, &after);
        prop_assert!(old.len() <= 1 && new.len() <= 2, "{old:?} {new:?}");
        same_frame(&layout, &after)?;
    }

    #[test]
    fn a_removed_entry_takes_its_own_comments_only(layout in layouts(), which in 0_usize..5) {
        let text = layout.text();
        let name = format!("s{}", which % layout.looks.len());
        let after = edited(&text, Step::Remove(Path::of(["mcp_servers", name.as_str()])));
        let mut wanted = read(&text);
        wanted["mcp_servers"].as_mapping_mut().expect("a map").shift_remove(name.as_str());
        prop_assert_eq!(read(&after), wanted, "{}", after);
        // Its comments are those between its key and the next line that is not deeper.
        let start = text.find(&format!("{}{name}:", " ".repeat(layout.step))).expect("it is there");
        let own = text[start..].split_inclusive('\n').enumerate().take_while(|(number, line)| {
            *number == 0 || line.trim().is_empty() || line.starts_with(&" ".repeat(layout.step + 1))
        });
        let own: String = own.map(|(_, line)| line).collect();
        let kept: Vec<&str> = comments(&text).into_iter().filter(|note| !comments(&own).contains(note)).collect();
        let left = comments(&after);
        prop_assert!(kept.iter().all(|note| left.contains(note)), "{kept:?} {left:?}\n{after}");
        same_frame(&layout, &after)?;
    }

    #[test]
    fn a_moved_entry_says_the_same_at_its_new_place(layout in layouts(), which in 0_usize..5) {
        let text = layout.text();
        let name = format!("s{}", which % layout.looks.len());
        let (from, to) = (Path::of(["mcp_servers", name.as_str()]), Path::of(["hermesd", "mcp_servers", name.as_str()]));
        match apply(&text, &[Step::Move { from, to }]) {
            Ok(after) => {
                let mut wanted = read(&text);
                let entry = wanted["mcp_servers"].as_mapping_mut().expect("a map").shift_remove(name.as_str());
                wanted["hermesd"]["mcp_servers"][name.as_str()] = entry.expect("it is there");
                prop_assert_eq!(read(&after), wanted, "{}", after);
                let left = comments(&after);
                prop_assert!(comments(&text).iter().all(|note| left.contains(note)), "{after}");
                same_frame(&layout, &after)?;
            }
            Err(EditError::Unfaithful { .. }) => {}
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
}

#[test]
fn files_without_servers_get_the_section() {
    for (text, wanted) in [
        ("", "mcp_servers:\n  srv: {}\n"),
        ("# hi", "# hi\nmcp_servers:\n  srv: {}\n"),
        ("a: 1\r\n", "a: 1\r\nmcp_servers:\r\n  srv: {}\r\n"),
        ("mcp_servers: # none\na: 1\n", "mcp_servers: # none\n  srv: {}\na: 1\n"),
        ("mcp_servers: {} # none\n", "mcp_servers: # none\n  srv: {}\n"),
        ("mcp_servers: ~\n", "mcp_servers:\n  srv: {}\n"),
    ] {
        let step = Step::Set(Path::of(["mcp_servers", "srv"]), Value::Map(Vec::new()));
        assert_eq!(edited(text, step), wanted, "{text:?}");
    }
}

#[test]
fn what_would_change_elsewhere_too_is_refused() {
    let shared = "a: &x\n  command: z\nmcp_servers:\n  s: *x\n  t: &y\n    command: q\n  u: *y\n";
    let on = |name: &str| Step::Set(Path::of(["mcp_servers", name, "enabled"]), Value::Bool(false));
    assert_eq!(apply(shared, &[on("s")]), Err(EditError::Alias { path: Path::of(["mcp_servers", "s"]) }));
    let error = apply(shared, &[on("t")]).unwrap_err();
    assert!(error.to_string().contains("mcp_servers.u.enabled: would be there"), "{error}");
}

#[test]
fn an_anchor_that_others_use_outlives_its_entry() {
    let text = "mcp_servers:\n  t: &y\n    command: q # why\n  u: *y\n";
    let after = edited(text, Step::Remove(Path::of(["mcp_servers", "t"])));
    assert_eq!(read(&after), read("mcp_servers: {u: {command: q}}"), "{after}");
}

#[test]
fn a_refusal_shows_no_value() {
    let text = "mcp_servers:\n  t: &y\n    env: {TOKEN: topsecret}\n  u: *y\n";
    let step = Step::Set(Path::of(["mcp_servers", "t", "env", "TOKEN"]), Value::text("other"));
    let error = apply(text, &[step]).unwrap_err().to_string();
    assert!(error.contains("mcp_servers.u.env.TOKEN") && !error.contains("topsecret"), "{error}");
}

#[test]
fn broken_files_are_refused_with_the_line() {
    let step = Step::Remove(Path::of(["mcp_servers", "x"]));
    let error = apply("a: 1\nb: [\n", std::slice::from_ref(&step)).unwrap_err();
    assert!(error.to_string().starts_with("line "), "{error}");
    let list = apply("- a\n", std::slice::from_ref(&step)).unwrap_err();
    assert_eq!(list.to_string(), "it is not a mapping of keys to values");
    let scalar = apply("mcp_servers: 3\n", &[Step::Set(Path::of(["mcp_servers", "x"]), Value::Bool(true))]);
    assert_eq!(scalar.unwrap_err().to_string(), "`mcp_servers` is not a mapping of keys to values");
}

#[test]
fn alias_bombs_and_deep_files_end_in_an_error() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    }
    assert!(tree::parse(&bomb).is_err());
    assert!(tree::parse(&format!("a: {}", "[".repeat(5000))).is_err());
}
