//! Tests that locks exclude each other on a server. Some servers and proxies accept a lock and do nothing.
//!
//! ```text
//!   first    shared ──────────┐ held        exclusive ─┐ held      …
//!   second   shared: granted  │ exclusive: NOWAIT is refused, then it waits
//!   observer                  └─ asks the server: does the second wait for the first?
//!                                the first rolls back ──► the second is granted, and rolls back
//! ```
//!
//! Each session rolls back its locks. If that fails, the session is dropped, which ends it on the server.

use super::lock_table::{LockTableError, Result};
use super::spare_slot::SpareSlot;
use super::{Dialect, LockPool, Scheme};
use crate::SlotMode::{self, Exclusive, Shared};
use hierlock_engine::checks::{Area, Check, Finding};
use hierlock_engine::introspection::{Introspection, IntrospectionScope};
use hierlock_engine::{ErrorClass, LockWaitPolicy, Session, error_message};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The limit for the whole test.
const TOTAL_LIMIT: Duration = Duration::from_secs(30);
/// The time in which the server must list a wait.
const LISTING_LIMIT: Duration = Duration::from_secs(5);
/// Where the server does not list waits, a lock that is not granted within this time counts as waiting.
const GRANT_LIMIT: Duration = Duration::from_millis(200);
const LISTING_INTERVAL: Duration = Duration::from_millis(5);
/// The number of slots to try if other clients have locked them.
const MAX_SLOTS: usize = 8;

/// The pairs of modes that must conflict: held by the first session, and wanted by the second.
const CONFLICTS: [(SlotMode, SlotMode); 3] =
    [(Shared, Exclusive), (Exclusive, Shared), (Exclusive, Exclusive)];

const CHECK: Check = Check {
    name: "exclusion",
    area: Area::Locks,
    why: "it is what locks are for; some servers accept them and do nothing",
};

/// The result of a test with two sessions whether locks exclude each other on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// Locks exclude: the server listed that the second session waited for the first, in each pair of modes.
    Shown {
        /// The slot of the test.
        slot: String,
    },
    /// Locks exclude: the second session was refused each lock that the first held. The server does not list waits to
    /// this account.
    Refused {
        /// The slot of the test.
        slot: String,
        /// The reason why the server does not list waits.
        reason: String,
    },
    /// Locks do not exclude: both sessions had these locks at the same time.
    Violated {
        /// The slot of the test.
        slot: String,
        /// The lock of the first session.
        held: SlotMode,
        /// The lock that the second session got.
        wanted: SlotMode,
    },
    /// Shared locks exclude each other.
    SharedExcluded,
    /// The test could not run.
    Unknown {
        /// The reason.
        reason: String,
    },
}

impl Exclusion {
    /// Returns whether the test showed that locks exclude.
    pub fn is_shown(&self) -> bool {
        matches!(self, Exclusion::Shown { .. } | Exclusion::Refused { .. })
    }

    /// Returns the result as a finding of the doctor.
    pub fn finding(&self) -> Finding {
        match self {
            Exclusion::Shown { slot } => CHECK.ok(format!(
                "two sessions waited for each other's shared and exclusive locks on {slot}, as the server reported"
            )),
            Exclusion::Refused { slot, reason } => CHECK.ok(format!(
                "two sessions were refused each other's shared and exclusive locks on {slot}; the server does not list \
                 the waits ({reason})"
            )),
            Exclusion::Violated { slot, held, wanted } => CHECK.problem(
                format!(
                    "locks do not exclude here: a session got a lock ({wanted}) on {slot} while another had it \
                     ({held})"
                ),
                "lock on another server, or connect without the proxy in front of it",
            ),
            Exclusion::SharedExcluded => CHECK.warning(
                "shared locks exclude each other here, so all clients below a node wait for each other",
                "lock on a server that has shared locks",
            ),
            Exclusion::Unknown { reason } => {
                CHECK.skipped(format!("it could not be tested: {reason}"))
            }
        }
    }
}

/// Returns the finding for a lock statement that failed although the slot was free: the account lacks a privilege, or the
/// server accepts no writes. `None` if the connection is lost.
pub(super) fn refusal(error: &LockTableError, scheme: &Scheme) -> Option<Finding> {
    let LockTableError::Statement(error) = error else { return None };
    let message = error_message(error);
    match ErrorClass::of(error) {
        class if class.is_connection_lost() => None,
        ErrorClass::AccessDenied => {
            let table = scheme.quoted_table();
            let fix = format!("GRANT SELECT, UPDATE ON {table} TO the account of the clients");
            Some(CHECK.problem(format!("the account may not lock: {message}"), fix))
        }
        _ => {
            let fix = "lock on a server that accepts it";
            Some(CHECK.problem(format!("the server refuses a lock: {message}"), fix))
        }
    }
}

/// Tests whether locks exclude. Nothing is locked when this returns, unless the server cannot be reached.
pub(super) async fn check(pool: &LockPool, scheme: &Scheme) -> Result<Exclusion> {
    let checked = timeout(TOTAL_LIMIT, async {
        let first = pool.server.connect().await?;
        let second = pool.server.connect().await?;
        let observer = Session::connect_alone(&pool.server.address, pool.answer_limit()).await?;
        let mut check = ExclusionCheck { pool, scheme, first, second, observer, unlisted: None };
        let exclusion = check.run().await?;
        check.roll_back().await?;
        let ExclusionCheck { first, second, observer, .. } = check;
        [first, second, observer].into_iter().for_each(Session::close);
        Ok(exclusion)
    });
    let checked = checked.await;
    // Sessions that have not rolled back were dropped, and are being ended on the server.
    pool.wait_until_abandoned_end().await;
    checked.unwrap_or_else(|_| {
        let reason = format!("it took longer than {} seconds", TOTAL_LIMIT.as_secs());
        Ok(Exclusion::Unknown { reason })
    })
}

