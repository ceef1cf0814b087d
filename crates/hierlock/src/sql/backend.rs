//! The backend of `mysql:`, `mariadb:` and `postgres:`.

use super::agreement::{self, State};
use super::keeper::{Ask, Keeper, Lines, Refusal};
use super::place::Place;
use super::pool::Pool;
use super::session::{Judgement, Session};
use super::take::Take;
use super::{Dialect, Scheme, Strategy};
use crate::backend::{Backend, Demand, Hold, Patience};
use crate::error::{LockError, Result, SqlError};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan};
use crate::registry::{Entry, Registry};
use crate::snapshot::{Holder, Statistics};
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How often the agreement is read again while the table changes.
const READ_AGAIN: usize = 100;
const READ_AGAIN_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct SqlBackend {
    /// Changes only when the table is striped anew.
    scheme: RwLock<Arc<Scheme>>,
    /// Is the bucket count to be followed, or was it given?
    follows: bool,
    pool: Arc<Pool>,
    registry: Arc<Registry>,
    warnings: Vec<String>,
}

impl SqlBackend {
    /// Makes sure that the server is there and fit, and that this client agrees with the others.
    pub(crate) async fn open(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let place = Place::parse(url, hierarchy)?;
        let pool = Arc::new(Pool::new(&place));
        let server = place.address.to_string();
        let failed = |source| SqlError::Failed { server: server.clone(), source };
        let unfit = |why| SqlError::Unfit { server: server.clone(), why };
        let mut session = pool.connect().await?;
        let warnings = match session.judge().await.map_err(failed)? {
            Judgement::Fit => Vec::new(),
            Judgement::Unfit(why) => return Err(unfit(why).into()),
            Judgement::Doubtful(why) => {
                let warning = format!("{server}: {why}");
                tracing::warn!("{warning}");
                vec![warning]
            }
        };
        let Place { mut scheme, follows, .. } = place;
        // A URL may call MariaDB `mysql:`, and the other way round.
        scheme.dialect = session.dialect;
        let agreed = agree(&mut session, &mut scheme, follows).await.map_err(failed)?;
        agreed.map_err(unfit)?;
        pool.give_back(session);
        let (scheme, registry) = (RwLock::new(Arc::new(scheme)), Arc::default());
        Ok(Self { scheme, follows, pool, registry, warnings })
    }

