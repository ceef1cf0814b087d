//! Waits for another node that has the same bucket: false contention.

use super::Acquirer;
use crate::Step;

/// The waits of a client's acquires for buckets, by cause.
///
/// A wait counts once it has lasted for a tenth of a second; then the server is asked once for the blockers. Only the
/// strategy `striped` counts waits, since with all others nodes do not share slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contention {
    /// The number of all waits.
    pub waits: u64,
    /// The number of waits for a session that had locked the same node.
    pub same_node: u64,
    /// The number of waits for sessions that had locked only other nodes with the same bucket. More buckets reduce it.
    pub other_node: u64,
}

impl Acquirer {
    /// Counts a wait of the session `pid` for a step. A separate task asks the server for the blockers.
    pub(super) fn count_wait(&self, step: &Step, pid: i64) {
        let (pool, scheme, step) = (self.pool.clone(), self.scheme.clone(), step.clone());
        let classify = async move {
            let sessions = pool.slot_blockers(&scheme, &step, pid).await.sessions;
            let targets: Vec<_> = sessions.iter().filter_map(|it| it.target.as_ref()).collect();
            let mut counts = pool.contention.lock();
            counts.waits += 1;
            if targets.contains(&&step.target) {
                counts.same_node += 1;
            } else if let [blocker, ..] = targets[..] {
                counts.other_node += 1;
                drop(counts);
                tracing::info!(
                    wanted = %step.target,
                    blocker = %blocker,
                    level = step.level,
                    bucket = step.slot,
                    "a wait for another node that has the same bucket"
                );
            }
        };
        // Does not panic: the caller is a running future of tokio.
        self.pool.server.tasks.spawn(classify);
    }
}
