//! The backend of `mysql:`, `mariadb:` and `postgres:`.

use super::acquirer::{AcquireError, Acquirer, LockRequest};
use super::agreement::{self, State};
use super::hold::{HoldError, HoldInner};
use super::keep_alive::{self, KeepAliveEntry};
use super::place::Place;
use super::pool::LockPool;
use super::{Connection, Dialect, InTransaction, Options, ProgramPool, Scheme, Strategy, Work};
use crate::backend::{AcquireRequest, Backend, FencingHold, Hold};
use crate::error::{LockError, Result, SqlError};
use crate::handover::{Handover, Interest};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::plan::Slots;
use crate::registry::{Entry, Registry};
use crate::snapshot::{Holder, Statistics};
use crate::target::Target;
use hierlock_engine::{ServerError, Session, Suitability};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often tables are made by two at once before that is an error.
const MAKE_TRIES: usize = 5;
/// How often the agreement is read again while the table changes.
const READ_AGAIN: usize = 100;
/// The same for a client that connects.
const LOOK_AGAIN: usize = 40;
const READ_AGAIN_EVERY: Duration = Duration::from_millis(50);

const POOLED: &str = "a pooler in between gives every transaction another connection (pool_mode = \
     transaction), so locks would be cancelled and freed on the wrong one; connect to the server \
     itself, or through pool_mode = session";

/// The backend of `mysql:`, `mariadb:` and `postgres:`.
#[derive(Debug)]
pub struct SqlBackend {
    hierarchy: Hierarchy,
    /// Changes only when the table is striped anew.
    scheme: RwLock<Arc<Scheme>>,
    /// Is the bucket count to be followed, or was it given?
    follows: bool,
    pool: Arc<LockPool>,
    registry: Arc<Registry>,
    warnings: Vec<String>,
}

/// What to do about tables that are made by the first client, and are not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingTables {
    Make,
    Leave,
}

impl SqlBackend {
    pub(crate) async fn open(url: &str, options: Options, hierarchy: Hierarchy) -> Result<Self> {
        Self::at(Place::parse_with(url, options, hierarchy)?, MissingTables::Make).await
    }

    /// On the server of a pool that the program has already, with connections of our own.
    pub(crate) async fn beside(
        pool: &impl ProgramPool,
        options: Options,
        hierarchy: Hierarchy,
    ) -> Result<Self> {
        Self::at(Place::beside(pool, options, hierarchy)?, MissingTables::Make).await
    }

    /// What a client of this URL would lock by. Makes and changes nothing.
    pub(crate) async fn preview(url: &str, hierarchy: Hierarchy) -> Result<Scheme> {
        let backend = Self::at(Place::parse(url, hierarchy)?, MissingTables::Leave).await?;
        let scheme = Scheme::clone(&backend.scheme());
        // Closes what is idle; there is nothing else that would have to be waited for.
        let _ = backend.close(Duration::ZERO).await;
        Ok(scheme)
    }

    /// Makes sure that the server is there and fit, and that this client agrees with the others.
    async fn at(place: Place, missing: MissingTables) -> Result<Self> {
        let pool = LockPool::new(&place);
        let server = place.address.to_string();
        let failed = |source| ServerError::Failed { server: server.clone(), source };
        let unfit = |why| SqlError::Unfit { server: server.clone(), why };
        let mut session = pool.connect().await?;
        let warnings = match session.suitability().await.map_err(failed)? {
            Suitability::Fit => Vec::new(),
            Suitability::Unfit(why) => return Err(unfit(why).into()),
            Suitability::Doubtful(why) => {
                let warning = format!("{server}: {why}");
                tracing::warn!("{warning}");
                vec![warning]
            }
        };
        if pool.server.is_behind_pooler(&mut session).await.map_err(failed)? {
            return Err(unfit(POOLED.to_owned()).into());
        }
        let Place { mut scheme, follows, .. } = place;
        // A URL may call MariaDB `mysql:`, and the other way round.
        scheme.dialect = session.dialect;
        let mut looks = 0..LOOK_AGAIN;
        loop {
            let agreed = agree(&mut session, &mut scheme, follows, missing).await;
            agreed.map_err(failed)?.map_err(unfit)?;
            if missing == MissingTables::Leave && scheme.strategy == Strategy::OnDemand {
                break;
            }
            if agreement::is_there(&mut session, &scheme).await.map_err(failed)? {
                break;
            }
            // It may just be changing its stripes.
            if looks.next().is_none() {
                let table = scheme.rows_table();
                let why = format!(
                    "its clients have agreed on `{table}`, which is not there, or not striped as \
                     agreed; run `hierlock provision` again"
                );
                return Err(unfit(why).into());
            }
            tokio::time::sleep(READ_AGAIN_EVERY).await;
        }
        session.roll_back().await.map_err(failed)?;
        pool.server.give_back(session);
        let hierarchy = scheme.hierarchy.clone();
        let (scheme, registry) = (RwLock::new(Arc::new(scheme)), Arc::default());
        Ok(Self { hierarchy, scheme, follows, pool, registry, warnings })
    }

