//! The kernel's side: one byte of one open file description, taken at once or waited for.

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

/// An open file description of its own: its locks are nobody else's, and end with it.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: Arc<Path>,
}

impl LockFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, making it and its directory if they are not there.
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

    /// Is the path still this file? Otherwise others, who open it now, lock something else.
    pub(super) fn is_in_place(&self) -> Result<bool> {
        let failed = FileError::io("look at the lock file", &self.path);
        let ours = self.file.metadata().map_err(failed)?;
        match std::fs::metadata(&self.path) {
            Ok(theirs) => Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error).into()),
        }
    }

    /// Takes a byte (or frees it: `None`) without waiting; `false` if someone else has it.
    pub(super) fn set(&self, byte: u64, mode: Option<SlotMode>) -> Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(byte, mode))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(self.refused(errno)),
        }
    }

    /// Begins to wait for a byte that this description holds nothing of.
    pub(super) fn wait(&self, byte: u64, mode: SlotMode) -> Result<KernelWait<'_>> {
        let failed = FileError::io("wait for a lock in", &self.path);
        Ok(KernelWait::start(self, byte, mode).map_err(failed)?)
    }

    fn refused(&self, errno: Errno) -> Error {
        let source = io::Error::from(errno);
        match errno {
            Errno::EINVAL | Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP => {
                FileError::NoLocksHere { path: self.path.to_path_buf(), source }.into()
            }
            _ => FileError::io("lock", &self.path)(source).into(),
        }
    }
}

/// Closing frees only when every copy of the descriptor is closed, and a child that was forked in the
/// meantime has one until it runs another program. So everything is freed by name.
impl Drop for LockFile {
    fn drop(&mut self) {
        let everything = libc::flock { l_len: 0, ..range(0, None) };
        if let Err(error) = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&everything)) {
            tracing::error!(%error, "the lock file could not be unlocked; closing it will do");
        }
    }
}

fn range(byte: u64, mode: Option<SlotMode>) -> libc::flock {
    let kind = match mode {
        None => libc::F_UNLCK,
        Some(SlotMode::Shared) => libc::F_RDLCK,
        // The plan asks for nothing else; if it ever did, this is the safe side.
        Some(_) => libc::F_WRLCK,
    };
    // The constants are small, and a slot never has the sign bit.
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

/// A thread that waits for one byte. Dropped before its end, the wait is over and the byte is free when `drop` returns.
#[derive(Debug)]
pub(super) struct KernelWait<'a> {
    file: &'a LockFile,
    byte: u64,
    outcome: oneshot::Receiver<Result<(), Errno>>,
    waiter: Arc<WaitThread>,
    /// None when the byte is granted: then the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// What the thread works on; kept open until it has ended.
#[derive(Debug)]
struct WaitThread {
    description: OwnedFd,
    cancelled: AtomicBool,
}

impl<'a> KernelWait<'a> {
    fn start(file: &'a LockFile, byte: u64, mode: SlotMode) -> io::Result<Self> {
        /// Enough: the thread calls one function.
        const STACK_BYTES: usize = 64 * 1024;
        let signal = interrupt::signal()?;
        let description = file.file.as_fd().try_clone_to_owned()?;
        let waiter = Arc::new(WaitThread { description, cancelled: AtomicBool::new(false) });
        let (send, outcome) = oneshot::channel();
        let on_thread = waiter.clone();
        let thread = std::thread::Builder::new()
            .name("hierlock-wait".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                interrupt::listen_only_to(signal);
                // Nobody listens any more if the wait was cancelled.
                let _ = send.send(on_thread.wait(byte, mode));
            })?;
        Ok(Self { file, byte, outcome, waiter, thread: Some(thread) })
    }

    /// # Cancel safety
    /// Can be called again. Dropping the `KernelWait` itself gives up.
    pub(super) async fn done(&mut self) -> Result<()> {
        // The thread never ends without saying how, unless it panicked.
        let outcome = (&mut self.outcome).await.unwrap_or(Err(Errno::EINTR));
        outcome.map_err(|errno| self.file.refused(errno))?;
        // It has said so as its last act.
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
        // A thread that is inside the call is interrupted by the signal. One that is about to make it would miss the
        // signal; it finds another file behind its descriptor, where it need not wait. Either way it ends now.
        interrupt::end_wait(self.waiter.description.as_raw_fd(), thread.as_pthread_t());
        let _ = thread.join();
        // It may have been granted in the meantime; the description itself may live on.
        if let Err(error) = self.file.set(self.byte, None) {
            tracing::error!(%error, "a cancelled wait could not be undone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock file, which is gone from its directory but can be locked.
    fn open_twice() -> (LockFile, LockFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = Arc::from(directory.path().join("locks"));
        (LockFile::open(&path).unwrap(), LockFile::open(&path).unwrap())
    }

    /// No file system at hand refuses these locks, so the answer of one is put in the kernel's mouth.
    #[test]
    fn a_file_system_without_such_locks_is_named() {
        let (file, _) = open_twice();
        for errno in [Errno::EINVAL, Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS] {
            let message = file.refused(errno).to_string();
            assert!(message.contains("refuses open-file-description locks"), "{message}");
            assert!(message.contains("put the lock file on a local one"), "{message}");
        }
        assert!(file.refused(Errno::EIO).to_string().starts_with("cannot lock"));
    }

    /// The failure this prevents: a lock that stays for some milliseconds after its release, or for
    /// ever, because another thread forked a child while it was held.
    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let (file, other) = open_twice();
        assert!(file.set(7, Some(SlotMode::Exclusive)).unwrap());
        let copy = file.file.try_clone().unwrap();
        assert!(!other.set(7, Some(SlotMode::Shared)).unwrap());
        drop(file);
        assert!(other.set(7, Some(SlotMode::Exclusive)).unwrap(), "the copy keeps it");
        drop(copy);
    }

    /// The locks of one open file, in the kernel's own words: kind, mode, first and last byte. Unlike `/proc/locks`,
    /// which skips lines while other processes take and free locks of theirs, this list is made in one piece.
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
    fn one_byte_is_locked_in_the_mode_asked_for() {
        let (file, other) = open_twice();
        let byte = (2 << 60) + 5;
        assert!(file.set(byte, Some(SlotMode::Shared)).unwrap());
        assert_eq!(locks_of(&file), [format!("OFDLCK READ {byte} {byte}")]);
        assert!(file.set(byte, Some(SlotMode::Exclusive)).unwrap());
        assert_eq!(locks_of(&file), [format!("OFDLCK WRITE {byte} {byte}")]);
        assert!(!other.set(byte, Some(SlotMode::Shared)).unwrap());
        assert!(other.set(byte + 1, Some(SlotMode::Exclusive)).unwrap());
        drop(file);
        assert!(other.set(byte, Some(SlotMode::Shared)).unwrap(), "dropping frees");
        assert!(other.set(byte, None).unwrap());
        let next = byte + 1;
        assert_eq!(locks_of(&other), [format!("OFDLCK WRITE {next} {next}")]);
    }
}
