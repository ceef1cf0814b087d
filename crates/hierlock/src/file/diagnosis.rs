//! The checks of a lock file, for [`Diagnosis`](crate::Diagnosis). They create and change nothing.

use super::lock_file::LockFile;
use crate::Result;
use crate::diagnosis::EXCLUSION;
use crate::error::FileError;
use crate::mode::SlotMode::{Exclusive, Shared};
use hierlock_engine::checks::{Area, Check, Finding};
use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, access};
use std::path::Path;
use std::sync::Arc;

/// The last bytes that can be locked. Only a tree of eight levels has slots there: one of 2⁴⁸ slots of its last level.
const SPARE_BYTES: std::ops::Range<u64> = i64::MAX as u64 - 4096..i64::MAX as u64;
/// The maximum number of spare bytes to try, if others have locked them.
const MAX_TRIES: usize = 8;

const FILE_SYSTEM: Check = Check {
    name: "file-system",
    area: Area::Server,
    why: "locks on a network file system may exclude only on one host, or be lost when the network fails",
};
const LOCK_FILE: Check = Check {
    name: "lock-file",
    area: Area::Locks,
    why: "every process that locks opens it for writing",
};

const LOCAL_FILE_ADVICE: &str = "put the lock file on a local file system that supports such locks";

pub(crate) fn diagnose(path: &Path) -> Result<Vec<Finding>> {
    let path = std::path::absolute(path).map_err(FileError::io("resolve the path", path))?;
    let path: Arc<Path> = Arc::from(path);
    // A missing file would be created below the nearest directory that exists.
    let exists = path.exists();
    let existing = path.ancestors().find(|existing| existing.exists()).unwrap_or(Path::new("/"));
    let files = if exists {
        LockFile::open(&path).and_then(|first| Ok([first, LockFile::open(&path)?]))
    } else {
        LockFile::open_unnamed(existing)
    };
    let exclusion = match files {
        Ok(files) => check_exclusion(&files),
        Err(error) if exists => EXCLUSION.problem(error.to_string(), LOCAL_FILE_ADVICE),
        // Not every file system supports O_TMPFILE.
        Err(_) => EXCLUSION.skipped("there is no lock file yet; the first client creates it"),
    };
    Ok(vec![check_file_system(existing), check_access(&path, existing, exists), exclusion])
}

fn check_access(path: &Path, existing: &Path, exists: bool) -> Finding {
    let (needed, state) = if exists {
        (AccessFlags::R_OK | AccessFlags::W_OK, "can be read and written")
    } else {
        (AccessFlags::W_OK | AccessFlags::X_OK, "does not exist yet, and can be created")
    };
    match access(existing, needed) {
        Ok(()) => LOCK_FILE.ok(format!("`{}` {state}", path.display())),
        Err(error) => LOCK_FILE.problem(
            format!("`{}` cannot be written: {}", existing.display(), error.desc()),
            "give this user write access, or name another file",
        ),
    }
}

/// The kernel's magic numbers of file systems that other hosts may share, or that a program implements.
const SHARED_FILE_SYSTEMS: [(i64, &str); 11] = [
    (0x6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x517B, "smb"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00C3_6400, "ceph"),
    (0x5346_414F, "afs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x0BD0_0BD0, "lustre"),
];

#[allow(clippy::unnecessary_cast, reason = "the number has another type on other architectures")]
fn check_file_system(existing: &Path) -> Finding {
    match statfs(existing) {
        Ok(found) => judge_file_system(found.filesystem_type().0 as i64),
        Err(error) => FILE_SYSTEM.skipped(format!("its type cannot be read: {}", error.desc())),
    }
}

fn judge_file_system(number: i64) -> Finding {
    match SHARED_FILE_SYSTEMS.iter().find(|(known, _)| *known == number & 0xFFFF_FFFF) {
        Some((_, name)) => FILE_SYSTEM.warning(
            format!("it is on {name}, which other hosts may share"),
            "put the lock file on a local file system, and lock on a server if there are several hosts",
        ),
        None => FILE_SYSTEM.ok(format!("it is on a local file system (type {number:#x})")),
    }
}

fn check_exclusion([first, second]: &[LockFile; 2]) -> Finding {
    let excluded = || -> Result<Option<bool>> {
        for _ in 0..MAX_TRIES {
            let byte = fastrand::u64(SPARE_BYTES);
            let take = |file: &LockFile, mode| file.set(byte, Some(mode));
            if !take(first, Exclusive)? {
                continue;
            }
            if take(second, Shared)? || take(second, Exclusive)? {
                return Ok(Some(false));
            }
            if take(first, Shared)? && take(second, Shared)? {
                return Ok(Some(!take(second, Exclusive)?));
            }
        }
        Ok(None)
    };
    match excluded() {
        Ok(Some(true)) => {
            EXCLUSION.ok("two descriptors were refused each other's shared and exclusive locks")
        }
        Ok(Some(false)) => EXCLUSION.problem(
            "locks do not exclude here: two descriptors locked the same byte",
            LOCAL_FILE_ADVICE,
        ),
        Ok(None) => EXCLUSION.skipped("no byte was free"),
        Err(error) => EXCLUSION.problem(error.to_string(), LOCAL_FILE_ADVICE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hierlock_engine::checks::Severity::{Ok, Warning};

    #[test]
    fn shared_file_systems_are_recognized_by_magic_number() {
        for (number, severity, expected) in [
            (0xEF53, Ok, "local"),
            (0x0102_1994, Ok, "local"),
            (0x6969, Warning, "nfs"),
            // Signed, like the kernel's type on some architectures.
            (i64::from(0xFF53_4D42_u32.cast_signed()), Warning, "cifs"),
            (0x0102_1997, Warning, "9p"),
        ] {
            let finding = judge_file_system(number);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.message.contains(expected), "{finding:?}");
        }
    }
}
