//! Runs the setups of each server one after the other, and servers in parallel. Each server is started once.

use super::server::Server;
use super::setup::{Setup, SoakBackend};
use super::setup_run::{Outcome, SetupRun};
use super::{Options, Result};
use hierlock_sandbox::Engine;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The names of the running setups, for a progress line.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Vec<(usize, String)>>);

impl Progress {
    /// Returns the names of the running setups.
    pub fn names(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|(_, name)| name.clone()).collect()
    }

    fn set(&self, group: usize, name: Option<String>) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|(number, _)| *number != group);
        names.extend(name.map(|name| (group, name)));
        names.sort();
    }
}

/// Runs the setups within `length` and reports each outcome when it is known.
///
/// # Errors
/// Fails if a server or a setup cannot be prepared.
pub async fn run(
    setups: &[Setup],
    options: &Arc<Options>,
    length: Duration,
    progress: &Arc<Progress>,
    report_outcome: impl Fn(Outcome) + Clone + Send + Sync + 'static,
) -> Result<()> {
    let mut groups = JoinSet::new();
    for (number, (engine, setups)) in group_by_server(setups).into_iter().enumerate() {
        let (options, progress, report_outcome) =
            (options.clone(), progress.clone(), report_outcome.clone());
        groups.spawn(async move {
            let server = match engine {
                Some(engine) => {
                    progress.set(number, Some(format!("{engine} starts")));
                    let start = tokio::task::spawn_blocking(move || Server::start(engine));
                    Some(Arc::new(start.await??))
                }
                None => None,
            };
            let share = length / setups.len() as u32;
            for setup in setups {
                if *options.interrupted.borrow() {
                    break;
                }
                progress.set(number, Some(setup.to_string()));
                report_outcome(SetupRun::run(setup, server.clone(), options.clone(), share).await?);
            }
            progress.set(number, None);
            Result::Ok(())
        });
    }
    let mut failed = Ok(());
    while let Some(ended) = groups.join_next().await {
        if let Err(error) = ended? {
            failed = Err(error);
        }
    }
    failed
}

/// Groups the setups by server, with one group for setups that need none.
fn group_by_server(setups: &[Setup]) -> Vec<(Option<Engine>, Vec<Setup>)> {
    let engine = |setup: &Setup| match setup.backend {
        SoakBackend::Server(engine) => Some(engine),
        _ => None,
    };
    [None]
        .into_iter()
        .chain(Engine::ALL.map(Some))
        .map(|server| {
            let of_server = setups.iter().copied().filter(|setup| engine(setup) == server);
            (server, of_server.collect::<Vec<_>>())
        })
        .filter(|(_, setups)| !setups.is_empty())
        .collect()
}
