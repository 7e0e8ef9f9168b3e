//! What one server offers, item by item: raw text beside the few members hermesd reads.
//!
//! Pure. A bad item is dropped or repaired by itself, with the reason kept for status; it never
//! costs its neighbours. Items are kept raw, so unknown members pass through. May not touch: the
//! wire (`pages` fetches), exposed names, filters.

use super::annotations::Annotations;
pub use super::problem::{Note, Problem};
use crate::jsonrpc::depth;
use crate::jsonrpc::splice::{self, Members};
use crate::names::RawTool;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// Schema of a tool that gave none: any object.
const ANY_OBJECT: &str = r#"{"type":"object","properties":{}}"#;

/// The kinds of list a server may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

impl ListKind {
    /// All of them, in the order in which they are fetched.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Resources, Self::Templates, Self::Prompts];

    /// The method that lists it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member of the result that holds the items.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The server capability that says it may be asked for.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::Templates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// The member that tells items apart.
    fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

impl fmt::Display for ListKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

/// One tool.
#[derive(Debug, Clone)]
pub struct ToolItem {
    /// Its name at the server.
    pub name: RawTool,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `inputSchema`, verbatim or repaired; always an object.
    pub input_schema: Box<RawValue>,
    /// `outputSchema`, verbatim.
    pub output_schema: Option<Box<RawValue>>,
    /// `annotations`.
    pub annotations: Annotations,
    /// The whole item; carries the repaired schema where one was needed.
    pub raw: Box<RawValue>,
}

/// One resource, template or prompt.
#[derive(Debug, Clone)]
pub struct Item {
    /// `uri`, `uriTemplate` or `name`: what a request for it says.
    pub key: String,
    /// `name`; for prompts the same as `key`.
    pub name: Option<String>,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// The whole item.
    pub raw: Box<RawValue>,
}

/// Everything one server offers.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Tools, in the server's order.
    pub tools: Vec<ToolItem>,
    /// Resources.
    pub resources: Vec<Item>,
    /// Resource templates.
    pub templates: Vec<Item>,
    /// Prompts.
    pub prompts: Vec<Item>,
    /// The server's `capabilities`, raw; `None`: not known.
    pub capabilities: Option<Box<RawValue>>,
    /// The server's `instructions`.
    pub instructions: Option<String>,
    /// The lists that were read, or that the server does not declare; what another one holds is not known
    /// yet.
    pub read: BTreeSet<ListKind>,
    /// What was dropped, repaired or cut off.
    pub notes: Vec<Note>,
}

impl Listing {
    /// Items that could not be used.
    pub fn dropped(&self) -> usize {
        self.notes.iter().filter(|note| note.problem.drops_item()).count()
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&ToolItem> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }

    /// Whether the server said that it has `capability`.
    pub fn has_capability(&self, capability: &str) -> bool {
        self.capabilities.as_deref().is_some_and(|raw| has_capability(raw, capability))
    }

    /// Whether `other` offers the same, byte for byte and in the same order.
    pub fn same_content(&self, other: &Self) -> bool {
        let raw = |items: &[Item]| items.iter().map(|item| item.raw.get().to_owned()).collect::<Vec<_>>();
        let text = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(a, b)| a.raw.get() == b.raw.get())
            && raw(&self.resources) == raw(&other.resources)
            && raw(&self.templates) == raw(&other.templates)
            && raw(&self.prompts) == raw(&other.prompts)
            && text(&self.capabilities) == text(&other.capabilities)
            && self.instructions == other.instructions
            && self.read == other.read
    }

    /// Replaces one list by what `part` read; its notes replace the old ones of that list.
    pub fn put(&mut self, part: Part) {
        self.notes.retain(|note| note.list != part.list);
        if !matches!(part.items, Items::Unread) {
            self.read.insert(part.list);
        }
        self.notes.extend(part.notes);
        match part.items {
            Items::Tools(tools) => self.tools = tools,
            Items::Others(items) => match part.list {
                ListKind::Resources => self.resources = items,
                ListKind::Templates => self.templates = items,
                ListKind::Prompts => self.prompts = items,
                ListKind::Tools => {}
            },
            Items::Unread => {}
        }
    }
}

