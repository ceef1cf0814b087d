//! The SQL of a plan, on real servers: it takes the slots of the plan, in their modes, in their order,
//! and nothing else. What is locked is asked of the server, by trying to lock it from outside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::sql::Dialect;
use hierlock::{Buckets, Claim, Hierarchy, Mode, Plan, SlotMode, Step};
use hierlock_sandbox::{Engine, Server};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use std::time::Duration;

fn plan(dialect: Dialect) -> Plan {
    let claims = ["u1/a1/r1", "u1/a1/r2", "u2/a1", "u3"]
        .map(|path| Claim { target: path.parse().unwrap(), mode: Mode::Exclusive });
    let slots = dialect.slots(Buckets::default());
    Plan::new(&Hierarchy::default(), claims, slots, dialect.modes()).unwrap()
}

/// What can be done with one slot from outside while others hold something.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Free,
    Shared,
    Exclusive,
}

impl From<SlotMode> for Seen {
    fn from(mode: SlotMode) -> Self {
        match mode {
            SlotMode::Shared => Seen::Shared,
            _ => Seen::Exclusive,
        }
    }
}

/// One session on a server.
trait Session: Sized {
    async fn connect(url: &str) -> Self;
    /// Makes the slots of a plan, and some that are in no plan.
    async fn provision(&mut self, plan: &Plan);
    async fn begin(&mut self);
    async fn run(&mut self, sql: &str);
    async fn rollback(&mut self);
    /// Takes a slot alone; waits.
    async fn hold(&mut self, step: &Step);
    /// What others hold of a slot.
    async fn probe(&mut self, level: usize, slot: u64) -> Seen;
    /// Does anybody on the server wait for a lock?
    async fn somebody_waits(&mut self) -> bool;
    /// Every slot there is, those in no plan included.
    fn all_slots(plan: &Plan) -> Vec<(usize, u64)>;
}

struct InnoDb {
    connection: MySqlConnection,
    dialect: Dialect,
}

impl InnoDb {
    async fn count(&mut self, sql: &str, column: usize) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection);
        let row = row.await.unwrap();
        // A status variable is text.
        row.try_get::<i64, _>(column)
            .unwrap_or_else(|_| row.get::<String, _>(column).parse().unwrap())
    }

    /// Can it be locked at once?
    async fn can(&mut self, level: usize, slot: u64, clause: &str) -> bool {
        self.run("BEGIN").await;
        let sql = format!(
            "SELECT bucket FROM hier_lock_buckets WHERE level = {level} AND bucket = {slot} {clause} NOWAIT"
        );
        let locked = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection).await.is_ok();
        self.run("ROLLBACK").await;
        locked
    }
}

impl Session for InnoDb {
    async fn connect(url: &str) -> Self {
        let dialect = if url.starts_with("mariadb") { Dialect::Mariadb } else { Dialect::Mysql };
        let connection =
            MySqlConnection::connect(&url.replacen("mariadb", "mysql", 1)).await.unwrap();
        let mut session = Self { connection, dialect };
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        session
    }

    async fn provision(&mut self, plan: &Plan) {
        self.run("DROP TABLE IF EXISTS hier_lock_buckets").await;
        self.run(
            "CREATE TABLE hier_lock_buckets (level TINYINT NOT NULL, bucket INT NOT NULL, \
             PRIMARY KEY (level, bucket)) ENGINE = InnoDB",
        )
        .await;
        let rows: Vec<String> = Self::all_slots(plan)
            .iter()
            .map(|(level, slot)| format!("({level}, {slot})"))
            .collect();
        self.run(&format!("INSERT INTO hier_lock_buckets VALUES {}", rows.join(", "))).await;
    }

    async fn begin(&mut self) {
        self.run("BEGIN").await;
    }

    async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connection).await.unwrap();
    }

    async fn rollback(&mut self) {
        self.run("ROLLBACK").await;
    }

    async fn hold(&mut self, step: &Step) {
        let Step { level, slot, .. } = step;
        let row = format!("level = {level} AND bucket = {slot}");
        self.run(&format!("SELECT bucket FROM hier_lock_buckets WHERE {row} FOR UPDATE")).await;
    }

    async fn probe(&mut self, level: usize, slot: u64) -> Seen {
        let share = match self.dialect {
            Dialect::Mariadb => "LOCK IN SHARE MODE",
            _ => "FOR SHARE",
        };
        if self.can(level, slot, "FOR UPDATE").await {
            Seen::Free
        } else if self.can(level, slot, share).await {
            Seen::Shared
        } else {
            Seen::Exclusive
        }
    }

    async fn somebody_waits(&mut self) -> bool {
        match self.dialect {
            Dialect::Mariadb => {
                self.count("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'", 1).await > 0
            }
            _ => self.count("SELECT COUNT(*) FROM performance_schema.data_lock_waits", 0).await > 0,
        }
    }

    /// Beside each row of the plan its neighbours: a statement that scans would lock them too.
    fn all_slots(plan: &Plan) -> Vec<(usize, u64)> {
        let steps = plan.steps();
        steps
            .flat_map(|step| (step.slot - 1..=step.slot + 1).map(move |slot| (step.level, slot)))
            .collect()
    }
}

