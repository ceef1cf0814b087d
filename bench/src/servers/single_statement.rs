//! The statement that hierlock sends, on one connection, without hierlock. This measures the server and the driver
//! alone: there is no cancellation, no keep-alive and no reporting.

use super::{BenchServer, DedicatedConnection, Nodes};
use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, PgConnection, raw_sql};
use std::str::FromStr;

/// A connection with an open transaction.
pub enum SingleStatement {
    /// To MySQL or MariaDB.
    Innodb(Engine, Box<MySqlConnection>),
    /// To PostgreSQL.
    Postgres(Strategy, Box<PgConnection>),
}

impl DedicatedConnection for SingleStatement {
    async fn open(server: &BenchServer) -> Result<Self, sqlx::Error> {
        let url = server.bare_url();
        Ok(match server.setup.engine {
            Engine::Postgres => {
                let options = PgConnectOptions::from_str(&url)?.disable_statement_logging();
                let mut connection = options.connect().await?;
                let settings = "SET plan_cache_mode = 'force_generic_plan'; BEGIN";
                raw_sql(settings).execute(&mut connection).await?;
                Self::Postgres(server.setup.strategy, Box::new(connection))
            }
            engine => {
                let options = MySqlConnectOptions::from_str(&url)?.disable_statement_logging();
                let mut connection = options.connect().await?;
                let settings = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                                SET SESSION autocommit = 0";
                raw_sql(settings).execute(&mut connection).await?;
                Self::Innodb(engine, Box::new(connection))
            }
        })
    }

    async fn cycle(&mut self, nodes: &Nodes) -> Result<(), sqlx::Error> {
        self.run(nodes, None).await
    }
}

/// The same statement with the label of the session in it, as hierlock sends it.
pub struct LabelledStatement(SingleStatement);

impl DedicatedConnection for LabelledStatement {
    async fn open(server: &BenchServer) -> Result<Self, sqlx::Error> {
        let mut statement = SingleStatement::open(server).await?;
        if let SingleStatement::Innodb(Engine::Mariadb, connection) = &mut statement {
            // Shows the label of a waiting session in the process list.
            raw_sql("SET SESSION slow_query_log = 1").execute(&mut **connection).await?;
        }
        Ok(Self(statement))
    }

    async fn cycle(&mut self, nodes: &Nodes) -> Result<(), sqlx::Error> {
        let target = nodes.targets().first().map(ToString::to_string).unwrap_or_default();
        let label = format!("servers@bench:4711 @1763418665 {target}");
        self.0.run(nodes, Some(label)).await
    }
}

impl SingleStatement {
    async fn run(&mut self, nodes: &Nodes, label: Option<String>) -> Result<(), sqlx::Error> {
        let rows = nodes.rows();
        let [user, account, resources @ ..] = &rows[..] else { return Ok(()) };
        let buckets: Vec<i32> = resources.iter().map(|(_, bucket)| *bucket).collect();
        match self {
            Self::Innodb(engine, connection) => {
                let condition = label.as_ref().map_or("", |_| "(@hierlock := ?) IS NOT NULL AND ");
                let sql = innodb(*engine, buckets.len()).replace("{label}", condition);
                let query = sqlx::query(AssertSqlSafe(sql));
                let query = if let Some(label) = label { query.bind(label) } else { query };
                let query = query.bind(user.1).bind(account.1);
                let query = match &buckets[..] {
                    [bucket] => query.bind(*bucket),
                    _ => query.bind(format!("{buckets:?}")),
                };
                query.fetch_all(&mut **connection).await?;
                raw_sql("ROLLBACK").execute(&mut **connection).await?;
            }
            Self::Postgres(strategy, connection) => {
                let (sql, set_label) = postgres(*strategy, buckets.len());
                let sql = sql.replace("{label}", if label.is_some() { set_label } else { "" });
                let query = sqlx::query(AssertSqlSafe(sql)).bind(user.1).bind(account.1);
                let query = match &buckets[..] {
                    [bucket] => query.bind(*bucket),
                    _ => query.bind(buckets),
                };
                let query = if let Some(label) = label { query.bind(label) } else { query };
                query.fetch_all(&mut **connection).await?;
                raw_sql("ROLLBACK AND CHAIN").execute(&mut **connection).await?;
            }
        }
        Ok(())
    }
}

