//! Methods to fill a lock table, each from `CREATE TABLE` to the last row. hierlock's method also writes the
//! agreement, and can be killed at any point.

use hierlock::sql::Provision;
use hierlock::{Buckets, Hierarchy};
use hierlock_engine::{Connection, ConnectionRef, ServerAddress};
use hierlock_sandbox::{Engine, Sandbox};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The number of levels of the default tree.
pub const LEVELS: u32 = 3;
/// The number of rows of one statement or one file.
const ROWS_PER_CHUNK: u32 = 100_000;
const TABLE: &str = "filled";
/// The server counts as flushed when at most this many dirty pages are left.
const MAX_DIRTY_PAGES: u64 = 50;
/// How long to wait for the server to flush. After that the fill starts anyway.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of a fill. Any error ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A method to fill a lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMethod {
    /// `hierlock::sql::Provision` with its defaults.
    Hierlock,
    /// One statement that joins levels and digits.
    CrossJoin,
    /// `LOAD DATA LOCAL` or `COPY`, on this many connections.
    Load(u32),
    /// `INSERT … SELECT` of a series in chunks, on this many connections.
    Select(u32),
}

impl FillMethod {
    /// All methods, hierlock first.
    pub const ALL: [FillMethod; 8] = [
        FillMethod::Hierlock,
        FillMethod::CrossJoin,
        FillMethod::Load(1),
        FillMethod::Load(2),
        FillMethod::Load(4),
        FillMethod::Select(1),
        FillMethod::Select(2),
        FillMethod::Select(4),
    ];

    /// Returns the name of the method in the table.
    pub fn name(self) -> String {
        match self {
            FillMethod::Hierlock => "hierlock".to_owned(),
            FillMethod::CrossJoin => "cross join".to_owned(),
            FillMethod::Load(n) => format!("load ×{n}"),
            FillMethod::Select(n) => format!("select ×{n}"),
        }
    }
}

/// A server, and the files to load into it.
#[derive(Debug)]
pub struct FillServer {
    server: Sandbox,
    engine: Engine,
    buckets: u32,
    files: tempfile::TempDir,
}

/// Returns the number in the last column of the first row.
async fn fetch_number(connection: &mut ConnectionRef<'_>, sql: &str) -> Result<u64> {
    let rows = connection.packet(sql).await?.rows;
    let row = rows.into_iter().next().ok_or("no answer")?.into_text()?;
    Ok(row.last().ok_or("no column")?.parse()?)
}

impl FillServer {
    /// Starts a server and writes the files. A third of the rows belongs to each level.
    pub fn new(engine: Engine, rows: u32) -> Result<Self> {
        let server = Sandbox::start(engine)?;
        let server = Self { server, engine, buckets: rows / LEVELS, files: tempfile::tempdir()? };
        for (number, (level, first, last)) in server.chunks().enumerate() {
            let mut file = std::io::BufWriter::new(std::fs::File::create(server.file(number))?);
            for bucket in first..=last {
                writeln!(file, "{level}\t{bucket}")?;
            }
            file.flush()?;
        }
        Ok(server)
    }

    fn file(&self, number: usize) -> PathBuf {
        self.files.path().join(number.to_string())
    }

    fn chunks(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let buckets = self.buckets;
        (0..LEVELS).flat_map(move |level| {
            (0..buckets)
                .step_by(ROWS_PER_CHUNK as usize)
                .map(move |first| (level, first, (first + ROWS_PER_CHUNK - 1).min(buckets - 1)))
        })
    }

    async fn connect(&self) -> Result<Connection> {
        Ok(ServerAddress::from_url(&self.server.url().parse()?)?.connect().await?)
    }

    /// Fills a new table, checks the number of rows, and returns the time. Returns `None` if the method is not
    /// possible on this machine.
    pub async fn fill(&self, method: FillMethod) -> Result<Option<Duration>> {
        let mut connection = self.connect().await?;
        let mut session = connection.as_ref();
        session.run(&format!("DROP TABLE IF EXISTS {TABLE}, hier_lock_meta")).await?;
        if self.engine == Engine::Mysql {
            session.run("SET GLOBAL local_infile = 1").await?;
        }
        self.wait_until_flushed(&mut session).await?;
        let started = Instant::now();
        if method != FillMethod::Hierlock {
            session.run(&self.create_table_sql()).await?;
        }
        match method {
            FillMethod::Hierlock => self.provision().await?,
            FillMethod::CrossJoin => {
                session.run(&self.cross_join_sql()).await?;
            }
            FillMethod::Load(_) if self.engine != Engine::Postgres && find_client().is_none() => {
                return Ok(None);
            }
            FillMethod::Load(connections) => self.load(connections).await?,
            FillMethod::Select(connections) => self.select(connections).await?,
        }
        let time = started.elapsed();
        let count = fetch_number(&mut session, &format!("SELECT COUNT(*) FROM {TABLE}")).await?;
        if count == u64::from(self.buckets * LEVELS) {
            Ok(Some(time))
        } else {
            Err(format!("{method:?} inserted {count} rows").into())
        }
    }

    /// Waits until the server has flushed the pages of the previous fill, so that they do not slow down the next one.
    async fn wait_until_flushed(&self, session: &mut ConnectionRef<'_>) -> Result<()> {
        if self.engine == Engine::Postgres {
            session.run("CHECKPOINT").await?;
            return Ok(());
        }
        session.run("SET GLOBAL innodb_max_dirty_pages_pct = 0").await?;
        let started = Instant::now();
        let status = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'";
        while fetch_number(session, status).await? > MAX_DIRTY_PAGES
            && started.elapsed() < FLUSH_TIMEOUT
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        session.run("SET GLOBAL innodb_max_dirty_pages_pct = 90").await?;
        Ok(())
    }

