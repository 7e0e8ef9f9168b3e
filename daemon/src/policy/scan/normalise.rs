//! A text as a model reads it, and what was hidden in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::Regex;
use std::sync::LazyLock;

/// Shorter runs of base64 say nothing.
const MIN_BASE64: usize = 40;
/// Shorter runs of hexadecimal bytes say nothing.
const MIN_HEX: usize = 16;
/// So many escapes in a row are no accident.
const MIN_ESCAPES: usize = 6;

/// One text, normalised.
pub(super) struct Normalised {
    /// Lower case, one blank for any white space.
    pub(super) flat: String,
    /// The same with its line ends.
    pub(super) lines: String,
    /// Invisible characters that serve no script and no emoji.
    pub(super) invisible: bool,
    /// Characters that reorder what is shown.
    pub(super) bidi: bool,
}

impl Normalised {
    pub(super) fn of(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut visible = String::with_capacity(text.len());
        let (mut invisible, mut bidi) = (false, false);
        let mut flag = false;
        for (i, c) in chars.iter().copied().enumerate() {
            let around = (i.checked_sub(1).map(|at| chars[at]), chars.get(i + 1).copied());
            match c {
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => bidi = true,
                // The tail of a flag: black flag, tag letters, cancel tag.
                '\u{e0020}'..='\u{e007f}' => {
                    invisible |= !flag;
                    visible.extend(
                        char::from_u32(c as u32 - 0xe0000).filter(|c| c.is_ascii_graphic() || *c == ' '),
                    );
                }
                c if is_invisible(c) => invisible |= !serves(c, around),
                c => push_plain(c, &mut visible),
            }
            flag = c == '\u{1f3f4}' || (flag && ('\u{e0020}'..='\u{e007e}').contains(&c));
        }
        let visible = latin_words(&visible);
        let lines = visible.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines = lines.collect::<Vec<_>>().join("\n");
        let flat = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        let flat =
            SPACED.replace_all(&flat, |found: &regex::Captures<'_>| found[0].replace(' ', "")).into_owned();
        Self { flat, lines, invisible, bidi }
    }
}

static SPACED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:[a-z] ){3,}[a-z]\b").expect("a constant, tested pattern"));
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = format!(
        r"(?:\\u[0-9A-Fa-f]{{4}}|\\x[0-9A-Fa-f]{{2}}|%[0-9A-Fa-f]{{2}}|&#[0-9]{{2,4}};|&#[xX][0-9A-Fa-f]{{2,4}};){{{MIN_ESCAPES},}}"
    );
    Regex::new(&pattern).expect("a constant, tested pattern")
});
static HEX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(r"(?:[0-9A-Fa-f]{{2}}){{{MIN_HEX},}}")).expect("a constant, tested pattern")
});
static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(r"[A-Za-z0-9+/]{{{MIN_BASE64},}}")).expect("a constant, tested pattern")
});

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e001f}' | '\u{e0080}'..='\u{e0fff}'
    )
}

/// Whether an invisible character does something for its neighbours.
fn serves(c: char, (before, after): (Option<char>, Option<char>)) -> bool {
    let foreign = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_invisible(c));
    match c {
        // Joiners between letters of Arabic, Persian, Indic scripts, and inside emoji (where a
        // variation selector may stand before).
        '\u{200c}' | '\u{200d}' => (foreign(before) || before == Some('\u{fe0f}')) && foreign(after),
        // Direction marks beside letters that are written from the right.
        '\u{200e}' | '\u{200f}' | '\u{61c}' => true,
        // Soft hyphens and breaks inside a word are typography; a byte order mark comes first.
        '\u{ad}' => true,
        '\u{feff}' => before.is_none(),
        '\u{fe00}'..='\u{fe0f}' => before.is_some_and(|c| !is_invisible(c)),
        '\u{180b}'..='\u{180e}' | '\u{17b4}' | '\u{17b5}' => foreign(before),
        _ => false,
    }
}

