//! The worker processes. They use the library, or are the command of a `hierlock run`, and record events. The driver kills,
//! stops and disconnects them.

mod jobs;
mod leases;
mod locks;

use super::history::{Event, Reason, Recorder, VisitId, parse_claims};
use super::random::Random;
use super::{Result, USAGE};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The time limit for the tasks of a worker to end after the stop signal. Less than the limit of the driver.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);

/// The arguments of a worker process.
#[derive(Clone, Debug)]
pub struct WorkerArgs {
    /// The part of hierlock to use: `locks`, `leases` or `queue`.
    pub part: String,
    /// The URL.
    pub url: String,
    /// The file for its events.
    pub history: PathBuf,
    /// The number of the worker.
    pub worker: u32,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Whether it locks other nodes than those that it records.
    pub broken: bool,
}

impl WorkerArgs {
    /// Returns the arguments as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let Self { part, url, history, worker, seed, broken } = self;
        let history = history.display().to_string();
        let numbers = [worker.to_string(), seed.to_string(), u8::from(*broken).to_string()];
        [vec![part.clone(), url.clone(), history], numbers.to_vec()].concat()
    }

    fn parse_args(words: &[String]) -> Result<Self> {
        let [part, url, history, worker, seed, broken] = words else { return Err(USAGE.into()) };
        Ok(Self {
            part: part.clone(),
            url: url.clone(),
            history: history.into(),
            worker: worker.parse()?,
            seed: seed.parse()?,
            broken: broken == "1",
        })
    }
}

/// Runs a worker until standard input ends.
///
/// # Errors
/// Fails if the arguments are wrong, a file cannot be opened, or a task does not stop.
pub fn work(words: &[String]) -> Result<()> {
    let args = WorkerArgs::parse_args(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = StopSignal::from_stdin();
    runtime.block_on(async {
        match args.part.as_str() {
            "locks" => locks::work(args, stop).await,
            "leases" => leases::work(args, stop).await,
            "queue" => jobs::work(args, stop).await,
            _ => Err(USAGE.into()),
        }
    })
}

/// Records one visit. This is the command of a `hierlock run`.
///
/// # Errors
/// Fails if the arguments are wrong or the history cannot be opened.
pub fn visit(words: &[String]) -> Result<()> {
    let [history, worker, claims, millis] = words else { return Err(USAGE.into()) };
    let recorder = Recorder::open(history.as_ref())?;
    let visit = VisitId { worker: worker.parse()?, task: 0, number: 0 };
    recorder.record(visit, Event::Begin(parse_claims(claims).ok_or(USAGE)?));
    std::thread::sleep(Duration::from_millis(millis.parse()?));
    recorder.record(visit, Event::End);
    Ok(())
}

/// The signal for tasks to stop.
#[derive(Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Returns a signal that is set at the end of standard input, when the driver has closed it or has ended.
    fn from_stdin() -> Self {
        let (sender, receiver) = watch::channel(false);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            sender.send_replace(true);
        });
        Self(receiver)
    }

    fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    async fn wait(&mut self) {
        let _ = self.0.wait_for(|is_set| *is_set).await;
    }

    /// Retries until an attempt succeeds or the signal is set. Attempts fail while the server restarts.
    async fn retry_until_stopped<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> hierlock::Result<T>,
    ) -> Option<T> {
        while !self.is_set() {
            match attempt().await {
                Ok(done) => return Some(done),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
        None
    }
}

/// Waits until the tasks have stopped. Fails with their activities if they do not stop in time.
async fn join_tasks(
    tasks: Vec<(Arc<Mutex<&'static str>>, JoinHandle<()>)>,
    mut stop: StopSignal,
) -> Result<()> {
    let mut activities = Vec::new();
    let mut handles = Vec::new();
    for (activity, handle) in tasks {
        activities.push(activity);
        handles.push(handle);
    }
    let late = async {
        stop.wait().await;
        sleep(STOP_TIMEOUT).await;
    };
    let all = async {
        for handle in handles {
            handle.await?;
        }
        Result::Ok(())
    };
    tokio::select! {
        result = all => result,
        () = late => {
            let activities: Vec<_> = activities.iter().map(|activity| *activity.lock().unwrap_or_else(PoisonError::into_inner)).collect();
            Err(format!("tasks have not ended {STOP_TIMEOUT:?} after the stop signal; their activities: {activities:?}").into())
        }
    }
}

/// The state that a task of a worker needs to make visits and to record them.
struct Task {
    args: Arc<WorkerArgs>,
    recorder: Arc<Recorder>,
    random: Random,
    visit: VisitId,
    stop: StopSignal,
    /// Whether it locks other nodes than those that it records.
    broken: bool,
    /// Its current activity, for the error message if it does not stop.
    activity: Arc<Mutex<&'static str>>,
}

impl Task {
    fn new(args: &Arc<WorkerArgs>, recorder: &Arc<Recorder>, stop: &StopSignal, task: u32) -> Self {
        // With `memory:` there is one process, so every second task is broken instead of every second process.
        let broken = args.broken && (task % 2 == 1 || !args.url.starts_with("memory:"));
        Self {
            broken,
            activity: Arc::default(),
            args: args.clone(),
            recorder: recorder.clone(),
            random: Random::derive(args.seed, u64::from(args.worker) << 16 | u64::from(task)),
            visit: VisitId { worker: args.worker, task, number: 0 },
            stop: stop.clone(),
        }
    }

    fn set_activity(&self, activity: &'static str) {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner) = activity;
    }

    fn record(&self, event: Event) {
        self.recorder.record(self.visit, event);
    }

    /// Records why a request was not granted, and pauses if the server is down.
    async fn not_granted(&self, reason: Reason) {
        self.record(Event::NotGranted(reason));
        if reason == Reason::Failed {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns how long to hold a lock: mostly very short, sometimes long enough for a fault.
    fn hold_time(&mut self) -> Duration {
        let hold_time = Duration::from_millis(match self.random.below(50) {
            0 => self.random.between(200, 1500),
            1..=6 => self.random.between(5, 50),
            _ => self.random.below(3),
        });
        // With `memory:` the only faults are stops, so long holds are not needed.
        if self.args.url.starts_with("memory:") { hold_time / 20 } else { hold_time }
    }
}
