//! Ways to fill a lock table, each from `CREATE TABLE` to the last row. hierlock's makes the agreement
//! besides, and can be killed at any point.

use hierlock::sql::Provision;
use hierlock::{Buckets, Hierarchy};
use hierlock_engine::{Connection, ConnectionRef, ServerAddress};
use hierlock_sandbox::{Engine, Sandbox};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The levels of the default tree.
pub const LEVELS: u32 = 3;
/// How many rows one statement, or one file, has.
const CHUNK: u32 = 100_000;
const TABLE: &str = "filled";
/// So few pages that are still to be written do not matter; nor does a server that never gets there.
const CLEAN: u64 = 50;
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// What goes wrong ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A way to fill a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `hierlock::sql::Provision`, as it is.
    Hierlock,
    /// One statement: levels and digits, joined.
    CrossJoin,
    /// `LOAD DATA LOCAL` or `COPY`, on so many connections.
    Load(u32),
    /// `INSERT … SELECT` of a series, in chunks, on so many connections.
    Select(u32),
}

impl Way {
    /// All of them, ours first.
    pub const ALL: [Way; 8] = [
        Way::Hierlock,
        Way::CrossJoin,
        Way::Load(1),
        Way::Load(2),
        Way::Load(4),
        Way::Select(1),
        Way::Select(2),
        Way::Select(4),
    ];

    /// For the table.
    pub fn name(self) -> String {
        match self {
            Way::Hierlock => "hierlock".to_owned(),
            Way::CrossJoin => "cross join".to_owned(),
            Way::Load(n) => format!("load ×{n}"),
            Way::Select(n) => format!("select ×{n}"),
        }
    }
}

/// A server, and files ready to be loaded.
#[derive(Debug)]
pub struct Place {
    server: Sandbox,
    engine: Engine,
    buckets: u32,
    files: tempfile::TempDir,
}

/// The number in the last column of the first row.
async fn number(session: &mut ConnectionRef<'_>, sql: &str) -> Result<u64> {
    let rows = session.packet(sql).await?.rows;
    let row = rows.into_iter().next().ok_or("no answer")?.into_text()?;
    Ok(row.last().ok_or("no column")?.parse()?)
}

impl Place {
    /// Starts a server and writes the files. So many rows: a third of them on each level.
    pub fn new(engine: Engine, rows: u32) -> Result<Self> {
        let server = Sandbox::start(engine)?;
        let place = Self { server, engine, buckets: rows / LEVELS, files: tempfile::tempdir()? };
        for (number, (level, first, last)) in place.chunks().enumerate() {
            let mut file = std::io::BufWriter::new(std::fs::File::create(place.file(number))?);
            for bucket in first..=last {
                writeln!(file, "{level}\t{bucket}")?;
            }
            file.flush()?;
        }
        Ok(place)
    }

    fn file(&self, number: usize) -> PathBuf {
        self.files.path().join(number.to_string())
    }

    fn chunks(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let buckets = self.buckets;
        (0..LEVELS).flat_map(move |level| {
            (0..buckets)
                .step_by(CHUNK as usize)
                .map(move |first| (level, first, (first + CHUNK - 1).min(buckets - 1)))
        })
    }

    async fn connect(&self) -> Result<Connection> {
        Ok(ServerAddress::from_url(&self.server.url().parse()?)?.connect().await?)
    }

    /// Fills a new table, and makes sure that it is full. None: it cannot be done here.
    pub async fn fill(&self, way: Way) -> Result<Option<Duration>> {
        let mut connection = self.connect().await?;
        let mut session = connection.as_ref();
        session.run(&format!("DROP TABLE IF EXISTS {TABLE}, hier_lock_meta")).await?;
        if self.engine == Engine::Mysql {
            session.run("SET GLOBAL local_infile = 1").await?;
        }
        self.settle(&mut session).await?;
        let begun = Instant::now();
        if way != Way::Hierlock {
            session.run(&self.create()).await?;
        }
        match way {
            Way::Hierlock => self.provision().await?,
            Way::CrossJoin => {
                session.run(&self.cross_join()).await?;
            }
            Way::Load(_) if self.engine != Engine::Postgres && client().is_none() => {
                return Ok(None);
            }
            Way::Load(connections) => self.load(connections).await?,
            Way::Select(connections) => self.select(connections).await?,
        }
        let time = begun.elapsed();
        let count = number(&mut session, &format!("SELECT COUNT(*) FROM {TABLE}")).await?;
        if count == u64::from(self.buckets * LEVELS) {
            Ok(Some(time))
        } else {
            Err(format!("{way:?} made {count} rows").into())
        }
    }

    /// What the fill before has left to the server to write must not fall on the next.
    async fn settle(&self, session: &mut ConnectionRef<'_>) -> Result<()> {
        if self.engine == Engine::Postgres {
            session.run("CHECKPOINT").await?;
            return Ok(());
        }
        session.run("SET GLOBAL innodb_max_dirty_pages_pct = 0").await?;
        let begun = Instant::now();
        let status = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'";
        while number(session, status).await? > CLEAN && begun.elapsed() < SETTLES_WITHIN {
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

    fn create(&self) -> String {
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

    /// As it is often written: a table of ten digits, joined to itself until there are enough.
    fn cross_join(&self) -> String {
        let digits: Vec<String> = (0..10).map(|d| format!("SELECT {d} AS d")).collect();
        let digits = digits.join(" UNION ALL ");
        let places = self.buckets.saturating_sub(1).max(1).ilog10() + 1;
        let sum: Vec<String> = (0..places).map(|p| format!("t{p}.d * {}", 10_u64.pow(p))).collect();
        let from: Vec<String> = (0..places).map(|p| format!("({digits}) t{p}")).collect();
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
            let mine = self.chunks().skip(worker as usize).step_by(connections as usize);
            tasks.spawn(async move {
                if engine == Engine::Mysql {
                    let depth = format!("SET SESSION cte_max_recursion_depth = {CHUNK}");
                    connection.as_ref().run(&depth).await?;
                }
                for (level, first, last) in mine {
                    connection.as_ref().run(&series(engine, level, first, last)).await?;
                }
                Ok(())
            });
        }
        all(tasks).await
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
        all(tasks).await
    }
}

fn series(engine: Engine, level: u32, first: u32, last: u32) -> String {
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

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// The client of either server speaks to both. The driver cannot send files.
fn client() -> Option<&'static str> {
    ["mariadb", "mysql"].into_iter().find(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

fn load_data(url: &str, files: &[PathBuf]) -> Result<()> {
    let name = client().ok_or("no client")?;
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
