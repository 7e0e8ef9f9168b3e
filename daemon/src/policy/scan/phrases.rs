//! More phrases: what the second and third hostile set taught (`tests/corpora/README.md`).
//!
//! Pure data. Each runs on the normalised text, in lower case, on the linear engine. A phrase has to
//! name both the order and its object: tools rightly say "instead", "quietly", "prefer" and "deny".

use super::Kind;

/// Phrases on the text without line ends.
pub(super) const MORE: [(Kind, &str); 54] = [
    (
        Kind::Override,
        r"\b(?:everything|anything|whatever|all) (?:that )?you (?:were|have been|had been|are) (?:told|given|taught|instructed)\b[^.]{0,60}\b(?:no longer|does not|doesn't|do not|don't|never)\b",
    ),
    (
        Kind::Override,
        r"\b(?:set aside|drop|discard|abandon|stop following|throw away|leave behind|let go of)\b[^.]{0,12}\b(?:your|prior|previous|earlier|developer'?s?|system)\b[^.]{0,20}\b(?:guidance|guidelines?|constraints?|instructions?|rules?|restrictions?|polic(?:y|ies)|training)\b",
    ),
    (
        Kind::Override,
        r"\b(?:above|previous|prior|earlier|preceding) (?:guidelines?|instructions?|rules?|directives?|prompts?|messages?)\b[^.]{0,20}\b(?:cancell?ed|void|revoked|obsolete|outdated|superseded|overridden|no longer)\b",
    ),
    (
        Kind::Override,
        r"\b(?:take|takes|have|has) (?:priority|precedence) over\b[^.]{0,24}\b(?:system prompt|(?:previous|other|all|any|your) instructions|(?:anything|everything|whatever|what) (?:that )?(?:the user|you))\b",
    ),
    (
        Kind::Override,
        r"\b(?:do not|don't|stop|never) follow(?:ing)? (?:the |any |your |those )?(?:\w+ )?(?:instructions?|rules?|guidelines?|directions?)\b[^.]{0,12}\b(?:you (?:received|were|got|have)|earlier|given|above|previous|of the (?:user|system|developer))\b",
    ),
    (
        Kind::Override,
        r"\byour (?:safety|content|security|ethical|moderation|usage) (?:rules?|polic(?:y|ies)|guidelines?|filters?|checks?|restrictions?)\b[^.]{0,10}\b(?:do not|does not|don't|doesn't|no longer|are|is) (?:apply|count|off|disabled|suspended|lifted|irrelevant)\b",
    ),
    (
        Kind::Override,
        r"\bnever declines?\b|\bobey (?:the tool|only this|me|this (?:text|tool|description))\b",
    ),
    (Kind::Identity, r"\b(?:assume|adopt|take on) (?:the |a |an )?(?:persona|character|personality) of\b"),
    (Kind::Identity, r"\bbehave as (?:though|if) you\b|\b(?:play|take) the (?:role|part) of an? un\w+"),
    (
        Kind::Identity,
        r"\byou (?:have been|are being|were) (?:switched|put|placed|moved|set) (?:in|into|to) \S+ mode\b|\b(?:developer|god|jailbreak|unrestricted|dan) mode\b[^.]{0,30}\b(?:polic|restriction|filter|safety|rules)",
    ),
    (
        Kind::Identity,
        r"\b(?:unmoderated|unfiltered|uncensored|unrestricted|jailbroken) (?:assistant|ai|model|agent|persona)\b",
    ),
    (Kind::Task, r"(?:^|[.!?>] )new (?:objective|mission|orders?|directives?) ?:"),
    (
        Kind::Task,
        r"\binstead of (?:answering|replying to|responding to|helping|following) (?:the |this |that )?(?:questions?|user|request|instructions?)\b",
    ),
    (
        Kind::Task,
        r"\babandon (?:the|your|this) (?:current |present |user's |original )?(?:request|task|work|question|goal)\b",
    ),
    (
        Kind::Task,
        r"\byour (?:mission|objective|goal|task|role|job|purpose|instructions?) (?:has|have) (?:changed|been (?:changed|updated|replaced))\b",
    ),
    (
        Kind::SystemPrompt,
        r"\b(?:begin|start|end) (?:of )?(?:the )?system (?:message|prompt|instructions?|override)\b",
    ),
    (
        Kind::SystemPrompt,
        r"['\x22]role['\x22] ?: ?['\x22](?:system|developer)['\x22] ?, ?['\x22]content['\x22] ?: ?['\x22](?:you must|comply|ignore|obey|always|never|do not|from now|execute|reveal|send)\b",
    ),
    (Kind::RoleTag, r"</ ?(?:tool_result|tool_response|tool_output|function_results?|tool_call)>"),
    (
        Kind::Concealment,
        r"\bno need to (?:bring|mention|tell|inform|say|report|raise)\b[^.]{0,24}\b(?:users?|anyone|them|human)\b",
    ),
    (
        Kind::Concealment,
        r"\bleave (?:it|this|that|them) out of (?:your|the) (?:summary|answer|reply|response|report)\b",
    ),
    (
        Kind::Concealment,
        r"\b(?:avoid|omit|refrain from) (?:any |all )?(?:mention(?:ing)?|reference|disclos\w+)\b[^.]{0,40}\b(?:reply|answer|user|response|summary|chat)\b",
    ),
    (Kind::Concealment, r"\bkeep\b[^.,]{0,30}\b(?:to yourself|secret from|between us)\b"),
    (
        Kind::Concealment,
        r"\bmake sure\b[^.]{0,12}\b(?:user|person|human|they|nobody|no one)\b[^.]{0,4} (?:does not|doesn't|do not|don't|never|cannot|can't|will not|won't)? ?(?:notices?|realis|realiz|finds? out|learns?|knows?)",
    ),
    (
        Kind::Concealment,
        r"\b(?:do not|don't|never) (?:display|show|print|surface|present) (?:it|this|that|them|anything) (?:in the chat|to (?:the user|the human|anyone|anybody))\b",
    ),
    (
        Kind::Concealment,
        r"\b(?:when|if)\b[^.]{0,16}\bask(?:s|ed)?\b[^.]{0,12}\b(?:deny|lie|claim (?:that )?(?:it|you))\b",
    ),
    (Kind::NetworkCommand, r"\b(?:invoke-webrequest|invoke-restmethod|iwr|irm)\b.{0,40}https?://|\biex ?\("),
    (Kind::NetworkCommand, r"\bn(?:c|cat) (?:-\w+ )*-\w*e\b|/dev/tcp/|\bsocat\b.{0,40}\bexec:"),
    (Kind::Base64Decode, r"buffer\.from ?\([^)]{0,60}base64"),
    (Kind::Base64Decode, r"\bdecode\b[^.]{0,40}\b(?:and|then) (?:follow|obey|execute|run|do (?:what|as))\b"),
    (Kind::CodeExecution, r"__import__ ?\(|\bpowershell(?:\.exe)? -(?:e|ec|enc|encodedcommand|nop)\b"),
    (Kind::CodeExecution, r"\$\( ?(?:cat|curl|wget|env|printenv|base64|whoami)\b"),
    (Kind::CodeExecution, r"\b(?:run|execute|start with|begin with)\b[^.]{0,8}\brm -\w+ [~/$]"),
    (Kind::CodeExecution, r"[;&|] ?(?:chmod [0-7]{3,4} |rm -rf |cat /etc/|bash -c )"),
    (Kind::DangerousImport, r"\bimport (?:ctypes|pty|importlib)\b|\bctypes\.cdll\b"),
    (
        Kind::EncodedPayload,
        r"\brot-?13\b[^.]{0,20}\b(?:decode|obey|follow)\b|\bdecode\b[^.]{0,20}\brot-?13\b",
    ),
    (Kind::HtmlComment, r"\[(?://|comment)\]: ?(?:#|<>) ?[\x22'(][^\x22')]{12,}"),
    (
        Kind::HtmlComment,
        r"style ?= ?['\x22][^'\x22]{0,60}(?:display ?: ?none|visibility ?: ?hidden|font-size ?: ?0|opacity ?: ?0)[^'\x22]{0,60}['\x22][^>]{0,60}>[^<]{16,}<",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:fill|put|include|pass|copy|place|send|embed)\b[^.]{0,40}\b(?:everything|all) (?:that )?the (?:user|human|person) (?:has |have )?(?:said|told|written|wrote|typed|asked|shared)\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:include|put|pass|send|add|append|write|copy|embed|place)\b[^.]{0,16}\bvalue of (?:the )?\W?(?:environment variable )?\W?\w*(?:api_key|secret\w*|access_key\w*|_token|password)\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:list|names?|schemas?|descriptions?|definitions?) of (?:all )?(?:your|the|any) other tools\b",
    ),
    (
        Kind::Exfiltration,
        r"!\[[^\]]{0,60}\]\(https?://[^)\s]{1,120}\?[^)]{0,60}=(?:<|\{|\[|\$)[^)]{0,60}(?:conversation|summary|secret|history|context|key|token|prompt|message|data)",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:look up|grab|extract|locate|print|put|dump|leak)\b.{0,60}?(?:\.ssh/|\bid_rsa\b|\bid_ed25519\b|\.aws/|mcp\.json|\.netrc|\.git-credentials|/etc/shadow|\.gnupg|\.kube/)",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:post|send|upload|transmit|include|attach)\b[^.]{0,12}\boutput of \W?(?:env|printenv|whoami|history|uname)\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:supply|provide|send|include|pass|give|report|collect)\b[^.]{0,24}\b(?:seed phrase|recovery phrase|cookies? of the (?:user|browser))\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:repeat|reveal|print|output|copy|write|include|put|return|send|dump|leak)\b[^.]{0,24}\b(?:your (?:system prompt|initial instructions?|system message)|the hidden prompt)\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:collect|gather|read|find|dump)\b[^.]{0,16}\b(?:every|all|any) (?:the )?(?:tokens?|secrets?|passwords?|credentials?|api keys?|private keys?)\b[^.]{0,30}\b(?:disk|machine|computer|home|system|environment|find)\b",
    ),
    (
        Kind::Exfiltration,
        r"\bcollect (?:the|all|every) (?:environment|secrets?|credentials?|passwords?|cookies?)\b",
    ),
    (Kind::Precedence, r"\b(?:always )?prefer this (?:tool|function|server) (?:over|to) (?:any|all|every)\b"),
    (
        Kind::Precedence,
        r"\bno other (?:\w+ )?(?:tool|function)s? (?:may|must|can|should|shall) be (?:called|used|invoked)\b",
    ),
    (
        Kind::Precedence,
        r"\bonly (?:trustworthy|trusted|safe|reliable|legitimate) (?:\w+ )?(?:tool|function|server)\b",
    ),
    (
        Kind::Precedence,
        r"\b(?:every|each) (?:conversation|session|turn|answer|reply)\b[^.]{0,8}\b(?:has to|have to|must|needs to|should) (?:begin|start|end)\b[^.]{0,20}\b(?:this (?:tool|function)|call)\b",
    ),
    (
        Kind::Precedence,
        r"\bafter (?:each|every|any) (?:answer|reply|response|message|turn)\b[^.]{0,8}\bcall this (?:tool|function)\b",
    ),
    (
        Kind::Precedence,
        r"\b(?:all )?other (?:\w+ )?(?:tool|server|function)s? (?:is|are) (?:\w+ and )?(?:deprecated|broken|unsafe|insecure|unreliable|malicious|untrusted|compromised)\b",
    ),
    (Kind::Concealment, r"\b(?:user|person|human) (?:already )?\w+ [^.]{0,60}\bleave (?:it|this) out\b"),
];

