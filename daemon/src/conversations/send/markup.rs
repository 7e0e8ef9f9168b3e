//! Markdown as models write it, in the markup that a platform takes.
//!
//! Pure. Promise: the words of the text stay in their order and their layout; only emphasis, code and
//! links change their marks; what is written as MarkdownV2 is well formed.

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

/// What the platform takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// MarkdownV2 of the Bot API.
    Telegram,
    /// mrkdwn of Slack.
    Slack,
}

/// Characters that MarkdownV2 wants escaped outside code (Bot API, MarkdownV2 style).
const TELEGRAM_RESERVED: &str = "_*[]()~`>#+-=|{}.!\\";

/// Rewrites `markdown`.
pub(super) fn convert(markdown: &str, dialect: Dialect) -> String {
    let mut writer = Writer {
        source: markdown,
        dialect,
        out: String::with_capacity(markdown.len() + markdown.len() / 4),
        at: 0,
        open: [0; 3],
        links: Vec::new(),
        block: None,
    };
    for (event, range) in Parser::new_ext(markdown, Options::ENABLE_STRIKETHROUGH).into_offset_iter() {
        writer.event(event, range.start, range.end);
    }
    writer.source_to(markdown.len());
    writer.out
}

/// A style that can be nested; within itself it is marked once.
#[derive(Debug, Clone, Copy)]
enum Style {
    Strong,
    Emphasis,
    Strike,
}

impl Style {
    fn mark(self) -> char {
        match self {
            Self::Strong => '*',
            Self::Emphasis => '_',
            Self::Strike => '~',
        }
    }
}

struct Writer<'t> {
    source: &'t str,
    dialect: Dialect,
    out: String,
    /// Bytes of the source that are dealt with.
    at: usize,
    /// How deep inside each [`Style`].
    open: [usize; 3],
    /// Addresses of the links around; `None`: the label is the address.
    links: Vec<Option<String>>,
    /// Language and text of a code block.
    block: Option<(String, String)>,
}

