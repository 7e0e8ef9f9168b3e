//! Tests of `osv` against a fake database on a local port.

use super::*;
use crate::server::package::Ecosystem;
use crate::tasks::TaskGroup;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each request with the next of `answers`, the last one for ever; keeps the bodies.
struct Fake {
    endpoint: String,
    asked: Arc<Mutex<Vec<serde_json::Value>>>,
    _tasks: TaskGroup,
}

impl Fake {
    async fn with(answers: &[(u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/query", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers: Vec<(u16, String)> =
            answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let tasks = TaskGroup::new();
        let seen = asked.clone();
        tasks.spawn(async move {
            for at in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let body = read_request(&mut stream).await;
                seen.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let (status, text) = &answers[usize::min(at, answers.len() - 1)];
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    text.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        Self { endpoint, asked, _tasks: tasks }
    }

    fn asked(&self) -> Vec<serde_json::Value> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let length: usize = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |value| value.trim().parse().unwrap());
        if bytes.len() >= end + 4 + length {
            return bytes[end + 4..].to_vec();
        }
    }
}

fn package(version: Option<&str>) -> Package {
    Package { ecosystem: Ecosystem::Npm, name: "left".into(), version: version.map(str::to_owned) }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

const NOW: u64 = 1_700_000_000;

fn checker(endpoint: &str, dir: &tempfile::TempDir) -> Osv {
    Osv::new(Some(endpoint), dir.path().join("osv-cache.json"))
}

#[tokio::test]
async fn a_malware_advisory_blocks_and_the_question_names_package_and_version() {
    let fake = Fake::with(&[(200, r#"{"vulns":[{"id":"GHSA-1"},{"id":"MAL-2025-1"}]}"#)]).await;
    let dir = tempfile::tempdir().unwrap();
    let verdict = checker(&fake.endpoint, &dir).check(&package(Some("1.0.0")), at(NOW)).await;
    assert_eq!(verdict, Verdict::Malware { ids: vec!["MAL-2025-1".into()] });
    assert!(verdict.finding(&package(Some("1.0.0"))).unwrap().contains("MAL-2025-1"));
    let expected = serde_json::json!({"package":{"name":"left","ecosystem":"npm"},"version":"1.0.0"});
    assert_eq!(fake.asked(), [expected]);
}

#[tokio::test]
async fn other_advisories_do_not_block() {
    let fake = Fake::with(&[(200, r#"{"vulns":[{"id":"GHSA-1"},{"id":"CVE-2"}]}"#)]).await;
    let dir = tempfile::tempdir().unwrap();
    let verdict = checker(&fake.endpoint, &dir).check(&package(None), at(NOW)).await;
    assert_eq!(verdict, Verdict::Clean);
    assert_eq!(verdict.finding(&package(None)), None);
}

#[tokio::test]
async fn advisories_on_later_pages_count() {
    let pages = [(200, r#"{"vulns":[],"next_page_token":"two"}"#), (200, r#"{"vulns":[{"id":"MAL-2"}]}"#)];
    let fake = Fake::with(&pages).await;
    let dir = tempfile::tempdir().unwrap();
    let verdict = checker(&fake.endpoint, &dir).check(&package(None), at(NOW)).await;
    assert_eq!(verdict, Verdict::Malware { ids: vec!["MAL-2".into()] });
    assert_eq!(fake.asked()[1]["page_token"], "two");
}

#[tokio::test]
async fn no_usable_answer_lets_pass_says_so_and_is_not_kept() {
    let fake = Fake::with(&[(500, ""), (200, "not json"), (200, "{}")]).await;
    let dir = tempfile::tempdir().unwrap();
    let osv = checker(&fake.endpoint, &dir);
    for expected in ["status 500", "no OSV answer"] {
        let verdict = osv.check(&package(None), at(NOW)).await;
        let finding = verdict.finding(&package(None)).unwrap();
        assert!(matches!(verdict, Verdict::Unchecked { .. }) && finding.contains(expected), "{finding}");
    }
    assert_eq!(osv.check(&package(None), at(NOW)).await, Verdict::Clean, "asked again");
}

#[tokio::test]
async fn a_database_that_is_not_there_lets_pass_without_showing_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://user:hidden@{}/q", listener.local_addr().unwrap());
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let Verdict::Unchecked { reason } = checker(&endpoint, &dir).check(&package(None), at(NOW)).await else {
        panic!("nobody answered")
    };
    assert!(!reason.contains("hidden"), "{reason}");
    let bad = checker("no address", &dir).check(&package(None), at(NOW)).await;
    assert!(matches!(bad, Verdict::Unchecked { .. }), "{bad:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_database_is_given_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/q", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let started = tokio::time::Instant::now();
    let verdict = checker(&endpoint, &dir).check(&package(None), at(NOW)).await;
    assert!(matches!(verdict, Verdict::Unchecked { .. }), "{verdict:?}");
    assert!(started.elapsed() <= LIMIT + Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_answer_is_kept_for_a_day_also_across_restarts_and_by_version() {
    let fake = Fake::with(&[(200, "{}")]).await;
    let dir = tempfile::tempdir().unwrap();
    checker(&fake.endpoint, &dir).check(&package(None), at(NOW)).await;
    let again = checker(&fake.endpoint, &dir);
    again.check(&package(None), at(NOW + KEEP.as_secs() - 1)).await;
    assert_eq!(fake.asked().len(), 1, "kept on disk");
    again.check(&package(Some("1.0.0")), at(NOW)).await;
    assert_eq!(fake.asked().len(), 2, "another version is another question");
    again.check(&package(None), at(NOW + KEEP.as_secs())).await;
    assert_eq!(fake.asked().len(), 3, "a day is over");
    again.check(&package(None), at(NOW - 60)).await;
    assert_eq!(fake.asked().len(), 4, "an answer from the future does not count");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(dir.path().join("osv-cache.json")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_damaged_cache_file_counts_as_empty() {
    let fake = Fake::with(&[(200, "{}")]).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("osv-cache.json"), "{broken").unwrap();
    assert_eq!(checker(&fake.endpoint, &dir).check(&package(None), at(NOW)).await, Verdict::Clean);
}

fn advisories(text: &str) -> Vec<Advisory> {
    serde_json::from_str(text).unwrap()
}

#[test]
fn without_a_version_a_past_takeover_of_single_versions_warns_and_whole_packages_block() {
    let takeover = r#"[{"id":"MAL-1","affected":[{"versions":["5.6.1"]}]}]"#;
    let some = Verdict::SomeVersions { ids: vec!["MAL-1".into()], versions: vec!["5.6.1".into()] };
    assert_eq!(judge(&package(None), &advisories(takeover)), some);
    let malware = Verdict::Malware { ids: vec!["MAL-1".into()] };
    assert_eq!(judge(&package(Some("5.6.1")), &advisories(takeover)), malware);
    for whole in [
        r#"[{"id":"MAL-1"}]"#,
        r#"[{"id":"MAL-1","affected":[{}]}]"#,
        r#"[{"id":"MAL-1","affected":[{"versions":["1.0.0"],"ranges":[{"events":[{"introduced":"0"}]}]}]}]"#,
    ] {
        assert_eq!(judge(&package(None), &advisories(whole)), malware, "{whole}");
    }
    let mended =
        r#"[{"id":"MAL-1","affected":[{"ranges":[{"events":[{"introduced":"0"},{"fixed":"2.0.0"}]}]}]}]"#;
    assert!(matches!(judge(&package(None), &advisories(mended)), Verdict::SomeVersions { .. }));
}

#[test]
fn a_withdrawn_advisory_does_not_count() {
    let text = r#"[{"id":"MAL-1","withdrawn":"2025-01-01T00:00:00Z"}]"#;
    assert_eq!(judge(&package(Some("1.0.0")), &advisories(text)), Verdict::Clean);
}