impl Listing {
    /// Empties every list that the server does not declare any more.
    pub fn only_declared(&mut self) {
        for list in ListKind::ALL {
            if !self.has_capability(list.capability()) {
                self.put(Reader::new(list, 1).finish());
            }
        }
    }
}

impl Extend<Part> for Listing {
    fn extend<T: IntoIterator<Item = Part>>(&mut self, parts: T) {
        parts.into_iter().for_each(|part| self.put(part));
    }
}

/// One list as it was read.
#[derive(Debug, Clone)]
pub struct Part {
    list: ListKind,
    items: Items,
    notes: Vec<Note>,
}

#[derive(Debug, Clone)]
enum Items {
    Tools(Vec<ToolItem>),
    Others(Vec<Item>),
    /// Keep what was known.
    Unread,
}

impl Part {
    /// A list that could not be read: what was known stays, the reason is noted.
    pub fn unavailable(list: ListKind, why: impl Into<String>) -> Self {
        let note = Note { list, item: String::new(), problem: Problem::Unavailable(why.into()) };
        Self { list, items: Items::Unread, notes: vec![note] }
    }

    /// Drops and notes every tool that `broken` says something about.
    #[must_use]
    pub fn without(mut self, broken: impl Fn(&ToolItem) -> Option<String>) -> Self {
        if let Items::Tools(tools) = &mut self.items {
            tools.retain(|tool| match broken(tool) {
                None => true,
                Some(why) => {
                    let (list, item) = (self.list, tool.name.as_str().to_owned());
                    self.notes.push(Note { list, item, problem: Problem::AgainstRules(why) });
                    false
                }
            });
        }
        self
    }

    /// What was dropped, repaired or cut off.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Usable items.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Tools(tools) => tools.len(),
            Items::Others(items) => items.len(),
            Items::Unread => 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Collects the pages of one list.
#[derive(Debug)]
pub struct Reader {
    part: Part,
    seen: HashSet<String>,
    cursors: HashSet<String>,
    place: usize,
    pages: usize,
    max_pages: usize,
}

/// Whether another page follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextPage {
    /// Ask again with this cursor; empty text is a cursor too.
    Cursor(String),
    /// That was all.
    End,
}

impl Reader {
    /// Reads a list of at most `max_pages` pages.
    pub fn new(list: ListKind, max_pages: usize) -> Self {
        let items = match list {
            ListKind::Tools => Items::Tools(Vec::new()),
            ListKind::Resources | ListKind::Templates | ListKind::Prompts => Items::Others(Vec::new()),
        };
        let part = Part { list, items, notes: Vec::new() };
        Self { part, seen: HashSet::new(), cursors: HashSet::new(), place: 0, pages: 0, max_pages }
    }

