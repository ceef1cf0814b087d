//! Draws on the terminal until a key or a signal ends the command.

use super::args::TopArgs;
use super::draw::draw;
use super::history::Observation;
use super::state::{Action, TopState};
use super::terminal::{Screen, read_events};
use crate::exit::{self, CommandResult, Failure};
use crate::locks::LockSource;
use crate::locks::kill::{KillLog, LogEcho, PendingKill, user_name};
use crate::output::{has_colour, print_message};
use crate::signals::Signals;
use ratatui::crossterm::event::{Event, KeyEventKind};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

type ObservationResult = Result<Observation, String>;

/// The state of ending a session.
enum EndTask {
    None,
    /// A task finds and describes the session.
    Preparing(JoinHandle<Result<Box<PendingKill>, Failure>>),
    /// The confirmation of the user is awaited.
    Prepared(Box<PendingKill>),
    /// A task ends the session.
    Ending(JoinHandle<Result<String, Failure>>),
}

/// The result of a finished step of [`EndTask`].
enum EndResult {
    Prepared(Result<Box<PendingKill>, String>),
    Ended(String),
}

pub(super) async fn watch(args: &TopArgs, signals: &mut Signals) -> CommandResult {
    let mut source = args.place.source()?;
    // If the first snapshot fails, the error is printed without opening the screen.
    let first = signals.run_until_signal(Observation::take(&mut source)).await??;
    let mut state = TopState::default();
    state.observe(Ok(first));
    let mut observations = observe(source, args.interval);
    let mut screen = Screen::open()?;
    let mut end_task = EndTask::None;
    let result =
        run(args, signals, &mut state, &mut observations, &mut screen, &mut end_task).await;
    drop(screen);
    // A kill that has been sent must be logged.
    if let EndTask::Ending(ending) = end_task {
        print_message("waiting until the session has ended");
        print_message(signals.run_until_signal(ended(ending)).await?);
    }
    result
}

/// Starts a task that takes an observation at every interval. It continues after failures.
fn observe(mut source: LockSource, interval: Duration) -> Receiver<ObservationResult> {
    let (sender, receiver): (Sender<ObservationResult>, _) = channel(1);
    tokio::spawn(async move {
        loop {
            sleep(interval).await;
            let observation = Observation::take(&mut source).await;
            if sender.send(observation.map_err(|failure| failure.message)).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn run(
    args: &TopArgs,
    signals: &mut Signals,
    state: &mut TopState,
    observations: &mut Receiver<ObservationResult>,
    screen: &mut Screen,
    end_task: &mut EndTask,
) -> CommandResult {
    let has_colour = has_colour();
    let mut events = read_events();
    let failed = |error| Failure::unavailable(format!("cannot use the terminal: {error}"));
    loop {
        screen.terminal.draw(|frame| draw(frame, state, has_colour)).map_err(failed)?;
        tokio::select! {
            signal = signals.next() => return Err(Failure::signal(signal)),
            observation = observations.recv() => match observation {
                Some(observation) => state.observe(observation),
                // The task has panicked; the panic was printed.
                None => return Err(Failure::unavailable("the task that takes snapshots has failed")),
            },
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match state.key(key) {
                        Some(Action::Quit) => return Ok(exit::SUCCESS),
                        Some(action) => end_task.begin(action, args, state),
                        None => {}
                    }
                }
                // The terminal was resized: the loop draws it again.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(failed(error)),
                None => return Err(Failure::unavailable("the terminal is gone")),
            },
            result = end_task.next() => match result {
                EndResult::Prepared(Ok(pending)) => {
                    state.prepared(Ok(pending.description()));
                    *end_task = EndTask::Prepared(pending);
                }
                EndResult::Prepared(Err(error)) => state.prepared(Err(error)),
                EndResult::Ended(message) => state.message = Some(message),
            },
        }
    }
}

impl EndTask {
    fn begin(&mut self, action: Action, args: &TopArgs, state: &mut TopState) {
        match (action, std::mem::replace(self, EndTask::None)) {
            (_, EndTask::Ending(ending)) => {
                *self = EndTask::Ending(ending);
                state.prepared(Err("another session is being ended; wait for it".to_owned()));
            }
            (Action::PrepareEnd { pid }, _) => {
                let place = args.place.place();
                *self = EndTask::Preparing(tokio::spawn(async move {
                    PendingKill::prepare(&place?, pid).await.map(Box::new)
                }));
            }
            (Action::End { reason }, EndTask::Prepared(pending)) => {
                // Without a log no session is ended.
                match KillLog::open(args.log.as_deref(), LogEcho::None) {
                    Ok(log) => {
                        *self = EndTask::Ending(tokio::spawn(async move {
                            pending.end(&reason, &user_name(), log).await
                        }));
                    }
                    Err(failure) => state.message = Some(failure.message),
                }
            }
            _ => {}
        }
    }

    /// Waits for the result of the running task; forever if no task is running.
    ///
    /// # Cancel safety
    /// If the future is dropped, the task goes on and no result is lost.
    async fn next(&mut self) -> EndResult {
        let result = match self {
            EndTask::None | EndTask::Prepared(_) => std::future::pending().await,
            EndTask::Preparing(task) => EndResult::Prepared(match task.await {
                Ok(result) => result.map_err(|failure| failure.message),
                Err(error) => Err(error.to_string()),
            }),
            EndTask::Ending(task) => EndResult::Ended(ended(task).await),
        };
        *self = EndTask::None;
        result
    }
}

/// Waits for a task that ends a session; returns its message.
async fn ended(
    task: impl Future<Output = Result<Result<String, Failure>, tokio::task::JoinError>>,
) -> String {
    match task.await {
        Ok(Ok(message)) => message,
        Ok(Err(failure)) => failure.message,
        Err(error) => error.to_string(),
    }
}
