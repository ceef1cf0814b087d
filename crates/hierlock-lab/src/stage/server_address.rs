//! Where a server is, and the first connection to it.

use super::StageError;
use super::connection::StageConnection;
use crate::place::Engine;
use hierlock_engine::{AddressError, ServerAddress, ServerUrl};
use std::fmt;
use url::Url;

/// Where a server is, with the settings of a terminal.
pub(super) fn read(engine: Engine, url: &str) -> Result<ServerAddress, StageError> {
    let unreadable = |error: &dyn fmt::Display| {
        StageError(format!("the URL of the {engine} server cannot be read: {error}"))
    };
    let dialect =
        engine.dialect().ok_or_else(|| StageError(format!("{engine} is not a server")))?;
    ServerUrl::new(url).check_parameters().map_err(|error| unreadable(&error))?;
    let url = Url::parse(url).map_err(|error| unreadable(&error))?;
    let address = ServerAddress::from_url_as(dialect, &url);
    let address = address.map_err(|AddressError(why)| unreadable(&why))?;
    Ok(address.with_server_settings().with_application_name("hierlock lab"))
}

/// Encryption takes many times as long as all the rest: it is left out on this very machine, if nothing else was asked
/// for.
fn may_be_unencrypted(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let is_here = match url.host_str() {
        Some(host) => ["localhost", "127.0.0.1", "[::1]"].contains(&host),
        None => true,
    };
    is_here && !url.query_pairs().any(|(name, _)| name.starts_with("ssl"))
}

/// The first connection, and how it came about.
pub(super) async fn reach(
    address: ServerAddress,
    url: &str,
) -> Result<(ServerAddress, StageConnection), StageError> {
    if may_be_unencrypted(url) {
        let plain = address.clone().without_encryption();
        // A server may insist, or only then take a password.
        if let Ok(connection) = StageConnection::open(&plain).await {
            return Ok((plain, connection));
        }
    }
    let connection = StageConnection::open(&address).await?;
    Ok((address, connection))
}
