//! Files, links, modes and two writers at once.

use super::edit::Step;
use super::file::{FileError, Lock, Privacy, edit, read_tree, rewrite};
use super::tree::Path;
use super::value::Value;
use hermes_proto::endpoint::Home;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::find(Some(dir.path()), &|_| None).unwrap();
    (dir, home)
}

fn add(name: &str) -> Step {
    Step::Set(Path::of(["mcp_servers", name, "command"]), Value::text("x"))
}

#[test]
fn mode_and_link_stay_and_no_temporary_file_is_left() {
    let (dir, home) = home();
    let real = dir.path().join("dotfiles.yaml");
    fs::write(&real, "a: 1 # one\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.path().join("config.yaml");
    symlink("dotfiles.yaml", &link).unwrap();
    let lock = Lock::take(&home).unwrap();
    let written = edit::<FileError>(&lock, &link, |_| Ok(vec![add("s")])).unwrap();
    assert!(written.changed());
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "a: 1 # one\nmcp_servers:\n  s:\n    command: x\n");
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.yaml", "dotfiles.yaml", "hermesd"]);
}

#[test]
fn a_new_file_and_a_private_one_are_their_owners_only() {
    let (dir, home) = home();
    let lock = Lock::take(&home).unwrap();
    let config = dir.path().join("config.yaml");
    edit::<FileError>(&lock, &config, |_| Ok(vec![add("s")])).unwrap();
    let env = dir.path().join(".env");
    fs::write(&env, "A=1\n").unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o644)).unwrap();
    rewrite::<FileError>(&lock, &env, Privacy::Private, |before| Ok([before, b"B=2\n"].concat())).unwrap();
    for path in [&config, &env] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

#[test]
fn nothing_to_do_writes_nothing() {
    let (dir, home) = home();
    let lock = Lock::take(&home).unwrap();
    let config = dir.path().join("config.yaml");
    let written = edit::<FileError>(&lock, &config, |_| Ok(Vec::new())).unwrap();
    assert!(!config.exists() && written.before.is_none());
    assert_eq!(read_tree(&config).unwrap().entries(), []);
}

#[test]
fn a_link_to_nothing_and_a_folder_are_refused() {
    let (dir, home) = home();
    let lock = Lock::take(&home).unwrap();
    let link = dir.path().join("config.yaml");
    symlink("/nowhere/at/all", &link).unwrap();
    assert!(edit::<FileError>(&lock, &link, |_| Ok(vec![add("s")])).is_err());
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    assert!(matches!(
        edit::<FileError>(&lock, &folder, |_| Ok(vec![add("s")])),
        Err(FileError::NotAFile { .. })
    ));
}

#[test]
fn what_another_program_writes_in_between_is_not_lost() {
    let (dir, home) = home();
    let lock = Lock::take(&home).unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, "a: 1\n").unwrap();
    let mut asked = 0;
    edit::<FileError>(&lock, &config, |_| {
        asked += 1;
        if asked == 1 {
            fs::write(&config, "a: 1\nb: 2\n").unwrap();
        }
        Ok(vec![add("s")])
    })
    .unwrap();
    assert_eq!(asked, 2);
    assert_eq!(fs::read_to_string(&config).unwrap(), "a: 1\nb: 2\nmcp_servers:\n  s:\n    command: x\n");
    let mut n = 0;
    let error = edit::<FileError>(&lock, &config, |_| {
        n += 1;
        fs::write(&config, format!("a: {n}\n")).unwrap();
        Ok(vec![add("other")])
    });
    assert!(matches!(error, Err(FileError::Unsteady { .. })));
}

#[test]
fn many_writers_at_once_lose_nothing() {
    let (dir, home) = home();
    let config = dir.path().join("config.yaml");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (home, config) = (home.clone(), config.clone());
            scope.spawn(move || {
                for n in 0..5 {
                    let lock = Lock::take(&home).unwrap();
                    edit::<FileError>(&lock, &config, |_| Ok(vec![add(&format!("w{writer}n{n}"))])).unwrap();
                }
            });
        }
    });
    assert_eq!(read_tree(&config).unwrap().get("mcp_servers").unwrap().entries().len(), 40);
}
