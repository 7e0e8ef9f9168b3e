//! Whatever lies at the path, there is a store, and it says what it is.

use super::*;
use crate::store::filesystem::Locality;
use rusqlite::OpenFlags;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn key() -> PinKey {
    PinKey { server: server("fs"), kind: "tool".to_owned(), name: "read".to_owned() }
}

fn pin() -> Pin {
    Pin { digest: [1; 32], text: "reads".to_owned(), first_seen: UnixMs(5), approved: None, change: None }
}

fn approval() -> NewApproval {
    NewApproval {
        server: server("fs"),
        tool: crate::names::RawTool::new("read"),
        schema_hash: [2; 32],
        created_by: "ada".to_owned(),
        created_at: UnixMs(9),
    }
}

/// Fills the file with more pages than any cache holds, all of them in the file itself.
async fn filled(home: &Home) {
    let store = home.open_well();
    for _ in 0..200 {
        let mut row = row("big");
        row.arguments = Arguments::Full("x".repeat(15_000));
        assert_eq!(store.record(row), Recorded::Queued);
    }
    store.put_pins(vec![(key(), pin())]).await.unwrap();
    closed(store).await;
    home.stranger().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

/// Overwrites everything behind the first pages.
fn scribble(path: &std::path::Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    assert!(len > 1 << 20, "the file is too small to be damaged in its middle");
    file.write_all_at(&vec![0xA5; usize::try_from(len - 60_000).unwrap()], 60_000).unwrap();
}

#[tokio::test]
async fn a_new_file_is_private_and_uses_a_write_ahead_log() {
    let home = Home::new();
    let store = home.open_well();
    assert_eq!(store.health().borrow().keeping, Keeping::Wal);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.path()), 0o600);
    assert_eq!(mode(home.path().parent().unwrap()), 0o700);
    store.record(row("a"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(mode(&home.path().with_file_name("hermesd.db-wal")), 0o600);
}

#[tokio::test]
async fn a_file_open_to_others_is_closed_to_them() {
    let home = Home::new();
    closed(home.open_well()).await;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let store = home.open_well();
    assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(store);
}

#[tokio::test]
async fn garbage_is_moved_aside_with_its_log_and_pins_count_as_lost() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    fs::write(home.path(), "no database at all, but long enough to have a header of its own".repeat(100))
        .unwrap();
    fs::write(home.path().with_file_name("hermesd.db-wal"), "old log").unwrap();
    let (store, findings) = home.open();
    let [StoreFinding::Damaged { moved_to }] = &findings[..] else { panic!("{findings:?}") };
    assert!(fs::read_to_string(moved_to).unwrap().starts_with("no database"));
    assert_eq!(findings[0].severity(), crate::config::Severity::Error);
    assert_eq!(store.health().borrow().moved_aside, std::slice::from_ref(moved_to));
    assert!(matches!(store.load_pins().await.unwrap().first_use, FirstUse::LostAt(_)));
    closed(store).await;

    // The loss outlives a restart, until a person has looked.
    let store = home.open_well();
    assert!(matches!(store.load_pins().await.unwrap().first_use, FirstUse::LostAt(_)));
    store.trust_first_use_again().await.unwrap();
    closed(store).await;
    assert_eq!(home.open_well().load_pins().await.unwrap().first_use, FirstUse::Trusted);
}

#[tokio::test]
async fn damage_in_the_middle_of_the_file_is_found_at_the_next_start() {
    let home = Home::new();
    filled(&home).await;
    scribble(&home.path());
    let (store, findings) = home.open();
    assert!(matches!(findings[..], [StoreFinding::Damaged { .. }]), "{findings:?}");
    assert_eq!(tools(&store, AuditQuery::default()).await, [""; 0]);
    store.put_pins(vec![(key(), pin())]).await.unwrap();
}

