//! Where server entries are in config.yaml, and what they say at a glance.
//!
//! Pure. `hermesd.mcp_servers` wins over `mcp_servers`, as in the daemon. May not touch: files.

use super::tree::{Node, Path};

/// One entry.
#[derive(Debug, Clone)]
pub struct Entry<'t> {
    /// Its name.
    pub name: &'t str,
    /// Where it is.
    pub path: Path,
    /// What it says.
    pub node: &'t Node,
}

/// Both maps of servers; the first wins.
fn sections() -> [Path; 2] {
    [Path::of(["hermesd", "mcp_servers"]), Path::of(["mcp_servers"])]
}

/// All entries, each name once, in the order of the file.
pub fn all(tree: &Node) -> Vec<Entry<'_>> {
    let mut out: Vec<Entry<'_>> = Vec::new();
    for section in sections() {
        for (name, node) in tree.at(&section).map_or(&[][..], Node::entries) {
            if !out.iter().any(|entry| entry.name == name) {
                out.push(Entry { name, path: section.join(name), node });
            }
        }
    }
    out
}

/// The entry of this name that counts.
pub fn find<'t>(tree: &'t Node, name: &str) -> Option<Entry<'t>> {
    all(tree).into_iter().find(|entry| entry.name == name)
}

/// Every place where this name has an entry.
pub fn places(tree: &Node, name: &str) -> Vec<Path> {
    sections().iter().map(|section| section.join(name)).filter(|path| tree.at(path).is_some()).collect()
}

/// Where a new entry goes: to the servers that are hermesd's alone, where there is such a section.
pub fn place_of_new(tree: &Node, name: &str) -> Path {
    let [own, shared] = sections();
    let has_own = tree.at(&own).is_some_and(|node| matches!(node, Node::Map(_)));
    if has_own { own.join(name) } else { shared.join(name) }
}

impl Entry<'_> {
    /// Whether it is run; `enabled` is true where nothing is said.
    pub fn is_enabled(&self) -> bool {
        self.node.get("enabled").and_then(Node::boolean).unwrap_or(true)
    }

    /// `http`, `sse` or `stdio`.
    pub fn transport(&self) -> &'static str {
        match (self.node.get("url"), self.node.get("transport").and_then(Node::text)) {
            (Some(_), Some("sse")) => "sse",
            (Some(_), _) => "http",
            (None, _) => "stdio",
        }
    }

    /// Whether `auth: oauth` is set.
    pub fn wants_login(&self) -> bool {
        let auth = self.node.get("auth").and_then(Node::text).unwrap_or_default();
        auth.trim().eq_ignore_ascii_case("oauth")
    }

    /// The command without its arguments, or the address without user and query: those may be secrets.
    pub fn target(&self) -> String {
        let text = |key: &str| self.node.get(key).and_then(Node::text);
        let Some(url) = text("url") else { return text("command").unwrap_or_default().to_owned() };
        let url = url.split(['?', '#']).next().unwrap_or_default();
        match url.split_once("://") {
            Some((scheme, rest)) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
            }
            None => url.to_owned(),
        }
    }

    /// `all`, `2 selected`, `-1 excluded` or `none`.
    pub fn tools(&self) -> String {
        let list = |key: &str| {
            self.node.get("tools").and_then(|tools| tools.get(key)).filter(|node| !node.is_null())
        };
        match (list("include").map(Node::texts), list("exclude").map(Node::texts)) {
            (Some(names), _) if names.is_empty() => "none".to_owned(),
            (Some(names), _) => format!("{} selected", names.len()),
            (None, Some(names)) if !names.is_empty() => format!("-{} excluded", names.len()),
            (None, _) => "all".to_owned(),
        }
    }
}

/// Names of the variables that texts below `node` refer to, `${NAME}` or `${NAME:-default}`, each once.
pub fn variables(node: &Node) -> Vec<String> {
    let mut out = Vec::new();
    collect(node, &mut out);
    out
}

fn collect(node: &Node, out: &mut Vec<String>) {
    match node {
        Node::List(items) => items.iter().for_each(|item| collect(item, out)),
        Node::Map(entries) => entries.iter().for_each(|(_, value)| collect(value, out)),
        Node::Scalar { text, .. } => {
            for part in text.split("${").skip(1) {
                let name = part.split(['}', ':']).next().unwrap_or_default();
                if super::dotenv::is_name(name) && !out.iter().any(|known| known == name) {
                    out.push(name.to_owned());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_edit::tree;

    #[test]
    fn hermesds_own_section_wins_and_takes_new_entries() {
        let text = "mcp_servers:\n  a: {command: x}\n  b: {url: 'http://u:p@h/x?k=1', transport: sse, enabled: off}\n";
        let tree = tree::parse(text).unwrap();
        assert_eq!(place_of_new(&tree, "n"), Path::of(["mcp_servers", "n"]));
        let own = tree::parse(&format!("{text}hermesd:\n  mcp_servers:\n    a: {{command: y, args: [z]}}\n"))
            .unwrap();
        assert_eq!(place_of_new(&own, "n"), Path::of(["hermesd", "mcp_servers", "n"]));
        assert_eq!(find(&own, "a").unwrap().target(), "y");
        assert_eq!(places(&own, "a").len(), 2);
        let b = find(&own, "b").unwrap();
        assert_eq!((b.transport(), b.is_enabled(), b.target().as_str()), ("sse", false, "http://h/x"));
    }

    #[test]
    fn tools_are_told_as_the_filter_will_act() {
        let of = |tools: &str| {
            let tree = tree::parse(&format!("mcp_servers:\n  a:\n    tools: {tools}\n")).unwrap();
            find(&tree, "a").unwrap().tools()
        };
        assert_eq!(
            [
                of("{}"),
                of("{include: []}"),
                of("{include: [a, b], exclude: [c]}"),
                of("{exclude: x}"),
                of("{include: }")
            ],
            ["all", "none", "2 selected", "-1 excluded", "all"]
        );
    }

    #[test]
    fn variables_are_found_wherever_they_are() {
        let tree = tree::parse("a: ['${B}/${C:-d}', {x: '${B}'}]\ny: '${not a name} $D'\n").unwrap();
        assert_eq!(variables(&tree), ["B", "C"]);
    }
}
