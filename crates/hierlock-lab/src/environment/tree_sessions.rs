//! Lock steps: sessions that lock nodes of a tree through the library, on any backend. Waits are read from
//! [`Hierlock::holders`], which on a server reads them from the server.

use super::Reply;
use crate::observation::{
    Answer, Failure, FailureKind, Lock, LockKind, LockTarget, SessionName, SessionWait,
};
use crate::scenario::{LockAction, LockRequest};
use hierlock::{Error, Guard, Hierlock, Holder};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::time::{sleep, timeout};

/// The limit for the actions of the sessions to end, and the interval of the checks.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// A client, and the guard of each session.
#[derive(Debug)]
pub(super) struct TreeSessions {
    pub(super) locks: Hierlock,
    sessions: HashMap<SessionName, Arc<TreeSession>>,
}

#[derive(Debug, Default)]
struct TreeSession {
    guard: Mutex<Option<Guard>>,
    cancel: Notify,
}

impl TreeSessions {
    pub(super) fn new<'a>(locks: Hierlock, names: impl Iterator<Item = &'a SessionName>) -> Self {
        let sessions = names.map(|name| (name.clone(), Arc::default())).collect();
        Self { locks, sessions }
    }

    pub(super) fn begin(&self, session: &SessionName, action: &LockAction) -> Reply {
        let (sender, reply) = oneshot::channel();
        let (locks, name, action) = (self.locks.clone(), session.clone(), action.clone());
        // The sessions were created for the case that the names come from.
        let session = self.sessions.get(session).cloned().unwrap_or_default();
        tokio::spawn(async move {
            let result = tokio::select! {
                result = session.run(&locks, &name, action) => result,
                () = session.cancel.notified() => {
                    Err(Failure::new(FailureKind::Cancelled, "it was given up"))
                }
            };
            // The receiver may be dropped; a guard that was acquired is in the session.
            let _ = sender.send(result);
        });
        reply
    }

    pub(super) fn waits(&self) -> Vec<SessionWait> {
        let holders = self.locks.holders();
        let names: HashMap<u64, SessionName> =
            holders.iter().filter_map(|holder| Some((holder.id, session_name(holder)?))).collect();
        let waits = holders.iter().filter_map(|holder| {
            let wait = holder.waits.as_ref()?;
            let blockers: BTreeSet<_> =
                wait.blocked_by.iter().filter_map(|id| names.get(id).cloned()).collect();
            Some(SessionWait {
                waiter: session_name(holder)?,
                has_outside_blocker: wait.blocked_by.iter().any(|id| !names.contains_key(id)),
                blockers: blockers.into_iter().collect(),
                target: Some(node(&wait.target, wait.mode)),
            })
        });
        waits.collect()
    }

    pub(super) fn locks(&self) -> Vec<Lock> {
        let mut locks: Vec<Lock> = Vec::new();
        for holder in &self.locks.holders() {
            let Some(session) = session_name(holder) else { continue };
            let held = holder.holds.iter().map(|(target, mode)| (node(target, *mode), true));
            let wanted = holder.waits.iter().map(|wait| (node(&wait.target, wait.mode), false));
            for (target, granted) in held.chain(wanted) {
                locks.push(Lock { session: session.clone(), target, granted });
            }
        }
        locks.sort();
        locks
    }

    pub(super) fn cancel(&self, session: &SessionName) {
        if let Some(session) = self.sessions.get(session) {
            session.cancel.notify_one();
        }
    }

    /// Cancels the actions of the sessions, releases their guards and waits until the nodes are free.
    pub(super) async fn reset(&mut self) {
        for session in self.sessions.values_mut() {
            let session = std::mem::take(session);
            session.cancel.notify_one();
            if let Some(guard) = session.guard.lock().await.take() {
                // If the release fails, the connection is lost and the locks with it.
                let _ = guard.release().await;
            }
        }
        let released = async {
            while !self.locks.holders().is_empty() {
                sleep(RELEASE_CHECK_INTERVAL).await;
            }
        };
        // Nodes that are not free by then are removed with the database.
        let _ = timeout(RELEASE_LIMIT, released).await;
    }
}

/// Cancels the waits; a guard is released when its task has ended.
impl Drop for TreeSessions {
    fn drop(&mut self) {
        for session in self.sessions.values() {
            session.cancel.notify_one();
        }
    }
}

impl TreeSession {
    async fn run(
        &self,
        locks: &Hierlock,
        name: &SessionName,
        action: LockAction,
    ) -> Result<Answer, Failure> {
        let mut held = self.guard.lock().await;
        match (action, held.as_mut()) {
            (LockAction::Lock(_) | LockAction::Try(_), Some(_)) => {
                let why = "already holds a lock; `extend` takes more, `release` gives it back";
                return Err(Failure::new(FailureKind::Other, format!("{name} {why}")));
            }
            (LockAction::Extend(_) | LockAction::Upgrade | LockAction::Release, None) => {
                let why = format!("{name} holds nothing; `lock` comes first");
                return Err(Failure::new(FailureKind::Other, why));
            }
            (LockAction::Lock(LockRequest { mode, targets, within }), None) => {
                let mut request = locks.request_all(targets).mode(mode).named(name.as_str());
                if let Some(within) = within {
                    request = request.within(within);
                }
                *held = Some(request.acquire().await.map_err(failure)?);
            }
            (LockAction::Try(LockRequest { mode, targets, .. }), None) => {
                let request = locks.request_all(targets).mode(mode).named(name.as_str());
                let guard = request.try_acquire().await.map_err(failure)?;
                let refused = "it is not free, and was not to wait";
                *held = Some(guard.ok_or_else(|| Failure::new(FailureKind::Refused, refused))?);
            }
            (LockAction::Extend(LockRequest { mode, targets, within }), Some(guard)) => {
                let mut request = guard.request_all(targets).mode(mode);
                if let Some(within) = within {
                    request = request.within(within);
                }
                request.acquire().await.map_err(failure)?;
            }
            (LockAction::Upgrade, Some(guard)) => guard.upgrade().await.map_err(failure)?,
            (LockAction::Release, Some(_)) => {
                if let Some(guard) = held.take() {
                    guard.release().await.map_err(failure)?;
                }
            }
        }
        Ok(Answer::default())
    }
}

fn session_name(holder: &Holder) -> Option<SessionName> {
    holder.name.as_deref().and_then(SessionName::new)
}

fn node(target: &hierlock::Target, mode: hierlock::SlotMode) -> LockTarget {
    LockTarget::new(LockKind::Node, target, mode)
}

fn failure(error: Error) -> Failure {
    let kind = match &error {
        error if error.is_deadlock() => FailureKind::Deadlock,
        error if error.is_timeout() => FailureKind::TimedOut,
        error if error.is_would_block() => FailureKind::Refused,
        _ => FailureKind::Other,
    };
    Failure::new(kind, error.to_string())
}
