//! Tests of server logs through the real writer thread and files.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tokio::io::AsyncWriteExt;

const LONG: Duration = Duration::from_secs(60);

fn start(dir: &Path, limits: LogLimits) -> ServerLogs {
    let hook = RedactHook::new(|text| text.replace("s3cret", "[REDACTED]"));
    ServerLogs::start(dir, limits, hook).unwrap()
}

fn name(text: &str) -> ServerName {
    ServerName::new(text)
}

/// Lines without their timestamps.
fn texts(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.split_once(' ').unwrap().1).collect()
}

fn bytes_in(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn lines_are_stamped_masked_escaped_folded_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let logs = start(dir.path(), LogLimits::default());
    let log = logs.open(&name("fs"));
    for line in ["hello s3cret", "same", "same", "same", "\x1b]0;x\x07"] {
        log.line(line.as_bytes());
    }
    log.note("started");
    assert_eq!(log.flush(LONG).await, Flushed::All);
    let expected =
        ["hello [REDACTED]", "same", "-- last line repeated 2 times", "\\x1b]0;x\\x07", "-- started"];
    assert_eq!(texts(&log.tail(99)), expected);
    assert_eq!(texts(&log.tail(1)), ["-- started"]);
    assert_eq!(log.path(), dir.path().join("fs.log"));
    assert_eq!(crate::telemetry::tail::tail_file(log.path(), 99).unwrap(), log.tail(99));
    let first = log.tail(99)[0].clone();
    assert!(
        first.parse::<jiff::Timestamp>().is_err()
            && first.split(' ').next().unwrap().parse::<jiff::Timestamp>().is_ok()
    );
    assert_eq!(fs::metadata(log.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn repetitions_that_never_end_are_said_at_the_flush() {
    let dir = tempfile::tempdir().unwrap();
    let log = start(dir.path(), LogLimits::default()).open(&name("fs"));
    for _ in 0..1001 {
        log.line(b"again");
    }
    log.flush(LONG).await;
    assert_eq!(texts(&log.tail(9)), ["again", "-- last line repeated 1000 times"]);
}

#[tokio::test]
async fn a_count_is_written_by_itself_when_no_other_line_comes() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits { report_after: Duration::from_millis(1), ..LogLimits::default() };
    let log = start(dir.path(), limits).open(&name("fs"));
    let (_, mut feed) = log.follow(0);
    log.line(b"again");
    log.line(b"again");
    let Some(Fed::Line(first)) = feed.next().await else { panic!("the line itself") };
    let Some(Fed::Line(second)) = feed.next().await else { panic!("its count") };
    assert!(
        first.ends_with(" again") && second.ends_with(" -- last line repeated once more"),
        "{first} {second}"
    );
}

#[tokio::test]
async fn a_secret_at_the_cut_of_a_long_line_is_not_halved() {
    let dir = tempfile::tempdir().unwrap();
    let log = start(dir.path(), LogLimits::default()).open(&name("fs"));
    let line = format!("{}s3cret{}", "x".repeat(MAX_LINE - 3), "y".repeat(100_000));
    log.line(line.as_bytes());
    log.flush(LONG).await;
    let text = log.tail(1)[0].clone();
    assert!(!text.contains("s3c") && text.contains("cut: 108195 bytes"), "{}", &text[text.len() - 60..]);
    assert!(text.len() < MAX_LINE + 100);
}

#[tokio::test]
async fn followers_get_the_tail_and_then_every_line_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = start(dir.path(), LogLimits::default()).open(&name("fs"));
    log.line(b"one");
    log.line(b"two");
    log.flush(LONG).await;
    let (tail, mut feed) = log.follow(1);
    assert_eq!(texts(&tail), ["two"]);
    log.line(b"three");
    let Some(Fed::Line(line)) = feed.next().await else { panic!("a line was written") };
    assert!(line.ends_with(" three"));
    for i in 0..FEED_LINES + 10 {
        log.line(format!("{i}").as_bytes());
    }
    log.flush(LONG).await;
    assert_eq!(feed.next().await, Some(Fed::Missed(10)), "a slow follower loses the oldest");
}

#[tokio::test]
async fn a_full_queue_drops_counts_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    // The bytes of one line do not fit: every line finds the queue full.
    let log = start(dir.path(), LogLimits { queue_bytes: 8, ..LogLimits::default() }).open(&name("fs"));
    for i in 0..100 {
        log.line(format!("a longer line {i}").as_bytes());
    }
    assert_eq!(log.lost(), 100);
    log.line(b"short");
    log.flush(LONG).await;
    assert_eq!(texts(&log.tail(9)), ["-- 100 lines lost: the log could not be written fast enough", "short"]);
}