    /// Takes all that is demanded inside the caller's transaction, or says what became of that. How
    /// each slot was taken comes back.
    pub(crate) async fn acquire_in(
        &self,
        tx: &mut impl InTransaction,
        request: AcquireRequest,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        let AcquireRequest { claims, limit: wait_limit, name } = request;
        let (pool, scheme) = (self.pool.clone(), self.scheme());
        let request = LockRequest { plan: scheme.plan(claims)?, wait_limit };
        let acquirer = Acquirer { pool, scheme, entry: Arc::new(self.registry.enter(name)) };
        acquirer.acquire_in(tx, &request).await?;
        Ok(request.plan.steps().map(|step| (step.target, step.mode)).collect())
    }

    fn scheme(&self) -> Arc<Scheme> {
        self.scheme.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the agreement until it differs from the one that has just failed.
    async fn agree_again(&self, failed_with: &Scheme, error: sqlx::Error) -> Result<()> {
        let failed =
            |source| ServerError::Failed { server: self.pool.server.address.to_string(), source };
        for _ in 0..READ_AGAIN {
            if *self.scheme() != *failed_with {
                return Ok(());
            }
            let mut session = self.pool.connect().await?;
            let mut scheme = failed_with.clone();
            let agreed = agree(&mut session, &mut scheme, self.follows, MissingTables::Make)
                .await
                .map_err(failed)?;
            if let Err(why) = agreed {
                let server = self.pool.server.address.to_string();
                return Err(SqlError::Unfit { server, why }.into());
            }
            if scheme != *failed_with {
                *self.scheme.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(scheme);
                return Ok(());
            }
            tokio::time::sleep(READ_AGAIN_EVERY).await;
        }
        Err(failed(error).into())
    }

    async fn try_acquire(
        &self,
        request: &AcquireRequest,
        scheme: &Arc<Scheme>,
    ) -> Result<SqlHold, AcquireError> {
        let AcquireRequest { claims, limit: wait_limit, name } = request.clone();
        let plan = scheme.plan(claims).map_err(AcquireError::Failed)?;
        let no_runtime = || {
            AcquireError::Failed(
                SqlError::NoRuntime { server: self.pool.server.address.to_string() }.into(),
            )
        };
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let request = LockRequest { plan, wait_limit };
        let entry = Arc::new(self.registry.enter(name));
        let (pool, scheme) = (self.pool.clone(), scheme.clone());
        let hold = {
            let (entry, runtime) = (entry.clone(), runtime.clone());
            let acquirer = Acquirer { pool, scheme, entry };
            move |interest| async move {
                let (pool, scheme) = (acquirer.pool.clone(), acquirer.scheme.clone());
                let entry = acquirer.entry.clone();
                let (held, statistics) = acquirer.acquire(request, interest).await?;
                let inner = HoldInner::new(pool, scheme, runtime, held);
                let keep_alive = keep_alive::register(&inner);
                Ok(SqlHold { inner, entry, statistics, _keep_alive: keep_alive })
            }
        };
        drop(entry);
        Handover::new(runtime, &self.pool.server.tasks, hold).await
    }
}

/// Compares the scheme with what the server keeps. What needs no provisioning is agreed upon here.
async fn agree(
    session: &mut Session,
    scheme: &mut Scheme,
    follows: bool,
    missing: MissingTables,
) -> Result<Result<(), String>, sqlx::Error> {
    let mut kept = match agreement::read(session, scheme).await? {
        Ok(kept) => kept,
        Err(why) => return Ok(Err(why)),
    };
    for tries_left in (0..MAKE_TRIES).rev() {
        if kept.is_some()
            || scheme.strategy != Strategy::OnDemand
            || missing == MissingTables::Leave
        {
            break;
        }
        let made = make_on_demand(session, scheme).await;
        if let Ok(Err(why)) = made {
            return Ok(Err(why));
        }
        kept = agreement::read(session, scheme).await?.unwrap_or(None);
        // Two who make the same table at the same time are told so by PostgreSQL; it is there then.
        if kept.is_none() && tries_left == 0 {
            let _ = made?;
        }
    }
    let Some(kept) = kept else {
        let table = scheme.rows_table();
        return Ok(match scheme.strategy {
            // Nothing is kept, so nobody has agreed on anything else.
            Strategy::Advisory => Ok(()),
            Strategy::OnDemand if missing == MissingTables::Leave => Ok(()),
            _ => Err(format!(
                "it has no lock table `{table}` yet; make it with `hierlock provision`"
            )),
        });
    };
    if follows {
        scheme.follow(&kept);
    }
    if let Some(why) = scheme.differs(&kept) {
        return Ok(Err(why));
    }
    if scheme.dialect != Dialect::Postgres {
        let engine = agreement::engine(session, scheme).await?;
        session.run("ROLLBACK").await?;
        let why = engine.and_then(|e| agreement::not_innodb(scheme.rows_table(), &e));
        if let Some(why) = why {
            return Ok(Err(why));
        }
    }
    Ok(Ok(()))
}

/// What needs no provisioning is made by whoever comes first.
async fn make_on_demand(
    session: &mut Session,
    scheme: &Scheme,
) -> Result<Result<(), String>, sqlx::Error> {
    if let Err(why) = agreement::make_meta(session).await? {
        return Ok(Err(why));
    }
    if let Some(create_rows) = scheme.create_rows() {
        session.run(&create_rows).await?;
    }
    for statement in scheme.agree(State::Ready) {
        session.run(&statement).await?;
    }
    if scheme.dialect != Dialect::Postgres {
        session.run("COMMIT").await?;
    }
    Ok(Ok(()))
}

impl Backend for SqlBackend {
    type Hold = SqlHold;

    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn slots(&self) -> Slots {
        self.scheme().slots()
    }

