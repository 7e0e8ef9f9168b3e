//! Whether the file system below hermesd.db can carry a write-ahead log.
//!
//! A WAL needs memory that is shared by mapping a file, which network file systems do not give.
//! An overlay counts as local: its trouble is a file read before and written after its copy up, and
//! here one process opens the file for writing before anything reads it.

use std::path::Path;

/// What lies below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locality {
    /// A disk of this machine, or nothing that says otherwise.
    Local,
    /// Another machine, or a layer that does not say.
    Network {
        /// Its name, for the warning.
        name: &'static str,
    },
}

impl Locality {
    /// Asks the file system of `folder`; a folder that cannot be asked counts as local, since opening
    /// the file will say more.
    pub(crate) fn of(folder: &Path) -> Self {
        match rustix::fs::statfs(folder) {
            Ok(found) => sort(&found),
            Err(_) => Self::Local,
        }
    }
}

#[cfg(target_os = "linux")]
fn sort(found: &rustix::fs::StatFs) -> Locality {
    // The field's width and sign differ between machines; the magic numbers have 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = found.f_type as u32;
    by_magic(magic)
}

/// Sorts by the numbers of linux/magic.h and the headers of the file systems themselves.
#[cfg(target_os = "linux")]
fn by_magic(magic: u32) -> Locality {
    let name = match magic {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x0102_1997 => "9P",
        0x6573_5546 => "FUSE",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00C3_6400 => "Ceph",
        0x0BD0_0BD0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x786F_4256 => "a VirtualBox shared folder",
        0xBACB_ACBC => "a VMware shared folder",
        _ => return Locality::Local,
    };
    Locality::Network { name }
}

#[cfg(target_os = "macos")]
fn sort(found: &rustix::fs::StatFs) -> Locality {
    /// `MNT_LOCAL` of sys/mount.h.
    const LOCAL: u32 = 0x1000;
    if found.f_flags & LOCAL == 0 { Locality::Network { name: "a network volume" } } else { Locality::Local }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_and_a_missing_one_are_local() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Locality::of(folder.path()), Locality::Local);
        assert_eq!(Locality::of(&folder.path().join("none")), Locality::Local);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        for (magic, name) in [(0x6969, "NFS"), (0xFF53_4D42, "SMB"), (0x6573_5546, "FUSE")] {
            assert_eq!(by_magic(magic), Locality::Network { name });
        }
        for local in [0xEF53, 0x9123_683E, 0x5846_5342, 0x794C_7630] {
            assert_eq!(by_magic(local), Locality::Local);
        }
    }
}