    /// Takes one result over and says whether another page follows.
    pub fn page(&mut self, result: &RawValue) -> NextPage {
        self.pages += 1;
        let list = self.part.list;
        let members = Members::parse(result).ok();
        let items = members.as_ref().and_then(|m| m.get(list.member()));
        match items.map(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get())) {
            Some(Ok(items)) => items.into_iter().for_each(|item| self.item(item)),
            Some(Err(_)) | None => {
                self.note(String::new(), Problem::NoArray(list.member()));
                return NextPage::End;
            }
        }
        let Some(next) = members.as_ref().and_then(|m| m.get("nextCursor")) else { return NextPage::End };
        if next.get() == "null" {
            return NextPage::End;
        }
        let Some(cursor) = splice::text(next) else {
            self.note(String::new(), Problem::BadCursor);
            return NextPage::End;
        };
        if !self.cursors.insert(cursor.clone().into_owned()) {
            self.note(String::new(), Problem::CursorRepeated);
            return NextPage::End;
        }
        if self.pages >= self.max_pages {
            self.note(String::new(), Problem::TooManyPages(self.max_pages));
            return NextPage::End;
        }
        NextPage::Cursor(cursor.into_owned())
    }

    /// The list as read so far.
    pub fn finish(self) -> Part {
        self.part
    }

    fn note(&mut self, item: String, problem: Problem) {
        self.part.notes.push(Note { list: self.part.list, item, problem });
    }

    fn item(&mut self, raw: &RawValue) {
        self.place += 1;
        let list = self.part.list;
        let Ok(members) = Members::parse(raw) else {
            return self.note(self.place.to_string(), Problem::NotAnObject);
        };
        let key = match members.text(list.key()) {
            Some(key) if !key.is_empty() => key.into_owned(),
            _ => return self.note(self.place.to_string(), Problem::NoKey(list.key())),
        };
        if depth::is_deeper(raw.get(), depth::MAX_ITEM) {
            return self.note(key, Problem::TooDeep);
        }
        if !self.seen.insert(key.clone()) {
            return self.note(key, Problem::Duplicate);
        }
        let mut repaired = None;
        match &mut self.part.items {
            Items::Tools(tools) => {
                let (tool, repair) = tool(key, raw, &members);
                repaired = repair;
                tools.push(tool);
            }
            Items::Others(items) => items.push(Item {
                key,
                name: owned(&members, "name"),
                title: owned(&members, "title"),
                description: owned(&members, "description"),
                raw: raw.to_owned(),
            }),
            Items::Unread => {}
        }
        if let Some(name) = repaired {
            self.note(name, Problem::SchemaReplaced);
        }
    }
}

/// Reads a tool; the name comes back when its schema had to be replaced.
fn tool(name: String, raw: &RawValue, members: &Members<'_>) -> (ToolItem, Option<String>) {
    let schema = members.get("inputSchema").filter(|schema| schema.get().starts_with('{'));
    let (input_schema, raw, repaired) = match schema {
        Some(schema) => (schema.to_owned(), raw.to_owned(), None),
        None => {
            let any = RawValue::from_string(ANY_OBJECT.to_owned()).expect("the constant is JSON");
            (any, members.with("inputSchema", ANY_OBJECT), Some(name.clone()))
        }
    };
    let item = ToolItem {
        title: owned(members, "title"),
        description: owned(members, "description"),
        output_schema: members
            .get("outputSchema")
            .filter(|s| s.get().starts_with('{'))
            .map(ToOwned::to_owned),
        annotations: members.get("annotations").map(Annotations::read).unwrap_or_default(),
        name: RawTool::new(name),
        input_schema,
        raw,
    };
    (item, repaired)
}

fn owned(members: &Members<'_>, key: &str) -> Option<String> {
    members.text(key).map(std::borrow::Cow::into_owned)
}

