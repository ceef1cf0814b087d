//! The builder of a client.

use crate::backend::{AnyBackend, FileBackend, MemoryBackend};
use crate::client::Location;
#[cfg(feature = "_server")]
use crate::sql::Options;
use crate::{Hierarchy, Hierlock, Result};

/// The options of a client, made by [`Hierlock::builder`].
///
/// All options but [`hierarchy`](Self::hierarchy) are for servers, and are the same as the parameters of a URL. An option
/// that is set both here and in the URL is an error. Options for servers have no effect on `memory:` and `file:`, so a
/// program can be tried out without a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Hierarchy, Hierlock};
/// use std::time::Duration;
///
/// let locks = Hierlock::builder()
///     .hierarchy(Hierarchy::new(["org", "team", "project", "doc"])?)
///     .connections(4)
///     .keep_alive(Duration::from_millis(500))
///     .connect("memory:")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    pub(crate) hierarchy: Hierarchy,
    #[cfg(feature = "_server")]
    pub(crate) options: Options,
}

impl Builder {
    setters! {
        /// Sets the tree; by default `user → account → resource`. All clients that share locks must have the same tree.
        hierarchy: Hierarchy;
    }

    /// Opens a lock URL: see [`Hierlock::connect`].
    ///
    /// # Errors
    /// As [`Hierlock::connect`]; also an option that is out of range, or set by the URL as well.
    pub async fn connect(self, url: &str) -> Result<Hierlock> {
        Ok(Hierlock::with_backend(match Location::parse(url)? {
            Location::Memory("") => AnyBackend::Memory(MemoryBackend::new(self.hierarchy)),
            Location::Memory(name) => {
                AnyBackend::Memory(MemoryBackend::named(name, self.hierarchy)?)
            }
            Location::File(path) => AnyBackend::File(FileBackend::open(path, self.hierarchy)?),
            #[cfg(feature = "_server")]
            Location::Server => AnyBackend::Sql(self.connect_sql(url).await?.backend),
        }))
    }
}
