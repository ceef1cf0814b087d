//! A place of its own for one run: a tree in memory, a file in a temporary directory, or a tree on a
//! server. Knows the nodes that will be locked, and nothing of how.

use crate::lab::Lab;
use crate::place::{Engine, Place};
use crate::stage::{StageError, TreeDatabase, TreeSpec};
use hierlock::{Buckets, Hierlock, Target};
use std::collections::HashSet;
use tempfile::TempDir;

/// So many buckets fill in no time.
const FEWEST_BUCKETS: u32 = 1009;

/// Why a place could not be made, in a sentence.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroundError {
    #[error("no server was given for {0}")]
    NoServer(Engine),
    #[error("{0}")]
    Server(#[from] StageError),
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
    pub(super) locks: Hierlock,
    made: Made,
}

enum Made {
    Nothing,
    Directory(#[expect(dead_code, reason = "removed when dropped")] TempDir),
    TreeDatabase(Box<TreeDatabase>),
}

impl Ground {
    /// Makes it. Nodes are kept apart, also where they are striped, unless `buckets` says over how many.
    pub(super) async fn make(
        lab: &Lab,
        place: Place,
        targets: &[Target],
        buckets: Option<u32>,
    ) -> Result<Self, GroundError> {
        match place.engine {
            Engine::Memory => {
                let locks = Hierlock::connect("memory:").await?;
                Ok(Self { locks, made: Made::Nothing })
            }
            Engine::File => {
                let directory = tempfile::Builder::new().prefix("hierlock-matrix-").tempdir()?;
                let url = format!("file:{}", directory.path().join("locks").display());
                let locks = Hierlock::connect(&url).await?;
                Ok(Self { locks, made: Made::Directory(directory) })
            }
            engine => {
                let server = lab.server(engine).ok_or(GroundError::NoServer(engine))?;
                let buckets = match buckets {
                    Some(count) => count,
                    None => apart(targets).ok_or(GroundError::Crowded(targets.len()))?,
                };
                let spec = TreeSpec { place, buckets, targets: targets.to_vec() };
                let tree_database = TreeDatabase::create(server, &spec).await?;
                Ok(Self {
                    locks: tree_database.locks.clone(),
                    made: Made::TreeDatabase(Box::new(tree_database)),
                })
            }
        }
    }

    /// Removes what it made.
    pub(super) async fn clear(self) -> Result<(), GroundError> {
        let Self { locks, made } = self;
        drop(locks);
        match made {
            Made::TreeDatabase(tree_database) => Ok(tree_database.remove().await?),
            Made::Nothing | Made::Directory(_) => Ok(()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::run::targets;
    use super::super::tree::TreeSize;
    use super::*;
    use hierlock::sql::Strategy;

    #[test]
    fn a_count_is_found_that_keeps_all_nodes_apart() {
        for tree in [TreeSize::default(), TreeSize { users: 5, accounts: 5, resources: 5 }] {
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
        let made = Ground::make(&Lab::new().unwrap(), place, &[], None).await;
        let said = made.err().unwrap().to_string();
        assert!(said.contains("mysql"), "{said}");
    }
}
