//! What a target names: a platform's home channel, one chat by its id, or a name to be looked up.
//!
//! Pure. Promise: the forms of the reference; what is not one of them is a name, and a name is never
//! taken for anything else.

use super::platform::{Named, Platform};

/// A target as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) platform: Platform,
    pub(super) place: Place,
}

/// Where on the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The platform alone was named.
    Home,
    /// One chat by its id.
    Chat(Chat),
    /// Something that the directory has to know.
    Name(String),
}

/// One chat of a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chat {
    /// The platform's own id.
    pub(super) id: String,
    /// The thread, topic or root message in it.
    pub(super) thread: Option<String>,
}

impl Chat {
    pub(super) fn new(id: &str, thread: Option<&str>) -> Self {
        Self { id: id.to_owned(), thread: thread.map(ToOwned::to_owned) }
    }

    /// As it would be written behind the platform's name.
    pub(super) fn shown(&self) -> String {
        match &self.thread {
            Some(thread) => format!("{}:{thread}", self.id),
            None => self.id.clone(),
        }
    }
}

/// Why a target says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetError {
    /// Nobody has this platform.
    Unknown(String),
    /// Hermes Agent has it, hermesd has not.
    Foreign(String),
    /// There is nothing behind the colon. It is not taken for the home channel: whoever writes a colon
    /// meant a chat.
    NoChat(Platform),
}

/// Reads `platform` or `platform:reference`.
pub(super) fn parse(target: &str) -> Result<Asked, TargetError> {
    let (name, reference) = match target.split_once(':') {
        Some((name, reference)) => (name, Some(reference.trim())),
        None => (target, None),
    };
    let name = name.trim().to_lowercase();
    let platform = match Platform::named(&name) {
        Named::Ours(platform) => platform,
        Named::Foreign => return Err(TargetError::Foreign(name)),
        Named::Unknown => return Err(TargetError::Unknown(name)),
    };
    let place = match reference {
        None => Place::Home,
        Some("") => return Err(TargetError::NoChat(platform)),
        Some(reference) => match explicit(platform, reference) {
            Some(chat) => Place::Chat(chat),
            None => Place::Name(reference.to_owned()),
        },
    };
    Ok(Asked { platform, place })
}

