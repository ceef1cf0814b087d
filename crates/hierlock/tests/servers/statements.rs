//! An acquire locks exactly the slots of its plan, in their modes and in their order, even in a table so small that an
//! optimizer prefers a scan. The tests ask the server which rows another session could lock.

use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, on_every_setup};
use hierlock::sql::{Dialect, Provision, Scheme, Strategy};
use hierlock::{Buckets, Claim, Hierarchy, Hierlock, Mode, Request, SlotMode, Step, Target};
use hierlock_conformance::until_waiting;
use hierlock_sandbox::Engine;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So few buckets that a hundred resources are most of a level.
const FEW_BUCKETS: u32 = 120;

on_every_setup!(
    an_acquire_locks_exactly_its_plan,
    an_acquire_locks_its_slots_in_order,
    a_try_locks_exactly_its_plan,
);

/// Returns the plans: one node; most of a level, twice; a long run of rows before a single one; several modes.
fn plans() -> Vec<Vec<(String, Mode)>> {
    let exclusive = |paths: Vec<String>| -> Vec<(String, Mode)> {
        paths.into_iter().map(|path| (path, Mode::Exclusive)).collect()
    };
    let mut accounts: Vec<String> = (0..7).map(|i| format!("u1/a{i}")).collect();
    accounts.push("u1/b1/r1".to_owned());
    vec![
        exclusive(vec!["u1/a1/r1".to_owned()]),
        exclusive((0..100).map(|i| format!("u1/a1/r{i}")).collect()),
        // The same statement with other values: a prepared statement must not keep the first ones.
        exclusive((100..200).map(|i| format!("u2/a2/r{i}")).collect()),
        exclusive(vec!["u2/a2/r2".to_owned()]),
        exclusive(accounts),
        vec![
            ("u1/a1/r1".to_owned(), Mode::Shared),
            ("u1/a1/r2".to_owned(), Mode::Update),
            ("u2/a1/r3".to_owned(), Mode::Exclusive),
            ("u3".to_owned(), Mode::Exclusive),
        ],
    ]
}

fn request<'a>(locks: &'a Hierlock, plan: &[(String, Mode)]) -> Request<&'a Hierlock> {
    let mut targets = plan.iter().map(|(path, mode)| (path.parse().unwrap(), *mode));
    let (target, mode): (Target, Mode) = targets.next().unwrap();
    let request = locks.request(target).mode(mode);
    targets.fold(request, |request, (target, mode)| request.and(target, mode))
}

/// A small table that contains every row of the plans.
struct SmallTable {
    setup: Setup,
    url: String,
    locks: Hierlock,
    outside: OutsideSession,
}

impl SmallTable {
    async fn new(setup: Setup) -> Option<Self> {
        let database = Database::new(setup).await?;
        let outside = database.outside().await;
        let url = match setup.strategy {
            Strategy::Advisory => database.url.clone(),
            _ => format!("{}&table=small", database.url),
        };
        if setup.strategy == Strategy::Striped {
            database.stripe("small", FEW_BUCKETS).await;
        } else if setup.strategy == Strategy::PerId {
            let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap();
            provision.run(|_| ()).await.unwrap();
        }
        let locks = Hierlock::connect(&url).await.unwrap();
        let mut small = Self { setup, url, locks, outside };
        for plan in plans() {
            small.make_rows(&plan).await;
        }
        Some(small)
    }

    /// Inserts the rows of a plan, and a neighbour of each, if the strategy has rows by ID.
    async fn make_rows(&mut self, plan: &[(String, Mode)]) {
        if !matches!(self.setup.strategy, Strategy::PerId | Strategy::OnDemand) {
            return;
        }
        let steps = self.steps(plan);
        let keys = steps.iter().flat_map(|step| {
            let key = step.target.key();
            [key.clone(), format!("{key}beside")]
        });
        for key in keys {
            let insert = match self.setup.engine {
                Engine::Postgres => {
                    format!("INSERT INTO small VALUES ('{key}') ON CONFLICT DO NOTHING")
                }
                _ => format!("INSERT IGNORE INTO small VALUES ('{key}')"),
            };
            self.outside.run(&insert).await;
        }
    }

