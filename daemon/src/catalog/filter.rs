//! Include and exclude: which tools of a server stay.
//!
//! Pure. Promise: entries are raw names; an exposed name is taken too, with a warning; `include`
//! beats `exclude`; an empty `include` leaves nothing; an entry that matches nothing is reported
//! with the closest name. A server's own filter and a profile's are the same function, applied one
//! after the other. What is filtered out cannot be called either: callers drop it from the table.

use crate::config::ToolsConfig;
use std::collections::BTreeSet;
use std::fmt;

/// The two names of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolNames<'a> {
    /// As its server gave it.
    pub raw: &'a str,
    /// As clients see it.
    pub exposed: &'a str,
}

/// Which spelling of a name a filter is expected to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Raw names; exposed ones work with a warning (`mcp_servers.<name>.tools`).
    Raw,
    /// Either, without a warning (`hermesd.profiles.<name>.tools`, which spans servers).
    Either,
}

/// What a filter did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filtered {
    /// Whether each tool stays; same length and order as the tools given.
    pub visible: Vec<bool>,
    /// What a person should know about the filter, in the order of its entries.
    pub warnings: Vec<FilterWarning>,
}

/// Which of the two lists an entry stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `tools.include`
    Include,
    /// `tools.exclude`
    Exclude,
}

/// A filter entry that is probably not what its writer meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterWarning {
    /// The entry is an exposed name; it works.
    ExposedName {
        /// Where it stands.
        list: List,
        /// The entry.
        entry: String,
        /// What it should be.
        raw: String,
    },
    /// No tool has this name.
    NoMatch {
        /// Where it stands.
        list: List,
        /// The entry.
        entry: String,
        /// The closest name, if one is close.
        suggestion: Option<String>,
    },
    /// `exclude` is given beside `include` and has no effect.
    ExcludeIgnored,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Include => "tools.include",
            Self::Exclude => "tools.exclude",
        })
    }
}

impl fmt::Display for FilterWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExposedName { list, entry, raw } => {
                write!(f, "{list}: `{entry}` is the exposed name; write the server's own name `{raw}`")
            }
            Self::NoMatch { list, entry, suggestion: None } => {
                write!(f, "{list}: no tool is called `{entry}`")
            }
            Self::NoMatch { list, entry, suggestion: Some(near) } => {
                write!(f, "{list}: no tool is called `{entry}`; did you mean `{near}`?")
            }
            Self::ExcludeIgnored => f.write_str("tools.exclude has no effect beside tools.include"),
        }
    }
}