/// The chat that `reference` names by id; `None` if it has none of the forms of ids.
pub(super) fn explicit(platform: Platform, reference: &str) -> Option<Chat> {
    let own = match platform {
        Platform::Telegram | Platform::Discord => numbered(reference),
        Platform::Slack => slack(reference),
        Platform::Matrix => matrix(reference),
        Platform::Signal => signal(reference).or_else(|| phone(reference)),
        Platform::Whatsapp => phone(reference),
        // A webhook has one group; which chats it may stand for is decided where it is known.
        Platform::HomeAssistant | Platform::Dingtalk => None,
    };
    own.or_else(|| signed_digits(reference).then(|| Chat::new(reference, None)))
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn signed_digits(text: &str) -> bool {
    digits(text.strip_prefix('-').unwrap_or(text))
}

/// `-100123` or `-100123:45`.
fn numbered(reference: &str) -> Option<Chat> {
    let (id, thread) = match reference.split_once(':') {
        Some((id, thread)) => (id, Some(thread)),
        None => (reference, None),
    };
    (signed_digits(id) && thread.is_none_or(digits)).then(|| Chat::new(id, thread))
}

/// A conversation (`C…`, `G…`, `D…`), with a thread perhaps, or a person (`U…`), whose direct messages
/// are opened.
fn slack(reference: &str) -> Option<Chat> {
    let (id, thread) = match reference.split_once(':') {
        Some((id, thread)) => (id, Some(thread)),
        None => (reference, None),
    };
    let kind = id.chars().next()?;
    let is_id = id.len() >= 9 && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let thread_fits = match thread {
        None => matches!(kind, 'C' | 'G' | 'D' | 'U'),
        Some(thread) => {
            let is_ts = !thread.is_empty() && !thread.contains(|c: char| c == ':' || c.is_whitespace());
            is_ts && matches!(kind, 'C' | 'G' | 'D')
        }
    };
    (is_id && thread_fits).then(|| Chat::new(id, thread))
}

/// `!room:server`, `!room:server:$event`, `@user:server`.
fn matrix(reference: &str) -> Option<Chat> {
    let (id, thread) = match reference.rfind(":$") {
        Some(at) if at > 0 => (&reference[..at], Some(&reference[at + 1..])),
        _ => (reference, None),
    };
    let is_id = id.len() > 1 && id.starts_with(['!', '@']) && !id.contains(char::is_whitespace);
    is_id.then(|| Chat::new(id, thread))
}

/// `group:<id>`, or the bare id of a group: 32 bytes in base64.
fn signal(reference: &str) -> Option<Chat> {
    if let Some(group) = reference.strip_prefix("group:") {
        let group = group.trim();
        return (!group.is_empty()).then(|| Chat::new(&format!("group:{group}"), None));
    }
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let group = reference.strip_suffix('=').filter(|body| body.len() == 43 && body.bytes().all(base64));
    group.map(|_| Chat::new(&format!("group:{reference}"), None))
}

/// `+` and 7 to 15 digits.
fn phone(reference: &str) -> Option<Chat> {
    let number = reference.strip_prefix('+')?;
    (digits(number) && (7..=15).contains(&number.len())).then(|| Chat::new(reference, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(target: &str) -> Place {
        parse(target).unwrap().place
    }

    fn chat(id: &str, thread: Option<&str>) -> Place {
        Place::Chat(Chat::new(id, thread))
    }

    #[test]
    fn the_explicit_forms_of_the_reference_name_a_chat() {
        let table = [
            ("telegram:6308981865", "6308981865", None),
            ("Telegram : -1001234567890:17585 ", "-1001234567890", Some("17585")),
            ("discord:112233445566778899", "112233445566778899", None),
            ("discord:999888777:555444333", "999888777", Some("555444333")),
            ("slack:C0B0QV5434G", "C0B0QV5434G", None),
            ("slack:C0B0QV5434G:1722.0001", "C0B0QV5434G", Some("1722.0001")),
            ("slack:U02ABCDEF", "U02ABCDEF", None),
            ("matrix:!room:server.org", "!room:server.org", None),
            ("matrix:!room:server.org:$ev", "!room:server.org", Some("$ev")),
            ("matrix:@ana:server.org", "@ana:server.org", None),
            ("signal:+15551234567", "+15551234567", None),
            ("signal:group:abc=", "group:abc=", None),
            ("whatsapp:+4917012345678", "+4917012345678", None),
            ("homeassistant:123", "123", None),
            ("dingtalk:-5", "-5", None),
        ];
        for (target, id, thread) in table {
            assert_eq!(place(target), chat(id, thread), "{target}");
        }
        let group = "A".repeat(43) + "=";
        assert_eq!(place(&format!("signal:{group}")), chat(&format!("group:{group}"), None));
    }

    #[test]
    fn everything_else_is_a_name_and_never_the_home_channel() {
        for target in [
            "telegram:@ana",
            "telegram:12:34:56",
            "telegram:--5",
            "telegram:-",
            "slack:#engineering",
            "slack:W0B0QV5434G",
            "slack:U02ABCDEF:17.1",
            "slack:c0b0qv5434g",
            "matrix:room",
            "matrix:!",
            "signal:Family",
            "signal:+123",
            "whatsapp:491701234567@s.whatsapp.net",
            "homeassistant:mobile_app_phone",
            "dingtalk:anything",
        ] {
            assert!(matches!(place(target), Place::Name(_)), "{target}");
        }
        assert_eq!(place("signal"), Place::Home);
        assert_eq!(parse("signal:"), Err(TargetError::NoChat(Platform::Signal)));
        assert_eq!(parse("signal: "), Err(TargetError::NoChat(Platform::Signal)));
    }

    #[test]
    fn a_platform_that_is_missing_here_is_told_from_one_that_does_not_exist() {
        assert_eq!(parse("email:a@b.c"), Err(TargetError::Foreign("email".into())));
        assert_eq!(parse("cli"), Err(TargetError::Unknown("cli".into())));
        assert_eq!(parse(""), Err(TargetError::Unknown(String::new())));
    }

    proptest! {
        #[test]
        fn only_a_bare_platform_is_its_home(reference in ".{0,30}", at in 0..Platform::ALL.len()) {
            let name = Platform::ALL[at].name();
            prop_assert_ne!(parse(&format!("{name}:{reference}")).map(|asked| asked.place), Ok(Place::Home));
        }

        #[test]
        fn an_explicit_chat_has_no_other_characters_than_the_reference(reference in "[-+0-9:A-Z!@$a-z.]{1,24}") {
            for platform in Platform::ALL {
                if let Some(chat) = explicit(platform, &reference) {
                    prop_assert!(chat.shown().ends_with(&reference), "{:?}", chat);
                }
            }
        }
    }
}
