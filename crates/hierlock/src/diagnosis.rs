//! The checks of a lock URL.

use crate::client::Location;
#[cfg(feature = "_server")]
use crate::sql;
use crate::{Hierarchy, Hierlock, Result, Target, file};
use hierlock_engine::checks::{Area, Check, Finding, Severity};

/// The result of all checks of a lock URL: [`Finding`]s, each with an observation, why it matters, and what to do. The
/// checks create and change nothing. Two sessions lock a spare slot, to prove that locks exclude, and release it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::checks::Severity;
/// use hierlock::{Diagnosis, Hierarchy};
///
/// let diagnosis = Diagnosis::of("memory:", Hierarchy::default(), 1).await?;
/// assert_eq!(diagnosis.severity(), Severity::Ok);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

pub(crate) const EXCLUSION: Check = Check {
    name: "exclusion",
    area: Area::Locks,
    why: "locks that do not exclude protect nothing, and some systems accept locks and do nothing",
};

impl Diagnosis {
    /// Checks a URL as a client would use it. `clients` is the number of clients whose connections the server must allow.
    ///
    /// # Errors
    /// A URL that cannot be parsed, or a server that cannot be reached or fails.
    ///
    /// # Cancel safety
    /// Dropping the future ends its sessions on the server.
    pub async fn of(url: &str, hierarchy: Hierarchy, clients: u32) -> Result<Self> {
        let findings = match Location::parse(url)? {
            Location::Memory(_) => vec![check_memory().await?],
            Location::File(path) => file::diagnose(path)?,
            #[cfg(feature = "_server")]
            Location::Server => sql::diagnose(url, hierarchy, clients).await?,
        };
        #[cfg(not(feature = "_server"))]
        let _ = (hierarchy, clients);
        Ok(Self { findings })
    }

    /// Returns the worst severity of all findings. A skipped check counts as ok.
    pub fn severity(&self) -> Severity {
        let all = self.findings.iter().map(|finding| finding.severity);
        all.filter(|severity| *severity != Severity::Skipped).max().unwrap_or(Severity::Ok)
    }
}

async fn check_memory() -> Result<Finding> {
    let locks = Hierlock::connect("memory:").await?;
    let _guard = locks.acquire(Target::user("u1")?).await?;
    let excludes = locks.try_acquire(Target::user("u1")?).await?.is_none();
    Ok(if excludes {
        EXCLUSION.ok("locks exclude in one process, and no other process sees them")
    } else {
        EXCLUSION.problem("locks do not exclude", "please report it")
    })
}