/// Returns the statement. `{label}` stands for the condition that sets the label.
fn innodb(engine: Engine, resources: usize) -> &'static str {
    match (engine, resources) {
        (Engine::Mysql, 1) => {
            "SELECT t0.bucket FROM hier_lock_buckets t0 STRAIGHT_JOIN hier_lock_buckets t1 \
             STRAIGHT_JOIN hier_lock_buckets t2 WHERE {label}t0.level = 0 AND t0.bucket = ? AND \
             t1.level = 1 AND t1.bucket = ? AND t2.level = 2 AND t2.bucket = ? \
             FOR SHARE OF t0 FOR SHARE OF t1 FOR UPDATE OF t2"
        }
        (Engine::Mysql, _) => {
            "SELECT COUNT(t0.bucket) FROM \
             (SELECT bucket FROM hier_lock_buckets WHERE {label}level = 0 AND bucket = ? FOR SHARE) t0 \
             STRAIGHT_JOIN \
             (SELECT bucket FROM hier_lock_buckets WHERE level = 1 AND bucket = ? FOR SHARE) t1 \
             STRAIGHT_JOIN \
             (SELECT c.bucket FROM JSON_TABLE(?, '$[*]' COLUMNS (x INT UNSIGNED PATH '$')) v \
             STRAIGHT_JOIN hier_lock_buckets c ON c.level = 2 AND c.bucket = v.x FOR UPDATE OF c) t2"
        }
        (_, 1) => {
            "SELECT t0.bucket FROM (SELECT bucket FROM hier_lock_buckets WHERE {label}level = 0 AND \
             bucket = ? LOCK IN SHARE MODE) t0 STRAIGHT_JOIN \
             (SELECT bucket FROM hier_lock_buckets WHERE level = 1 AND bucket = ? \
             LOCK IN SHARE MODE) t1 STRAIGHT_JOIN \
             (SELECT bucket FROM hier_lock_buckets WHERE level = 2 AND bucket = ? FOR UPDATE) t2"
        }
        (_, _) => {
            "SELECT COUNT(t0.bucket) FROM (SELECT bucket FROM hier_lock_buckets WHERE {label}level = 0 AND \
             bucket = ? LOCK IN SHARE MODE) t0 STRAIGHT_JOIN \
             (SELECT bucket FROM hier_lock_buckets WHERE level = 1 AND bucket = ? \
             LOCK IN SHARE MODE) t1 STRAIGHT_JOIN \
             (SELECT c.bucket FROM JSON_TABLE(?, '$[*]' COLUMNS (x INT UNSIGNED PATH '$')) v \
             STRAIGHT_JOIN hier_lock_buckets c ON c.level = 2 AND c.bucket = v.x FOR UPDATE) t2"
        }
    }
}

/// Returns the statement, and the SQL for `{label}` in it.
fn postgres(strategy: Strategy, resources: usize) -> (&'static str, &'static str) {
    const CONDITION: &str = "(SELECT set_config('application_name', $4, true)) IS NOT NULL AND ";
    match (strategy, resources) {
        (Strategy::Advisory, 1) => (
            "SELECT {label}pg_advisory_xact_lock_shared($1::int), \
             pg_advisory_xact_lock_shared($2::int), pg_advisory_xact_lock($3::int)",
            "set_config('application_name', $4, true), ",
        ),
        (Strategy::Advisory, _) => (
            "SELECT count(*) FROM (SELECT CASE WHEN n <= 2 THEN pg_advisory_xact_lock_shared(k) \
             ELSE pg_advisory_xact_lock(k) END \
             FROM unnest(ARRAY[$1::int, $2::int] || $3::int[]) WITH ORDINALITY v(k, n) \
             WHERE {label}true) q",
            CONDITION,
        ),
        (_, 1) => (
            "SELECT t0.bucket FROM hier_lock_buckets t0, hier_lock_buckets t1, \
             hier_lock_buckets t2 WHERE {label}t0.level = 0 AND t0.bucket = $1 AND t1.level = 1 AND \
             t1.bucket = $2 AND t2.level = 2 AND t2.bucket = $3 \
             FOR SHARE OF t0 FOR SHARE OF t1 FOR UPDATE OF t2",
            CONDITION,
        ),
        (_, _) => (
            "SELECT count(*) FROM (SELECT t2.bucket FROM (SELECT t0.bucket FROM \
             hier_lock_buckets t0, hier_lock_buckets t1 WHERE {label}t0.level = 0 AND t0.bucket = $1 AND \
             t1.level = 1 AND t1.bucket = $2 FOR SHARE OF t0 FOR SHARE OF t1) s, \
             hier_lock_buckets t2 WHERE t2.level = 2 AND t2.bucket = ANY($3::int[]) \
             ORDER BY t2.bucket FOR UPDATE OF t2) q",
            CONDITION,
        ),
    }
}