#[tokio::test]
async fn damage_while_running_replaces_the_file_and_the_store_goes_on() {
    let home = Home::new();
    filled(&home).await;
    let store = home.open_well();
    let mut health = store.health();
    scribble(&home.path());
    assert!(matches!(store.audit(AuditQuery::default()).await, Err(StoreError::Damaged)));
    health.wait_for(|health| health.moved_aside.len() == 1).await.unwrap();
    assert_eq!(store.opened(LONG).await.unwrap(), Keeping::Wal);
    store.record(row("after"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(tools(&store, AuditQuery::default()).await, ["after"]);
    let pins = store.load_pins().await.unwrap();
    assert!(pins.by_key.is_empty() && matches!(pins.first_use, FirstUse::LostAt(_)));
}

#[tokio::test]
async fn a_cut_off_log_loses_its_tail_and_nothing_else() {
    let home = Home::new();
    let store = home.open_well();
    store.allow_always(approval()).await.unwrap();
    store.record(row("late"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    // A copy of the moment is what a crash of the machine leaves.
    let crashed = Home::new();
    fs::create_dir_all(crashed.path().parent().unwrap()).unwrap();
    for name in ["hermesd.db", "hermesd.db-wal"] {
        fs::copy(home.path().with_file_name(name), crashed.path().with_file_name(name)).unwrap();
    }
    let log =
        fs::OpenOptions::new().write(true).open(crashed.path().with_file_name("hermesd.db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - 100).unwrap();
    let store = crashed.open_well();
    assert_eq!(store.standing_approvals().await.unwrap().len(), 1);
    assert_eq!(tools(&store, AuditQuery::default()).await, [""; 0]);
}

#[tokio::test]
async fn a_file_that_may_only_be_read_means_memory_and_no_pins_or_approvals() {
    let home = Home::new();
    closed(home.open_well()).await;
    // Permissions do not bind every user; the flag makes SQLite answer as they would.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (store, findings) = Store::open_place(Place { flags, ..Place::of(&home.path()) });
    let reason = MemoryReason::ReadOnly;
    assert_eq!(findings, [StoreFinding::InMemory { path: home.path(), reason: reason.clone() }]);
    assert_eq!(store.health().borrow().keeping, Keeping::Memory(reason));

    assert!(matches!(store.load_pins().await, Err(StoreError::NotDurable(MemoryReason::ReadOnly))));
    assert!(matches!(store.put_pins(vec![(key(), pin())]).await, Err(StoreError::NotDurable(_))));
    assert!(matches!(store.allow_always(approval()).await, Err(StoreError::NotDurable(_))));
    assert!(matches!(store.standing_approvals().await, Err(StoreError::NotDurable(_))));

    let mut follow = store.follow_audit(AuditQuery::default());
    store.record(row("in memory"));
    store.count_calls(ProfileName::new("default"), Day(3), 2);
    assert_eq!(follow.next().await.unwrap().len(), 1);
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(store.quota_used(Day(3)).await.unwrap()[&ProfileName::new("default")], 2);
}

#[tokio::test]
async fn memory_keeps_only_the_newest_rows() {
    let home = Home::new();
    fs::write(home.folder.path().join("hermesd"), "a file where the folder should be").unwrap();
    let (store, _) = home.open();
    let mut health = store.health();
    let fresh = UnixMs::at(std::time::SystemTime::now());
    for round in 0..3 {
        for _ in 0..8_000 {
            assert_eq!(store.record(AuditRow { at: fresh, ..row("a") }), Recorded::Queued, "round {round}");
        }
        assert_eq!(store.flush(LONG).await, Flushed::All);
    }
    health.wait_for(|health| health.removed >= 4_000).await.unwrap();
}

#[tokio::test]
async fn a_file_of_another_program_is_not_taken_over() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    home.stranger().execute_batch("CREATE TABLE audit(mine); INSERT INTO audit VALUES ('kept')").unwrap();
    let (_store, findings) = home.open();
    let reason = MemoryReason::Migration;
    assert_eq!(findings, [StoreFinding::InMemory { path: home.path(), reason }]);
    let kept: String = home.stranger().query_row("SELECT mine FROM audit", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "kept");
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_means_memory() {
    let home = Home::new();
    fs::write(home.folder.path().join("hermesd"), "a file where the folder should be").unwrap();
    let (store, findings) = home.open();
    assert!(
        matches!(&findings[..], [StoreFinding::InMemory { reason: MemoryReason::CannotOpen, .. }]),
        "{findings:?}"
    );
    store.record(row("a"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
}

#[tokio::test]
async fn a_newer_file_is_refused_and_left_as_it_is() {
    let home = Home::new();
    closed(home.open_well()).await;
    home.stranger().execute_batch("PRAGMA user_version = 4711; PRAGMA journal_mode = DELETE").unwrap();
    let before = fs::read(home.path()).unwrap();
    let (store, findings) = home.open();
    let reason = MemoryReason::Newer { found: 4711, known: crate::store::migrations::known() };
    assert_eq!(findings, [StoreFinding::InMemory { path: home.path(), reason }]);
    store.record(row("a"));
    closed(store).await;
    assert!(fs::read(home.path()).unwrap() == before, "the file was changed");
}

#[tokio::test]
async fn a_network_file_system_gets_a_rollback_journal_and_a_warning_also_for_a_file_made_elsewhere() {
    let home = Home::new();
    let store = home.open_well();
    store.allow_always(approval()).await.unwrap();
    closed(store).await;
    let (store, findings) =
        Store::open_place(Place { locality: Locality::Network { name: "NFS" }, ..Place::of(&home.path()) });
    assert_eq!(findings, [StoreFinding::NoWal { path: home.path(), filesystem: "NFS" }]);
    assert_eq!(store.health().borrow().keeping, Keeping::Rollback);
    assert_eq!(store.standing_approvals().await.unwrap().len(), 1);
    store.record(row("a"));
    assert_eq!(store.flush(LONG).await, Flushed::All);
    assert_eq!(tools(&store, AuditQuery::default()).await, ["a"]);
    let mode: String = home.stranger().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_ne!(mode, "wal");
}
