//! Locks on single bytes of an open file description, with or without waiting.

use super::interrupt;
use crate::error::{Error, FileError, Result};
use crate::mode::SlotMode;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// An open file description. Its locks are not shared with any other description, and end with it.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: Arc<Path>,
}

impl LockFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, and creates it and its directory if they do not exist.
    pub(super) fn open(path: &Arc<Path>) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path);
        if file.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let directory = path.parent().unwrap_or(path);
            let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            created.map_err(FileError::io("create the directory of the lock file", path))?;
            file = options.open(path);
        }
        let file = file.map_err(FileError::io("open the lock file", path))?;
        Ok(Self { file, path: path.clone() })
    }

    /// Opens an unnamed temporary file twice. It is gone when both are closed.
    pub(super) fn open_unnamed(directory: &Path) -> Result<[Self; 2]> {
        let failed = || FileError::io("create an unnamed file in", directory);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let first = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
        let first = first.map_err(failed())?;
        let link = format!("/proc/self/fd/{}", first.as_raw_fd());
        let second = options.open(link).map_err(failed())?;
        Ok([first, second].map(|file| Self { file, path: Arc::from(directory) }))
    }

    /// Returns whether the path still leads to this file. If not, others that open the path lock another file.
    pub(super) fn is_in_place(&self) -> Result<bool> {
        let failed = FileError::io("check the lock file", &self.path);
        let ours = self.file.metadata().map_err(failed)?;
        match std::fs::metadata(&self.path) {
            Ok(theirs) => Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error).into()),
        }
    }

    /// Locks a byte (or unlocks it: `None`) without waiting. Returns `false` if another description has locked it.
    pub(super) fn set(&self, byte: u64, mode: Option<SlotMode>) -> Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(byte, mode))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(self.refused(errno)),
        }
    }

    /// Starts to wait for a byte that this description has not locked.
    pub(super) fn wait(&self, byte: u64, mode: SlotMode) -> Result<KernelWait<'_>> {
        let failed = FileError::io("wait for a lock in", &self.path);
        Ok(KernelWait::start(self, byte, mode).map_err(failed)?)
    }

    fn refused(&self, errno: Errno) -> Error {
        let source = io::Error::from(errno);
        match errno {
            Errno::EINVAL | Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP => {
                FileError::LocksNotSupported { path: self.path.to_path_buf(), source }.into()
            }
            _ => FileError::io("lock", &self.path)(source).into(),
        }
    }
}

/// Closing releases the locks only when every copy of the descriptor is closed, and a child that was forked meanwhile has
/// a copy until it runs another program. So all bytes are unlocked explicitly.
impl Drop for LockFile {
    fn drop(&mut self) {
        let everything = libc::flock { l_len: 0, ..range(0, None) };
        if let Err(error) = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&everything)) {
            tracing::error!(%error, "the lock file could not be unlocked; closing it unlocks it");
        }
    }
}

fn range(byte: u64, mode: Option<SlotMode>) -> libc::flock {
    let kind = match mode {
        None => libc::F_UNLCK,
        Some(SlotMode::Shared) => libc::F_RDLCK,
        // A plan has only shared and exclusive; for any other mode exclusive would be safe.
        Some(_) => libc::F_WRLCK,
    };
    // The constants fit, and a slot never has the sign bit.
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

/// A thread that waits for one byte. If it is dropped before the wait ends, the wait is over and the byte is unlocked when
/// `drop` returns.
#[derive(Debug)]
pub(super) struct KernelWait<'a> {
    file: &'a LockFile,
    byte: u64,
    outcome: oneshot::Receiver<Result<(), Errno>>,
    waiter: Arc<WaitThread>,
    /// None when the byte is granted and the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread uses. The description stays open until the thread has ended.
#[derive(Debug)]
struct WaitThread {
    description: OwnedFd,
    cancelled: AtomicBool,
}

impl<'a> KernelWait<'a> {
    fn start(file: &'a LockFile, byte: u64, mode: SlotMode) -> io::Result<Self> {
        /// Sufficient, since the thread calls only one function.
        const STACK_BYTES: usize = 64 * 1024;
        let signal = interrupt::signal()?;
        let description = file.file.as_fd().try_clone_to_owned()?;
        let waiter = Arc::new(WaitThread { description, cancelled: AtomicBool::new(false) });
        let (send, outcome) = oneshot::channel();
        let shared = waiter.clone();
        let thread = std::thread::Builder::new()
            .name("hierlock-wait".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                interrupt::block_all_except(signal);
                // The receiver is gone if the wait was cancelled.
                let _ = send.send(shared.wait(byte, mode));
            })?;
        Ok(Self { file, byte, outcome, waiter, thread: Some(thread) })
    }

    /// Waits until the byte is locked.
    ///
    /// # Cancel safety
    /// Can be called again. Dropping the `KernelWait` itself gives up.
    pub(super) async fn done(&mut self) -> Result<()> {
        // The thread always sends its outcome, unless it panicked.
        let outcome = (&mut self.outcome).await.unwrap_or(Err(Errno::EINTR));
        outcome.map_err(|errno| self.file.refused(errno))?;
        // The thread ends right after it has sent its outcome.
        let _ = self.thread.take().map(JoinHandle::join);
        Ok(())
    }
}

