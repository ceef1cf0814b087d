//! Taking the steps of a plan on one session: trying, waiting, giving up, and giving back.

use super::pool::Pool;
use super::session::{Meaning, Session, meaning};
use super::statement::{Statement, Wait};
use super::{Dialect, Scheme, Strategy};
use crate::backend::Patience;
use crate::error::{Error, LockError, SqlError};
use crate::plan::{Plan, Step};
use crate::registry::{Entry, Shown};
use crate::target::Target;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// A statement that takes longer may be waiting: then the server is asked, and again after twice as
/// long each time, up to the second span.
const LOOK_AFTER: Duration = Duration::from_millis(10);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// How often a cancel is sent until it has worked.
const CANCEL_EVERY: Duration = Duration::from_millis(20);

/// What is to be taken together.
pub(super) struct Take {
    pub(super) plan: Plan,
    pub(super) patience: Patience,
}

impl Take {
    pub(super) fn wanted(&self) -> Vec<Target> {
        self.plan.claims().iter().map(|claim| claim.target.clone()).collect()
    }
}

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
    /// A transaction of its own. On InnoDB it begins by itself.
    pub(super) fn acquire(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Postgres => Around { before: "BEGIN;\n", undo: "ROLLBACK" },
            _ => Around { before: "", undo: "ROLLBACK" },
        }
    }

    /// More in the same transaction: only PostgreSQL gives locks back at a savepoint.
    pub(super) const EXTEND: Around =
        Around { before: "SAVEPOINT more;\n", undo: "ROLLBACK TO SAVEPOINT more" };

    /// A stronger mode in the hold's own transaction on InnoDB. Nothing is undone: a refused row leaves the
    /// others as they are.
    pub(super) const STRENGTHEN: Around = Around { before: "", undo: "DO 0" };
}

/// Who takes: on which server, how, and under whose name.
pub(super) struct Taker<'a> {
    pub(super) pool: &'a Pool,
    pub(super) scheme: &'a Scheme,
    pub(super) entry: &'a Entry,
}

/// What became of a statement that might have to wait.
struct Watched<'a> {
    ended: Ended,
    /// The step it was last seen to wait at.
    at: Option<usize>,
    /// Listed as waiting until what it had taken is given back.
    shown: Option<Shown<'a>>,
}

/// How a wait ended.
enum Ended {
    Ran(Result<usize, sqlx::Error>),
    GivenUp,
    Late(Duration),
}

