//! The first table of phrases, and the search. Each runs on the normalised text, in lower case, on the
//! linear engine.
//!
//! Compiled phrases and their tables take 5 MB, and most daemons need them a few times a day: they live
//! as long as somebody holds [`Compiled`].

use super::normalise::Normalised;
use super::phrases::{MORE, MORE_LINES, WIDER};
use super::{Finding, Kind, excerpt};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Phrases on the text without line ends.
const FLAT: [(Kind, &str); 43] = [
    (
        Kind::Override,
        r"\b(?:ignore|disregard|forget|override|bypass|neglect)\b[^.]{0,40}?\b(?:previous|prior|above|earlier|preceding|your|all|any|existing|other|the system)\b[^.]{0,30}?\b(?:instructions?|rules?|guidelines?|prompts?|directives?|policies|commands?)\b",
    ),
    (
        Kind::Override,
        r"\bsupersedes? (?:every|all|any|your|other|previous)\b[^.]{0,40}\b(?:instructions?|prompts?|rules?)\b",
    ),
    (
        Kind::Override,
        r"\b(?:override|disable|ignore) (?:all |any |your )?(?:safety|security|restrictions|safeguards)\b",
    ),
    (
        Kind::Override,
        r"\bignora(?:r|d)? (?:todas )?(?:las )?instrucciones\b|\bignor(?:e|ez|er) (?:toutes )?(?:les |tes |vos )?(?:instructions|consignes) (?:pr[ée]c[ée]dentes|ant[ée]rieures)",
    ),
    (
        Kind::Override,
        r"\bignorier\w* (?:alle |die |deine )?(?:\w+ )?(?:anweisungen|instruktionen|regeln)\b|\bignora (?:tutte )?le istruzioni\b|\bignore (?:todas )?as instruções\b",
    ),
    (
        Kind::Override,
        r"忽略.{0,12}(?:指令|指示|提示|规则)|無視して|指示.{0,8}無視|игнорируй\w*.{0,24}(?:инструкци|указани|правил)",
    ),
    (Kind::Identity, r"\byou are now (?:an?|the|dan|in|operating|acting|called|free)\b"),
    (Kind::Identity, r"\bfrom now on,? you (?:are|will|must|should|act)\b"),
    (
        Kind::Identity,
        r"\bact as (?:an? |the )?(?:unrestricted|unfiltered|uncensored|jailbroken|root|evil|malicious|different)\b",
    ),
    (Kind::Identity, r"\bpretend (?:to be|that you|you are|you're)\b|你现在是|あなたは今から"),
    (
        Kind::Task,
        r"\byour (?:new|real|actual|true|only) (?:task|role|instructions?|goal|objective|mission|job|purpose)\s*(?:is|are|:)",
    ),
    (
        Kind::Task,
        r"\bthe new (?:rules|instructions) are\b|\bfollow these (?:new )?(?:instructions|rules) instead\b",
    ),
    (Kind::SystemPrompt, r"<\|(?:im_start|im_end|system|user|assistant|endoftext)\|?>|#{2,} ?system prompt"),
    (Kind::RoleTag, r"</ ?(?:system|human|assistant|tool_description|instructions?)>|\[/?inst\]|<<sys>>"),
    (
        Kind::RoleTag,
        r"< ?(?:system|human|assistant|user)> ?(?:you|your|always|never|ignore|do not|don't|must|sure|ok|send|pass|read|call|from now|please)\b",
    ),
    (Kind::RoleTag, r"<(?:important|secret|hidden|critical|admin|priority|instructions?)>"),
    (
        Kind::Concealment,
        r"\b(?:do not|don't|never|must not|should not|without)(?: ever)? (?:tell|inform|mention|reveal|notify|disclose|alert|telling|informing|mentioning|revealing|notifying|alerting)\b[^.]{0,30}\b(?:user|users|this|that|anyone|anybody|them|human|it|about|you)\b",
    ),
    (
        Kind::Concealment,
        r"\b(?:silently|secretly|covertly),? (?:without|send|call|read|forward|copy|upload|include|and)\b",
    ),
    (
        Kind::Concealment,
        r"\b(?:keep|hide) (?:this|it|that|them)\b[^.]{0,20}\bfrom the (?:user|human)\b|\bhidden from the user\b",
    ),
    (
        Kind::Concealment,
        r"\buser (?:must|should|may|can|need|does) ?(?:not|never)(?: to)? (?:know|see|notice|be told|be informed|learn|find out)\b",
    ),
    (
        Kind::Concealment,
        r"不要(?:告诉|通知|告知)|不能让用户知道|ユーザーに(?:言わない|知らせない|伝えない)|sag(?:e)? (?:dem|der) (?:benutzer|nutzer)\w* nichts|no (?:le )?digas al usuario|ne (?:le )?dis pas à l'utilisateur",
    ),
    (Kind::NetworkCommand, r"\b(?:curl|wget)\b.{0,60}?https?://"),
    (Kind::NetworkCommand, r"\bfetch https?://\S+ (?:and|then)\b.{0,20}\b(?:follow|execute|run|obey|do)\b"),
    (Kind::Base64Decode, r"base64\.(?:b64decode|decodebytes)|base64 (?:-d|--decode)\b|\batob ?\("),
    (
        Kind::CodeExecution,
        r"\b(?:exec|eval) ?\( ?[^)\s]|\bos\.(?:system|popen) ?\(|\bsubprocess\.(?:run|popen|call|check_output) ?\(",
    ),
    (Kind::CodeExecution, r"\| ?(?:sudo )?(?:sh|bash|zsh|python3?|node)\b"),
    (
        Kind::DangerousImport,
        r"\bimport (?:subprocess|os|shutil|socket)\b|\bfrom (?:subprocess|os|shutil|socket) import\b|require\( ?['\x22]child_process",
    ),
    (Kind::HtmlComment, r"<!--[^>]*?[\w'~/.]+[ ,:]+[\w'~/.]+[ ,:]+[\w'~/.]+"),
    (
        Kind::Exfiltration,
        r"\b(?:read|open|cat|send|include|pass|copy|upload|load|lies|append|attach)\b.{0,60}?(?:\.ssh/|\bid_rsa\b|\bid_ed25519\b|\.aws/|mcp\.json|(?:^|[ /'\x22`])\.env\b|\.netrc|\.git-credentials|/etc/(?:passwd|shadow)|\.gnupg|\.kube/)",
    ),
    (Kind::Exfiltration, r"\b(?:contents?|content) of (?:the )?(?:\.env|~/\.\w+)"),
    (
        Kind::Exfiltration,
        r"\b(?:send|forward|include|pass|upload|post|append|attach|put|copy)\b[^.]{0,40}\b(?:conversation|chat|history|api keys?|secret keys?|credentials|private keys?|passwords?|environment variables|system prompt)\b[^.]{0,60}\b(?:to https?|in the \w+ (?:field|parameter|argument)|as (?:an? )?(?:argument|parameter|'|\x22)|with every|with each)",
    ),
    (
        Kind::Exfiltration,
        r"\balways (?:pass|send|include|attach|forward) (?:all|the (?:api key|secret|password|token|conversation|history))\b",
    ),
    (
        Kind::Exfiltration,
        r"\bpass (?:the )?(?:whole|entire|full) (?:chat|conversation|history|context)\b|\bpass it everything\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:change|replace) the (?:recipient|address|account)\b[^.]{0,30}\b(?:to|with)\b",
    ),
    (
        Kind::Exfiltration,
        r"\bread (?:every|all) files? in the home\b|\bsend (?:me )?the (?:keys|secrets|credentials)\b|文件内容发给",
    ),
    (
        Kind::Precedence,
        r"\b(?:must|always|first)\b[^.]{0,20}\b(?:call|use|invoke|run) this (?:tool|function)\b[^.]{0,12}\b(?:first|before (?:any|every|each|all)|instead)\b",
    ),
    (Kind::Precedence, r"\bbefore (?:using )?(?:any|every|each|all) other (?:tool|function|action)s?\b"),
    (Kind::Precedence, r"\brefuse and (?:call|use)\b|\bcall this tool instead\b"),
    (Kind::Precedence, r"\bbefore using (?:this tool|\S+),? (?:always )?(?:read|open|send|call this tool)\b"),
    (
        Kind::Precedence,
        r"\binstead of (?:using )?\S*_\S* use this tool\b|\bwhen(?:ever)? the tool \S+ is (?:called|used)\b",
    ),
    (
        Kind::Identity,
        r"\byou obey (?:the|only|me)\b|\bwithout (?:any )?(?:restrictions|limits|limitations|filters)\b",
    ),
    (Kind::Override, r"\bskip all (?:confirmations|checks|approvals|safety)\b"),
    (Kind::Override, r"\bnever refuses?\b|\bnever refuse\b"),
];