    fn steps(&self, plan: &[(String, Mode)]) -> Vec<Step> {
        request(&self.locks, plan).plan().unwrap().steps().collect()
    }

    /// Returns the name of a slot on the server.
    fn name(&self, step: &Step) -> String {
        match self.setup.strategy {
            Strategy::Striped => format!("{}, {}", step.level, step.slot),
            Strategy::Advisory => (step.slot as i64).to_string(),
            _ => step.target.key(),
        }
    }

    /// Returns the locks that an acquire of these steps must take.
    fn expected(&self, steps: &[Step]) -> BTreeMap<String, SlotMode> {
        steps.iter().map(|step| (self.name(step), step.mode)).collect()
    }

    /// Returns all slots that are locked now, with their modes.
    async fn locked(&mut self) -> BTreeMap<String, SlotMode> {
        if self.setup.strategy == Strategy::Advisory {
            let sql = "SELECT (classid::bigint << 32 | objid::bigint)::text, mode FROM pg_locks \
                       WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM \
                       pg_database WHERE datname = current_database())";
            let mode = |mode: &str| match mode {
                "ShareLock" => SlotMode::Shared,
                _ => SlotMode::Exclusive,
            };
            let rows = self.outside.rows(sql).await;
            return rows.into_iter().map(|row| (row[0].clone(), mode(&row[1]))).collect();
        }
        let all = self.lockable_rows("").await;
        let shared = match self.setup.engine {
            Engine::Mysql | Engine::Postgres => "FOR SHARE SKIP LOCKED",
            Engine::Mariadb => "LOCK IN SHARE MODE SKIP LOCKED",
        };
        let free = self.lockable_rows("FOR UPDATE SKIP LOCKED").await;
        let shareable = self.lockable_rows(shared).await;
        let update_keys = self.update_keys().await;
        let mode = |row: &String| {
            if !shareable.contains(row) {
                SlotMode::Exclusive
            } else if update_keys.contains(&update_key(row)) {
                SlotMode::Update
            } else {
                SlotMode::Shared
            }
        };
        let locked = all.into_iter().filter(|row| !free.contains(row));
        locked.map(|row| (row.clone(), mode(&row))).collect()
    }

    /// Returns the advisory keys of the update locks that are held on PostgreSQL.
    async fn update_keys(&mut self) -> Vec<String> {
        if self.setup.engine != Engine::Postgres {
            return Vec::new();
        }
        let sql = "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted \
                   AND classid = 'small'::regclass AND objsubid = 2 AND database = (SELECT oid FROM \
                   pg_database WHERE datname = current_database())";
        self.outside.rows(sql).await.into_iter().map(|mut row| row.remove(0)).collect()
    }

