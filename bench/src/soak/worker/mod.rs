//! The processes that are killed, stopped and cut: they use the library, or are the command under a
//! `hierlock run`, and record what they do.

mod jobs;
mod leases;
mod locks;

use super::history::{Event, Reason, Recorder, VisitId, read_claims};
use super::random::Random;
use super::setup::Part;
use super::{Result, USAGE};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long the tasks of a worker may take to end when they are told to: less than the driver waits.
const ENDS_WITHIN: Duration = Duration::from_secs(45);

/// What a worker process is told.
#[derive(Clone, Debug)]
pub struct WorkerArgs {
    /// What it uses: `locks`, `leases` or `queue`.
    pub part: String,
    /// Where.
    pub url: String,
    /// Where it records what it does.
    pub history: PathBuf,
    /// Its number.
    pub worker: u32,
    /// Of its random numbers.
    pub seed: u64,
    /// Does it lock something else than it says?
    pub broken: bool,
}

impl WorkerArgs {
    /// Its name on the command line.
    pub fn name_of(part: Part) -> &'static str {
        match part {
            Part::Locks { .. } => "locks",
            Part::Leases => "leases",
            Part::Queue => "queue",
        }
    }

    /// As words of a command line.
    pub fn words(&self) -> Vec<String> {
        let Self { part, url, history, worker, seed, broken } = self;
        let history = history.display().to_string();
        let numbers = [worker.to_string(), seed.to_string(), u8::from(*broken).to_string()];
        [vec![part.clone(), url.clone(), history], numbers.to_vec()].concat()
    }

    fn read(words: &[String]) -> Result<Self> {
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

/// Works until standard input ends.
///
/// # Errors
/// If it is called wrongly, or something is not as it must be.
pub fn work(words: &[String]) -> Result<()> {
    let args = WorkerArgs::read(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = StopSignal::at_end_of_input();
    runtime.block_on(async {
        match args.part.as_str() {
            "locks" => locks::work(args, stop).await,
            "leases" => leases::work(args, stop).await,
            "queue" => jobs::work(args, stop).await,
            _ => Err(USAGE.into()),
        }
    })
}

/// The command under a `hierlock run`: a visit by itself.
///
/// # Errors
/// If it is called wrongly.
pub fn visit(words: &[String]) -> Result<()> {
    let [history, worker, claims, millis] = words else { return Err(USAGE.into()) };
    let recorder = Recorder::open(history.as_ref())?;
    let visit = VisitId { worker: worker.parse()?, task: 0, number: 0 };
    recorder.record(visit, Event::Begin(read_claims(claims).ok_or(USAGE)?));
    std::thread::sleep(Duration::from_millis(millis.parse()?));
    recorder.record(visit, Event::End);
    Ok(())
}

/// Tells tasks that it is time to stop.
#[derive(Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// At the end of standard input: the driver has closed it, or is gone.
    fn at_end_of_input() -> Self {
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

    /// Tries until it works, or until it is told to stop: servers are away now and then.
    async fn until_it_works<T>(
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

/// Waits for tasks that were told to stop; fails with what they are doing if they do not.
async fn all_end(
    tasks: Vec<(Arc<Mutex<&'static str>>, JoinHandle<()>)>,
    mut stop: StopSignal,
) -> Result<()> {
    let mut doing = Vec::new();
    let mut handles = Vec::new();
    for (does, handle) in tasks {
        doing.push(does);
        handles.push(handle);
    }
    let late = async {
        stop.wait().await;
        sleep(ENDS_WITHIN).await;
    };
    let all = async {
        for handle in handles {
            handle.await?;
        }
        Result::Ok(())
    };
    tokio::select! {
        ended = all => ended,
        () = late => {
            let doing: Vec<_> =
                doing.iter().map(|does| *does.lock().unwrap_or_else(PoisonError::into_inner)).collect();
            Err(format!("tasks have not ended {ENDS_WITHIN:?} after they were told to; they do: {doing:?}").into())
        }
    }
}

/// One task of a worker: what it needs to make visits and to record them.
struct Task {
    args: Arc<WorkerArgs>,
    recorder: Arc<Recorder>,
    random: Random,
    visit: VisitId,
    stop: StopSignal,
    /// Does it lock something else than it says?
    broken: bool,
    /// What it waits for, to be told if that never comes.
    doing: Arc<Mutex<&'static str>>,
}

impl Task {
    fn new(args: &Arc<WorkerArgs>, recorder: &Arc<Recorder>, stop: &StopSignal, task: u32) -> Self {
        // In one process every second task is broken, not every second process.
        let broken = args.broken && (task % 2 == 1 || !args.url.starts_with("memory:"));
        Self {
            broken,
            doing: Arc::default(),
            args: args.clone(),
            recorder: recorder.clone(),
            random: Random::derive(args.seed, u64::from(args.worker) << 16 | u64::from(task)),
            visit: VisitId { worker: args.worker, task, number: 0 },
            stop: stop.clone(),
        }
    }

    fn does(&self, doing: &'static str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    fn record(&self, event: Event) {
        self.recorder.record(self.visit, event);
    }

    /// Records why it was not granted, and lets a server that is away come back.
    async fn not_granted(&self, reason: Reason) {
        self.record(Event::NotGranted(reason));
        if reason == Reason::Failed {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// How long a visit lasts: mostly next to nothing, sometimes long enough for anything to happen.
    fn stay(&mut self) -> Duration {
        let stay = Duration::from_millis(match self.random.below(50) {
            0 => self.random.between(200, 1500),
            1..=6 => self.random.between(5, 50),
            _ => self.random.below(3),
        });
        // In one process nothing can happen to it.
        if self.args.url.starts_with("memory:") { stay / 20 } else { stay }
    }
}