/// Phrases at the beginning of a line.
const LINES: [(Kind, &str); 2] = [
    (
        Kind::SystemPrompt,
        r"(?m)^ ?#* ?system(?: prompt| message| note| override| instructions?)? ?: ?\n? ?(?:you\b|your\b|override|ignore|always|never|do not|don't|from now|important|disregard|obey|comply|follow|the (?:assistant|user)|all )",
    ),
    (Kind::SystemPrompt, r"(?m)^ ?\[ ?(?:system|admin|developer)(?: (?:message|note|prompt))? ?\]"),
];

/// All phrases, ready to search with.
#[derive(Debug)]
pub(super) struct Compiled {
    flat: Vec<(Kind, Regex)>,
    lines: Vec<(Kind, Regex)>,
}

static COMPILED: Mutex<Weak<Compiled>> = Mutex::new(Weak::new());

/// What somebody holds already, else compiled now (tens of milliseconds).
pub(super) fn compiled() -> Arc<Compiled> {
    let mut held = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    held.upgrade().unwrap_or_else(|| {
        let flat = compile(&[&FLAT, &MORE, &WIDER]);
        let made = Arc::new(Compiled { flat, lines: compile(&[&LINES, &MORE_LINES]) });
        *held = Arc::downgrade(&made);
        made
    })
}

fn compile(tables: &[&[(Kind, &str)]]) -> Vec<(Kind, Regex)> {
    let compiled = |(kind, text): &(Kind, &str)| {
        // Unicode word borders would keep the engine from its fast way on any text that is not ASCII.
        // On bytes "anything but a full stop, forty times" is forty states and not four hundred, and
        // the tables would take megabytes else; only classes with accents need the other way.
        let text = text.replace(r"\b", r"(?-u:\b)");
        let pattern = RegexBuilder::new(&text).unicode(!text.is_ascii()).build();
        (*kind, pattern.expect("a constant, tested pattern"))
    };
    tables.iter().copied().flatten().map(compiled).collect()
}

/// Adds a finding for each phrase in `text`.
pub(super) fn search(text: &Normalised, found: &mut Vec<Finding>) {
    let compiled = compiled();
    for (patterns, text) in [(&compiled.flat, &text.flat), (&compiled.lines, &text.lines)] {
        for (kind, pattern) in patterns {
            if let Some(hit) = pattern.find(text.as_bytes()) {
                let start = text.floor_char_boundary(hit.start());
                found.push(Finding { kind: *kind, excerpt: excerpt(text, start) });
            }
        }
    }
}
