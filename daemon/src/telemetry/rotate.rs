//! One log file that rotates by size, and the cap over a folder of them.
//!
//! Owner: the writer thread (blocking file calls). Promise: a file never grows over its limit by more
//! than one line; a write that fails leaves no half line; no symlink is followed; files are 0600.
//! May not touch: anything outside the log folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often it is checked whether somebody removed the file.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A log file `x.log` with its older parts `x.log.1`, `x.log.2`, …
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    /// Bytes of one file.
    limit: u64,
    /// Files in all, the current one included; at least 1.
    files: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
    inode: u64,
    looked: Instant,
}

/// What a write did besides writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Nothing else.
    Appended,
    /// The file was full and a new one begun before it.
    Rotated,
}

impl RotatingFile {
    /// A file at `path` of at most `limit` bytes, `files` parts in all. Opened by the first write.
    pub fn new(path: PathBuf, limit: u64, files: u32) -> Self {
        Self { path, limit, files: files.max(1), open: None }
    }

    /// Where the newest lines are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in the current file, as far as known.
    pub fn size(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.size)
    }

    /// Appends `line`, which ends with a newline. Blocking.
    ///
    /// # Errors
    /// The system's; nothing of the line is in the file then, and the next write tries again.
    pub fn append(&mut self, line: &[u8]) -> io::Result<Written> {
        let mut written = Written::Appended;
        self.reopen_if_removed();
        if self.opened()?.size + line.len() as u64 > self.limit && self.size() > 0 {
            self.rotate()?;
            written = Written::Rotated;
        }
        let open = self.opened()?;
        match open.file.write_all(line) {
            Ok(()) => {
                open.size += line.len() as u64;
                Ok(written)
            }
            Err(error) => {
                // A full disk may have taken a part of it.
                let _ = open.file.set_len(open.size);
                Err(error)
            }
        }
    }

    /// Empties the current file; for the cap over the folder. Blocking.
    pub fn restart(&mut self) {
        if let Some(open) = &mut self.open
            && open.file.set_len(0).is_ok()
        {
            open.size = 0;
        }
    }

    fn opened(&mut self) -> io::Result<&mut Open> {
        if self.open.is_none() {
            let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).custom_flags(flags);
            let file = match options.open(&self.path) {
                // Somebody removed the whole folder to make room.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let folder = self.path.parent().unwrap_or(Path::new("."));
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                    options.open(&self.path)?
                }
                other => other?,
            };
            let meta = file.metadata()?;
            if !meta.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            if meta.mode() & 0o077 != 0 {
                rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600))?;
            }
            self.open = Some(Open { file, size: meta.len(), inode: meta.ino(), looked: Instant::now() });
        }
        Ok(self.open.as_mut().expect("set above"))
    }

    /// Writing into a removed file would fill the disk unseen.
    fn reopen_if_removed(&mut self) {
        if let Some(open) = &mut self.open
            && open.looked.elapsed() >= LOOK_AGAIN
        {
            open.looked = Instant::now();
            if fs::symlink_metadata(&self.path).map(|meta| meta.ino()).ok() != Some(open.inode) {
                self.open = None;
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.files == 1 {
            self.restart();
            return Ok(());
        }
        for part in (1..self.files - 1).rev() {
            rename_if_there(&part_of(&self.path, part), &part_of(&self.path, part + 1))?;
        }
        rename_if_there(&self.path, &part_of(&self.path, 1))?;
        self.open = None;
        Ok(())
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// `x.log` and 2 to `x.log.2`.
pub fn part_of(path: &Path, part: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{part}"));
    PathBuf::from(name)
}

/// One log file in the folder.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    size: u64,
    modified: SystemTime,
    rotated: bool,
    own: bool,
}

/// Brings the log files in `folder` down to `cap` bytes: first rotated parts, then logs that nobody
/// in `live` writes, oldest first; parts of the log called `own` go last, because they say what
/// happened. Returns how many bytes are left. Blocking.
pub fn enforce_cap(folder: &Path, cap: u64, live: &[PathBuf], own: &str) -> u64 {
    let mut parts = parts_in(folder, own);
    let mut total: u64 = parts.iter().map(|part| part.size).sum();
    parts.retain(|part| !live.contains(&part.path));
    parts.sort_by_key(|part| (part.own, !part.rotated, part.modified));
    for part in parts {
        if total <= cap {
            break;
        }
        if fs::remove_file(&part.path).is_ok() {
            total -= part.size;
        }
    }
    total
}

fn parts_in(folder: &Path, own: &str) -> Vec<Part> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let part = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let rotated = name.rsplit_once(".log.").is_some_and(|(_, part)| part.parse::<u32>().is_ok());
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?; // lstat: a symlink is no log
        (rotated || name.ends_with(".log")).then(|| Part {
            path: entry.path(),
            size: meta.len(),
            modified: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            rotated,
            own: name.starts_with(own),
        })
    };
    entries.filter_map(|entry| part(entry.ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_rotate_by_size_and_the_oldest_part_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = RotatingFile::new(dir.path().join("a.log"), 10, 3);
        for i in 0..5 {
            let written = file.append(format!("line {i}\n").as_bytes()).unwrap();
            assert_eq!(written, if i == 0 { Written::Appended } else { Written::Rotated });
        }
        assert_eq!(names(dir.path()), ["a.log", "a.log.1", "a.log.2"]);
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            (read("a.log"), read("a.log.1"), read("a.log.2")),
            ("line 4\n".into(), "line 3\n".into(), "line 2\n".into())
        );
    }

    #[test]
    fn a_restart_appends_and_tightens_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "old\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        RotatingFile::new(path.clone(), 100, 2).append(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\nnew\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_removed_folder_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/hermesd/a.log");
        RotatingFile::new(path.clone(), 100, 2).append(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o077, 0);
    }

    #[test]
    fn a_symlink_in_the_place_of_the_log_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("precious");
        fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("a.log")).unwrap();
        assert!(RotatingFile::new(dir.path().join("a.log"), 100, 2).append(b"new\n").is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "x");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_and_not_a_panic() {
        let mut file = RotatingFile::new("/dev/full".into(), 100, 2);
        assert!(file.append(b"x\n").is_err());
        assert!(file.append(b"x\n").is_err());
    }

    #[test]
    fn the_cap_takes_rotated_parts_then_logs_of_servers_that_are_gone_and_never_live_ones() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["own.log.1", "live.log", "live.log.1", "gone.log", "notes.txt"] {
            fs::write(dir.path().join(name), [b'x'; 100]).unwrap();
        }
        let live = [dir.path().join("live.log")];
        let cap = |bytes| enforce_cap(dir.path(), bytes, &live, "own.log");
        assert_eq!(cap(400), 400);
        assert_eq!(cap(399), 300);
        assert_eq!(names(dir.path()), ["gone.log", "live.log", "notes.txt", "own.log.1"]);
        assert_eq!(cap(200), 200);
        assert_eq!(names(dir.path()), ["live.log", "notes.txt", "own.log.1"]);
        assert_eq!(cap(10), 100);
        assert_eq!(names(dir.path()), ["live.log", "notes.txt"]);
    }
}
