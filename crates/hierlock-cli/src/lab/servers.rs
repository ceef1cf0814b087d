//! The servers of a run: from `--url`, from the environment, or started.

use super::args::ServerArgs;
use super::interrupt::Interrupt;
use crate::exit::CommandError;
use crate::output::print_message;
use crate::progress::spinner;
use hierlock::ServerUrl;
use hierlock_lab::{Engine, Lab, MissingEngine};
use hierlock_sandbox::Server;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
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
        args: &ServerArgs,
        engines: impl IntoIterator<Item = Engine>,
    ) -> Result<Self, CommandError> {
        let urls = urls_by_engine(&args.urls)?;
        let lab = Lab::new().map_err(|error| {
            CommandError::unavailable(format!("cannot make a directory for locks: {error}"))
        })?;
        let mut connected = Self { lab, missing: Vec::new(), servers: Vec::new() };
        let starts: Vec<_> = engines
            .into_iter()
            .filter_map(|engine| Some((engine, engine.server()?)))
            .map(|(engine, server)| {
                let url = urls.get(&engine).cloned();
                let start = spawn_blocking(move || match url {
                    Some(url) => Ok(Server::External { engine: server, url }),
                    None => Server::get(server),
                });
                (engine, start)
            })
            .collect();
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

fn urls_by_engine(urls: &[ServerUrl]) -> Result<BTreeMap<Engine, ServerUrl>, CommandError> {
    let mut by_engine = BTreeMap::new();
    for url in urls {
        let engine = match url.expose().split_once("://").map(|(scheme, _)| scheme) {
            Some("mysql") => Engine::Mysql,
            Some("mariadb") => Engine::Mariadb,
            Some("postgres" | "postgresql") => Engine::Postgres,
            _ => {
                return Err(CommandError::usage(format!(
                    "`{url}` is not the URL of a server; write mysql://…, mariadb://… or \
                     postgres://…"
                )));
            }
        };
        if by_engine.insert(engine, url.clone()).is_some() {
            return Err(CommandError::usage(format!(
                "--url names two {engine} servers; give one of each kind"
            )));
        }
    }
    Ok(by_engine)
}
