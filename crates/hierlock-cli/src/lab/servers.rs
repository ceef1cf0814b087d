//! The servers of a run: from `--url`, from the environment, or started.

use super::interrupt::Interrupt;
use crate::exit::CommandError;
use crate::output::print_message;
use crate::progress::spinner;
use hierlock::ServerUrl;
use hierlock::sql::Dialect;
use hierlock_lab::{Engine, Lab, MissingEngine};
use hierlock_sandbox::Server;
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// The time limit for removing the databases of the lab after a signal.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(15);

/// The lab with its servers.
pub(super) struct LabServers {
    pub(super) lab: Lab,
    /// The requested engines that are not available.
    pub(super) missing: Vec<MissingEngine>,
    /// Servers that were started here end when they are dropped, after the lab was closed.
    servers: Vec<Server>,
}

impl LabServers {
    /// Finds or starts the servers of these engines, and connects to them.
    pub(super) async fn connect(
        urls: &[ServerUrl],
        engines: impl IntoIterator<Item = Engine>,
    ) -> Result<Self, CommandError> {
        let urls = urls_by_dialect(urls)?;
        let lab = Lab::new().map_err(CommandError::cannot("make a directory for locks"))?;
        let mut connected = Self { lab, missing: Vec::new(), servers: Vec::new() };
        let start = |engine: Engine| {
            let dialect = engine.server()?;
            let url = urls.get(&dialect).cloned();
            let server = spawn_blocking(move || match url {
                Some(url) => Ok(Server::External { engine: dialect, url }),
                None => Server::get(dialect),
            });
            Some((engine, server))
        };
        let starts: Vec<_> = engines.into_iter().filter_map(start).collect();
        let names: Vec<_> = starts.iter().map(|(engine, _)| engine.name()).collect();
        let spinner = if names.is_empty() {
            ProgressBar::hidden()
        } else {
            spinner(format!("getting {} ready", names.join(", ")))
        };
        for (engine, start) in starts {
            match start.await.map_err(CommandError::unavailable)? {
                Ok(server) => {
                    let result = connected.lab.connect(engine, server.url()).await;
                    result.map_err(CommandError::unavailable)?;
                    connected.servers.push(server);
                }
                Err(error) if error.is_missing() => {
                    connected.missing.push(MissingEngine { engine, why: error.to_string() });
                }
                Err(error) => return Err(CommandError::unavailable(error)),
            }
        }
        spinner.finish_and_clear();
        connected.lab.leftovers().iter().for_each(print_message);
        Ok(connected)
    }

    /// Removes the databases of the lab, and ends the servers that were started. After a signal this takes at most
    /// [`CLEAN_UP_LIMIT`]; the next run removes the rest.
    pub(super) async fn close(self, interrupt: &Interrupt) {
        let closed = tokio::spawn(async move {
            self.lab.close().await;
            spawn_blocking(move || drop(self.servers)).await
        });
        if interrupt.exit_code().is_none() {
            // Fails only after a panic, which was printed.
            _ = closed.await;
        } else if tokio::time::timeout(CLEAN_UP_LIMIT, closed).await.is_err() {
            print_message(format!(
                "a server has not removed everything within {CLEAN_UP_LIMIT:?}; what is left \
                 (hierlock_lab_…) is removed by the next run"
            ));
        }
    }
}

fn urls_by_dialect(urls: &[ServerUrl]) -> Result<HashMap<Dialect, ServerUrl>, CommandError> {
    let mut by_dialect = HashMap::new();
    for url in urls {
        let scheme = url.expose().split_once("://").map(|(scheme, _)| scheme);
        let dialect = scheme.and_then(Dialect::from_scheme).ok_or_else(|| {
            CommandError::usage(format!(
                "`{url}` is not the URL of a server; write mysql://…, mariadb://… or postgres://…"
            ))
        })?;
        if by_dialect.insert(dialect, url.clone()).is_some() {
            return Err(CommandError::usage(format!(
                "--url names two {dialect} servers; give one of each kind"
            )));
        }
    }
    Ok(by_dialect)
}