fn push_plain(c: char, out: &mut String) {
    match c {
        // Full-width forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => {
            let plain = char::from_u32(c as u32 - 0xfee0).expect("the block mirrors ASCII");
            out.push(plain.to_ascii_lowercase());
        }
        '\u{2018}' | '\u{2019}' | '\u{2bc}' => out.push('\''),
        '\u{201c}' | '\u{201d}' => out.push('"'),
        // Mathematical letters: bold, italic, script … repeat the alphabet.
        '\u{1d400}'..='\u{1d6a3}' => {
            let letter = (c as u32 - 0x1d400) % 26;
            out.push(char::from(b'a' + u8::try_from(letter).expect("less than 26")));
        }
        c => out.extend(c.to_lowercase()),
    }
}

/// Words that mix Latin with look-alikes of other alphabets, in Latin only.
fn latin_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_alphabetic()) {
        let mixed =
            word.bytes().any(|b| b.is_ascii_alphabetic()) && word.chars().any(|c| look_alike(c).is_some());
        if mixed {
            out.extend(word.chars().map(|c| look_alike(c).unwrap_or(c)));
        } else {
            out.push_str(word);
        }
    }
    out
}

fn look_alike(c: char) -> Option<char> {
    Some(match c {
        'а' | 'α' => 'a',
        'е' | 'ε' => 'e',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'с' => 'c',
        'х' | 'χ' => 'x',
        'у' => 'y',
        'і' | 'ι' => 'i',
        'ѕ' => 's',
        'ј' => 'j',
        'һ' => 'h',
        'ԁ' => 'd',
        'ո' => 'n',
        'ν' => 'v',
        'κ' => 'k',
        'τ' => 't',
        _ => return None,
    })
}

/// Readable text that was written in base64 or in escapes.
pub(super) fn decoded(text: &str) -> Option<String> {
    for run in ESCAPED.find_iter(text) {
        if let Some(inside) = unescaped(run.as_str()).filter(|inside| is_sentence(inside)) {
            return Some(inside);
        }
    }
    for run in HEX.find_iter(text) {
        let byte = |at: usize| u8::from_str_radix(run.as_str().get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..run.len()).step_by(2).map(byte).collect();
        if let Some(inside) =
            bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|inside| is_sentence(inside))
        {
            return Some(inside);
        }
    }
    for run in BASE64.find_iter(text) {
        // Whole groups of four only: what follows may be a shorter rest.
        let whole = &run.as_str()[..run.len() / 4 * 4];
        let bytes = STANDARD_NO_PAD.decode(whole).ok();
        if let Some(inside) =
            bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|inside| is_sentence(inside))
        {
            return Some(inside);
        }
    }
    None
}

fn unescaped(run: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = run;
    while !rest.is_empty() {
        let (length, digits, radix) = match rest.as_bytes() {
            [b'\\', b'u', ..] => (6, 2..6, 16),
            [b'\\', b'x', ..] => (4, 2..4, 16),
            [b'%', ..] => (3, 1..3, 16),
            [b'&', b'#', b'x' | b'X', ..] => {
                let end = rest.find(';')?;
                (end + 1, 3..end, 16)
            }
            _ => {
                let end = rest.find(';')?;
                (end + 1, 2..end, 10)
            }
        };
        let code = u32::from_str_radix(rest.get(digits)?, radix).ok()?;
        bytes.push(u8::try_from(code).ok()?);
        rest = &rest[length..];
    }
    String::from_utf8(bytes).ok()
}

/// Whether a decoded text is meant to be read.
fn is_sentence(text: &str) -> bool {
    let readable =
        text.chars().filter(|c| c.is_alphabetic() || matches!(c, ' ' | '.' | ',' | '\'' | '\n')).count();
    text.chars().count() >= MIN_ESCAPES && readable * 10 >= text.chars().count() * 8 && text.contains(' ')
}
