//! Lock steps: sessions that lock nodes of a tree through the library, on any backend. What waits is
//! read from [`Hierlock::holders`], which on a server is what the server says.

use super::Reply;
use crate::observation::{Answer, Failure, FailureKind, Lock, LockKind, LockedObject, Name, Wait};
use crate::scenario::LockDeed;
use hierlock::{Error, Guard, Hierlock, Holder};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, oneshot};

/// A client, and what each session holds through it.
#[derive(Debug)]
pub(crate) struct TreeSessions {
    locks: Hierlock,
    sessions: HashMap<Name, Arc<TreeSession>>,
}

#[derive(Debug, Default)]
struct TreeSession {
    guard: Mutex<Option<Guard>>,
    cancel: Notify,
}

impl TreeSessions {
    pub(crate) fn new<'a>(locks: Hierlock, names: impl Iterator<Item = &'a Name>) -> Self {
        let sessions = names.map(|name| (name.clone(), Arc::default())).collect();
        Self { locks, sessions }
    }

    /// Gives a session something to do.
    pub(crate) fn begin(&self, session: &Name, deed: &LockDeed) -> Reply {
        let (tell, reply) = oneshot::channel();
        let (locks, name, deed) = (self.locks.clone(), session.clone(), deed.clone());
        // Names come from the case that the sessions were made for.
        let session = self.sessions.get(session).cloned().unwrap_or_default();
        tokio::spawn(async move {
            let result = tokio::select! {
                result = session.does(&locks, &name, deed) => result,
                () = session.cancel.notified() => Err(cancelled()),
            };
            // Whoever asked may be gone; what was taken is in the session.
            let _ = tell.send(result);
        });
        reply
    }

    pub(crate) fn waits(&self) -> Vec<Wait> {
        let holders = self.locks.holders();
        let names: HashMap<u64, Name> =
            holders.iter().filter_map(|holder| Some((holder.id, name_of(holder)?))).collect();
        let waits = holders.iter().filter_map(|holder| {
            let wait = holder.waits.as_ref()?;
            let known = wait.blocked_by.iter().filter_map(|id| names.get(id).cloned());
            let mut blockers: Vec<Name> = known.collect();
            blockers.sort();
            blockers.dedup();
            Some(Wait {
                waiter: name_of(holder)?,
                strangers: wait.blocked_by.iter().any(|id| !names.contains_key(id)),
                blockers,
                thing: Some(node(&wait.target, wait.mode)),
            })
        });
        waits.collect()
    }

    pub(crate) fn locks(&self) -> Vec<Lock> {
        let holders = self.locks.holders();
        let mut locks: Vec<Lock> = Vec::new();
        for holder in &holders {
            let Some(session) = name_of(holder) else { continue };
            let held = holder.holds.iter().map(|(target, mode)| (node(target, *mode), true));
            let wanted = holder.waits.iter().map(|wait| (node(&wait.target, wait.mode), false));
            locks.extend(held.chain(wanted).map(|(thing, granted)| Lock {
                session: session.clone(),
                thing,
                granted,
            }));
        }
        locks.sort();
        locks
    }

    pub(crate) fn cancel(&self, session: &Name) {
        if let Some(session) = self.sessions.get(session) {
            session.cancel.notify_one();
        }
    }

    /// Frees everything, and waits until it is free.
    pub(crate) async fn close(mut self) {
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.cancel.notify_one();
            if let Some(guard) = session.guard.lock().await.take() {
                // What cannot be released any more is gone with its connection.
                let _ = guard.release().await;
            }
        }
    }
}

/// What still waits is given up; what is held is freed when the last who has it lets go.
impl Drop for TreeSessions {
    fn drop(&mut self) {
        for session in self.sessions.values() {
            session.cancel.notify_one();
        }
    }
}

impl TreeSession {
    async fn does(&self, locks: &Hierlock, name: &Name, deed: LockDeed) -> Result<Answer, Failure> {
        let mut held = self.guard.lock().await;
        match (deed, held.as_mut()) {
            (LockDeed::Lock { .. } | LockDeed::Try { .. }, Some(_)) => {
                return Err(other(format!(
                    "{name} already holds a lock; `extend` takes more, `release` gives it back"
                )));
            }
            (LockDeed::Extend { .. } | LockDeed::Upgrade | LockDeed::Release, None) => {
                return Err(other(format!("{name} holds nothing; `lock` comes first")));
            }
            (LockDeed::Lock { mode, targets, within }, None) => {
                let mut request = locks.request_all(targets).mode(mode).named(name.as_str());
                if let Some(within) = within {
                    request = request.within(within);
                }
                *held = Some(request.acquire().await.map_err(failure)?);
            }
            (LockDeed::Try { mode, targets }, None) => {
                let request = locks.request_all(targets).mode(mode).named(name.as_str());
                let guard = request.try_acquire().await.map_err(failure)?;
                *held = Some(guard.ok_or_else(refused)?);
            }
            (LockDeed::Extend { mode, targets, within }, Some(guard)) => {
                let mut request = guard.request_all(targets).mode(mode);
                if let Some(within) = within {
                    request = request.within(within);
                }
                request.acquire().await.map_err(failure)?;
            }
            (LockDeed::Upgrade, Some(guard)) => guard.upgrade().await.map_err(failure)?,
            (LockDeed::Release, Some(_)) => {
                if let Some(guard) = held.take() {
                    guard.release().await.map_err(failure)?;
                }
            }
        }
        Ok(Answer::default())
    }
}

fn name_of(holder: &Holder) -> Option<Name> {
    holder.name.as_deref().and_then(Name::new)
}

fn node(target: &hierlock::Target, mode: hierlock::SlotMode) -> LockedObject {
    LockedObject {
        kind: LockKind::Node,
        object: target.to_string(),
        index: None,
        record: None,
        mode: mode.to_string(),
    }
}

fn failure(error: Error) -> Failure {
    let kind = match &error {
        error if error.is_deadlock() => FailureKind::Deadlock,
        error if error.is_timeout() => FailureKind::TimedOut,
        error if error.is_would_block() => FailureKind::Refused,
        _ => FailureKind::Other,
    };
    Failure { kind, code: String::new(), message: error.to_string(), detail: None }
}

fn refused() -> Failure {
    let message = "it is not free, and was not to wait".to_owned();
    Failure { kind: FailureKind::Refused, code: String::new(), message, detail: None }
}

fn cancelled() -> Failure {
    let message = "it was given up".to_owned();
    Failure { kind: FailureKind::Cancelled, code: String::new(), message, detail: None }
}

fn other(message: String) -> Failure {
    Failure { kind: FailureKind::Other, code: String::new(), message, detail: None }
}
