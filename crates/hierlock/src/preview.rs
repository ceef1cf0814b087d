//! What a client of a URL would lock, for whoever only wants to know.

use crate::client::Location;
#[cfg(feature = "_server")]
use crate::sql::{Scheme, SqlBackend};
use crate::{Claim, Hierarchy, ModeSet, Plan, Result, Slots};
use crate::{file, memory};

/// The slots that a client of a lock URL would take. Nothing is locked, made or changed: a file is not opened, and a server
/// is only asked what its clients have agreed about.
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
    slots: Slots,
    modes: ModeSet,
    #[cfg(feature = "_server")]
    scheme: Option<Box<Scheme>>,
}

impl Preview {
    /// Finds out how a client of this URL would lock.
    ///
    /// # Errors
    /// As [`Hierlock::connect_with`](crate::Hierlock::connect_with): a client could not lock there either. A file is not
    /// looked at, and a table that the first client makes may be missing.
    pub async fn of(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let (slots, modes) = match Location::parse(url)? {
            Location::Memory(_) => (Slots::Paths, memory::MODES),
            Location::File(_) => (file::SLOTS, file::MODES),
            #[cfg(feature = "_server")]
            Location::Server => {
                let scheme = SqlBackend::preview(url, hierarchy.clone()).await?;
                let (slots, modes) = (scheme.slots(), scheme.modes());
                return Ok(Self { hierarchy, slots, modes, scheme: Some(Box::new(scheme)) });
            }
        };
        Ok(Self {
            hierarchy,
            slots,
            modes,
            #[cfg(feature = "_server")]
            scheme: None,
        })
    }

    /// Plans an acquire.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, self.slots, self.modes)
    }

    /// What the clients of the server have agreed about; None for a file, or memory.
    #[cfg(feature = "_server")]
    pub fn scheme(&self) -> Option<&Scheme> {
        self.scheme.as_deref()
    }
}
