//! What a client of a URL would lock, for whoever only wants to know.

use crate::backend::Backend as _;
use crate::client::Location;
use crate::error::Result;
use crate::file;
use crate::hierarchy::Hierarchy;
use crate::memory::MemoryBackend;
use crate::plan::{Claim, Plan};
#[cfg(feature = "_server")]
use crate::sql::{Scheme, SqlBackend};

/// The slots that a client of a lock URL would take. Nothing is locked, made or changed for it: a file is not opened, and
/// a server is only asked what its clients have agreed about.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Claim, Hierarchy, Mode, Preview, Target};
///
/// let preview = Preview::of("file:/run/lock/app.lock", Hierarchy::default()).await?;
/// let plan = preview.plan([Claim { target: Target::user("u1")?, mode: Mode::Exclusive }])?;
/// assert_eq!(plan.steps().next().unwrap().slot, 349235452838013485);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a preview takes nothing"]
pub struct Preview {
    hierarchy: Hierarchy,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Memory,
    File,
    #[cfg(feature = "_server")]
    Server(Box<Scheme>),
}

impl Preview {
    /// Finds out how a client of this URL would lock.
    ///
    /// # Errors
    /// As [`Hierlock::connect_with`](crate::Hierlock::connect_with): a client could not lock there either. A file is not
    /// looked at, and a table that the first client makes may be missing.
    ///
    /// # Cancel safety
    /// Can be dropped.
    pub async fn of(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let place = match Location::parse(url)? {
            Location::Memory(_) => Place::Memory,
            Location::File(_) => Place::File,
            #[cfg(feature = "_server")]
            Location::Server => {
                Place::Server(Box::new(SqlBackend::preview(url, hierarchy.clone()).await?))
            }
        };
        Ok(Self { hierarchy, place })
    }

    /// Plans an acquire.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        match &self.place {
            Place::Memory => {
                let claims: Vec<Claim> = claims.into_iter().collect();
                MemoryBackend::new(self.hierarchy.clone()).plan(&claims)
            }
            Place::File => file::plan(&self.hierarchy, claims),
            #[cfg(feature = "_server")]
            Place::Server(scheme) => scheme.plan(claims),
        }
    }

    #[cfg(feature = "_server")]
    /// What the clients of the server have agreed about; None for a file, or memory.
    pub fn scheme(&self) -> Option<&Scheme> {
        match &self.place {
            Place::Server(scheme) => Some(scheme),
            Place::Memory | Place::File => None,
        }
    }
}
