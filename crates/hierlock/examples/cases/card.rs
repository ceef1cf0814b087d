//! A payment service that stands outside of the database: a server on the loopback, which no ROLLBACK
//! reaches, and which fails as it is told to. Knows nothing of seats.
//!
//! One line asks, one line answers: `charge 7` is answered `charged` or `refused`; `void 7` is answered `void`,
//! and order 7 can never be charged from then on, or `charged`, if it was too late for that. The number of the
//! order is an idempotency key: however often it is asked for, it is charged once.

use super::stage::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a caller waits for an answer. A slow machine must not look like a lost answer, so it is short only
/// where none comes.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_WITH_LATE: Duration = Duration::from_millis(20);

/// How it is to treat the charge of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fine,
    /// No money, no charge.
    Refuses,
    /// Charges, and then the connection breaks.
    HangsUp,
    /// Charges only when everybody has given up: [`Card::catch_up`].
    Late,
}

/// What the caller knows then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Charged,
    Refused,
    /// Nothing: it may have been charged, or may still be.
    None,
}

/// The service; it ends when this is dropped.
pub(crate) struct Card {
    address: SocketAddr,
    ledger: Arc<Ledger>,
    _serving: JoinSet<()>,
}

struct Ledger {
    /// Of orders; fine unless it is said.
    weather: BTreeMap<i64, Weather>,
    entries: Mutex<Entries>,
    /// Has a permit for each late charge that may go on.
    late: Semaphore,
    /// And this for each that has ended.
    caught_up: Semaphore,
}

#[derive(Default)]
struct Entries {
    charged: BTreeSet<i64>,
    void: BTreeSet<i64>,
}

impl Card {
    pub(crate) async fn open(weather: &[(i64, Weather)]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let ledger = Arc::new(Ledger {
            weather: weather.iter().copied().collect(),
            entries: Mutex::default(),
            late: Semaphore::new(0),
            caught_up: Semaphore::new(0),
        });
        let mut serving = JoinSet::new();
        let shared = ledger.clone();
        serving.spawn(async move {
            let mut callers = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                let ledger = shared.clone();
                callers.spawn(async move { ledger.serve(caller).await });
            }
        });
        Ok(Self { address, ledger, _serving: serving })
    }

    pub(crate) async fn charge(&self, order: i64) -> Answer {
        let patience = match self.ledger.weather(order) {
            Weather::Late => PATIENCE_WITH_LATE,
            _ => PATIENCE,
        };
        self.ask(&format!("charge {order}\n"), patience).await
    }

    /// Makes sure that an order is not charged later; tells if it is charged already.
    pub(crate) async fn void(&self, order: i64) -> Answer {
        self.ask(&format!("void {order}\n"), PATIENCE).await
    }

    /// The late charges go on now, and have ended.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let all = self.ledger.weather.values();
        let late = all.filter(|weather| **weather == Weather::Late).count();
        self.ledger.late.add_permits(late);
        let ended = self.ledger.caught_up.acquire_many(u32::try_from(late)?);
        let _ended = tokio::time::timeout(PATIENCE, ended).await??;
        Ok(())
    }

    /// The orders for which somebody has paid.
    pub(crate) fn charged(&self) -> BTreeSet<i64> {
        self.ledger.entries().charged.clone()
    }

    /// Whatever goes wrong on the way is no answer.
    async fn ask(&self, line: &str, patience: Duration) -> Answer {
        let Ok(mut service) = TcpStream::connect(self.address).await else { return Answer::None };
        if service.write_all(line.as_bytes()).await.is_err() {
            return Answer::None;
        }
        let mut answer = String::new();
        let mut service = BufReader::new(service);
        // Too late and broken are the same to the caller: there is no answer.
        let _ = tokio::time::timeout(patience, service.read_line(&mut answer)).await;
        match answer.as_str() {
            "charged\n" => Answer::Charged,
            "refused\n" | "void\n" => Answer::Refused,
            _ => Answer::None,
        }
    }
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weather(&self, order: i64) -> Weather {
        self.weather.get(&order).copied().unwrap_or(Weather::Fine)
    }

    async fn serve(&self, caller: TcpStream) {
        let mut caller = BufReader::new(caller);
        let mut line = String::new();
        if caller.read_line(&mut line).await.is_err() {
            return;
        }
        let answer = match line.trim_end().split_once(' ') {
            Some(("charge", order)) => self.charge(order.parse().unwrap_or_default()).await,
            Some(("void", order)) => Some(self.void(order.parse().unwrap_or_default())),
            _ => None,
        };
        if let Some(answer) = answer {
            // Nobody may be there any more to hear it.
            let _ = caller.write_all(answer.as_bytes()).await;
        }
    }

    async fn charge(&self, order: i64) -> Option<&'static str> {
        let weather = self.weather(order);
        if weather == Weather::Refuses {
            return Some("refused\n");
        }
        if weather == Weather::Late {
            self.late.acquire().await.ok()?.forget();
        }
        let answer = {
            let mut entries = self.entries();
            match entries.void.contains(&order) {
                true => "refused\n",
                false => {
                    entries.charged.insert(order);
                    "charged\n"
                }
            }
        };
        if weather == Weather::Late {
            self.caught_up.add_permits(1);
        }
        (weather != Weather::HangsUp).then_some(answer)
    }

    fn void(&self, order: i64) -> &'static str {
        let mut entries = self.entries();
        if entries.charged.contains(&order) {
            return "charged\n";
        }
        entries.void.insert(order);
        "void\n"
    }
}