    async fn provision(&self) -> Result<()> {
        let buckets = Buckets::new(self.buckets)?.count();
        let url = self.server.url();
        let url = format!("{url}?strategy=striped&table={TABLE}&buckets={buckets}");
        Provision::connect(&url, Hierarchy::default()).await?.run(|_| ()).await?;
        Ok(())
    }

    fn create_table_sql(&self) -> String {
        let (unsigned, engine) = match self.engine {
            Engine::Postgres => ("", ""),
            _ => (" UNSIGNED", " ENGINE = InnoDB"),
        };
        let level = if self.engine == Engine::Postgres { "SMALLINT" } else { "TINYINT" };
        format!(
            "CREATE TABLE {TABLE} (level {level}{unsigned} NOT NULL, bucket INT{unsigned} NOT NULL, \
             of_{} BOOLEAN, PRIMARY KEY (level, bucket)){engine}",
            self.buckets
        )
    }

    /// Returns the usual statement: a table of ten digits, joined to itself until there are enough rows.
    fn cross_join_sql(&self) -> String {
        let digits: Vec<String> = (0..10).map(|d| format!("SELECT {d} AS d")).collect();
        let digits = digits.join(" UNION ALL ");
        let positions = self.buckets.saturating_sub(1).max(1).ilog10() + 1;
        let sum: Vec<String> =
            (0..positions).map(|p| format!("t{p}.d * {}", 10_u64.pow(p))).collect();
        let from: Vec<String> = (0..positions).map(|p| format!("({digits}) t{p}")).collect();
        let levels: Vec<String> = (0..LEVELS).map(|l| format!("SELECT {l} AS l")).collect();
        let (sum, from, levels) = (sum.join(" + "), from.join(", "), levels.join(" UNION ALL "));
        format!(
            "INSERT INTO {TABLE} (level, bucket) SELECT l.l, {sum} FROM ({levels}) l, {from} \
             WHERE {sum} < {}",
            self.buckets
        )
    }

    async fn select(&self, connections: u32) -> Result<()> {
        let mut tasks = JoinSet::new();
        for worker in 0..connections {
            let mut connection = self.connect().await?;
            let engine = self.engine;
            let chunks = self.chunks().skip(worker as usize).step_by(connections as usize);
            tasks.spawn(async move {
                if engine == Engine::Mysql {
                    let depth = format!("SET SESSION cte_max_recursion_depth = {ROWS_PER_CHUNK}");
                    connection.as_ref().run(&depth).await?;
                }
                for (level, first, last) in chunks {
                    connection.as_ref().run(&insert_series_sql(engine, level, first, last)).await?;
                }
                Ok(())
            });
        }
        join_all(tasks).await
    }

    async fn load(&self, connections: u32) -> Result<()> {
        let mut tasks = JoinSet::new();
        let count = self.chunks().count();
        for worker in 0..connections as usize {
            let files: Vec<PathBuf> =
                (worker..count).step_by(connections as usize).map(|n| self.file(n)).collect();
            match self.connect().await? {
                Connection::Mysql(_) => {
                    let url = self.server.url().to_owned();
                    tasks.spawn_blocking(move || load_data(&url, &files));
                }
                Connection::Postgres(mut connection) => {
                    tasks.spawn(async move {
                        for file in files {
                            let sql = format!("COPY {TABLE} (level, bucket) FROM STDIN");
                            let mut copy = connection.copy_in_raw(&sql).await?;
                            copy.send(std::fs::read(file)?).await?;
                            copy.finish().await?;
                        }
                        Ok(())
                    });
                }
            }
        }
        join_all(tasks).await
    }
}

fn insert_series_sql(engine: Engine, level: u32, first: u32, last: u32) -> String {
    let into = format!("INSERT INTO {TABLE} (level, bucket)");
    match engine {
        Engine::Mysql => format!(
            "{into} WITH RECURSIVE s (x) AS (SELECT {first} UNION ALL SELECT x + 1 FROM s \
             WHERE x < {last}) SELECT {level}, x FROM s"
        ),
        Engine::Mariadb => format!("{into} SELECT {level}, seq FROM seq_{first}_to_{last}"),
        Engine::Postgres => {
            format!("{into} SELECT {level}, x FROM generate_series({first}, {last}) x")
        }
    }
}

async fn join_all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// Returns the command-line client of MariaDB or MySQL; each works with both servers. It is needed because the driver
/// cannot send files.
fn find_client() -> Option<&'static str> {
    ["mariadb", "mysql"].into_iter().find(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

fn load_data(url: &str, files: &[PathBuf]) -> Result<()> {
    let name = find_client().ok_or("no client")?;
    let (address, database) = url.rsplit_once('/').ok_or("no database in the URL")?;
    let port = address.rsplit(':').next().ok_or("no port in the URL")?;
    let statements: String = files
        .iter()
        .map(|file| {
            let file = file.display();
            format!("LOAD DATA LOCAL INFILE '{file}' INTO TABLE {TABLE} (level, bucket);\n")
        })
        .collect();
    let mut process = Command::new(name)
        .args(["--no-defaults", "--local-infile=1", "-h", "127.0.0.1", "-P", port, "-u", "root"])
        .arg(database)
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = process.stdin.take() {
        input.write_all(statements.as_bytes())?;
    }
    if process.wait()?.success() { Ok(()) } else { Err(format!("{name} failed").into()) }
}
