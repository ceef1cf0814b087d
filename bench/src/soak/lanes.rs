//! Setups one after the other at each place, and places beside each other: a server is started once.

use super::arena::{Arena, Outcome};
use super::server::Server;
use super::setup::{Place, Setup};
use super::{Options, Result};
use hierlock_sandbox::Engine;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// What is under way, for a line of progress.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Vec<(usize, String)>>);

impl Progress {
    /// The names of what is under way.
    pub fn names(&self) -> Vec<String> {
        let lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().map(|(_, name)| name.clone()).collect()
    }

    fn set(&self, lane: usize, name: Option<String>) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|(number, _)| *number != lane);
        lanes.extend(name.map(|name| (lane, name)));
        lanes.sort();
    }
}

/// Runs the setups for so long in all; each outcome is told when it is there.
///
/// # Errors
/// If something cannot be set up.
pub async fn run(
    setups: &[Setup],
    options: &Arc<Options>,
    length: Duration,
    progress: &Arc<Progress>,
    tell: impl Fn(Outcome) + Clone + Send + Sync + 'static,
) -> Result<()> {
    let mut lanes = JoinSet::new();
    for (number, (engine, setups)) in split(setups).into_iter().enumerate() {
        let (options, progress, tell) = (options.clone(), progress.clone(), tell.clone());
        lanes.spawn(async move {
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
                tell(Arena::run(setup, server.clone(), options.clone(), share).await?);
            }
            progress.set(number, None);
            Result::Ok(())
        });
    }
    let mut failed = Ok(());
    while let Some(ended) = lanes.join_next().await {
        if let Err(error) = ended? {
            failed = Err(error);
        }
    }
    failed
}

/// A lane for each server, and one for what needs none.
fn split(setups: &[Setup]) -> Vec<(Option<Engine>, Vec<Setup>)> {
    let engine = |setup: &Setup| match setup.place {
        Place::Server(engine) => Some(engine),
        _ => None,
    };
    [None]
        .into_iter()
        .chain(Engine::ALL.map(Some))
        .map(|lane| {
            let of_lane = setups.iter().copied().filter(|setup| engine(setup) == lane);
            (lane, of_lane.collect::<Vec<_>>())
        })
        .filter(|(_, setups)| !setups.is_empty())
        .collect()
}
