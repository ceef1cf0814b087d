//! Draws on the terminal until a key or a signal ends the command.

use super::args::TopArgs;
use super::draw::draw;
use super::history::LockSample;
use super::state::{KeyAction, TopState};
use super::terminal::{Screen, read_events};
use crate::exit::{self, CommandError, CommandResult};
use crate::locks::LockSource;
use crate::locks::kill::{KillLog, LogEcho, PendingKill, user_name};
use crate::output::{has_colour, print_message};
use crate::signals::Signals;
use ratatui::crossterm::event::{Event, KeyEventKind};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

type SampleResult = Result<LockSample, String>;

/// The state of ending a session.
enum KillState {
    None,
    /// A task finds and describes the session.
    Preparing(JoinHandle<Result<Box<PendingKill>, CommandError>>),
    /// The confirmation of the user is awaited.
    Prepared(Box<PendingKill>),
    /// A task ends the session, and returns a message.
    Ending(JoinHandle<String>),
}

/// The result of a finished step of [`KillState`].
enum EndResult {
    Prepared(Result<Box<PendingKill>, CommandError>),
    Ended(String),
}

pub(super) async fn watch(args: &TopArgs, signals: &mut Signals) -> CommandResult {
    let mut kill = KillState::None;
    let result = run(args, signals, &mut kill).await;
    // A kill that has been sent must be logged.
    if let KillState::Ending(ending) = kill {
        print_message("waiting until the session has ended");
        let message = signals.run_until_signal(ending).await?;
        print_message(message.unwrap_or_else(|error| error.to_string()));
    }
    result
}

/// Starts a task that takes a sample at every interval. It continues after failures.
fn observe(mut source: LockSource, interval: Duration) -> Receiver<SampleResult> {
    let (sender, receiver): (Sender<SampleResult>, _) = channel(1);
    tokio::spawn(async move {
        loop {
            sleep(interval).await;
            let sample = LockSample::take(&mut source).await;
            if sender.send(sample.map_err(|failure| failure.message)).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Opens the screen, and closes it before it returns.
async fn run(args: &TopArgs, signals: &mut Signals, kill: &mut KillState) -> CommandResult {
    let mut source = args.backend.source()?;
    // If the first snapshot fails, the error is printed without opening the screen.
    let first = signals.run_until_signal(LockSample::take(&mut source)).await??;
    let mut state = TopState::default();
    state.observe(Ok(first));
    let mut observations = observe(source, args.interval);
    let has_colour = has_colour();
    let mut screen = Screen::open()?;
    let mut events = read_events();
    loop {
        screen.draw(|frame| draw(frame, &state, has_colour))?;
        tokio::select! {
            signal = signals.next() => return Err(CommandError::signal(signal)),
            sample = observations.recv() => match sample {
                Some(sample) => state.observe(sample),
                // The task has panicked; the panic was printed.
                None => return Err(CommandError::unavailable("the task that takes snapshots has failed")),
            },
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match state.key(key) {
                        Some(KeyAction::Quit) => return Ok(exit::SUCCESS),
                        Some(action) => kill.begin(action, args, &mut state),
                        None => {}
                    }
                }
                // The terminal was resized: the loop draws it again.
                Some(Ok(_)) => {}
                Some(Err(failure)) => return Err(failure),
                None => return Err(CommandError::unavailable("the terminal is gone")),
            },
            result = kill.next() => match result {
                EndResult::Prepared(Ok(pending)) => {
                    state.prepared(Ok(pending.description()));
                    *kill = KillState::Prepared(pending);
                }
                EndResult::Prepared(Err(failure)) => state.prepared(Err(failure.message)),
                EndResult::Ended(message) => state.message = Some(message),
            },
        }
    }
}

impl KillState {
    fn begin(&mut self, action: KeyAction, args: &TopArgs, state: &mut TopState) {
        match (action, std::mem::replace(self, KillState::None)) {
            (_, KillState::Ending(ending)) => {
                *self = KillState::Ending(ending);
                state.prepared(Err("another session is being ended; wait for it".to_owned()));
            }
            (KeyAction::PrepareEnd { pid }, _) => {
                let backend = args.backend.backend();
                *self = KillState::Preparing(tokio::spawn(async move {
                    PendingKill::prepare(&backend?, pid).await.map(Box::new)
                }));
            }
            (KeyAction::End { reason }, KillState::Prepared(pending)) => {
                // Without a log no session is ended.
                match KillLog::open(args.log.as_deref(), LogEcho::None) {
                    Ok(log) => {
                        *self = KillState::Ending(tokio::spawn(async move {
                            let ended = pending.end(&reason, &user_name(), log).await;
                            ended.unwrap_or_else(|failure| failure.message)
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
            KillState::None | KillState::Prepared(_) => std::future::pending().await,
            KillState::Preparing(task) => {
                EndResult::Prepared(task.await.map_err(CommandError::unavailable).flatten())
            }
            KillState::Ending(task) => {
                EndResult::Ended(task.await.unwrap_or_else(|error| error.to_string()))
            }
        };
        *self = KillState::None;
        result
    }
}
