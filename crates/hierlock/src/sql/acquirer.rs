//! Takes the steps of a plan on one session: tries, waits, gives up and gives back. The statement itself is in
//! `statement.rs`, what happens while it waits in `wait.rs`.

use super::failure::LockFailure;
use super::pool::LockPool;
use super::statement::{Form, Statement, Wait, Writer};
use super::wait::{WaitEnd, WaitReport};
use super::{Dialect, Scheme, Strategy};
use crate::backend::WaitLimit;
use crate::error::{Blocker, Error, LockError, Result, SqlError};
use crate::handover::Interest;
use crate::plan::{Plan, Step};
use crate::registry::Entry;
use crate::target::Target;
use hierlock_engine::{ServerError, Session, SessionRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What is to be taken together.
pub(super) struct LockRequest {
    pub(super) plan: Plan,
    pub(super) wait_limit: WaitLimit,
}

impl LockRequest {
    pub(super) fn wanted(&self) -> Vec<Target> {
        self.plan.claims().iter().map(|claim| claim.target.clone()).collect()
    }

    /// The server chose this one to end a deadlock, when it wanted that node.
    pub(super) fn deadlock(&self, blocked_on: Target) -> AcquireError {
        AcquireError::Deadlock { blocked_on, wanted: self.wanted() }
    }

    /// That step is not free, and waiting was not asked for.
    fn would_block(&self, step: &Step, blocker: Blocker) -> AcquireError {
        let (blocked_on, wanted) = (step.target.clone(), self.wanted());
        AcquireError::Failed(LockError::WouldBlock { blocked_on, wanted, blocker }.into())
    }
}

/// How long an INSERT of a missing row waits for somebody else who makes the same.
const INSERT_WAIT: Duration = Duration::from_millis(200);

/// No session has this number: locks of the session that guards share are in the way of each other.
pub(super) const SHARED_SESSION: i64 = -1;

/// Why locks were not taken. What was taken on the way is given back by then.
pub(super) enum AcquireError {
    /// The caller is told this.
    Failed(Error),
    /// Nobody waits for them any more.
    Abandoned,
    /// The server chose this one to end a deadlock, when it wanted the first node; with all that it wanted.
    Deadlock { blocked_on: Target, wanted: Vec<Target> },
    /// The server's own limit for a wait, which is not the caller's: it begins again.
    LockWaitTimeout,
    /// The rows of these steps are not there. None are named if they have come meanwhile.
    MissingRows(Vec<Step>),
    /// The table is not there, or no longer striped as it was.
    TableChanged(sqlx::Error),
    /// The connection is gone, and with it everything that it held.
    ConnectionLost(sqlx::Error),
    /// The hold that was to be extended is gone, for this reason.
    HoldLost(&'static str),
}

impl AcquireError {
    /// What the caller is told.
    pub(super) fn into_error(self, pool: &LockPool, scheme: &Scheme) -> Error {
        let server = pool.server.address.to_string();
        match self {
            AcquireError::Failed(error) => error,
            AcquireError::ConnectionLost(source) | AcquireError::TableChanged(source) => {
                ServerError::Failed { server, source }.into()
            }
            AcquireError::Deadlock { blocked_on, wanted } => {
                LockError::Deadlock { blocked_on, wanted }.into()
            }
            AcquireError::MissingRows(steps) => match steps.into_iter().next() {
                Some(Step { level, slot, target, .. }) => {
                    let bucket = (!scheme.strategy.is_by_id()).then_some(slot);
                    LockError::NotProvisioned { level, bucket, target }.into()
                }
                None => {
                    let what = "a lock row is missing one moment and there the next";
                    SqlError::Unexpected { server, what }.into()
                }
            },
            // Nobody reads the first, and the second begins again.
            AcquireError::Abandoned | AcquireError::LockWaitTimeout => {
                SqlError::Unexpected { server, what: "the acquire has ended" }.into()
            }
            AcquireError::HoldLost(what) => SqlError::Unexpected { server, what }.into(),
        }
    }
}

/// What begins the taking of steps, and what takes them back.
#[derive(Clone, Copy)]
pub(super) struct UndoScope {
    pub(super) before: &'static str,
    pub(super) undo: &'static str,
}

impl UndoScope {
    /// A transaction of its own. On InnoDB it begins by itself; on PostgreSQL it may have begun when
    /// the one before ended.
    pub(super) fn acquire(session: &mut Session) -> Self {
        match (session.dialect, session.in_transaction) {
            (Dialect::Postgres, true) => UndoScope { before: "", undo: "ROLLBACK AND CHAIN" },
            (Dialect::Postgres, false) => {
                session.in_transaction = true;
                UndoScope { before: "BEGIN;\n", undo: "ROLLBACK AND CHAIN" }
            }
            _ => UndoScope { before: "", undo: "ROLLBACK" },
        }
    }

    /// The whole of what is sent. Behind something else there are no bound values.
    pub(super) fn put_before(self, statement: impl Fn(Form) -> Statement) -> Statement {
        match self.before {
            "" => statement(Form::Bound),
            before => {
                let statement = statement(Form::Text);
                Statement { sql: format!("{before}{}", statement.sql), ..statement }
            }
        }
    }

    /// More in the same transaction: only PostgreSQL gives locks back at a savepoint.
    pub(super) const EXTEND: UndoScope =
        UndoScope { before: "SAVEPOINT more;\n", undo: "ROLLBACK TO SAVEPOINT more" };

    /// More in the same transaction on InnoDB, which gives nothing back: a refused row leaves the others
    /// as they are.
    pub(super) const NOTHING: UndoScope = UndoScope { before: "", undo: "DO 0" };
}

/// Who takes locks: on which server, how, and under whose name.
#[derive(Clone)]
pub(super) struct Acquirer {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<Entry>,
}

impl Acquirer {
    /// Takes steps, in order, as far as wait_limit and the caller's interest go.
    pub(super) async fn lock(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        request: &LockRequest,
        around: UndoScope,
        interest: &mut Interest,
    ) -> Result<(), AcquireError> {
        if !request.wait_limit.waits() {
            return self.try_lock(session, steps, request, around).await;
        }
        let statement = around.put_before(|form| self.scheme.take(steps, Wait::Yes, form));
        let rows_expected = statement.rows;
        let WaitReport { ended, at, blocker, shown: _shown } =
            self.watch(session, statement, steps, request, interest).await;
        let why = match ended {
            WaitEnd::Ran(Ok(rows)) if rows == rows_expected => return Ok(()),
            WaitEnd::Ran(Ok(_)) => {
                return Err(self.missing(session, steps, around).await?);
            }
            WaitEnd::Ran(Err(error)) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => return Err(AcquireError::ConnectionLost(error)),
                LockFailure::Deadlock => request.deadlock(steps[at.unwrap_or(0)].target.clone()),
                LockFailure::NotGranted => AcquireError::LockWaitTimeout,
                LockFailure::TableChanged => AcquireError::TableChanged(error),
                LockFailure::Interrupted
                | LockFailure::InFailedTransaction
                | LockFailure::Other => AcquireError::Failed(self.failed(error)),
            },
            WaitEnd::Abandoned => AcquireError::Abandoned,
            WaitEnd::TimedOut(waited) => {
                let (place, blocker) = match at {
                    Some(place) => (place, blocker),
                    None => match self.in_the_way(session, steps, around).await? {
                        Some(place) => (place, Blocker::HolderOrWaiter),
                        None => (steps.len() - 1, Blocker::Nobody),
                    },
                };
                let (blocked_on, wanted) = (steps[place].target.clone(), request.wanted());
                AcquireError::Failed(
                    LockError::Timeout { blocked_on, wanted, blocker, waited }.into(),
                )
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// Takes steps only if none is in the way.
    pub(super) async fn try_lock(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        request: &LockRequest,
        around: UndoScope,
    ) -> Result<(), AcquireError> {
        let pid = session.id.pid;
        let would_block = |place: usize| self.would_block(&steps[place], request, pid);
        let statement = around.put_before(|form| self.scheme.take(steps, Wait::No, form));
        let rows_expected = statement.rows;
        let why = if self.scheme.strategy == Strategy::Advisory {
            // Each key says whether it was got.
            let statement = self.scheme.take(steps, Wait::No, Form::Text);
            match session.rows(&format!("{}{}", around.before, statement.sql)).await {
                Ok(got) => match got.iter().position(|row| row[0] == "f") {
                    None => return Ok(()),
                    Some(place) => would_block(place).await,
                },
                Err(error) if LockFailure::of(&error) == LockFailure::ConnectionLost => {
                    return Err(AcquireError::ConnectionLost(error));
                }
                Err(error) => AcquireError::Failed(self.failed(error)),
            }
        } else {
            match statement.run_limited(session).await {
                Ok(rows) if rows == rows_expected => return Ok(()),
                Ok(_) => {
                    return Err(self.missing(session, steps, around).await?);
                }
                Err(error) => match LockFailure::of(&error) {
                    LockFailure::ConnectionLost => return Err(AcquireError::ConnectionLost(error)),
                    // InnoDB has ended the whole transaction, and whatever else it held.
                    LockFailure::Deadlock if around.undo == UndoScope::NOTHING.undo => {
                        return Err(request.deadlock(steps[0].target.clone()));
                    }
                    LockFailure::NotGranted | LockFailure::Deadlock => {
                        match self.in_the_way(session, steps, around).await? {
                            Some(place) => would_block(place).await,
                            None => request.would_block(&steps[steps.len() - 1], Blocker::Nobody),
                        }
                    }
                    LockFailure::TableChanged => AcquireError::TableChanged(error),
                    LockFailure::Interrupted
                    | LockFailure::InFailedTransaction
                    | LockFailure::Other => AcquireError::Failed(self.failed(error)),
                },
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// That step is not free for the session `pid`, and waiting was not asked for.
    pub(super) async fn would_block(
        &self,
        step: &Step,
        request: &LockRequest,
        pid: i64,
    ) -> AcquireError {
        let blocker = match request.wait_limit {
            WaitLimit::Try => Blocker::HolderOrWaiter,
            _ => self.pool.blocker(&self.scheme, step, pid).await,
        };
        request.would_block(step, blocker)
    }

    /// The first step that is not free, if there still is one; found by trying one after the other. What
    /// it takes is undone by the caller.
    async fn in_the_way(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        around: UndoScope,
    ) -> Result<Option<usize>, AcquireError> {
        if self.scheme.strategy == Strategy::Advisory {
            // What was waited for has been asked already.
            return Ok(None);
        }
        // On PostgreSQL nothing runs after a failure; on InnoDB what was taken is still there.
        self.undo(session, around.undo).await?;
        let (singles, places) = self.scheme.take_singly(steps);
        let (done, failure) =
            session.run_until_failure(&format!("{}{singles}", around.before)).await;
        if let Some(error) = failure
            && LockFailure::of(&error) == LockFailure::ConnectionLost
        {
            return Err(AcquireError::ConnectionLost(error));
        }
        let before = usize::from(!around.before.is_empty());
        Ok(places.get(done.saturating_sub(before)).copied())
    }

    /// Gives back what was taken, and says which rows are not there, by a plain read.
    async fn missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        around: UndoScope,
    ) -> Result<AcquireError, AcquireError> {
        self.undo(session, around.undo).await?;
        let missing =
            self.find_missing(session, steps).await.map_err(AcquireError::ConnectionLost)?;
        // On InnoDB the read itself has begun a transaction.
        self.undo(session, around.undo).await?;
        Ok(AcquireError::MissingRows(missing))
    }

    /// Which rows are not there.
    pub(super) async fn find_missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
    ) -> Result<Vec<Step>, sqlx::Error> {
        let scheme = &*self.scheme;
        let rows: Vec<String> = steps
            .iter()
            .map(|step| {
                let writer = &mut Writer::new(scheme.dialect, false);
                format!("({})", scheme.row("", step, writer))
            })
            .collect();
        let name = match (scheme.dialect, scheme.strategy.is_by_id()) {
            (_, false) => "level, bucket",
            (Dialect::Postgres, true) => "encode(lock_key, 'hex')",
            (_, true) => "LOWER(HEX(lock_key))",
        };
        let (table, rows) = (scheme.quoted_table(), rows.join(" OR "));
        let found = session.rows(&format!("SELECT {name} FROM {table} WHERE {rows}")).await?;
        let found: HashSet<String> = found.into_iter().map(|row| row.join(", ")).collect();
        let is_missing = |step: &&Step| !found.contains(&scheme.slot_name(step));
        Ok(steps.iter().filter(is_missing).cloned().collect())
    }

    /// Makes rows that are missing, in a transaction of its own.
    ///
    /// On MySQL and MariaDB the INSERT waits for whoever has just made the same row and locked it. That wait may be out
    /// of order, and who only tries must not wait at all. So it is short: after [`INSERT_WAIT`] it begins again, finds
    /// the row, and does with it as with any other.
    pub(super) async fn insert(
        &self,
        session: &mut Session,
        steps: &[Step],
        request: &LockRequest,
        interest: &mut Interest,
    ) -> Result<(), AcquireError> {
        let statement = Statement::text(self.scheme.insert(steps.iter().map(|step| &step.target)));
        // It commits, whatever it was in before.
        session.in_transaction = false;
        let short = WaitLimit::within(INSERT_WAIT);
        let limit = if request.wait_limit.ends_before(short) { request.wait_limit } else { short };
        let limited = LockRequest { plan: request.plan.clone(), wait_limit: limit };
        let watched = self.watch(&mut session.as_ref(), statement, steps, &limited, interest).await;
        let why = match watched.ended {
            WaitEnd::Ran(Ok(_)) => {
                session.mark_clean();
                return Ok(());
            }
            WaitEnd::Ran(Err(error)) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => return Err(AcquireError::ConnectionLost(error)),
                LockFailure::Deadlock | LockFailure::NotGranted => AcquireError::LockWaitTimeout,
                LockFailure::TableChanged => AcquireError::TableChanged(error),
                LockFailure::Interrupted
                | LockFailure::InFailedTransaction
                | LockFailure::Other => AcquireError::Failed(self.failed(error)),
            },
            WaitEnd::Abandoned => AcquireError::Abandoned,
            WaitEnd::TimedOut(_) if !request.wait_limit.waits() => {
                request.would_block(&steps[watched.at.unwrap_or(0)], watched.blocker)
            }
            WaitEnd::TimedOut(waited) if request.wait_limit.is_over() => {
                let place = watched.at.unwrap_or(0);
                let (blocked_on, wanted) = (steps[place].target.clone(), request.wanted());
                let blocker = watched.blocker;
                AcquireError::Failed(
                    LockError::Timeout { blocked_on, wanted, blocker, waited }.into(),
                )
            }
            WaitEnd::TimedOut(_) => AcquireError::LockWaitTimeout,
        };
        self.undo(&mut session.as_ref(), "ROLLBACK").await?;
        Err(why)
    }

    /// Undoes, also where a late cancel hits the undoing itself.
    pub(super) async fn undo(
        &self,
        session: &mut SessionRef<'_>,
        undo: &str,
    ) -> Result<(), AcquireError> {
        let undone = match session.run(undo).await {
            Err(error) if LockFailure::of(&error) == LockFailure::Interrupted => {
                session.run(undo).await
            }
            other => other,
        };
        undone.map_err(AcquireError::ConnectionLost)?;
        // Back to a savepoint, something is still held.
        if ["ROLLBACK", "ROLLBACK AND CHAIN"].contains(&undo) {
            session.mark_clean();
        }
        Ok(())
    }

    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.pool.server.address.to_string(), source }.into()
    }
}
