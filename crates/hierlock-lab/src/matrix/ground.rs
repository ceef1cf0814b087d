//! A place of its own for one run: a tree in memory, a file in a temporary directory, or a database with
//! the rows that its strategy needs. Knows the nodes that will be locked, and nothing of how.

use super::tree::Node;
use crate::place::{Engine, Place};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Buckets, Hierarchy, Target};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use tempfile::TempDir;
use url::Url;

/// So many buckets fill in no time.
const FEWEST_BUCKETS: u32 = 1009;
/// A holder, a requester, and one to spare.
const CONNECTIONS: u32 = 3;
/// What of a server's URL is about locks, and is said anew here.
const OURS: [&str; 5] = ["strategy", "buckets", "table", "scope", "connections"];

/// Why a place could not be made, in a sentence.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroundError {
    #[error("no server was given for {0}")]
    NoServer(Engine),
    #[error("cannot read the URL of the server: {0}")]
    Url(#[from] url::ParseError),
    #[error("cannot make a database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("cannot make a directory: {0}")]
    Directory(#[from] std::io::Error),
    #[error("{0}")]
    Locks(#[from] hierlock::Error),
    #[error("no count of buckets keeps {0} nodes apart")]
    Crowded(usize),
}

/// A place of its own. Dropping it removes what it made, as far as that can be done then; [`clear`]
/// says if it could not.
///
/// [`clear`]: Self::clear
pub(super) struct Ground {
    /// For [`hierlock::Hierlock::connect`].
    pub(super) url: String,
    made: Made,
}

enum Made {
    Nothing,
    Directory(#[expect(dead_code, reason = "removed when dropped")] TempDir),
    Database(Option<Database>),
}

impl Ground {
    /// Makes it. Nodes are kept apart, also where they are striped, unless `buckets` says over how many.
    pub(super) async fn make(
        place: Place,
        nodes: &[Node],
        server: Option<&str>,
        buckets: Option<u32>,
    ) -> Result<Self, GroundError> {
        match place.engine {
            Engine::Memory => Ok(Self { url: "memory:".into(), made: Made::Nothing }),
            Engine::File => {
                let directory = tempfile::Builder::new().prefix("hierlock-matrix-").tempdir()?;
                let url = format!("file:{}", directory.path().join("locks").display());
                Ok(Self { url, made: Made::Directory(directory) })
            }
            engine => {
                let server = server.ok_or(GroundError::NoServer(engine))?;
                let database = Database::create(engine, server).await?;
                let mut url = database.url.clone();
                // From here on it is dropped if anything fails.
                let mut ground = Self { url: String::new(), made: Made::Database(Some(database)) };
                url.query_pairs_mut().append_pair("connections", &CONNECTIONS.to_string());
                if let Some(strategy) = place.strategy {
                    url.query_pairs_mut().append_pair("strategy", strategy.name());
                }
                let targets = targets(nodes)?;
                if place.strategy == Some(Strategy::Striped) {
                    let count = match buckets {
                        Some(count) => count,
                        None => apart(&targets).ok_or(GroundError::Crowded(targets.len()))?,
                    };
                    url.query_pairs_mut().append_pair("buckets", &count.to_string());
                }
                ground.url = url.into();
                let done = provision(&ground.url, place.strategy, &targets).await;
                match done {
                    Ok(()) => Ok(ground),
                    Err(error) => {
                        // What went wrong first is what is told.
                        let _ = ground.clear().await;
                        Err(error.into())
                    }
                }
            }
        }
    }

    /// Removes what it made.
    pub(super) async fn clear(mut self) -> Result<(), GroundError> {
        if let Made::Database(database) = &mut self.made
            && let Some(database) = database.take()
        {
            database.remove().await?;
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Whoever was stopped half way has nobody to wait for it; the runtime may yet do it.
        if let Made::Database(database) = &mut self.made
            && let Some(database) = database.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(database.remove());
        }
    }
}

/// The nodes, in the library's words.
pub(super) fn targets(nodes: &[Node]) -> hierlock::Result<Vec<Target>> {
    nodes.iter().map(|node| node.to_string().parse()).collect()
}

/// The smallest count of buckets, from [`FEWEST_BUCKETS`] on, in which no two nodes share one.
fn apart(nodes: &[Target]) -> Option<u32> {
    let are_apart = |count: &u32| {
        let Ok(buckets) = Buckets::new(*count) else { return false };
        let mut taken = HashSet::new();
        nodes.iter().all(|node| taken.insert((node.level(), node.bucket(buckets))))
    };
    (FEWEST_BUCKETS..1000 * FEWEST_BUCKETS).step_by(2).find(are_apart)
}

async fn provision(
    url: &str,
    strategy: Option<Strategy>,
    nodes: &[Target],
) -> hierlock::Result<()> {
    match strategy {
        Some(Strategy::Striped) => {
            Provision::connect(url, Hierarchy::default()).await?.run(|_| ()).await?;
        }
        Some(Strategy::PerId) => {
            let provision = Provision::connect(url, Hierarchy::default()).await?;
            provision.run(|_| ()).await?;
            provision.add(nodes).await?;
        }
        // Made by whoever comes first, or not at all.
        _ => {}
    }
    Ok(())
}

/// A database that exists for as long as it is needed.
struct Database {
    /// Its own, with what the driver is to know.
    url: Url,
    /// That of the server, as it was given, for the driver.
    server: Url,
    name: String,
}

impl Database {
    async fn create(engine: Engine, server: &str) -> Result<Self, GroundError> {
        let mut server = Url::parse(server)?;
        let theirs: Vec<(String, String)> = server
            .query_pairs()
            .filter(|(name, _)| !OURS.contains(&&**name))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        server.set_query(None);
        if !theirs.is_empty() {
            server.query_pairs_mut().extend_pairs(theirs);
        }
        // Nothing depends on how random it is, but two who run at a time must not meet.
        let name = format!("hierlock_matrix_{:016x}", RandomState::new().hash_one(engine));
        let mut url = server.clone();
        url.set_path(&format!("/{name}"));
        run(&server, &format!("CREATE DATABASE {name}")).await?;
        Ok(Self { url, server, name })
    }

    async fn remove(self) -> Result<(), sqlx::Error> {
        let name = &self.name;
        let sql = match is_postgres(&self.server) {
            // Connections that are about to close would be in the way.
            true => format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            false => format!("DROP DATABASE IF EXISTS {name}"),
        };
        run(&self.server, &sql).await
    }
}

fn is_postgres(server: &Url) -> bool {
    server.scheme().starts_with("postgres")
}

/// Runs one statement on a connection of its own.
async fn run(server: &Url, sql: &str) -> Result<(), sqlx::Error> {
    let sql = AssertSqlSafe(sql.to_owned());
    if is_postgres(server) {
        let mut connection = PgConnection::connect(server.as_str()).await?;
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        connection.close().await
    } else {
        // The driver knows MariaDB by the other name only.
        let server = server.as_str().replacen("mariadb:", "mysql:", 1);
        let mut connection = MySqlConnection::connect(&server).await?;
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        connection.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn a_count_is_found_that_keeps_all_nodes_apart() {
        for tree in [Tree::default(), Tree { users: 5, accounts: 5, resources: 5 }] {
            let targets = targets(&tree.nodes()).unwrap();
            let buckets = Buckets::new(apart(&targets).unwrap()).unwrap();
            let used: HashSet<_> =
                targets.iter().map(|node| (node.level(), node.bucket(buckets))).collect();
            assert_eq!(used.len(), targets.len(), "{tree}");
        }
    }

    #[tokio::test]
    async fn a_server_that_was_not_given_is_named() {
        let place = Place { engine: Engine::Mysql, strategy: Some(Strategy::Striped) };
        let made = Ground::make(place, &[], None, None).await;
        let said = made.err().unwrap().to_string();
        assert!(said.contains("mysql"), "{said}");
    }
}