impl Taker<'_> {
    /// Takes steps, in order, as far as patience and the caller's interest go.
    pub(super) async fn take<T>(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        around: Around,
        reply: &mut oneshot::Sender<T>,
    ) -> Result<(), NotTaken> {
        if !take.patience.waits() {
            return self.try_take(session, steps, take, around).await;
        }
        let statement = self.scheme.take(steps, Wait::Yes);
        // What is bound is one statement, and needs nothing before it.
        let sql = format!("{}{}", around.before, statement.sql);
        let statement = Statement { sql, ..statement };
        let Watched { ended, at, shown: _shown } =
            self.watch(session, statement, steps, take, reply).await;
        let why = match ended {
            Ended::Ran(Ok(rows)) if rows == steps.len() => return Ok(()),
            Ended::Ran(Ok(_)) => {
                self.undo(session, around.undo).await?;
                return Err(self.missing(session, steps).await);
            }
            Ended::Ran(Err(error)) => match meaning(&error) {
                Meaning::Gone => return Err(NotTaken::Gone(error)),
                Meaning::Deadlock => NotTaken::Deadlock(steps[at.unwrap_or(0)].target.clone()),
                Meaning::Refused => NotTaken::Again,
                Meaning::NoSuchTable => NotTaken::Disagrees(error),
                Meaning::Cancelled | Meaning::Other => NotTaken::Because(self.failed(error)),
            },
            Ended::GivenUp => NotTaken::GivenUp,
            Ended::Late(waited) => {
                let place = match at {
                    Some(place) => place,
                    None => self.in_the_way(session, steps, around).await?,
                };
                let (blocked_on, wanted) = (steps[place].target.clone(), take.wanted());
                NotTaken::Because(LockError::Timeout { blocked_on, wanted, waited }.into())
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// Runs a statement that may wait, until it is done, too late, or of no more interest; then it is
    /// cancelled on the server.
    async fn watch<T>(
        &self,
        session: &mut Session,
        statement: Statement,
        steps: &[Step],
        take: &Take,
        reply: &mut oneshot::Sender<T>,
    ) -> Watched<'_> {
        let (dialect, pid) = (session.dialect, session.pid);
        let place_of = |name: String| steps.iter().position(|step| self.is_called(step, &name));
        let (mut at, mut shown) = (None, None);
        let mut lock = pin!(session.lock(statement));
        let mut late = pin!(take.patience.expired());
        let mut pause = LOOK_AFTER;
        let mut ended = loop {
            tokio::select! {
                biased;
                ran = &mut lock => break Ended::Ran(ran),
                () = reply.closed() => break Ended::GivenUp,
                waited = &mut late => break Ended::Late(waited),
                () = sleep(pause) => {
                    pause = (2 * pause).min(LOOK_AT_LEAST_EVERY);
                    let waits_for = match self.pool.waits_for(self.scheme, pid).await {
                        Ok(name) => name.and_then(place_of),
                        // Not everyone may ask. It has not answered, so it waits for something.
                        Err(_) => Some(at.unwrap_or(0)),
                    };
                    if waits_for.is_none() || waits_for != at {
                        // The old one first: it ends the listing when it goes.
                        shown = None;
                    }
                    if let (Some(place), None) = (waits_for, &shown) {
                        shown = Some(self.entry.waits(&take.plan, &steps[place]));
                    }
                    at = waits_for.or(at);
                }
            }
        };
        if !matches!(ended, Ended::Ran(_)) {
            if let Ok(Some(name)) = self.pool.waits_for(self.scheme, pid).await {
                at = place_of(name).or(at);
            }
            // Granted at the last moment or not, it is given back.
            if let Err(error) = self.cancel(dialect, pid, lock.as_mut()).await
                && meaning(&error) == Meaning::Gone
            {
                ended = Ended::Ran(Err(error));
            }
        }
        Watched { ended, at, shown }
    }

    /// Is that what a server calls the slot? MariaDB cuts a long key.
    fn is_called(&self, step: &Step, name: &str) -> bool {
        let ours = self.scheme.slot_name(step);
        match self.scheme.strategy.is_by_id() {
            true => ours.starts_with(name),
            false => ours == name,
        }
    }

    /// Takes steps only if none is in the way.
    pub(super) async fn try_take(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        around: Around,
    ) -> Result<(), NotTaken> {
        let would_block = |place: usize| {
            let (blocked_on, wanted) = (steps[place].target.clone(), take.wanted());
            NotTaken::Because(LockError::WouldBlock { blocked_on, wanted }.into())
        };
        let Statement { sql, values } = self.scheme.take(steps, Wait::No);
        let sql = format!("{}{sql}", around.before);
        let why = if self.scheme.strategy == Strategy::Advisory {
            // Each key says whether it was got.
            match session.rows(&sql).await {
                Ok(got) => match got.iter().position(|row| row[0] == "f") {
                    None => return Ok(()),
                    Some(place) => would_block(place),
                },
                Err(error) if meaning(&error) == Meaning::Gone => {
                    return Err(NotTaken::Gone(error));
                }
                Err(error) => NotTaken::Because(self.failed(error)),
            }
        } else {
            match session.lock(Statement { sql, values }).await {
                Ok(rows) if rows == steps.len() => return Ok(()),
                Ok(_) => {
                    self.undo(session, around.undo).await?;
                    return Err(self.missing(session, steps).await);
                }
                Err(error) => match meaning(&error) {
                    Meaning::Gone => return Err(NotTaken::Gone(error)),
                    // With a change of the table, which waits for the hold: InnoDB has ended the whole
                    // transaction, and the hold with it.
                    Meaning::Deadlock if around.undo == Around::STRENGTHEN.undo => {
                        return Err(NotTaken::Gone(error));
                    }
                    Meaning::Refused | Meaning::Deadlock => {
                        would_block(self.in_the_way(session, steps, around).await?)
                    }
                    Meaning::NoSuchTable => NotTaken::Disagrees(error),
                    Meaning::Cancelled | Meaning::Other => NotTaken::Because(self.failed(error)),
                },
            }
        };
        self.undo(session, around.undo).await?;
        Err(why)
    }

    /// The first step that is not free, found by trying one after the other. What it takes is undone
    /// by the caller.
    async fn in_the_way(
        &self,
        session: &mut Session,
        steps: &[Step],
        around: Around,
    ) -> Result<usize, NotTaken> {
        if self.scheme.strategy == Strategy::Advisory {
            return Ok(0);
        }
        // On PostgreSQL nothing runs after a failure; on InnoDB what was taken is still there.
        self.undo(session, around.undo).await?;
        let (done, failure) =
            session.how_far(format!("{}{}", around.before, self.scheme.take_singly(steps))).await;
        if let Some(error) = failure
            && meaning(&error) == Meaning::Gone
        {
            return Err(NotTaken::Gone(error));
        }
        let before = usize::from(!around.before.is_empty());
        Ok(done.saturating_sub(before).min(steps.len() - 1))
    }

    /// Which rows are not there. A plain read, in no transaction.
    async fn missing(&self, session: &mut Session, steps: &[Step]) -> NotTaken {
        let scheme = self.scheme;
        let rows: Vec<String> = steps
            .iter()
            .map(|step| {
                let value = scheme.value(step).literal(scheme.dialect);
                format!("({})", scheme.row(&step.level.to_string(), &value))
            })
            .collect();
        let name = match (scheme.dialect, scheme.strategy.is_by_id()) {
            (_, false) => "level, bucket",
            (Dialect::Postgres, true) => "encode(lock_key, 'hex')",
            (_, true) => "LOWER(HEX(lock_key))",
        };
        let (table, rows) = (scheme.rows_table(), rows.join(" OR "));
        let found = session.rows(&format!("SELECT {name} FROM {table} WHERE {rows}")).await;
        let found: Vec<String> = match found {
            Ok(rows) => rows.into_iter().map(|row| row.join(", ")).collect(),
            Err(error) => return NotTaken::Gone(error),
        };
        if scheme.dialect != Dialect::Postgres
            && let Err(error) = session.run("ROLLBACK").await
        {
            return NotTaken::Gone(error);
        }
        let is_missing = |step: &&Step| !found.contains(&scheme.slot_name(step));
        NotTaken::Missing(steps.iter().filter(is_missing).cloned().collect())
    }

    /// Makes rows that are missing, in a transaction of its own. It may have to wait for whoever makes
    /// the same, or has just made and locked it.
    pub(super) async fn insert<T>(
        &self,
        session: &mut Session,
        steps: &[Step],
        take: &Take,
        reply: &mut oneshot::Sender<T>,
    ) -> Result<(), NotTaken> {
        let statement = Statement::text(self.scheme.insert(steps.iter().map(|step| &step.target)));
        let watched = self.watch(session, statement, steps, take, reply).await;
        let why = match watched.ended {
            Ended::Ran(Ok(_)) => return Ok(()),
            Ended::Ran(Err(error)) => match meaning(&error) {
                Meaning::Gone => return Err(NotTaken::Gone(error)),
                Meaning::Deadlock | Meaning::Refused => NotTaken::Again,
                Meaning::NoSuchTable => NotTaken::Disagrees(error),
                Meaning::Cancelled | Meaning::Other => NotTaken::Because(self.failed(error)),
            },
            Ended::GivenUp => NotTaken::GivenUp,
            Ended::Late(waited) => {
                let (blocked_on, wanted) = (steps[0].target.clone(), take.wanted());
                NotTaken::Because(LockError::Timeout { blocked_on, wanted, waited }.into())
            }
        };
        self.undo(session, "ROLLBACK").await?;
        Err(why)
    }

    /// Ends a statement on the server, and waits for its end. A cancel that comes before the statement
    /// has begun is lost, so it is sent until it has worked.
    pub(super) async fn cancel<T>(
        &self,
        dialect: Dialect,
        pid: i64,
        mut statement: Pin<&mut impl Future<Output = Result<T, sqlx::Error>>>,
    ) -> Result<T, sqlx::Error> {
        let begun = Instant::now();
        while begun.elapsed() < self.pool.settings.silence {
            if let Err(error) = self.pool.cancel(dialect, pid).await {
                tracing::warn!(%error, "a statement could not be cancelled yet");
            }
            if let Ok(ran) = tokio::time::timeout(CANCEL_EVERY, statement.as_mut()).await {
                return ran;
            }
        }
        // The server would not notice a closed connection while it waits for a lock.
        if let Err(error) = self.pool.terminate(dialect, pid).await {
            tracing::error!(%error, "a session could not be ended");
        }
        Err(sqlx::Error::WorkerCrashed)
    }

    /// Undoes, also where a late cancel hits the undoing itself.
    pub(super) async fn undo(&self, session: &mut Session, undo: &str) -> Result<(), NotTaken> {
        let undone = match session.run(undo).await {
            Err(error) if meaning(&error) == Meaning::Cancelled => session.run(undo).await,
            other => other,
        };
        undone.map_err(NotTaken::Gone)
    }

    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        SqlError::Failed { server: self.pool.address.to_string(), source }.into()
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
