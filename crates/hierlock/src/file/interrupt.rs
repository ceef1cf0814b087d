//! Ends a thread that waits in the kernel. All code about signals is here.
//!
//! `F_OFD_SETLKW` has no deadline and is not ended by closing the file; only a signal with a handler ends it. The handler
//! does nothing. The signal is a real-time signal that the program does not use. It is sent to that one thread only, and
//! the thread blocks all other signals.

#![expect(unsafe_code, reason = "signals have no safe interface")]

use nix::libc;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

extern "C" fn do_nothing(_: libc::c_int) {}

/// Returns the signal that ends a wait; its handler is installed.
pub(super) fn signal() -> io::Result<libc::c_int> {
    static SIGNAL: OnceLock<Option<libc::c_int>> = OnceLock::new();
    // From the highest number down, since libraries and language runtimes take the lowest numbers first.
    SIGNAL
        .get_or_init(|| (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|signal| claim(*signal)))
        .ok_or_else(|| io::Error::other("every real-time signal is in use by the program"))
}

/// Installs the handler, if the signal has none.
fn claim(signal: libc::c_int) -> bool {
    let mut current = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action only queries; `current` is large enough, and all-zero is a valid value.
    let is_default = unsafe {
        libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init_ref().sa_sigaction == libc::SIG_DFL
    };
    if !is_default {
        return false;
    }
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid action: no flags (so system calls are interrupted, not restarted), and an empty
    // mask. The handler accesses nothing.
    unsafe {
        ours.assume_init_mut().sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(signal, ours.as_ptr(), std::ptr::null_mut()) == 0
    }
}

/// Blocks all other signals on the calling thread, so that no handler of the program runs on it.
pub(super) fn block_all_except(signal: libc::c_int) {
    let mut others = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialised by `sigfillset`, and outlives the calls.
    unsafe {
        libc::sigfillset(others.as_mut_ptr());
        libc::sigdelset(others.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, others.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends the wait of a thread on a descriptor, even if the wait has not begun. The caller owns both: the descriptor is open
/// and the thread is not joined.
pub(super) fn end_wait(description: RawFd, thread: libc::pthread_t) {
    match File::open("/dev/null") {
        // SAFETY: atomically replaces an open descriptor that the caller owns by another open one.
        Ok(null) => unsafe {
            libc::dup3(null.as_raw_fd(), description, libc::O_CLOEXEC);
        },
        Err(error) => tracing::error!(%error, "cannot open /dev/null to end a wait"),
    }
    if let Ok(signal) = signal() {
        // SAFETY: the thread is not joined, so its handle is valid even if it has ended.
        unsafe { libc::pthread_kill(thread, signal) };
    }
}