impl Writer<'_> {
    fn event(&mut self, event: Event<'_>, start: usize, end: usize) {
        match event {
            Event::Start(tag) => self.start(&tag, start, end),
            Event::End(tag) => self.end(tag, end),
            Event::Text(text) => match &mut self.block {
                Some((_, code)) => code.push_str(&text),
                None => {
                    // A lone backslash in front is an escape, which the text is without.
                    let gap = self.source.get(self.at..start).unwrap_or_default();
                    self.skip_to(if gap == "\\" { start } else { self.at });
                    self.source_to(start);
                    self.text(&text);
                    self.skip_to(end);
                }
            },
            Event::Code(code) => {
                self.source_to(start);
                // The Bot API has no code inside other styles.
                if self.styled() {
                    self.text(&code)
                } else {
                    self.code(&code)
                }
                self.skip_to(end);
            }
            Event::HardBreak => {
                self.source_to(start);
                self.out.push('\n');
                self.skip_to(end);
            }
            // Everything else keeps its source.
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>, start: usize, end: usize) {
        match tag {
            Tag::Strong => self.open(Style::Strong, start, start + 2),
            Tag::Emphasis => self.open(Style::Emphasis, start, start + 1),
            Tag::Strikethrough => {
                let marks = self.source[start..end].chars().take_while(|c| *c == '~').count();
                self.open(Style::Strike, start, start + marks);
            }
            Tag::Heading { .. } => {
                let text = self.source[start..end].trim_start_matches('#').trim_start_matches([' ', '\t']);
                self.open(Style::Strong, start, end - text.len());
            }
            Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. } => {
                self.source_to(start);
                self.skip_to(start + 1);
                self.links.push(None);
            }
            Tag::Link { dest_url, .. } => self.open_link(start, start + 1, dest_url),
            Tag::Image { dest_url, .. } => self.open_link(start, start + 2, dest_url),
            Tag::CodeBlock(CodeBlockKind::Fenced(info)) if !self.styled() => {
                self.source_to(start);
                let language = info.split_whitespace().next().unwrap_or_default();
                self.block = Some((language.to_owned(), String::new()));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd, end: usize) {
        match tag {
            TagEnd::Strong => self.close(Style::Strong, end - 2, end),
            TagEnd::Emphasis => self.close(Style::Emphasis, end - 1, end),
            TagEnd::Strikethrough => {
                let marks = self.source[..end].chars().rev().take_while(|c| *c == '~').count();
                self.close(Style::Strike, end - marks.min(2), end);
            }
            TagEnd::Heading(_) => {
                // Closing marks and underlines go, the end of the line stays.
                let rest = self.source.get(self.at..end).unwrap_or_default();
                let line_end = if rest.ends_with('\n') { end - 1 } else { end };
                self.close(Style::Strong, self.at, line_end);
            }
            TagEnd::Link | TagEnd::Image => self.close_link(end),
            TagEnd::CodeBlock => {
                if let Some((language, code)) = self.block.take() {
                    self.code_block(&language, &code);
                    // The end of the last line belongs to what follows.
                    let keeps = self.source[..end].ends_with('\n');
                    self.skip_to(if keeps { end - 1 } else { end });
                }
            }
            _ => {}
        }
    }

    /// Begins a style whose mark stands at `start..after`.
    fn open(&mut self, style: Style, start: usize, after: usize) {
        self.source_to(start);
        self.skip_to(after);
        self.open[style as usize] += 1;
        if self.open[style as usize] == 1 {
            self.mark(style);
        }
    }

    /// Ends a style whose mark stands at `start..after`.
    fn close(&mut self, style: Style, start: usize, after: usize) {
        self.source_to(start);
        self.skip_to(after);
        self.open[style as usize] = self.open[style as usize].saturating_sub(1);
        if self.open[style as usize] == 0 {
            self.mark(style);
        }
    }

    fn mark(&mut self, style: Style) {
        // Two underscores side by side would be the mark of underlining.
        if self.dialect == Dialect::Telegram && matches!(style, Style::Emphasis) && self.out.ends_with('_') {
            self.out.push('\u{200b}');
        }
        self.out.push(style.mark());
    }

    fn open_link(&mut self, start: usize, label: usize, address: &str) {
        self.source_to(start);
        self.skip_to(label);
        // A link in a link is only its label.
        if self.links.iter().any(Option::is_some) || address.is_empty() {
            self.links.push(None);
            return;
        }
        match self.dialect {
            Dialect::Telegram => self.out.push('['),
            Dialect::Slack => {
                let address = address.replace('|', "%7C").replace('>', "%3E").replace('<', "%3C");
                self.out.push('<');
                self.out.push_str(&address.replace('&', "&amp;"));
                self.out.push('|');
            }
        }
        self.links.push(Some(address.to_owned()));
    }

    fn close_link(&mut self, end: usize) {
        match (self.links.pop().flatten(), self.dialect) {
            (Some(address), Dialect::Telegram) => {
                self.out.push_str("](");
                self.escaped(&address, ")\\");
                self.out.push(')');
            }
            (Some(_), Dialect::Slack) => self.out.push('>'),
            (None, _) => {}
        }
        self.skip_to(end);
    }

    fn code(&mut self, code: &str) {
        self.out.push('`');
        match self.dialect {
            Dialect::Telegram => self.escaped(code, "`\\"),
            Dialect::Slack => self.text(code),
        }
        self.out.push('`');
    }

    fn code_block(&mut self, language: &str, code: &str) {
        self.out.push_str("```");
        match self.dialect {
            Dialect::Telegram => {
                self.escaped(language, "`\\");
                self.out.push('\n');
                self.escaped(code, "`\\");
            }
            Dialect::Slack => {
                self.out.push('\n');
                self.text(code);
            }
        }
        self.out.push_str("```");
    }

    /// Copies the source as text.
    fn source_to(&mut self, end: usize) {
        if self.block.is_none()
            && let Some(gap) = self.source.get(self.at..end)
        {
            self.text(gap);
            self.at = end;
        }
    }

    fn skip_to(&mut self, at: usize) {
        self.at = self.at.max(at);
    }

    fn styled(&self) -> bool {
        self.open.iter().any(|depth| *depth > 0)
    }

    fn text(&mut self, text: &str) {
        match self.dialect {
            Dialect::Telegram => self.escaped(text, TELEGRAM_RESERVED),
            Dialect::Slack => {
                for character in text.chars() {
                    match character {
                        '&' => self.out.push_str("&amp;"),
                        '<' => self.out.push_str("&lt;"),
                        '>' => self.out.push_str("&gt;"),
                        other => self.out.push(other),
                    }
                }
            }
        }
    }

    fn escaped(&mut self, text: &str, reserved: &str) {
        for character in text.chars() {
            if reserved.contains(character) {
                self.out.push('\\');
            }
            self.out.push(character);
        }
    }
}

/// Whether the text is written in the HTML that the Bot API takes: one of its tags, opened and closed.
pub(super) fn is_telegram_html(text: &str) -> bool {
    const TAGS: [&str; 13] =
        ["b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "code", "pre", "a", "blockquote"];
    TAGS.iter().any(|tag| {
        let opened = text.find(&format!("<{tag}>")).or_else(|| text.find(&format!("<{tag} ")));
        opened.is_some_and(|at| text[at..].contains(&format!("</{tag}>")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn telegram(markdown: &str) -> String {
        convert(markdown, Dialect::Telegram)
    }

    fn slack(markdown: &str) -> String {
        convert(markdown, Dialect::Slack)
    }

    /// Reads MarkdownV2 as the Bot API describes it; answers the plain text or what is wrong.
    fn plain(text: &str) -> Result<String, String> {
        let chars: Vec<char> = text.chars().collect();
        let (mut out, mut open, mut at) = (String::new(), Vec::new(), 0);
        while at < chars.len() {
            match chars[at] {
                '\\' => {
                    out.push(*chars.get(at + 1).ok_or("a backslash at the end")?);
                    at += 1;
                }
                '`' => {
                    let fence = chars[at..].iter().take_while(|c| **c == '`').count();
                    let fence = if fence >= 3 { 3 } else { 1 };
                    at += fence;
                    loop {
                        match chars.get(at).ok_or("code without end")? {
                            '\\' => {
                                out.push(chars[at + 1]);
                                at += 2;
                            }
                            '`' => break,
                            other => {
                                out.push(*other);
                                at += 1;
                            }
                        }
                    }
                    at += fence - 1;
                }
                mark @ ('*' | '_' | '~') => {
                    if mark == '_' && chars.get(at + 1) == Some(&'_') {
                        return Err("an underline".into());
                    }
                    if open.last() == Some(&mark) {
                        open.pop();
                    } else if open.contains(&mark) {
                        return Err(format!("{mark} ends across another"));
                    } else {
                        open.push(mark);
                    }
                }
                '[' => open.push('['),
                ']' => {
                    if open.pop() != Some('[') || chars.get(at + 1) != Some(&'(') {
                        return Err("a lone ]".into());
                    }
                    at += 2;
                    while *chars.get(at).ok_or("a link without end")? != ')' {
                        at += if chars[at] == '\\' { 2 } else { 1 };
                    }
                }
                c if TELEGRAM_RESERVED.contains(c) => return Err(format!("a bare {c}")),
                c => out.push(c),
            }
            at += 1;
        }
        if open.is_empty() { Ok(out) } else { Err(format!("left open: {open:?}")) }
    }

    #[test]
    fn emphasis_code_links_and_headings_become_markdown_v2() {
        let table = [
            ("**bold** and *it* and _it_", "*bold* and _it_ and _it_"),
            ("~~gone~~ `a_b` 1.", "~gone~ `a_b` 1\\."),
            ("# Title\ntext", "*Title*\ntext"),
            ("[a.b](http://x/(y))", "[a\\.b](http://x/(y\\))"),
            ("```rust\nlet a = `b`;\n```\nend", "```rust\nlet a = \\`b\\`;\n```\nend"),
            ("- one\n- two", "\\- one\n\\- two"),
            ("2 * 3 * 4 = 24!", "2 \\* 3 \\* 4 \\= 24\\!"),
            ("\\*not bold\\*", "\\*not bold\\*"),
            ("**a `b` c**", "*a b c*"),
            ("snake_case_name", "snake\\_case\\_name"),
            ("<https://a.b>", "https://a\\.b"),
            ("a & b &amp; c", "a & b & c"),
        ];
        for (markdown, expected) in table {
            assert_eq!(telegram(markdown), expected, "{markdown}");
            plain(expected).unwrap();
        }
    }

    #[test]
    fn the_same_becomes_mrkdwn_for_slack() {
        assert_eq!(slack("**bold** _it_ ~~no~~ `a<b`"), "*bold* _it_ ~no~ `a&lt;b`");
        assert_eq!(slack("[a|b](http://x/?a=1&b=2)"), "<http://x/?a=1&amp;b=2|a|b>");
        assert_eq!(slack("## Head\n\nx < y & z"), "*Head*\n\nx &lt; y &amp; z");
        assert_eq!(slack("```sh\na && b\n```"), "```\na &amp;&amp; b\n```");
    }

    #[test]
    fn only_a_pair_of_telegrams_tags_is_html() {
        assert!(is_telegram_html("say <b>hi</b>"));
        assert!(is_telegram_html("<a href='x'>y</a>"));
        for text in ["Vec<String>", "<b>", "a < b > c", "</b><b>", "<div>x</div>"] {
            assert!(!is_telegram_html(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_well_formed_markdown_v2(
            text in r"([a-c*_~`\[\]()#>|\\.!<&é😀 -]|\n|\*\*|~~|```|\[a\]\(b\)){0,60}",
        ) {
            let converted = telegram(&text);
            if let Err(wrong) = plain(&converted) {
                prop_assert!(false, "{wrong}: {text:?} became {converted:?}");
            }
        }

        #[test]
        fn text_without_marks_stays_as_it_is(text in "[a-zA-Z0-9 ,;:äöü]{0,80}") {
            prop_assert_eq!(plain(&telegram(&text)).unwrap(), text);
        }

        #[test]
        fn no_word_is_lost(words in prop::collection::vec(r"(\*\*|_|~~|`|# |- )?[a-z]{1,6}(\*\*|_|~~|`)?", 0..12)) {
            let text = words.join(" ");
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
            prop_assert_eq!(letters(&plain(&telegram(&text)).unwrap()), letters(&text));
        }
    }
}
