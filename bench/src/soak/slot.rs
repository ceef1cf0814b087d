//! A slot runs one process after the other. All of them connect through the proxy of the slot.

use super::proxy::Proxy;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program that runs in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A worker that uses the library until its input is closed.
    Library,
    /// A `hierlock run` with one visit.
    Run,
}

/// Runs one process after the other.
pub struct WorkerSlot {
    /// The number of the slot.
    pub number: usize,
    /// The program that runs in it.
    pub program: Program,
    /// The proxy between its processes and their server.
    pub proxy: Option<Proxy>,
    /// The URL for its processes.
    pub url: String,
    /// Whether its processes lock other nodes than those that they record.
    pub broken: bool,
    /// Whether a fault is being injected.
    pub is_disturbed: AtomicBool,
    running: Mutex<Option<RunningProcess>>,
}

struct RunningProcess {
    worker: u32,
    process: Child,
}

impl WorkerSlot {
    /// Creates an empty slot.
    pub fn new(number: usize, program: Program, proxy: Option<Proxy>, url: String) -> Self {
        let (broken, is_disturbed) = (false, AtomicBool::new(false));
        Self { number, program, proxy, url, broken, is_disturbed, running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningProcess>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process. Dropping the slot kills it.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn start(&self, worker: u32, command: &mut Command) -> std::io::Result<()> {
        let process = command.spawn()?;
        *self.running() = Some(RunningProcess { worker, process });
        Ok(())
    }

    /// Calls `before`, then sends a signal to the process; returns the number of the process. Does nothing if the slot is
    /// empty.
    pub fn signal(&self, signal: Signal, before: impl FnOnce(u32)) -> Option<u32> {
        // The lock keeps others from reaping the process, so its process id is not reused.
        let running = self.running();
        let RunningProcess { worker, process } = running.as_ref()?;
        before(*worker);
        // The process may have ended already.
        let _ = kill(Pid::from_raw(process.id().cast_signed()), signal);
        Some(*worker)
    }

    /// Closes the standard input of the process, which stops a worker.
    pub fn close_input(&self) {
        if let Some(running) = self.running().as_mut() {
            drop(running.process.stdin.take());
        }
    }

    /// Returns the number and the status of the process if it has ended.
    pub fn reap(&self) -> Option<(u32, ExitStatus)> {
        let mut running = self.running();
        let RunningProcess { worker, process } = running.as_mut()?;
        let exit = (*worker, process.try_wait().ok()??);
        *running = None;
        Some(exit)
    }

    /// Returns whether no process is running.
    pub fn is_empty(&self) -> bool {
        self.running().is_none()
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        if let Some(RunningProcess { process, .. }) = self.running().as_mut() {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