    fn scheme(&self) -> Arc<Scheme> {
        self.scheme.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reads the agreement until it differs from the one that has just failed.
    async fn agree_again(&self, failed_with: &Scheme, error: sqlx::Error) -> Result<()> {
        let failed = |source| SqlError::Failed { server: self.pool.address.to_string(), source };
        for _ in 0..READ_AGAIN {
            if *self.scheme() != *failed_with {
                return Ok(());
            }
            let mut session = self.pool.connect().await?;
            let mut scheme = failed_with.clone();
            let agreed = agree(&mut session, &mut scheme, self.follows).await.map_err(failed)?;
            if let Err(why) = agreed {
                let server = self.pool.address.to_string();
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

    async fn try_acquire(&self, demand: &Demand, scheme: &Arc<Scheme>) -> Result<SqlHold, Refusal> {
        let Demand { claims, patience, name } = demand.clone();
        let plan = scheme.plan(claims).map_err(Refusal::Error)?;
        let no_runtime =
            || Refusal::Error(SqlError::NoRuntime { server: self.pool.address.to_string() }.into());
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let take = Take { plan, patience };
        // All connections in use is a wait like any other.
        let permit = match patience {
            Patience::Never => self.pool.try_permit().ok_or_else(|| {
                let wanted = take.wanted();
                LockError::WouldBlock { blocked_on: wanted[0].clone(), wanted }
            }),
            _ => patience.limit(self.pool.permit()).await.map_err(|waited| {
                let wanted = take.wanted();
                LockError::Timeout { blocked_on: wanted[0].clone(), wanted, waited }
            }),
        };
        let permit = permit.map_err(|error| Refusal::Error(error.into()))?;
        let entry = Arc::new(self.registry.enter(name));
        let (pool, scheme) = (self.pool.clone(), scheme.clone());
        let keeper = Keeper { pool, scheme: scheme.clone(), entry: entry.clone(), permit };
        let (reply, answer) = oneshot::channel();
        runtime.spawn(keeper.run(take, reply));
        let lines = answer.await.map_err(|_| no_runtime())??;
        Ok(SqlHold { scheme, lines, entry })
    }
}

/// Compares the scheme with what the server keeps. What needs no provisioning is agreed upon here.
async fn agree(
    session: &mut Session,
    scheme: &mut Scheme,
    follows: bool,
) -> Result<Result<(), String>, sqlx::Error> {
    let mut kept = agreement::read(session, scheme).await?;
    if kept.is_none() && scheme.strategy == Strategy::OnDemand {
        let sql = [
            Some(agreement::create_meta()),
            scheme.create_rows(),
            Some(scheme.agree(State::Ready)),
        ];
        for statement in sql.into_iter().flatten() {
            session.run(&statement).await?;
        }
        if scheme.dialect != Dialect::Postgres {
            session.run("COMMIT").await?;
        }
        kept = agreement::read(session, scheme).await?;
    }
    let Some(kept) = kept else {
        let table = scheme.rows_table();
        return Ok(match scheme.strategy {
            // Nothing is kept, so nobody has agreed on anything else.
            Strategy::Advisory => Ok(()),
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

impl Backend for SqlBackend {
    type Hold = SqlHold;

    fn plan(&self, claims: SmallVec<[Claim; 1]>) -> Result<Plan> {
        self.scheme().plan(claims)
    }

    async fn acquire(&self, demand: Demand) -> Result<SqlHold> {
        loop {
            let scheme = self.scheme();
            match self.try_acquire(&demand, &scheme).await {
                Ok(hold) => return Ok(hold),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Disagrees(error)) => self.agree_again(&scheme, error).await?,
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        self.registry.holders()
    }
}

/// A transaction on the server that does nothing but hold locks; its keeper has the connection.
pub(crate) struct SqlHold {
    scheme: Arc<Scheme>,
    lines: Lines,
    entry: Arc<Entry>,
}

impl std::fmt::Debug for SqlHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlHold").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Hold for SqlHold {
    async fn extend(&mut self, demand: Demand) -> Result<()> {
        let plan = self.scheme.plan(demand.claims)?;
        let (reply, answer) = oneshot::channel();
        let take = Take { plan, patience: demand.patience };
        if self.lines.asks.send(Ask::Extend(take, reply)).await.is_err() {
            return Err(self.is_lost());
        }
        let confirm = answer.await.unwrap_or_else(|_| Err(self.is_lost()))?;
        // No await from here on: it is confirmed, or this future was dropped before.
        confirm.send(()).map_err(|()| self.is_lost())
    }

    async fn release(self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let lost = self.is_lost();
        if self.lines.asks.send(Ask::Release(reply)).await.is_err() {
            return Err(lost);
        }
        // Ours too, so that nothing is listed when this returns.
        drop(self);
        answer.await.unwrap_or(Err(lost))
    }

    fn claims(&self) -> BTreeMap<Target, Mode> {
        self.entry.claims()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.entry.modes()
    }

    fn id(&self) -> u64 {
        self.entry.id
    }

    fn statistics(&self) -> Statistics {
        self.lines.statistics
    }

    async fn lost(&self) -> crate::Error {
        let mut lost = self.lines.lost.clone();
        // A keeper that ended without a word went with its runtime.
        let _ = lost.wait_for(Option::is_some).await;
        self.is_lost()
    }
}

impl SqlHold {
    fn is_lost(&self) -> crate::Error {
        let why = self.lines.lost.borrow().clone();
        let why = why.unwrap_or_else(|| "its connection to the server has ended".to_owned());
        LockError::Lost { targets: self.claims().into_keys().collect(), why }.into()
    }
}
