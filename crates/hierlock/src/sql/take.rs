//! Taking the steps of a plan on one session: trying, waiting, giving up, and giving back.

use super::failure::LockFailure;
use super::pool::LockPool;
use super::statement::{Form, Statement, Wait, Writer};
use super::waiting::{Ended, Watched};
use super::{Dialect, Scheme, Strategy};
use crate::backend::WaitLimit;
use crate::error::{Blocker, Error, LockError, Result};
use crate::handover::Interest;
use crate::plan::{Plan, Step};
use crate::registry::Entry;
use crate::target::Target;
use hierlock_engine::{ServerError, Session, SessionRef};
use std::collections::HashSet;
use std::sync::Arc;

/// What is to be taken together.
pub(super) struct Take {
    pub(super) plan: Plan,
    pub(super) patience: WaitLimit,
}

impl Take {
    pub(super) fn wanted(&self) -> Vec<Target> {
        self.plan.claims().iter().map(|claim| claim.target.clone()).collect()
    }

    /// That step is not free, and waiting was not asked for.
    fn would_block(&self, step: &Step, blocker: Blocker) -> NotTaken {
        let (blocked_on, wanted) = (step.target.clone(), self.wanted());
        NotTaken::Because(LockError::WouldBlock { blocked_on, wanted, blocker }.into())
    }
}

/// No session has this number: locks of the session that guards share are in the way of each other.
pub(super) const SHARED_SESSION: i64 = -1;

/// Why steps were not taken. They are given back by then.
pub(super) enum NotTaken {
    Because(Error),
    /// Nobody waits for them any more.
    GivenUp,
    /// The server chose this one to end a deadlock, when it wanted that.
    Deadlock(Target),
    /// The server's own limit for a wait, which is not ours.
    Again,
    /// The rows of these steps are not there.
    Missing(Vec<Step>),
    /// The table is not there, or no longer striped as it was.
    Disagrees(sqlx::Error),
    /// With the connection, everything else is gone too.
    Gone(sqlx::Error),
}

/// Before the steps, and what takes them back.
#[derive(Clone, Copy)]
pub(super) struct Around {
    pub(super) before: &'static str,
    pub(super) undo: &'static str,
}

impl Around {
    /// A transaction of its own. On InnoDB it begins by itself; on PostgreSQL it may have begun when
    /// the one before ended.
    pub(super) fn acquire(session: &mut Session) -> Self {
        match (session.dialect, session.in_transaction) {
            (Dialect::Postgres, true) => Around { before: "", undo: "ROLLBACK AND CHAIN" },
            (Dialect::Postgres, false) => {
                session.in_transaction = true;
                Around { before: "BEGIN;\n", undo: "ROLLBACK AND CHAIN" }
            }
            _ => Around { before: "", undo: "ROLLBACK" },
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
    pub(super) const EXTEND: Around =
        Around { before: "SAVEPOINT more;\n", undo: "ROLLBACK TO SAVEPOINT more" };

    /// More in the same transaction on InnoDB, which gives nothing back: a refused row leaves the others
    /// as they are.
    pub(super) const NOTHING: Around = Around { before: "", undo: "DO 0" };
}

/// Who takes: on which server, how, and under whose name.
pub(super) struct Taker<'a> {
    pub(super) pool: &'a Arc<LockPool>,
    pub(super) scheme: &'a Arc<Scheme>,
    pub(super) entry: &'a Entry,
}

impl Taker<'_> {
    /// Takes steps, in order, as far as patience and the caller's interest go.
    pub(super) async fn take(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        take: &Take,
        around: Around,
        interest: &mut Interest,
    ) -> Result<(), NotTaken> {
        if !take.patience.waits() {
            return self.try_take(session, steps, take, around).await;
        }
        let statement = around.put_before(|form| self.scheme.take(steps, Wait::Yes, form));
        let rows_expected = statement.rows;
        let Watched { ended, at, blocker, shown: _shown } =
            self.watch(session, statement, steps, take, interest).await;
        let why = match ended {
            Ended::Ran(Ok(rows)) if rows == rows_expected => return Ok(()),
            Ended::Ran(Ok(_)) => {
                return Err(self.missing(session, steps, around).await?);
            }
            Ended::Ran(Err(error)) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => return Err(NotTaken::Gone(error)),
                LockFailure::Deadlock => NotTaken::Deadlock(steps[at.unwrap_or(0)].target.clone()),
                LockFailure::NotGranted => NotTaken::Again,
                LockFailure::TableChanged => NotTaken::Disagrees(error),
                LockFailure::Interrupted
                | LockFailure::InFailedTransaction
                | LockFailure::Other => NotTaken::Because(self.failed(error)),
            },
            Ended::GivenUp => NotTaken::GivenUp,
            Ended::Late(waited) => {
                let (place, blocker) = match at {
                    Some(place) => (place, blocker),
                    None => match self.in_the_way(session, steps, around).await? {
                        Some(place) => (place, Blocker::HolderOrWaiter),
                        None => (steps.len() - 1, Blocker::Nobody),
                    },
                };
                let (blocked_on, wanted) = (steps[place].target.clone(), take.wanted());
                NotTaken::Because(LockError::Timeout { blocked_on, wanted, blocker, waited }.into())
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// Takes steps only if none is in the way.
    pub(super) async fn try_take(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        take: &Take,
        around: Around,
    ) -> Result<(), NotTaken> {
        let pid = session.id.pid;
        let would_block = |place: usize| self.would_block(&steps[place], take, pid);
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
                    return Err(NotTaken::Gone(error));
                }
                Err(error) => NotTaken::Because(self.failed(error)),
            }
        } else {
            match statement.run_limited(session).await {
                Ok(rows) if rows == rows_expected => return Ok(()),
                Ok(_) => {
                    return Err(self.missing(session, steps, around).await?);
                }
                Err(error) => match LockFailure::of(&error) {
                    LockFailure::ConnectionLost => return Err(NotTaken::Gone(error)),
                    // InnoDB has ended the whole transaction, and whatever else it held.
                    LockFailure::Deadlock if around.undo == Around::NOTHING.undo => {
                        return Err(NotTaken::Deadlock(steps[0].target.clone()));
                    }
                    LockFailure::NotGranted | LockFailure::Deadlock => {
                        match self.in_the_way(session, steps, around).await? {
                            Some(place) => would_block(place).await,
                            None => take.would_block(&steps[steps.len() - 1], Blocker::Nobody),
                        }
                    }
                    LockFailure::TableChanged => NotTaken::Disagrees(error),
                    LockFailure::Interrupted
                    | LockFailure::InFailedTransaction
                    | LockFailure::Other => NotTaken::Because(self.failed(error)),
                },
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// That step is not free for the session `pid`, and waiting was not asked for.
    pub(super) async fn would_block(&self, step: &Step, take: &Take, pid: i64) -> NotTaken {
        let blocker = match take.patience {
            WaitLimit::Try => Blocker::HolderOrWaiter,
            _ => self.pool.blocker(self.scheme, step, pid).await,
        };
        take.would_block(step, blocker)
    }

    /// The first step that is not free, if there still is one; found by trying one after the other. What
    /// it takes is undone by the caller.
    async fn in_the_way(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        around: Around,
    ) -> Result<Option<usize>, NotTaken> {
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
            return Err(NotTaken::Gone(error));
        }
        let before = usize::from(!around.before.is_empty());
        Ok(places.get(done.saturating_sub(before)).copied())
    }

    /// Gives back what was taken, and says which rows are not there, by a plain read.
    async fn missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        around: Around,
    ) -> Result<NotTaken, NotTaken> {
        self.undo(session, around.undo).await?;
        let missing = self.find_missing(session, steps).await.map_err(NotTaken::Gone)?;
        // On InnoDB the read itself has begun a transaction.
        self.undo(session, around.undo).await?;
        Ok(NotTaken::Missing(missing))
    }

