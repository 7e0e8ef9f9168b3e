//! How a command ends: exit code, message, hint.

use std::io;
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// hermesd or a server refused, or something failed. Exit code 1.
    #[error("{message}")]
    Refused {
        /// What happened.
        message: String,
        /// What to do next; may be empty.
        hint: String,
    },
    /// The command cannot mean anything. Exit code 2.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What would be right.
        hint: String,
    },
    /// hermesd cannot be reached. Exit code 3.
    #[error("{message}")]
    Unreachable {
        /// Where it was looked for and what happened.
        message: String,
    },
    /// hermesd is there and does not react. Exit code 3.
    #[error("{message}")]
    Silent {
        /// Which process, and what it does not do.
        message: String,
        /// How to end it.
        hint: String,
    },
    /// Reading or writing a stream of this process failed. Exit code 1, silent for a closed pipe.
    #[error("{0}")]
    Stream(#[from] io::Error),
}

/// How a command ended that could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Exit code 0.
    Well,
    /// The answer was printed, and it is a bad one. Exit code 1.
    Badly,
    /// The answer was printed, and it is that no daemon runs. Exit code 3.
    Unreachable,
    /// The exit code of another program that did the work.
    Code(u8),
}

impl Failure {
    /// A refusal without a hint.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), hint: String::new() }
    }

    /// The exit code, 1 to 3.
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Stream(_) => 1,
            Self::Usage { .. } => 2,
            Self::Unreachable { .. } | Self::Silent { .. } => 3,
        }
    }

    /// What to do next; empty when there is nothing to say.
    pub fn hint(&self) -> &str {
        match self {
            Self::Refused { hint, .. } | Self::Usage { hint, .. } | Self::Silent { hint, .. } => hint,
            Self::Unreachable { .. } => "start it with `hermesctl daemon start`",
            Self::Stream(_) => "",
        }
    }

    /// Whether the reader of our output went away, which is no error of ours (`| head`).
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Stream(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<Done> for ExitCode {
    fn from(done: Done) -> Self {
        match done {
            Done::Well => Self::SUCCESS,
            Done::Badly => Self::from(1),
            Done::Unreachable => Self::from(3),
            Done::Code(code) => Self::from(code),
        }
    }
}
