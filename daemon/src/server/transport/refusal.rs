//! Why a server could not be started, in words that name the cause.
//!
//! Owner: nobody. Promise: one variant for each thing a user would do about it. May block (looks
//! at files): [`of_errno`] is for blocking threads.

use crate::process::orders::Step;
use rustix::io::Errno;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A launch that left nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program does not exist.
    #[error("command not found: {}", program.display())]
    NotFound {
        /// What was to be run.
        program: PathBuf,
    },
    /// The program is a script whose interpreter does not exist.
    #[error("{} needs {interpreter}, which does not exist", program.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
        /// What its first line names.
        interpreter: String,
    },
    /// The program exists but cannot be run.
    #[error("{} is not executable: {}", program.display(), reason)]
    NotExecutable {
        /// What was to be run.
        program: PathBuf,
        /// Permissions, a folder, a foreign format.
        reason: NotExecutable,
    },
    /// The working directory cannot be entered.
    #[error("working directory {} cannot be entered", cwd.display())]
    BadCwd {
        /// The directory.
        cwd: PathBuf,
        /// Missing, no directory, or no permission.
        #[source]
        source: io::Error,
    },
    /// Arguments and environment are larger than the system takes, or hold a NUL byte.
    #[error("arguments or environment of {} are not acceptable to the system", program.display())]
    BadArguments {
        /// What was to be run.
        program: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The system could not run the program now: out of memory, processes, or the file is being written.
    #[error("{} cannot be run now", program.display())]
    Exhausted {
        /// What was to be run.
        program: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The guard could not be started: out of descriptors, memory or processes.
    #[error("guard of server `{server}` cannot be started")]
    Guard {
        /// The server.
        server: String,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The guard ended or went mad before the server ran.
    #[error("guard of server `{server}` was lost at the start")]
    GuardLost {
        /// The server.
        server: String,
    },
}

/// Why an existing file cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotExecutable {
    /// No execute permission, or none for a folder on the way.
    Permission,
    /// It is a folder.
    Folder,
    /// No binary of this machine and no `#!` line.
    Format,
}

impl std::fmt::Display for NotExecutable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Permission => "permission denied",
            Self::Folder => "it is a folder",
            Self::Format => "no program of this machine and no #! line",
        })
    }
}

impl LaunchError {
    /// Whether trying again cannot help until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::NoInterpreter { .. }
            | Self::NotExecutable { .. }
            | Self::BadCwd { .. }
            | Self::BadArguments { .. } => true,
            Self::Exhausted { .. } | Self::Guard { .. } | Self::GuardLost { .. } => false,
        }
    }
}

/// Translates what the guard reported. Looks at the program's file to tell a missing program from
/// a missing interpreter: the system gives one number for both.
pub fn of_errno(step: Step, errno: i32, program: &Path, cwd: &Path) -> LaunchError {
    let source = io::Error::from_raw_os_error(errno);
    let program = program.to_owned();
    let errno = Errno::from_raw_os_error(errno);
    let reason = match (step, errno) {
        (Step::Cwd, _) => return LaunchError::BadCwd { cwd: cwd.to_owned(), source },
        (Step::Exec, Errno::NOENT | Errno::NOTDIR) => {
            return match interpreter(&program) {
                Some(interpreter) => LaunchError::NoInterpreter { program, interpreter },
                None => LaunchError::NotFound { program },
            };
        }
        (Step::Exec, Errno::TOOBIG | Errno::INVAL) => return LaunchError::BadArguments { program, source },
        (Step::Exec, Errno::ACCESS | Errno::PERM | Errno::ISDIR) if program.is_dir() => NotExecutable::Folder,
        (Step::Exec, Errno::ACCESS | Errno::PERM | Errno::ISDIR) => NotExecutable::Permission,
        (Step::Exec, errno) if foreign_format(errno) => NotExecutable::Format,
        (Step::Fork | Step::Exec, _) => return LaunchError::Exhausted { program, source },
    };
    LaunchError::NotExecutable { program, reason }
}

fn foreign_format(errno: Errno) -> bool {
    #[cfg(target_os = "linux")]
    let foreign = errno == Errno::LIBBAD;
    // EBADEXEC, EBADARCH and EBADMACHO of <sys/errno.h>.
    #[cfg(target_os = "macos")]
    let foreign = matches!(errno.raw_os_error(), 85 | 86 | 88);
    foreign || errno == Errno::NOEXEC
}

/// What an existing file needs to run: its `#!` line, or the system's loader.
fn interpreter(program: &Path) -> Option<String> {
    let file = std::fs::File::open(program).ok()?;
    let mut first = Vec::new();
    BufReader::new(file.take(256)).read_until(b'\n', &mut first).ok()?;
    let named = first.strip_prefix(b"#!").map(|line| {
        String::from_utf8_lossy(line).split_ascii_whitespace().next().unwrap_or_default().to_owned()
    });
    Some(named.unwrap_or_else(|| "a dynamic loader".to_owned()))
}
