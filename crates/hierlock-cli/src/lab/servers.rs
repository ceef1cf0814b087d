//! The servers of a call: given by URL, named in the environment, or started on the spot.

use super::args;
use hierlock::ServerUrl;
use hierlock_lab::{Engine, Lab, Missing};
use hierlock_sandbox::Server;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// The lab with its servers; those that were started end when this is dropped.
pub(super) struct Equipped {
    pub(super) lab: Lab,
    /// Wanted, but not there.
    pub(super) missing: Vec<Missing>,
    /// They end with this.
    pub(super) servers: Vec<Server>,
}

/// Why no server can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unequipped {
    #[error("{0}")]
    Url(String),
    #[error("cannot make a directory for locks: {0}")]
    Directory(#[from] io::Error),
    #[error("{0}")]
    Server(String),
}

/// Finds or starts the servers of these engines.
pub(super) async fn equip(
    args: &args::Servers,
    wanted: impl IntoIterator<Item = Engine>,
) -> Result<Equipped, Unequipped> {
    let given = given(&args.urls)?;
    let mut equipped = Equipped { lab: Lab::new()?, missing: Vec::new(), servers: Vec::new() };
    let starting: Vec<_> = wanted
        .into_iter()
        .filter_map(|engine| Some((engine, engine.server()?)))
        .map(|(engine, server)| {
            let url = given.get(&engine).cloned();
            let started = tokio::task::spawn_blocking(move || match url {
                Some(url) => Ok(Server::Given { engine: server, url: url.expose().to_owned() }),
                None => Server::get(server),
            });
            (engine, started)
        })
        .collect();
    let shown = spinner(&starting.iter().map(|(engine, _)| engine.name()).collect::<Vec<_>>());
    for (engine, started) in starting {
        let started = started.await.map_err(|error| Unequipped::Server(error.to_string()))?;
        match started {
            Ok(server) => {
                let connected = equipped.lab.connect(engine, server.url()).await;
                connected.map_err(|error| Unequipped::Server(error.to_string()))?;
                equipped.servers.push(server);
            }
            Err(error) if error.is_missing() => {
                equipped.missing.push(Missing { engine, why: error.to_string() });
            }
            Err(error) => return Err(Unequipped::Server(error.to_string())),
        }
    }
    shown.finish_and_clear();
    for left in equipped.lab.leftovers() {
        eprintln!("hierlock: {left}");
    }
    Ok(equipped)
}

/// Which engine each URL is of.
fn given(urls: &[ServerUrl]) -> Result<BTreeMap<Engine, ServerUrl>, Unequipped> {
    let mut given = BTreeMap::new();
    for url in urls {
        let engine = match url.expose().split_once("://").map(|(scheme, _)| scheme) {
            Some("mysql") => Engine::Mysql,
            Some("mariadb") => Engine::Mariadb,
            Some("postgres" | "postgresql") => Engine::Postgres,
            _ => {
                return Err(Unequipped::Url(format!(
                    "`{url}` is not the URL of a server; write mysql://…, mariadb://… or \
                     postgres://…"
                )));
            }
        };
        if given.insert(engine, url.clone()).is_some() {
            return Err(Unequipped::Url(format!(
                "--url names two {engine} servers; give one of each kind"
            )));
        }
    }
    Ok(given)
}

fn spinner(names: &[&str]) -> ProgressBar {
    if names.is_empty() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar =
        ProgressBar::new_spinner().with_message(format!("getting {} ready", names.join(", ")));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