    fn modes(&self) -> ModeSet {
        self.scheme().modes()
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<SqlHold> {
        loop {
            let scheme = self.scheme();
            match self.try_acquire(&request, &scheme).await {
                Ok(hold) => return Ok(hold),
                Err(AcquireError::TableChanged(error)) => {
                    match self.agree_again(&scheme, error).await {
                        // The next try waits for the server to come back.
                        Err(error) if error.is_no_connection() && request.limit.waits() => {}
                        agreed => agreed?,
                    }
                }
                Err(error) => return Err(error.into_error(&self.pool, &scheme)),
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        self.registry.holders()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    async fn close(&self, limit: Duration) -> Result<()> {
        Ok(self.pool.server.close(limit).await?)
    }
}

/// A transaction on the server that does nothing but hold locks. Dropped, it is ended there.
#[must_use = "dropping it frees the lock"]
pub struct SqlHold {
    inner: Arc<HoldInner>,
    entry: Arc<Entry>,
    statistics: Statistics,
    _keep_alive: KeepAliveEntry,
}

impl std::fmt::Debug for SqlHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlHold").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Hold for SqlHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let plan = self.inner.scheme.plan(request.claims)?;
        let request = LockRequest { plan, wait_limit: request.limit };
        self.run(|inner, interest| async move { inner.extend(request, interest).await }).await
    }

    async fn release(self) -> Result<()> {
        // Nothing of it is listed any more when this returns.
        self.run(|inner, _| async move { inner.release().await }).await
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        self.entry.claims()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.entry.modes()
    }

    fn id(&self) -> u64 {
        self.entry.id
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    async fn lost(&self) -> crate::Error {
        let mut lost = self.inner.lost();
        loop {
            let mut task = keep_alive::task_for(&self.inner);
            if task.has_changed().is_err() {
                // Nobody can be on task there: its runtime has ended.
                return self.is_lost();
            }
            tokio::select! {
                _ = lost.wait_for(Option::is_some) => return self.is_lost(),
                _ = task.changed() => {}
            }
        }
    }
}

impl FencingHold for SqlHold {
    async fn token(&self) -> Result<u64> {
        self.run(|inner, _| async move { inner.token().await }).await
    }
}

impl SqlHold {
    /// Does something with the hold, to its end, even if this future is dropped.
    async fn run<T: Send + 'static, W>(
        &self,
        work: impl FnOnce(Arc<HoldInner>, Interest) -> W,
    ) -> Result<T>
    where
        W: Future<Output = Result<T, HoldError>> + Send + 'static,
    {
        let inner = self.inner.clone();
        let (runtime, tasks) = (inner.runtime.clone(), inner.pool.server.tasks.clone());
        let done = Handover::new(runtime, &tasks, |interest| work(inner, interest)).await;
        done.map_err(|trouble| match trouble {
            HoldError::Failed(error) => error,
            HoldError::Lost => self.is_lost(),
        })
    }

    /// Lends the transaction that holds the locks.
    pub(crate) async fn lend<C: Connection>(&mut self) -> Result<Work<'_, C>> {
        let lent = self.run(|inner, _| async move { inner.lend().await }).await?;
        Work::new(lent, self.inner.scheme.dialect.to_string())
    }

    /// Ends it by COMMIT.
    pub(crate) async fn commit(self) -> Result<()> {
        self.run(|inner, _| async move { inner.commit().await }).await
    }

    fn is_lost(&self) -> crate::Error {
        let why = self.inner.lost().borrow().clone();
        let why = why.unwrap_or_else(|| "its connection to the server has ended".to_owned());
        LockError::Lost { targets: self.targets().into_keys().collect(), why }.into()
    }
}

impl Drop for SqlHold {
    fn drop(&mut self) {
        // Ended already: there is nothing to do, and most of the time it is so.
        if self.inner.held.try_lock().is_ok_and(|held| held.is_none()) {
            return;
        }
        let inner = self.inner.clone();
        self.inner.pool.server.tasks.spawn(&self.inner.runtime, async move {
            if let Err(HoldError::Failed(error)) = inner.release().await {
                tracing::debug!(%error, "a dropped guard's connection was gone");
            }
        });
    }
}