/// Whether a raw `capabilities` object has `capability` (as anything but null or false).
pub fn has_capability(capabilities: &RawValue, capability: &str) -> bool {
    Members::parse(capabilities)
        .ok()
        .and_then(|members| members.get(capability).map(|raw| !matches!(raw.get(), "null" | "false")))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn read(list: ListKind, pages: &[&str]) -> (Listing, Vec<NextPage>) {
        let mut reader = Reader::new(list, 1000);
        let nexts = pages.iter().map(|page| reader.page(&raw(page))).collect();
        let mut listing = Listing::default();
        listing.put(reader.finish());
        (listing, nexts)
    }

    #[test]
    fn a_bad_item_costs_only_itself_and_status_says_which_and_why() {
        let page = r#"{"tools":[
            {"name":"a","inputSchema":{"type":"object"},"x":1.0},
            {"name":"b","inputSchema":{"anyOf":[]}},
            {"name":"c"},
            {"name":7,"inputSchema":{}},
            "text",
            {"name":"a","inputSchema":{}},
            {"name":"d","inputSchema":[]}]}"#;
        let (listing, _) = read(ListKind::Tools, &[page]);
        let names: Vec<&str> = listing.tools.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!(listing.dropped(), 3);
        assert_eq!(listing.tools[0].raw.get(), r#"{"name":"a","inputSchema":{"type":"object"},"x":1.0}"#);
        assert_eq!(listing.tools[2].raw.get(), format!(r#"{{"name":"c","inputSchema":{ANY_OBJECT}}}"#));
        assert_eq!(listing.tools[3].input_schema.get(), ANY_OBJECT);
        let notes: Vec<String> = listing.notes.iter().map(ToString::to_string).collect();
        assert_eq!(
            notes,
            [
                "tools/list: `c` has no usable inputSchema; any object is accepted",
                "tools/list: `4` dropped, `name` is missing or no text",
                "tools/list: `5` dropped, it is no object",
                "tools/list: `a` dropped, the same name came before",
                "tools/list: `d` has no usable inputSchema; any object is accepted",
            ]
        );
    }

    #[test]
    fn cursors_end_the_list_where_they_should() {
        for (next, expected) in [
            ("", NextPage::End),
            (r#","nextCursor":null"#, NextPage::End),
            (r#","nextCursor":0"#, NextPage::End),
            (r#","nextCursor":{}"#, NextPage::End),
            (r#","nextCursor":"""#, NextPage::Cursor(String::new())),
            (r#","nextCursor":"p2""#, NextPage::Cursor("p2".into())),
        ] {
            let page = format!(r#"{{"prompts":[{{"name":"p"}}]{next}}}"#);
            let (listing, nexts) = read(ListKind::Prompts, &[&page]);
            assert_eq!(nexts, [expected], "{next}");
            assert_eq!(listing.prompts.len(), 1);
        }
        let page = r#"{"tools":[],"nextCursor":"same"}"#;
        let (listing, nexts) = read(ListKind::Tools, &[page, page]);
        assert_eq!(nexts, [NextPage::Cursor("same".into()), NextPage::End]);
        assert_eq!(listing.notes[0].problem, Problem::CursorRepeated);
    }

    #[test]
    fn an_endless_list_is_cut_off() {
        let mut reader = Reader::new(ListKind::Tools, 3);
        for page in 0..2 {
            let page = format!(r#"{{"tools":[],"nextCursor":"{page}"}}"#);
            assert!(matches!(reader.page(&raw(&page)), NextPage::Cursor(_)));
        }
        assert_eq!(reader.page(&raw(r#"{"tools":[],"nextCursor":"x"}"#)), NextPage::End);
        assert_eq!(reader.finish().notes()[0].problem, Problem::TooManyPages(3));
    }

    #[test]
    fn a_list_that_cannot_be_read_keeps_what_was_known() {
        let (mut listing, _) =
            read(ListKind::Resources, &[r#"{"resources":[{"uri":"file:///a","name":"a"}]}"#]);
        listing.put(Part::unavailable(ListKind::Resources, "no answer"));
        assert_eq!(listing.resources.len(), 1);
        assert_eq!(listing.notes.len(), 1);
    }

    #[test]
    fn annotations_of_the_wrong_type_are_as_if_not_said() {
        let page = r#"{"tools":[{"name":"a","annotations":{"readOnlyHint":true,"destructiveHint":"no","idempotentHint":null}}]}"#;
        let (listing, _) = read(ListKind::Tools, &[page]);
        let said = &listing.tools[0].annotations;
        assert_eq!((said.read_only, said.destructive, said.idempotent), (Some(true), None, None));
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            "[a-c]{0,3}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            let key = prop_oneof![Just("name".to_owned()), Just("inputSchema".to_owned()), "[a-d]{1}"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(key, inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Every item is either listed, with a name of its own and an object schema, or noted.
        #[test]
        fn no_item_vanishes_silently(items in proptest::collection::vec(value(), 0..12)) {
            let page = serde_json::json!({ "tools": items }).to_string();
            let (listing, _) = read(ListKind::Tools, &[&page]);
            prop_assert_eq!(listing.tools.len() + listing.dropped(), items.len());
            let names: HashSet<&str> = listing.tools.iter().map(|t| t.name.as_str()).collect();
            prop_assert_eq!(names.len(), listing.tools.len());
            for tool in &listing.tools {
                let object = tool.input_schema.get().starts_with('{');
                prop_assert!(object);
                let members = Members::parse(&tool.raw).unwrap();
                prop_assert_eq!(members.get("inputSchema").unwrap().get(), tool.input_schema.get());
            }
        }
    }
}