struct Postgres(PgConnection);

impl Postgres {
    async fn ask(&mut self, sql: String) -> bool {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.0).await.unwrap().get(0)
    }
}

impl Session for Postgres {
    async fn connect(url: &str) -> Self {
        Self(PgConnection::connect(url).await.unwrap())
    }

    async fn provision(&mut self, _: &Plan) {}

    async fn begin(&mut self) {
        self.run("BEGIN").await;
    }

    async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.0).await.unwrap();
    }

    async fn rollback(&mut self) {
        self.run("ROLLBACK").await;
    }

    async fn hold(&mut self, step: &Step) {
        self.run(&format!("SELECT pg_advisory_xact_lock({})", step.slot as i64)).await;
    }

    async fn probe(&mut self, _: usize, slot: u64) -> Seen {
        let key = slot as i64;
        if self.ask(format!("SELECT pg_try_advisory_lock({key})")).await {
            self.run(&format!("SELECT pg_advisory_unlock({key})")).await;
            Seen::Free
        } else if self.ask(format!("SELECT pg_try_advisory_lock_shared({key})")).await {
            self.run(&format!("SELECT pg_advisory_unlock_shared({key})")).await;
            Seen::Shared
        } else {
            Seen::Exclusive
        }
    }

    async fn somebody_waits(&mut self) -> bool {
        self.ask("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)".to_owned()).await
    }

    fn all_slots(plan: &Plan) -> Vec<(usize, u64)> {
        let steps = plan.steps();
        steps.flat_map(|step| [(step.level, step.slot), (step.level, step.slot ^ 1)]).collect()
    }
}

/// All slots of the plan as the plan says, all others free.
async fn takes_the_plan_and_nothing_else<S: Session>(engine: Engine, dialect: Dialect) {
    let Some(server) = Server::for_tests(engine) else { return };
    let plan = plan(dialect);
    let [mut session, mut outside] =
        [S::connect(server.url()).await, S::connect(server.url()).await];
    session.provision(&plan).await;
    session.begin().await;
    session.run(&dialect.lock(&plan)).await;
    for (level, slot) in S::all_slots(&plan) {
        let planned = plan.steps().find(|step| (step.level, step.slot) == (level, slot));
        let expected = planned.map_or(Seen::Free, |step| step.mode.into());
        assert_eq!(outside.probe(level, slot).await, expected, "level {level}, slot {slot}");
    }
    session.rollback().await;
    for (level, slot) in S::all_slots(&plan) {
        assert_eq!(outside.probe(level, slot).await, Seen::Free, "level {level}, slot {slot}");
    }

    // The order: with one slot held by someone else, exactly those before it are taken.
    let mut holder = S::connect(server.url()).await;
    for (place, blocked) in plan.steps().enumerate() {
        holder.begin().await;
        holder.hold(&blocked).await;
        session.begin().await;
        let sql = dialect.lock(&plan);
        let look = async {
            while !outside.somebody_waits().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for (other, step) in plan.steps().enumerate().filter(|(other, _)| *other != place) {
                let expected = if other < place { step.mode.into() } else { Seen::Free };
                let seen = outside.probe(step.level, step.slot).await;
                assert_eq!(seen, expected, "step {other}, while step {place} is someone else's");
            }
            holder.rollback().await;
        };
        tokio::join!(session.run(&sql), look);
        session.rollback().await;
    }
}

#[tokio::test]
async fn mysql_takes_the_plan_and_nothing_else() {
    takes_the_plan_and_nothing_else::<InnoDb>(Engine::Mysql, Dialect::Mysql).await;
}

#[tokio::test]
async fn mariadb_takes_the_plan_and_nothing_else() {
    takes_the_plan_and_nothing_else::<InnoDb>(Engine::Mariadb, Dialect::Mariadb).await;
}

#[tokio::test]
async fn postgres_takes_the_plan_and_nothing_else() {
    takes_the_plan_and_nothing_else::<Postgres>(Engine::Postgres, Dialect::Postgres).await;
}