    /// Which rows are not there.
    pub(super) async fn find_missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
    ) -> Result<Vec<Step>, sqlx::Error> {
        let scheme = self.scheme;
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

    /// Makes rows that are missing, in a transaction of its own. It may have to wait for whoever makes
    /// the same, or has just made and locked it.
    pub(super) async fn insert(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        interest: &mut Interest,
    ) -> Result<(), NotTaken> {
        let statement = Statement::text(self.scheme.insert(steps.iter().map(|step| &step.target)));
        // It commits, whatever it was in before.
        session.in_transaction = false;
        let watched = self.watch(&mut session.as_ref(), statement, steps, take, interest).await;
        let why = match watched.ended {
            Ended::Ran(Ok(_)) => return Ok(()),
            Ended::Ran(Err(error)) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => return Err(NotTaken::Gone(error)),
                LockFailure::Deadlock | LockFailure::NotGranted => NotTaken::Again,
                LockFailure::TableChanged => NotTaken::Disagrees(error),
                LockFailure::Interrupted
                | LockFailure::InFailedTransaction
                | LockFailure::Other => NotTaken::Because(self.failed(error)),
            },
            Ended::GivenUp => NotTaken::GivenUp,
            Ended::Late(waited) => {
                let place = watched.at.unwrap_or(0);
                let (blocked_on, wanted) = (steps[place].target.clone(), take.wanted());
                let blocker = watched.blocker;
                NotTaken::Because(LockError::Timeout { blocked_on, wanted, blocker, waited }.into())
            }
        };
        self.undo(&mut session.as_ref(), "ROLLBACK").await?;
        Err(why)
    }

    /// Undoes, also where a late cancel hits the undoing itself.
    pub(super) async fn undo(
        &self,
        session: &mut SessionRef<'_>,
        undo: &str,
    ) -> Result<(), NotTaken> {
        let undone = match session.run(undo).await {
            Err(error) if LockFailure::of(&error) == LockFailure::Interrupted => {
                session.run(undo).await
            }
            other => other,
        };
        undone.map_err(NotTaken::Gone)
    }

    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.pool.server.address.to_string(), source }.into()
    }

    /// What the caller is told.
    pub(super) fn error(&self, why: NotTaken, take: &Take) -> Error {
        match why {
            NotTaken::Because(error) => error,
            NotTaken::Gone(source) | NotTaken::Disagrees(source) => self.failed(source),
            // Nobody reads the first, and the second is tried again.
            NotTaken::GivenUp | NotTaken::Again => self.failed(sqlx::Error::WorkerCrashed),
            NotTaken::Missing(steps) => match steps.into_iter().next() {
                Some(Step { level, slot, target, .. }) => {
                    let bucket = (!self.scheme.strategy.is_by_id()).then_some(slot);
                    LockError::NotProvisioned { level, bucket, target }.into()
                }
                // It has come in the meantime.
                None => self.failed(sqlx::Error::RowNotFound),
            },
            NotTaken::Deadlock(blocked_on) => {
                LockError::Deadlock { blocked_on, wanted: take.wanted() }.into()
            }
        }
    }
}