/// Decides which of `tools` stay, and what is odd about `filter`.
pub fn apply(filter: &ToolsConfig, tools: &[ToolNames<'_>], spelling: Spelling) -> Filtered {
    let mut warnings = Vec::new();
    let include =
        filter.include.as_ref().map(|list| matched(List::Include, list, tools, spelling, &mut warnings));
    let visible = match include {
        Some(chosen) => {
            if !filter.exclude.is_empty() {
                warnings.push(FilterWarning::ExcludeIgnored);
            }
            (0..tools.len()).map(|i| chosen.contains(&i)).collect()
        }
        None => {
            let dropped = matched(List::Exclude, &filter.exclude, tools, spelling, &mut warnings);
            (0..tools.len()).map(|i| !dropped.contains(&i)).collect()
        }
    };
    Filtered { visible, warnings }
}

/// Indices of the tools that `entries` name.
fn matched(
    list: List,
    entries: &[String],
    tools: &[ToolNames<'_>],
    spelling: Spelling,
    warnings: &mut Vec<FilterWarning>,
) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for entry in entries {
        let mut hit = false;
        for (i, tool) in tools.iter().enumerate() {
            if tool.raw == entry {
                hit = true;
                found.insert(i);
            }
        }
        // A raw name wins: the exposed spelling is only looked at where no tool is called that.
        if !hit && let Some(i) = tools.iter().position(|tool| tool.exposed == entry) {
            hit = true;
            found.insert(i);
            if spelling == Spelling::Raw {
                let raw = tools[i].raw.to_owned();
                warnings.push(FilterWarning::ExposedName { list, entry: entry.clone(), raw });
            }
        }
        if !hit {
            let suggestion = closest(entry, tools, spelling);
            warnings.push(FilterWarning::NoMatch { list, entry: entry.clone(), suggestion });
        }
    }
    found
}

/// The name nearest to `entry`, if at most a third of it differs.
fn closest(entry: &str, tools: &[ToolNames<'_>], spelling: Spelling) -> Option<String> {
    let limit = (entry.chars().count() / 3).max(1);
    let fold = |text: &str| text.to_lowercase().replace(['-', '.', ' ', '/'], "_");
    let wanted = fold(entry);
    let mut best: Option<(usize, &str)> = None;
    for tool in tools {
        let exposed = (spelling == Spelling::Either).then_some(tool.exposed);
        for name in [Some(tool.raw), exposed].into_iter().flatten() {
            let away = distance(&wanted, &fold(name));
            if away <= limit && best.is_none_or(|(least, kept)| (away, name) < (least, kept)) {
                best = Some((away, name));
            }
        }
    }
    best.map(|(_, name)| name.to_owned())
}

/// Edit distance with swaps of neighbours counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(80).collect(), b.chars().take(80).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOOLS: [ToolNames<'static>; 3] = [
        ToolNames { raw: "read-file", exposed: "mcp_fs_read_file" },
        ToolNames { raw: "write_file", exposed: "mcp_fs_write_file" },
        ToolNames { raw: "list", exposed: "mcp_fs_list" },
    ];

    fn filter(include: Option<&[&str]>, exclude: &[&str]) -> ToolsConfig {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        ToolsConfig { include: include.map(own), exclude: own(exclude), ..ToolsConfig::default() }
    }

    #[test]
    fn without_lists_everything_stays() {
        let got = apply(&filter(None, &[]), &TOOLS, Spelling::Raw);
        assert_eq!(got, Filtered { visible: vec![true; 3], warnings: vec![] });
    }

    #[test]
    fn an_empty_include_leaves_nothing() {
        assert_eq!(apply(&filter(Some(&[]), &[]), &TOOLS, Spelling::Raw).visible, [false; 3]);
    }

    #[test]
    fn include_beats_exclude_and_says_so() {
        let got = apply(&filter(Some(&["list"]), &["list"]), &TOOLS, Spelling::Raw);
        assert_eq!(got.visible, [false, false, true]);
        assert_eq!(got.warnings, [FilterWarning::ExcludeIgnored]);
    }

    #[test]
    fn an_exposed_name_works_and_warns_where_raw_ones_are_expected() {
        let got = apply(&filter(None, &["mcp_fs_read_file"]), &TOOLS, Spelling::Raw);
        assert_eq!(got.visible, [false, true, true]);
        assert_eq!(
            got.warnings,
            [FilterWarning::ExposedName {
                list: List::Exclude,
                entry: "mcp_fs_read_file".to_owned(),
                raw: "read-file".to_owned()
            }]
        );
        assert!(apply(&filter(None, &["mcp_fs_read_file"]), &TOOLS, Spelling::Either).warnings.is_empty());
    }

    #[test]
    fn a_typo_is_reported_with_the_closest_name() {
        for (typo, near) in [
            ("wirte_file", Some("write_file")),
            ("read_file", Some("read-file")),
            ("List", Some("list")),
            ("frobnicate", None),
        ] {
            let got = apply(&filter(Some(&[typo]), &[]), &TOOLS, Spelling::Raw);
            assert_eq!(got.visible, [false; 3], "{typo}");
            assert_eq!(
                got.warnings,
                [FilterWarning::NoMatch {
                    list: List::Include,
                    entry: typo.to_owned(),
                    suggestion: near.map(str::to_owned)
                }]
            );
        }
    }

    #[test]
    fn a_raw_name_wins_over_the_same_exposed_name() {
        let tools = [
            ToolNames { raw: "a", exposed: "mcp_s_b" },
            ToolNames { raw: "mcp_s_b", exposed: "mcp_s_mcp_s_b" },
        ];
        assert_eq!(apply(&filter(Some(&["mcp_s_b"]), &[]), &tools, Spelling::Raw).visible, [false, true]);
    }

    proptest! {
        #[test]
        fn every_entry_either_decides_a_tool_or_is_reported(
            entries in proptest::collection::btree_set("[a-c]{1,3}", 0..5),
            raws in proptest::collection::btree_set("[a-c]{1,3}", 0..6),
        ) {
            let tools: Vec<ToolNames<'_>> = raws.iter().map(|raw| ToolNames { raw, exposed: "mcp_x" }).collect();
            let list: Vec<&str> = entries.iter().map(String::as_str).collect();
            let included = apply(&filter(Some(&list), &[]), &tools, Spelling::Raw);
            let excluded = apply(&filter(None, &list), &tools, Spelling::Raw);
            for (i, tool) in tools.iter().enumerate() {
                prop_assert_eq!(included.visible[i], entries.contains(tool.raw));
                prop_assert_eq!(excluded.visible[i], !entries.contains(tool.raw));
            }
            prop_assert_eq!(included.warnings.len(), entries.difference(&raws).count());
        }
    }
}
