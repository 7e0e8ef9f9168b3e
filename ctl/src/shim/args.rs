//! The arguments of `mcp serve`, read without the full command line parser: start-up time counts.
//!
//! Anything that is not plainly a valid `mcp serve` is left to the full parser, which knows how to
//! explain it.

use hermes_proto::shim::hello::Only;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `hermesctl mcp serve` was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// `--home`: the folder to use as HERMES_HOME.
    pub home: Option<PathBuf>,
    /// `--profile`: which view of the servers; `default` without it.
    pub profile: String,
    /// `--only`: which part of the offer.
    pub only: Only,
    /// `-v`: log to stderr.
    pub log: Log,
    /// `--no-spawn`: never start a daemon.
    pub spawn: Spawn,
}

/// Whether the shim writes to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Nothing is written.
    Off,
    /// Connections and losses are written.
    On,
}

/// Whether the shim may start a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spawn {
    /// When none can be reached.
    WhenMissing,
    /// Never.
    Never,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            home: None,
            profile: "default".to_owned(),
            only: Only::All,
            log: Log::Off,
            spawn: Spawn::WhenMissing,
        }
    }
}

/// Reads `mcp serve ...` (without the program name); `None` leaves it to the full parser.
pub fn quick(args: &[OsString]) -> Option<ServeOptions> {
    let (verb, rest) = args.split_at_checked(2)?;
    if verb[0] != "mcp" || verb[1] != "serve" {
        return None;
    }
    let mut options = ServeOptions::default();
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_str()?;
        let (name, joined) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        match name {
            "--profile" => options.profile = value(joined, &mut rest)?.into_string().ok()?,
            "--home" => options.home = Some(PathBuf::from(value(joined, &mut rest)?)),
            "--only" => options.only = only(value(joined, &mut rest)?.to_str()?)?,
            "-v" | "--verbose" if joined.is_none() => options.log = Log::On,
            "--no-spawn" if joined.is_none() => options.spawn = Spawn::Never,
            // Taken by the reference's `mcp serve`; the daemon decides about hooks.
            "--accept-hooks" if joined.is_none() => {}
            _ => return None,
        }
    }
    Some(options)
}

fn value<'a>(joined: Option<OsString>, rest: &mut impl Iterator<Item = &'a OsString>) -> Option<OsString> {
    let value = joined.or_else(|| rest.next().cloned())?;
    (!value.is_empty() && !value.to_string_lossy().starts_with('-')).then_some(value)
}

fn only(text: &str) -> Option<Only> {
    match text {
        "conversations" => Some(Only::Conversations),
        "servers" => Some(Only::Servers),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<ServeOptions> {
        quick(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn every_option_is_read_in_both_spellings() {
        let options =
            read("mcp serve --profile work --only=servers --home /h -v --accept-hooks --no-spawn").unwrap();
        assert_eq!(options.profile, "work");
        assert_eq!(options.only, Only::Servers);
        assert_eq!(options.home, Some("/h".into()));
        assert_eq!((options.log, options.spawn), (Log::On, Spawn::Never));
        assert_eq!(read("mcp serve"), Some(ServeOptions::default()));
    }

    #[test]
    fn what_is_not_plainly_right_is_left_to_the_full_parser() {
        for text in [
            "mcp",
            "mcp list",
            "status",
            "mcp serve --help",
            "mcp serve --only all",
            "mcp serve --profile -v",
            "mcp serve x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