#[tokio::test]
async fn a_disk_that_refuses_is_survived_and_reported_once_it_works() {
    let dir = tempfile::tempdir().unwrap();
    let log = start(dir.path(), LogLimits::default()).open(&name("fs"));
    fs::create_dir(log.path()).unwrap(); // nothing can be written here
    for i in 0..3 {
        log.line(format!("line {i}").as_bytes());
    }
    log.flush(LONG).await;
    assert_eq!(log.lost(), 3);
    assert_eq!(texts(&log.tail(9)), ["line 0", "line 1", "line 2"], "status still has them");
    fs::remove_dir(log.path()).unwrap();
    log.line(b"back");
    log.flush(LONG).await;
    let text = fs::read_to_string(log.path()).unwrap();
    assert!(text.contains("-- 3 lines lost: ") && text.contains(" back\n"), "{text}");
}

#[tokio::test]
async fn many_flooding_servers_stay_within_the_total_cap() {
    let dir = tempfile::tempdir().unwrap();
    let rate = Rate { bytes_per_second: 1 << 30, burst: 1 << 30 };
    let cap = 64 * 1024;
    let limits = LogLimits { file_bytes: 16 * 1024, total_bytes: cap, rate, ..LogLimits::default() };
    let logs = start(dir.path(), limits);
    let servers: Vec<ServerLog> = (0..12).map(|i| logs.open(&name(&format!("s{i}")))).collect();
    for i in 0..400 {
        for log in &servers {
            log.line(format!("{i} {}", "x".repeat(180)).as_bytes());
        }
        logs.flush(LONG).await;
        assert!(bytes_in(dir.path()) <= cap, "{} after {i}", bytes_in(dir.path()));
    }
    assert!(bytes_in(dir.path()) > cap / 4, "and it is used");
}

#[tokio::test]
async fn a_flood_on_stderr_is_read_to_its_end_and_leaves_a_small_log() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits { rate: Rate { bytes_per_second: 1, burst: 10_000 }, ..LogLimits::default() };
    let log = start(dir.path(), limits).open(&name("fs"));
    let (mut sender, receiver) = pipe::pipe().unwrap();
    let group = crate::tasks::TaskGroup::new();
    let drained = group.spawn(drain(receiver, log.clone()));
    for i in 0..20_000u32 {
        sender.write_all(format!("flood {i} {}\n", "x".repeat(100)).as_bytes()).await.unwrap();
    }
    sender.write_all(&vec![b'y'; MAX_DRAINED + 5]).await.unwrap();
    sender.write_all(b"\nlast words without a newline").await.unwrap();
    drop(sender);
    drained.await.unwrap();
    assert!(bytes_in(dir.path()) < 20_000);
    let tail = log.tail(99);
    let tail = texts(&tail).join("\n");
    assert!(
        tail.contains(" left out: too much at once") && tail.ends_with("last words without a newline"),
        "{tail}"
    );
    assert!(fs::read_to_string(log.path()).unwrap().lines().next().unwrap().contains("flood 0 "));
}

#[tokio::test]
async fn the_last_words_of_a_child_are_in_the_tail_when_the_drain_ends() {
    let dir = tempfile::tempdir().unwrap();
    let log = start(dir.path(), LogLimits::default()).open(&name("fs"));
    let (mut sender, receiver) = pipe::pipe().unwrap();
    sender.write_all(b"Error: no module\r\nbye").await.unwrap();
    drop(sender);
    drain(receiver, log.clone()).await;
    assert_eq!(texts(&log.tail(9)), ["Error: no module", "bye"]);
}

#[tokio::test]
async fn the_same_name_is_the_same_log() {
    let dir = tempfile::tempdir().unwrap();
    let logs = start(dir.path(), LogLimits::default());
    let first = logs.open(&name("fs"));
    first.line(b"a");
    first.flush(LONG).await;
    assert_eq!(logs.open(&name("fs")).tail(9).len(), 1);
    assert_eq!(logs.path_of(&name("fs")), first.path());
}

#[test]
fn file_names_are_safe_unique_and_readable() {
    assert_eq!(file_name("my-server_2.0"), "my-server_2.0.log");
    let odd =
        ["hermesd", "A", "a/b", "a\\b", "../x", "", ".hidden", "中文", "文中", "a~b", "x".repeat(100).leak()];
    let mut seen: Vec<String> = odd.iter().map(|name| file_name(name)).collect();
    for file in &seen {
        assert!(
            file.contains('~') && !file.contains('/') && !file.starts_with('.') && file.len() < 80,
            "{file}"
        );
        assert_ne!(file, OWN_LOG);
    }
    // A name that looks like another one's hashed file name gets a hash of its own.
    seen.push(file_name(file_name("A").strip_suffix(".log").unwrap()));
    seen.push(file_name("a"));
    let unique: std::collections::BTreeSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len());
}
