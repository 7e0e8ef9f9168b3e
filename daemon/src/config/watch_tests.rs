//! When a change is told.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A home with a watcher whose hints the test sends itself.
struct Bench {
    dir: tempfile::TempDir,
    group: TaskGroup,
    tell: mpsc::Sender<()>,
    heard: watch::Receiver<u64>,
}

impl Bench {
    fn new(yaml: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary folder");
        fs::write(dir.path().join("config.yaml"), yaml).expect("write");
        let group = TaskGroup::new();
        let (tell, hints) = mpsc::channel(1);
        let (watcher, heard) = Watcher::with_eye(Eye::new(dir.path(), || {}), hints, &group, POLL);
        group.spawn(watcher.run());
        Self { dir, group, tell, heard }
    }

    fn write(&self, yaml: &str) {
        fs::write(self.dir.path().join("config.yaml"), yaml).expect("write");
    }

    async fn hint(&self) {
        self.tell.send(()).await.expect("the watcher runs");
    }

    /// How long until the next change is told.
    async fn told_after(&mut self) -> Duration {
        let from = Instant::now();
        self.heard.changed().await.expect("the watcher runs");
        from.elapsed()
    }

    async fn quiet_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.heard.changed()).await.is_err()
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_change_is_told_soon_after_the_hint() {
    let mut bench = Bench::new("a: 1\n");
    bench.write("a: 2\n");
    bench.hint().await;
    let took = bench.told_after().await;
    assert!(took >= REST && took < PATIENCE, "{took:?}");
    assert!(bench.quiet_for(4 * POLL).await);
}

#[tokio::test(start_paused = true)]
async fn touching_the_files_tells_nothing() {
    let mut bench = Bench::new("a: 1\n");
    for _ in 0..100 {
        bench.write("a: 1\n");
        bench.hint().await;
    }
    assert!(bench.quiet_for(4 * POLL).await);
}

#[tokio::test(start_paused = true)]
async fn a_half_written_file_is_given_time_and_then_told_as_it_is() {
    let mut bench = Bench::new("a: 1\n");
    bench.write("a: [1,");
    bench.hint().await;
    assert!(bench.quiet_for(PATIENCE / 2).await);
    bench.write("a: [1, 2]\n");
    bench.hint().await;
    assert!(bench.told_after().await < PATIENCE);
    bench.write("a: [broken\n");
    bench.hint().await;
    assert!(bench.told_after().await >= PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_for_a_moment_tells_only_the_new_content() {
    let mut bench = Bench::new("a: 1\n");
    fs::remove_file(bench.dir.path().join("config.yaml")).expect("remove");
    bench.hint().await;
    assert!(bench.quiet_for(PATIENCE / 2).await);
    bench.write("a: 1\n");
    bench.hint().await;
    assert!(bench.quiet_for(4 * POLL).await);
}

#[tokio::test(start_paused = true)]
async fn the_poll_finds_what_nobody_reported() {
    let mut bench = Bench::new("a: 1\n");
    fs::write(bench.dir.path().join(".env"), "A=1\n").expect("write");
    assert!(bench.told_after().await < POLL + PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_group_and_with_its_last_listener() {
    let bench = Bench::new("a: 1\n");
    assert_eq!(bench.group.finish(Duration::from_secs(1)).await, crate::tasks::Finished::All);
    let group = TaskGroup::new();
    let (watcher, heard) = Watcher::new(bench.dir.path(), &group);
    drop(heard);
    assert_eq!(watcher.run().await, Ended::Unheard);
}

#[test]
fn files_that_never_come_to_rest_are_told_in_the_end() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let mut eye = Eye::new(dir.path(), || {});
    let mut settle = Settle::new(eye.look());
    let start = Instant::now();
    let mut told_at = None;
    for n in 0..100_u32 {
        fs::write(dir.path().join("config.yaml"), format!("a: {n}\n")).expect("write");
        let now = start + REST / 2 * n;
        if settle.step(eye.look(), now) == Verdict::Changed {
            told_at = Some(now - start);
            break;
        }
    }
    assert!(told_at.is_some_and(|at| at >= LIMIT && at < 2 * LIMIT), "{told_at:?}");
}

/// The system's own reports, without the poll; waits for the event, never for a time.
async fn reported(change: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let home = dir.path().join("home");
    for folder in ["home", "v1", "v2"] {
        fs::create_dir(dir.path().join(folder)).expect("folder");
        fs::write(dir.path().join(folder).join("config.yaml"), format!("from: {folder}\n")).expect("write");
    }
    if dir.path().join("home/config.yaml").is_file() {
        fs::remove_file(dir.path().join("home/config.yaml")).expect("remove");
    }
    symlink("v1", dir.path().join("current")).expect("link");
    symlink("../current/config.yaml", home.join("config.yaml")).expect("link");
    let group = TaskGroup::new();
    let (tell, hints) = mpsc::channel(1);
    let eye = Eye::new(&home, move || {
        let _ = tell.try_send(());
    });
    let (watcher, mut heard) = Watcher::with_eye(eye, hints, &group, Duration::from_secs(3600));
    group.spawn(watcher.run());
    change(dir.path());
    tokio::time::timeout(Duration::from_secs(60), heard.changed()).await.expect("in time").expect("told");
    group.finish(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_editor_that_writes_in_place_is_noticed_behind_links() {
    reported(|root| fs::write(root.join("v1/config.yaml"), "a: 1\n").expect("write")).await;
}

#[tokio::test]
async fn an_editor_that_renames_is_noticed_behind_links() {
    reported(|root| {
        fs::write(root.join("v1/.tmp"), "a: 1\n").expect("write");
        fs::rename(root.join("v1/.tmp"), root.join("v1/config.yaml")).expect("rename");
    })
    .await;
}

#[tokio::test]
async fn an_exchanged_link_is_noticed() {
    reported(|root| {
        symlink("v2", root.join("next")).expect("link");
        fs::rename(root.join("next"), root.join("current")).expect("rename");
    })
    .await;
}

#[tokio::test]
async fn a_new_dotenv_is_noticed() {
    reported(|root: &Path| fs::write(PathBuf::from(root).join("home/.env"), "A=1\n").expect("write")).await;
}
