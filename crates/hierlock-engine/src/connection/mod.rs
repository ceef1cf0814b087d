//! Connections: those that we own, and those that are lent.

mod lent;
#[cfg(feature = "postgres")]
mod listening;
#[cfg(feature = "_server")]
mod owned;

pub use lent::{ConnectionRef, ExecuteResult, PacketResult, StatementResult};
#[cfg(feature = "postgres")]
pub use listening::ListeningConnection;
#[cfg(feature = "_server")]
pub use owned::Connection;