impl WaitThread {
    fn wait(&self, byte: u64, mode: SlotMode) -> Result<(), Errno> {
        let range = range(byte, Some(mode));
        loop {
            match fcntl(&self.description, FcntlArg::F_OFD_SETLKW(&range)) {
                Err(Errno::EINTR) if !self.cancelled.load(Ordering::SeqCst) => {}
                outcome => return outcome.map(|_| ()),
            }
        }
    }
}

impl Drop for KernelWait<'_> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.waiter.cancelled.store(true, Ordering::SeqCst);
        // A thread inside the system call is interrupted by the signal. A thread that is about to make the call would miss
        // the signal; its descriptor is now another file, where it does not wait. Either way the thread ends now.
        interrupt::end_wait(self.waiter.description.as_raw_fd(), thread.as_pthread_t());
        let _ = thread.join();
        // The byte may have been granted meanwhile, and the description may live on.
        if let Err(error) = self.file.set(self.byte, None) {
            tracing::error!(%error, "the byte of a cancelled wait could not be unlocked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a lock file twice. Its directory is removed, but the file can still be locked.
    fn open_twice() -> (LockFile, LockFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = Arc::from(directory.path().join("locks"));
        (LockFile::open(&path).unwrap(), LockFile::open(&path).unwrap())
    }

    /// Common file systems support these locks, so the test passes the error codes directly.
    #[test]
    fn the_error_of_a_file_system_without_these_locks_says_what_to_do() {
        let (file, _) = open_twice();
        for errno in [Errno::EINVAL, Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS] {
            let message = file.refused(errno).to_string();
            assert!(message.contains("refuses open-file-description locks"), "{message}");
            assert!(message.contains("put the lock file on a local one"), "{message}");
        }
        assert!(file.refused(Errno::EIO).to_string().starts_with("cannot lock"));
    }

    /// Prevents this failure: a lock stays held for some milliseconds after its release, or for ever, because another
    /// thread forked a child meanwhile.
    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let (file, other) = open_twice();
        assert!(file.set(7, Some(SlotMode::Exclusive)).unwrap());
        let copy = file.file.try_clone().unwrap();
        assert!(!other.set(7, Some(SlotMode::Shared)).unwrap());
        drop(file);
        assert!(other.set(7, Some(SlotMode::Exclusive)).unwrap(), "the copy keeps the lock");
        drop(copy);
    }

    /// Returns the locks of one open file as the kernel lists them: kind, mode, first and last byte. Unlike `/proc/locks`,
    /// which skips lines while other processes lock and unlock, this list is consistent.
    fn locks_of(file: &LockFile) -> Vec<String> {
        let info = format!("/proc/self/fdinfo/{}", file.file.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        let locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| [words[2], words[4], words[7], words[8]].join(" "))
            .collect()
    }

    #[test]
    fn exactly_one_byte_is_locked_in_the_requested_mode() {
        let (file, other) = open_twice();
        let byte = (2 << 60) + 5;
        assert!(file.set(byte, Some(SlotMode::Shared)).unwrap());
        assert_eq!(locks_of(&file), [format!("OFDLCK READ {byte} {byte}")]);
        assert!(file.set(byte, Some(SlotMode::Exclusive)).unwrap());
        assert_eq!(locks_of(&file), [format!("OFDLCK WRITE {byte} {byte}")]);
        assert!(!other.set(byte, Some(SlotMode::Shared)).unwrap());
        assert!(other.set(byte + 1, Some(SlotMode::Exclusive)).unwrap());
        drop(file);
        assert!(other.set(byte, Some(SlotMode::Shared)).unwrap(), "dropping must unlock");
        assert!(other.set(byte, None).unwrap());
        let next = byte + 1;
        assert_eq!(locks_of(&other), [format!("OFDLCK WRITE {next} {next}")]);
    }
}
