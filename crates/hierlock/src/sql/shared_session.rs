//! One session that many guards share, with session-level advisory keys (`scope=session`).
//!
//! The server does not distinguish the guards of one session, so their keys are counted here. No statement waits on this
//! session, since it would block all guards. An acquire that finds a key taken waits on a connection of its own.

use super::statement::Literal as _;
use super::{Dialect, LockPool, postgres};
use crate::{Error, SlotMode, Step};
use hierlock_engine::{ErrorClass, Session, TextRow};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, MutexGuard};

type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

/// The session that guards share.
#[derive(Debug, Default)]
pub(super) struct SharedSession {
    state: Mutex<SharedState>,
    /// A guard was dropped without releasing its keys, and only the end of the session releases them.
    must_end: AtomicBool,
}

#[derive(Debug, Default)]
struct SharedState {
    session: Option<Session>,
    /// The number of times that guards hold each key.
    taken: HashMap<AdvisoryKey, u32>,
    /// The number of sessions that have ended, with all their keys.
    generation: u64,
    last_ping: Option<Instant>,
}

/// A key in one of its two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AdvisoryKey {
    number: i64,
    is_shared: bool,
}

impl AdvisoryKey {
    fn of_steps(steps: &[Step]) -> Vec<Self> {
        let key = |step: &Step| {
            let is_shared = step.mode == SlotMode::Shared;
            Self { number: step.slot as i64, is_shared }
        };
        steps.iter().map(key).collect()
    }
}

/// The keys of one guard on the shared session.
#[derive(Debug)]
pub(super) struct SharedKeys {
    shared: Arc<SharedSession>,
    keys: Vec<AdvisoryKey>,
    generation: u64,
}

impl SharedSession {
    async fn lock(&self) -> MutexGuard<'_, SharedState> {
        let mut state = self.state.lock().await;
        if self.must_end.swap(false, Ordering::SeqCst) {
            state.end();
        }
        state
    }

    /// Takes steps if all are free. Otherwise returns the index of the first that is not.
    pub(super) async fn try_lock(
        self: &Arc<Self>,
        pool: &LockPool,
        steps: &[Step],
    ) -> Result<Result<SharedKeys, usize>, Error> {
        let keys = AdvisoryKey::of_steps(steps);
        let mut state = self.lock().await;
        let blocked_at = loop {
            let was_open = state.session.is_some();
            if !was_open {
                state.session = Some(pool.connect().await?);
            }
            match state.try_lock(&keys, &[]).await {
                // The session was lost, with all its keys. The next one is new.
                Err(error) if was_open && ErrorClass::of(&error).is_connection_lost() => {}
                locked => break locked.map_err(|error| pool.failed(error))?,
            }
        };
        let generation = state.generation;
        let taken = || SharedKeys { shared: self.clone(), keys, generation };
        Ok(blocked_at.map_or_else(|| Ok(taken()), Err))
    }
}

impl SharedState {
    /// Drops the session, with all its keys.
    fn end(&mut self) {
        self.session = None;
        self.taken.clear();
        self.generation += 1;
    }

    /// Takes keys for a guard that already has `own`, if all are free. Otherwise returns the index of the first that is not.
    async fn try_lock(
        &mut self,
        keys: &[AdvisoryKey],
        own: &[AdvisoryKey],
    ) -> Result<Option<usize>> {
        // The server would grant keys of other guards, which have the same session.
        if let Some(index) = keys.iter().position(|key| self.conflicts(key, own)) {
            return Ok(Some(index));
        }
        let granted = self.call("pg_try_advisory_lock", keys).await?;
        let blocked_at = granted.iter().position(|granted| !granted);
        if blocked_at.is_none() {
            for key in keys {
                *self.taken.entry(*key).or_default() += 1;
            }
        } else {
            let granted = keys.iter().zip(granted).filter(|(_, granted)| *granted);
            let granted: Vec<AdvisoryKey> = granted.map(|(key, _)| *key).collect();
            self.call("pg_advisory_unlock", &granted).await?;
        }
        Ok(blocked_at)
    }

