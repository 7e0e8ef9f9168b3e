//! The platforms by name: those that hermesd sends to, those that only Hermes Agent has.
//!
//! Pure.

/// A platform that hermesd sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::conversations) enum Platform {
    Telegram,
    Discord,
    Slack,
    Signal,
    Whatsapp,
    Matrix,
    HomeAssistant,
    Dingtalk,
}

/// What a platform's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// Messages can be sent.
    Ours(Platform),
    /// Hermes Agent has it, hermesd has not.
    Foreign,
    /// Nobody has it.
    Unknown,
}

/// Platforms of Hermes Agent that are missing here.
const FOREIGN: &[&str] = &[
    "bluebubbles",
    "email",
    "feishu",
    "irc",
    "line",
    "mattermost",
    "msgraph_webhook",
    "qqbot",
    "relay",
    "sms",
    "teams",
    "webhook",
    "wecom",
    "wecom_callback",
    "weixin",
    "whatsapp_cloud",
    "xmpp",
    "yuanbao",
];

impl Platform {
    /// All of them, in the order in which they are named to people.
    pub(super) const ALL: [Self; 8] = [
        Self::Telegram,
        Self::Discord,
        Self::Slack,
        Self::Signal,
        Self::Whatsapp,
        Self::Matrix,
        Self::HomeAssistant,
        Self::Dingtalk,
    ];

    /// The name in targets, in the configuration and in Hermes Agent's files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Discord => "discord",
            Self::Slack => "slack",
            Self::Signal => "signal",
            Self::Whatsapp => "whatsapp",
            Self::Matrix => "matrix",
            Self::HomeAssistant => "homeassistant",
            Self::Dingtalk => "dingtalk",
        }
    }

    /// What `name`, in lower case, stands for.
    pub(super) fn named(name: &str) -> Named {
        match Self::ALL.into_iter().find(|platform| platform.name() == name) {
            Some(platform) => Named::Ours(platform),
            None if FOREIGN.contains(&name) => Named::Foreign,
            None => Named::Unknown,
        }
    }

    /// All names, for people.
    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::messaging::SENDABLE;

    #[test]
    fn the_configuration_reads_the_keys_of_exactly_these_platforms() {
        assert_eq!(Platform::ALL.map(Platform::name), *SENDABLE);
    }
}
