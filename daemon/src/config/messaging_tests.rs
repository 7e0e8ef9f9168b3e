//! What the three sources of `platforms:` come to.

use super::*;
use crate::config::file;

struct Read {
    messaging: Messaging,
    findings: Vec<Finding>,
    secrets: KnownSecrets,
}

fn read_all(yaml: &str, gateway: Option<&str>, env: &[(&str, &str)]) -> Read {
    let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let around = Surroundings {
        file: Path::new("/h/config.yaml"),
        env: &lookup,
        dotenv: &|_| None,
        user_home: Some(Path::new("/home/u")),
        is_file: &|_| false,
        resolve: &|_| None,
    };
    let document = file::parse(yaml).unwrap();
    let (messaging, findings, secrets) = read(&document, gateway, &around);
    Read { messaging, findings, secrets }
}

impl Read {
    fn of(&self, name: &str) -> &PlatformConfig {
        &self.messaging.platforms[name]
    }

    fn knows(&self, value: &str) -> bool {
        self.secrets.longest_first().iter().any(|secret| secret.expose() == value)
    }
}

#[test]
fn the_environment_beats_the_file_and_the_file_beats_gateway_json() {
    let yaml = "platforms:\n  telegram: {enabled: true, token: from-yaml, extra: {base_url: 'http://y'}}\n";
    let gateway = r#"{"platforms": {"telegram": {"enabled": false, "token": "from-json",
        "extra": {"base_url": "http://j", "disable_link_previews": true},
        "home_channel": {"chat_id": -100, "name": "x"}}}}"#;
    let files = read_all(yaml, Some(gateway), &[]);
    let telegram = files.of("telegram");
    assert!(telegram.enabled);
    assert_eq!(telegram.token, Some(Secret::new("from-yaml")));
    assert_eq!(telegram.extra["base_url"], Secret::new("http://y"));
    assert_eq!(telegram.extra["disable_link_previews"], Secret::new("true"));
    assert_eq!(telegram.home.as_ref().unwrap().chat_id, "-100");
    let env = [
        ("TELEGRAM_BOT_TOKEN", "from-env"),
        ("TELEGRAM_HOME_CHANNEL", "7"),
        ("TELEGRAM_HOME_CHANNEL_THREAD_ID", "9"),
    ];
    let all = read_all(yaml, Some(gateway), &env);
    assert_eq!(all.of("telegram").token, Some(Secret::new("from-env")));
    let home = HomeChannel { chat_id: "7".into(), thread_id: Some("9".into()) };
    assert_eq!(all.of("telegram").home, Some(home));
    assert!(all.knows("from-env"));
}

#[test]
fn an_entry_without_enabled_is_off_and_a_credential_in_the_environment_turns_it_on() {
    let yaml = "platforms:\n  discord: {token: abcdefgh}\n  slack: {enabled: false}\n";
    assert!(!read_all(yaml, None, &[]).of("discord").enabled);
    let env = [("DISCORD_BOT_TOKEN", "x"), ("SLACK_BOT_TOKEN", "y"), ("WHATSAPP_ENABLED", "true")];
    let read = read_all(yaml, None, &env);
    assert!(read.of("discord").enabled && read.of("whatsapp").enabled);
    assert!(!read.of("slack").enabled, "an explicit no stays");
    assert!(read_all("", None, &env).of("slack").enabled);
    assert!(
        !read_all("platforms: {whatsapp: {enabled: true}}", None, &[("WHATSAPP_ENABLED", "no")])
            .of("whatsapp")
            .enabled
    );
}

#[test]
fn every_platform_takes_the_variables_of_hermes_agent() {
    let env = [
        ("SIGNAL_HTTP_URL", "http://s"),
        ("SIGNAL_ACCOUNT", "+1999"),
        ("MATRIX_ACCESS_TOKEN", "mx"),
        ("MATRIX_HOMESERVER", "https://m"),
        ("MATRIX_HOME_ROOM", "!r:m"),
        ("HASS_TOKEN", "ha"),
        ("HASS_URL", "http://h"),
        ("DINGTALK_WEBHOOK_URL", "https://d/send?access_token=abcdefghijkl"),
    ];
    let read = read_all("", None, &env);
    let extra = |name: &str, key: &str| read.of(name).extra[key].expose().to_owned();
    assert_eq!(extra("signal", "http_url"), "http://s");
    assert_eq!(extra("signal", "account"), "+1999");
    assert_eq!(extra("matrix", "homeserver"), "https://m");
    assert_eq!(read.of("matrix").home.as_ref().unwrap().chat_id, "!r:m");
    assert_eq!(extra("homeassistant", "url"), "http://h");
    assert!(read.messaging.platforms.values().all(|platform| platform.enabled));
    assert!(read.knows("abcdefghijkl"));
}

#[test]
fn a_missing_variable_is_the_platforms_problem_alone_and_is_found() {
    let yaml = "platforms:\n  telegram: {enabled: true, token: '${NOWHERE}'}\n  discord: {enabled: true, token: abc}\n";
    let read = read_all(yaml, None, &[]);
    assert!(read.of("telegram").problem.as_ref().unwrap().contains("platforms.telegram.token"));
    assert_eq!(read.of("discord").problem, None);
    assert_eq!(read.findings.len(), 1);
    assert_eq!(read.findings[0].severity, Severity::Error);
}

#[test]
fn keys_and_platforms_of_hermes_agent_alone_are_not_judged() {
    let yaml = "platforms:\n  webhook: {enabled: true, token: '${NOWHERE}', extra: {routes: {a: 1}}}\n  x: 5\n  \
                telegram: {enabled: true, reply_to_mode: first, extra: {allowed_topics: [1]}}\n";
    let read = read_all(yaml, None, &[]);
    assert_eq!(read.findings, []);
    assert!(!read.messaging.platforms.contains_key("x"));
}

#[test]
fn a_damaged_gateway_json_is_said_and_costs_nothing_else() {
    let read = read_all("platforms: {telegram: {enabled: true, token: abc}}", Some("{"), &[]);
    assert!(read.of("telegram").enabled);
    assert_eq!(read.findings[0].severity, Severity::Warning);
}

#[test]
fn proxies_and_media_folders_come_from_the_environment() {
    let env = [
        ("https_proxy", "http://u:secret-password@p:1"),
        ("NO_PROXY", "a,b"),
        ("HERMES_MEDIA_ALLOW_DIRS", "/a:~/b"),
    ];
    let read = read_all("telegram: {proxy_url: 'socks5://t:1'}", None, &env);
    let Messaging { proxies, media_dirs, .. } = &read.messaging;
    assert_eq!(proxies.https.as_ref().unwrap().expose(), "http://u:secret-password@p:1");
    assert_eq!(proxies.telegram.as_ref().unwrap().expose(), "socks5://t:1");
    assert_eq!(proxies.none_for.as_deref(), Some("a,b"));
    assert_eq!(media_dirs, &[PathBuf::from("/a"), PathBuf::from("/home/u/b")]);
    assert!(read.knows("secret-password"));
}