    /// Returns whether another guard has the key in a conflicting mode.
    fn conflicts(&self, key: &AdvisoryKey, own: &[AdvisoryKey]) -> bool {
        let has_other = |is_shared: bool| {
            let wanted = AdvisoryKey { is_shared, ..*key };
            let ours = own.iter().filter(|own| **own == wanted).count();
            self.taken.get(&wanted).is_some_and(|all| *all as usize > ours)
        };
        has_other(false) || (!key.is_shared && has_other(true))
    }

    async fn give_back(&mut self, keys: &[AdvisoryKey]) -> Result<()> {
        self.call("pg_advisory_unlock", keys).await?;
        for key in keys {
            if let Some(count) = self.taken.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.taken.remove(key);
                }
            }
        }
        Ok(())
    }

    /// Calls a function for each key, in order. Returns the results.
    async fn call(&mut self, function: &str, keys: &[AdvisoryKey]) -> Result<Vec<bool>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (numbers, shared): (Vec<i64>, Vec<bool>) =
            keys.iter().map(|key| (key.number, key.is_shared)).unzip();
        let numbers = numbers.literal(Dialect::Postgres);
        let shared = shared.literal(Dialect::Postgres);
        let rows = self.ask(&postgres::call_each(function, &numbers, &shared)).await?;
        Ok(rows.iter().map(|row| row[0] == "t").collect())
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>> {
        let session = self.session.as_mut().ok_or_else(session_ended)?;
        let answer = session.rows(sql).await;
        self.end_if_failed(answer)
    }

    /// Ends the session after any failure: session-level keys outlive a failed statement, and it is unknown which of them
    /// it had taken.
    fn end_if_failed<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.is_err() {
            self.end();
        }
        answer
    }
}

/// Returns the error of a guard whose session has ended.
fn session_ended() -> sqlx::Error {
    sqlx::Error::Io(ErrorKind::ConnectionAborted.into())
}

impl SharedKeys {
    /// Locks the state. Fails if the session with these keys has ended.
    async fn state(&self) -> Result<MutexGuard<'_, SharedState>> {
        let state = self.shared.lock().await;
        if state.generation == self.generation { Ok(state) } else { Err(session_ended()) }
    }

    /// Checks that the session is alive. One check serves all guards.
    pub(super) async fn ping(&self, pool: &LockPool) -> Result<()> {
        let mut state = self.state().await?;
        let now = Instant::now();
        let is_recent = |ping: Instant| now - ping < pool.settings.keep_alive / 2;
        if state.last_ping.is_some_and(is_recent) {
            return Ok(());
        }
        state.last_ping = Some(now);
        let session = state.session.as_mut().ok_or_else(session_ended)?;
        let pinged = session.ping().await;
        state.end_if_failed(pinged)
    }

    /// Takes further keys, or a stronger mode of the same, if all are free. Otherwise returns the index of the first that is
    /// not.
    pub(super) async fn try_add(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let keys = AdvisoryKey::of_steps(steps);
        let blocked_at = self.state().await?.try_lock(&keys, &self.keys).await?;
        if blocked_at.is_none() {
            self.keys.extend(keys);
        }
        Ok(blocked_at)
    }

    /// Releases the last `count` keys.
    pub(super) async fn give_back_last(&mut self, count: usize) -> Result<()> {
        let last = self.keys.split_off(self.keys.len() - count);
        self.state().await?.give_back(&last).await
    }

    /// Runs a query on the session with these keys.
    pub(super) async fn ask(&self, query: &str) -> Result<Vec<TextRow>> {
        self.state().await?.ask(query).await
    }

    pub(super) async fn end(mut self) -> Result<()> {
        self.give_back_last(self.keys.len()).await
    }
}

impl Drop for SharedKeys {
    fn drop(&mut self) {
        // Keys are left only if the runtime has ended or the hold is lost.
        if !self.keys.is_empty() {
            match self.shared.state.try_lock() {
                Ok(mut state) if state.generation == self.generation => state.end(),
                Ok(_) => {}
                Err(_) => self.shared.must_end.store(true, Ordering::SeqCst),
            }
        }
    }
}
