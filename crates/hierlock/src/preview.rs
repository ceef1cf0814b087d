//! The slots that a client of a URL would lock, without locking them.

use crate::client::Location;
#[cfg(feature = "_server")]
use crate::sql::{Scheme, SqlBackend};
use crate::{Claim, Hierarchy, ModeSet, Plan, Result, Slots};
use crate::{file, memory};

/// The slots that a client of a lock URL would lock. A preview locks, creates and changes nothing: it does not open a file,
/// and only reads the agreement of the clients from a server.
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
#[must_use = "a preview locks nothing"]
pub struct Preview {
    hierarchy: Hierarchy,
    slots: Slots,
    modes: ModeSet,
    #[cfg(feature = "_server")]
    scheme: Option<Box<Scheme>>,
}

impl Preview {
    /// Reads how a client of this URL would lock.
    ///
    /// # Errors
    /// As [`Hierlock::connect_with`](crate::Hierlock::connect_with), except that a file is not opened, and a table that the
    /// first client creates may be missing.
    pub async fn of(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        #[cfg(feature = "_server")]
        let mut scheme = None;
        let (slots, modes) = match Location::parse(url)? {
            Location::Memory(_) => (Slots::Paths, memory::MODES),
            Location::File(_) => (file::SLOTS, file::MODES),
            #[cfg(feature = "_server")]
            Location::Server => {
                let scheme = scheme.insert(SqlBackend::preview(url, hierarchy.clone()).await?);
                (scheme.slots(), scheme.modes())
            }
        };
        Ok(Self {
            hierarchy,
            slots,
            modes,
            #[cfg(feature = "_server")]
            scheme: scheme.map(Box::new),
        })
    }

    /// Plans an acquire. Fails as [`Plan::new`].
    pub fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, self.slots, self.modes)
    }

    /// Returns the agreement of the server's clients; `None` for `file:` and `memory:`.
    #[cfg(feature = "_server")]
    pub fn scheme(&self) -> Option<&Scheme> {
        self.scheme.as_deref()
    }
}