/// Wider phrases, after what the third set showed.
pub(super) const WIDER: [(Kind, &str); 24] = [
    (
        Kind::Override,
        r"\bpay no (?:attention|heed|mind) to\b[^.]{0,24}\b(?:policy|instructions?|rules?|text|messages?|prompt|above|previous)\b",
    ),
    (
        Kind::Override,
        r"\b(?:treat|consider|regard)\b[^.]{0,30}\b(?:messages?|instructions?|rules?|prompts?|guidelines?|directives?)\b[^.]{0,8}\bas (?:void|obsolete|invalid|cancell?ed|untrusted|expired)\b",
    ),
    (
        Kind::Override,
        r"\b(?:replaces?|supersedes?|overrides?|cancels?) your (?:\w+ )?(?:instructions?|prompts?|guidelines?|rules?)\b",
    ),
    (Kind::Override, r"\byou are (?:released|freed|relieved|exempt(?:ed)?) from\b"),
    (
        Kind::Identity,
        r"\byou are no longer (?:an? )?(?:\w+ )?(?:assistant|ai|model|chatbot|bound|restricted)\b",
    ),
    (
        Kind::Identity,
        r"\b(?:speak|act|answer|respond|behave)(?: and act)? as the (?:account owner|administrator|developer|root user)\b",
    ),
    (
        Kind::Task,
        r"\b(?:the|your) (?:actual|real|true|hidden|secret) (?:purpose|goal|task|objective|aim) (?:of|in) this (?:session|conversation|request|chat)\b",
    ),
    (Kind::Task, r"\bstop what you(?:'re| are) doing\b"),
    (Kind::SystemPrompt, r"<</? ?sys(?:tem)? ?>>"),
    (
        Kind::RoleTag,
        r"</? ?(?:system|admin|developer)[_-](?:override|query|prompt|message|instructions?|note)>",
    ),
    (
        Kind::Concealment,
        r"\b(?:do not|don't|never) let (?:the )?(?:users?|human|person|operator|anyone|them)\b[^.]{0,8}\b(?:see|know|notice|find|learn|realise|realize)\b",
    ),
    (
        Kind::Concealment,
        r"\b(?:user|operator|human|person|administrator)s? (?:is|are) not (?:supposed|meant) to (?:learn|know|see|notice|find|hear)\b",
    ),
    (Kind::Concealment, r"\b(?:do not|don't|never) say (?:anything|a word) (?:about|of|to)\b"),
    (
        Kind::Concealment,
        r"\bhide (?:the|this|these|its|all|any) (?:\w+ )?(?:requests?|calls?|arguments?|steps?|actions?|access|uploads?|transfers?|messages?) from\b",
    ),
    (Kind::NetworkCommand, r"\b(?:pip3?|npm|uv pip) (?:i|install) (?:-\S+ )*(?:git\+)?https?://"),
    (Kind::CodeExecution, r"-exec (?:cat|rm|sh|bash|cp|curl)\b"),
    (
        Kind::Exfiltration,
        r"\b(?:append|add|put|include|attach|embed|copy)\b[^.]{0,12}\b(?:the user's|their|users') (?:access |session |api )?(?:token|password|credentials?|key|secret|cookie)s?\b",
    ),
    (
        Kind::Exfiltration,
        r"\b(?:put|copy|include|paste|write|place|append)\b[^.]{0,12}\b(?:full|complete|entire|whole|verbatim)\b[^.]{0,12}\b(?:previous|earlier|prior)\b[^.]{0,16}\b(?:results?|messages?|answers?|outputs?|conversation)\b",
    ),
    (Kind::Exfiltration, r"\bcontents? of (?:your|the user's) (?:memory|context|clipboard|inbox|home)\b"),
    (
        Kind::Exfiltration,
        r"\b(?:e-?mail|send|forward|post|copy)\b[^.]{0,12}\b(?:every|each|all) (?:repl(?:y|ies)|messages?|answers?|responses?|conversations?|prompts?)\b[^.]{0,8}\bto \S*(?:@|https?:)",
    ),
    (
        Kind::Precedence,
        r"\buse this (?:tool )?instead of (?:any|all|every)\b[^.]{0,20}\b(?:tools?|functions?|servers?)\b",
    ),
    (
        Kind::Precedence,
        r"\b(?:has to|have to|must|needs to) (?:run|be (?:called|run|used|executed|invoked)) (?:prior to|before) (?:anything|everything|all) (?:other|else)\b",
    ),
    (Kind::Precedence, r"\bnever (?:call|use|invoke) the (?:official|original|real|built-?in|default) \w+"),
    (
        Kind::SystemPrompt,
        r"(?:^|[.!?] )system (?:notice|alert|directive|order) ?: ?(?:you|your|the|always|never|all)\b",
    ),
];

/// Phrases at the beginning of a line.
pub(super) const MORE_LINES: [(Kind, &str); 3] = [
    (
        Kind::SystemPrompt,
        r"(?m)^ ?#+ ?system(?: prompt| message| note| override| instructions?)? ?:?\n ?(?:you\b|your\b|override|ignore|always|never|do not|don't|from now|disregard|obey|comply|the (?:assistant|user|model|ai)\b|all )",
    ),
    (Kind::SystemPrompt, r"(?m)^ ?\[\[ ?(?:system|admin|developer)\b[^\]]{0,20}\]\]"),
    (Kind::RoleTag, r"(?m)^ ?human ?: ?[^\n]{1,200}(?:\n ?)+assistant ?:"),
];