/// Two sessions that lock, and one that observes their waits.
struct ExclusionCheck<'a> {
    pool: &'a LockPool,
    scheme: &'a Scheme,
    first: Session,
    second: Session,
    observer: Session,
    /// The reason why the server does not list waits, once that is known.
    unlisted: Option<String>,
}

impl ExclusionCheck<'_> {
    async fn run(&mut self) -> Result<Exclusion> {
        let mut shared_excluded = 0;
        for _ in 0..MAX_SLOTS {
            let Some(slot) = SpareSlot::choose(&mut self.first, self.scheme).await? else {
                let reason = "there is no row to lock yet".to_owned();
                return Ok(Exclusion::Unknown { reason });
            };
            self.roll_back().await?;
            let result = self.run_on(&slot).await?;
            self.roll_back().await?;
            match result {
                None => {}
                // Another client that waits for the slot can cause this too, so one result is not enough.
                Some(Exclusion::SharedExcluded) => shared_excluded += 1,
                Some(exclusion) => return Ok(exclusion),
            }
        }
        if shared_excluded == MAX_SLOTS {
            return Ok(Exclusion::SharedExcluded);
        }
        let reason = format!("{MAX_SLOTS} slots were tried, and each was locked or missing");
        Ok(Exclusion::Unknown { reason })
    }

    /// Tests one slot. Returns `None` if another client has locked it, or its row does not exist.
    async fn run_on(&mut self, slot: &SpareSlot) -> Result<Option<Exclusion>> {
        let (scheme, name) = (self.scheme, slot.name(self.scheme));
        let nowait = |mode| slot.lock(scheme, mode, LockWaitPolicy::Fail);
        if !try_lock(&mut self.first, &nowait(Shared)).await? {
            return Ok(None);
        }
        if !try_lock(&mut self.second, &nowait(Shared)).await? {
            return Ok(Some(Exclusion::SharedExcluded));
        }
        self.roll_back().await?;
        for (held, wanted) in CONFLICTS {
            if !try_lock(&mut self.first, &nowait(held)).await? {
                return Ok(None);
            }
            let mut is_granted = try_lock(&mut self.second, &nowait(wanted)).await?;
            if !is_granted {
                self.second.leave_transaction().await?;
                let wait = slot.lock(scheme, wanted, LockWaitPolicy::Wait);
                is_granted = self.is_granted_beside(wait).await?;
            }
            if is_granted {
                return Ok(Some(Exclusion::Violated { slot: name, held, wanted }));
            }
            self.roll_back().await?;
        }
        Ok(Some(match self.unlisted.take() {
            None => Exclusion::Shown { slot: name },
            Some(reason) => Exclusion::Refused { slot: name, reason },
        }))
    }

    /// Runs a lock statement on the second session while the first holds a conflicting lock. Returns whether it is granted. If
    /// not, rolls the first session back once the server lists the wait.
    async fn is_granted_beside(&mut self, sql: String) -> Result<bool> {
        let Self { pool, first, second, observer, unlisted, .. } = self;
        let id = second.id;
        let sql = format!("{}{sql}", begin(second.dialect));
        let mut session = second.as_ref();
        let mut statement = pin!(session.run_unlimited(sql, Vec::new()));
        if unlisted.is_none() {
            tokio::select! {
                biased;
                granted = &mut statement => return Ok(granted.map(|_| true)?),
                listed = until_listed(observer, id.pid) => *unlisted = listed.err(),
            }
        }
        // A lock that does not conflict is granted at once.
        if unlisted.is_some()
            && let Ok(granted) = timeout(GRANT_LIMIT, &mut statement).await
        {
            return Ok(granted.map(|_| true)?);
        }
        first.leave_transaction().await?;
        if timeout(pool.answer_limit(), &mut statement).await.is_err() {
            // Another client has taken the slot first.
            let _ = pool.cancel(id, statement).await;
        }
        Ok(false)
    }

    async fn roll_back(&mut self) -> Result<()> {
        self.second.leave_transaction().await?;
        Ok(self.first.leave_transaction().await?)
    }
}

/// Returns the statement that begins a transaction. On InnoDB transactions begin implicitly.
fn begin(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { "" } else { "BEGIN; " }
}

/// Takes a lock if the slot is free and its row exists. Returns whether it was taken.
async fn try_lock(session: &mut Session, sql: &str) -> Result<bool> {
    let sql = format!("{}{sql}", begin(session.dialect));
    match session.rows(&sql).await {
        // `pg_try_advisory_xact_lock` returns whether the key was taken.
        Ok(rows) => Ok(rows.first().is_some_and(|row| row[0] != "f")),
        Err(error) if ErrorClass::of(&error).is_not_granted() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the server lists a lock wait of the session `pid`. Fails with the reason if it does not list one.
async fn until_listed(observer: &mut Session, pid: i64) -> Result<(), String> {
    let scope = IntrospectionScope::of_sessions([pid]);
    let mut introspection = Introspection::default();
    let begun = Instant::now();
    while begun.elapsed() < LISTING_LIMIT {
        let waits = introspection.lock_waits(&mut observer.as_ref(), &scope).await;
        let waits = waits.map_err(|error| error_message(&error))?;
        if waits.iter().any(|wait| wait.waiter == pid) {
            return Ok(());
        }
        sleep(LISTING_INTERVAL).await;
    }
    Err(format!("no wait was listed within {} seconds", LISTING_LIMIT.as_secs()))
}
