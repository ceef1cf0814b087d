//! A place for one process after the other, with the network that all of them go through.

use super::proxy::Proxy;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What runs in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A worker that uses the library until it is told to stop.
    Library,
    /// A `hierlock run`, with one visit.
    Run,
}

/// A place for one process after the other.
pub struct Slot {
    /// Which one.
    pub number: usize,
    /// What runs here.
    pub program: Program,
    /// Between its processes and their server.
    pub proxy: Option<Proxy>,
    /// Where its processes connect to.
    pub url: String,
    /// Do its processes lock something else than they say?
    pub broken: bool,
    /// Is something being done to its network or process?
    pub is_disturbed: AtomicBool,
    running: Mutex<Option<Running>>,
}

struct Running {
    worker: u32,
    process: Child,
}

impl Slot {
    /// An empty one.
    pub fn new(number: usize, program: Program, proxy: Option<Proxy>, url: String) -> Self {
        let (broken, is_disturbed) = (false, AtomicBool::new(false));
        Self { number, program, proxy, url, broken, is_disturbed, running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, which ends with this if it has not before.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, worker: u32, command: &mut Command) -> std::io::Result<()> {
        let process = command.spawn()?;
        *self.running() = Some(Running { worker, process });
        Ok(())
    }

    /// Sends a signal to the process, if there is one; its number. `before` is called before.
    pub fn signal(&self, signal: Signal, before: impl FnOnce(u32)) -> Option<u32> {
        // Nobody reaps it meanwhile, so that its process number is its own.
        let running = self.running();
        let Running { worker, process } = running.as_ref()?;
        before(*worker);
        // It may have ended.
        let _ = kill(Pid::from_raw(process.id().cast_signed()), signal);
        Some(*worker)
    }

    /// Tells a worker to stop, by the end of its standard input.
    pub fn close_input(&self) {
        if let Some(running) = self.running().as_mut() {
            drop(running.process.stdin.take());
        }
    }

    /// The process that has ended, and how.
    pub fn reap(&self) -> Option<(u32, ExitStatus)> {
        let mut running = self.running();
        let Running { worker, process } = running.as_mut()?;
        let ended = (*worker, process.try_wait().ok()??);
        *running = None;
        Some(ended)
    }

    /// Is nothing running here?
    pub fn is_empty(&self) -> bool {
        self.running().is_none()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(Running { process, .. }) = self.running().as_mut() {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
