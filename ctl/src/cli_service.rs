//! The command line of `service`: what can be typed, apart from the rest of the tree. Decides nothing.

use clap::{Args, Subcommand, ValueEnum};

/// Options of `service`.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ServiceAction,
}

/// What can be done with the service.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ServiceAction {
    /// Write the files of the service, start hermesd now and at each login; may be repeated
    Install(ServiceChange),
    /// Stop hermesd and remove the files of the service; data and configuration stay
    Uninstall(ServiceChange),
    /// Say whether the service is installed, runs and starts at login; exit code 1 if not
    Status(ServiceLook),
    /// Show what the service manager recorded of it (the daemon's own log: `hermesctl logs`)
    Logs(ServiceLogs),
    /// Print the files with the path of this installation, and where they belong
    Print {
        /// For which service manager
        #[arg(value_enum)]
        system: ServiceManager,
    },
}

/// Options of `service install` and `service uninstall`.
#[derive(Debug, Clone, Copy, Args)]
pub struct ServiceChange {
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// For another service manager than this system's
    #[arg(long, value_enum)]
    pub manager: Option<ServiceManager>,
}

/// Options of `service status`.
#[derive(Debug, Clone, Copy, Args)]
pub struct ServiceLook {
    /// Of another service manager than this system's
    #[arg(long, value_enum)]
    pub manager: Option<ServiceManager>,
}

/// Options of `service logs`.
#[derive(Debug, Clone, Copy, Args)]
pub struct ServiceLogs {
    /// How many of the last lines
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT")]
    pub lines: u32,
    /// Go on with new lines until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Of another service manager than this system's
    #[arg(long, value_enum)]
    pub manager: Option<ServiceManager>,
}

/// A service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceManager {
    /// systemd user units (Linux)
    Systemd,
    /// A launch agent (macOS)
    Launchd,
}

impl ServiceManager {
    /// The one that this system starts a user's programs with.
    pub fn of_this_system() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }
}