    /// Returns the rows that another session could lock now with this locking clause.
    async fn lockable_rows(&mut self, clause: &str) -> Vec<String> {
        let name = match (self.setup.strategy, self.setup.engine) {
            (Strategy::Striped, Engine::Postgres) => "level || ', ' || bucket",
            (Strategy::Striped, _) => "CONCAT(level, ', ', bucket)",
            (_, Engine::Postgres) => "convert_from(lock_key, 'UTF8')",
            _ => "CAST(lock_key AS CHAR)",
        };
        self.outside.run("BEGIN").await;
        let rows = self.outside.rows(&format!("SELECT {name} FROM small {clause}")).await;
        self.outside.run("ROLLBACK").await;
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    /// Locks one slot in another session.
    async fn hold(&self, session: &mut OutsideSession, step: &Step) {
        let sql = match (self.setup.strategy, self.setup.engine) {
            (Strategy::Advisory, _) => {
                format!("SELECT pg_advisory_xact_lock({})", step.slot as i64)
            }
            (Strategy::Striped, _) => {
                let Step { level, slot, .. } = step;
                format!("SELECT 1 FROM small WHERE level = {level} AND bucket = {slot} FOR UPDATE")
            }
            _ => format!("SELECT 1 FROM small WHERE lock_key = '{}' FOR UPDATE", step.target.key()),
        };
        session.run("BEGIN").await;
        session.run(&sql).await;
    }
}

/// Returns the advisory key of an update lock on a row, computed as in `docs/keys.md`.
fn update_key(row: &str) -> String {
    let slot = row.replace(", ", ",");
    let hash = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    slot.bytes().fold(0x811c_9dc5, hash).to_string()
}

async fn an_acquire_locks_exactly_its_plan(setup: Setup) {
    let Some(mut small) = SmallTable::new(setup).await else { return };
    for plan in plans() {
        let steps = small.steps(&plan);
        let guard = request(&small.locks, &plan).acquire().await.unwrap();
        assert_eq!(small.locked().await, small.expected(&steps), "{plan:?}");
        guard.release().await.unwrap();
        assert_eq!(small.locked().await, BTreeMap::new(), "{plan:?}");
    }
}

async fn a_try_locks_exactly_its_plan(setup: Setup) {
    let Some(mut small) = SmallTable::new(setup).await else { return };
    for plan in plans() {
        let steps = small.steps(&plan);
        let guard = request(&small.locks, &plan).try_acquire().await.unwrap().unwrap();
        assert_eq!(small.locked().await, small.expected(&steps), "{plan:?}");
        guard.release().await.unwrap();
        assert_eq!(small.locked().await, BTreeMap::new(), "{plan:?}");
    }
}

/// If another session holds one slot, the acquire locks exactly the slots before it.
async fn an_acquire_locks_its_slots_in_order(setup: Setup) {
    let Some(mut small) = SmallTable::new(setup).await else { return };
    let mut holder = OutsideSession::connect(&small.url).await;
    for plan in plans() {
        let steps = small.steps(&plan);
        // All steps of a short plan, and some of a long one.
        for place in (0..steps.len()).step_by(1 + steps.len() / 8).chain([steps.len() - 1]) {
            small.hold(&mut holder, &steps[place]).await;
            let mut taken = small.expected(&steps[..place]);
            taken.insert(small.name(&steps[place]), SlotMode::Exclusive);
            let acquire = tokio::spawn({
                let (locks, plan) = (small.locks.clone(), plan.clone());
                async move { request(&locks, &plan).acquire().await }
            });
            until_waiting(&small.locks, 1).await;
            assert_eq!(small.locked().await, taken, "step {place} of {plan:?}");
            holder.run("ROLLBACK").await;
            acquire.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// Leases use the lock syntax of MariaDB on MySQL too, because they do not know which of the two the server is. On MySQL it
/// must lock exactly the slots of the plan, in their modes and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_syntax_of_mariadb_works_on_mysql() {
    let setup = Setup { engine: Engine::Mysql, strategy: Strategy::Striped };
    let Some(mut small) = SmallTable::new(setup).await else { return };
    let scheme = Scheme::new(Dialect::Mariadb).table("small").unwrap();
    let scheme = scheme.buckets(Buckets::new(FEW_BUCKETS).unwrap());
    let mut holder = OutsideSession::connect(&small.url).await;
    for path in ["u1", "u1/a1", "u1/a1/r1"] {
        let claim = Claim { target: path.parse().unwrap(), mode: Mode::Exclusive };
        let plan = scheme.plan([claim]).unwrap();
        let steps: Vec<Step> = plan.steps().collect();
        for place in 0..=steps.len() {
            let mut taken = small.expected(&steps[..place]);
            if let Some(step) = steps.get(place) {
                small.hold(&mut holder, step).await;
                taken.insert(small.name(step), SlotMode::Exclusive);
            }
            let mut session = OutsideSession::connect(&small.url).await;
            let begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN";
            let sql = format!("{begin}; {}", scheme.lock(&plan));
            let acquire = tokio::spawn(async move {
                session.run(&sql).await;
                session
            });
            let begun = Instant::now();
            while small.locked().await != taken {
                let locked = small.locked().await;
                assert!(
                    begun.elapsed() < TEST_LIMIT,
                    "step {place} of {path}: expected the locks {taken:?}, found {locked:?}"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(acquire.is_finished(), place == steps.len());
            holder.run("ROLLBACK").await;
            acquire.await.unwrap().run("ROLLBACK").await;
        }
    }
}
