//! A payment service outside the database: a local server that a ROLLBACK does not affect, and that fails as
//! configured for each order.
//!
//! A request is one line, and so is the answer. `charge 7` is answered with `charged` or `refused`. `void 7` is
//! answered with `void`, and then order 7 can never be charged; or with `charged`, if it was charged before. The order
//! number is an idempotency key: repeated requests charge only once.

use super::case_database::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a client waits for an answer. Long, so that a slow machine does not look like a lost answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for an answer that comes only after the timeout.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_millis(20);

/// The behaviour of the service when an order is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeBehaviour {
    Charge,
    Refuse,
    /// Charges, and then disconnects without an answer.
    ChargeThenDisconnect,
    /// Charges after the client has given up: in [`CardService::finish_late_charges`].
    ChargeAfterTimeout,
}

/// The answer of the service, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Charged,
    Refused,
    /// No answer. The order may have been charged, or may still be charged.
    Unknown,
}

/// The service, and its client. The service stops when this is dropped.
pub(crate) struct CardService {
    address: SocketAddr,
    state: Arc<ServiceState>,
    _server: JoinSet<()>,
}

struct ServiceState {
    /// The behaviour for each order. The default is [`ChargeBehaviour::Charge`].
    behaviours: BTreeMap<i64, ChargeBehaviour>,
    orders: Mutex<OrderStates>,
    /// Has one permit for each late charge that may continue.
    late_charges_allowed: Semaphore,
    /// Has one permit for each late charge that has finished.
    late_charges_finished: Semaphore,
}

#[derive(Default)]
struct OrderStates {
    charged: BTreeSet<i64>,
    void: BTreeSet<i64>,
}

impl CardService {
    pub(crate) async fn start(behaviours: &[(i64, ChargeBehaviour)]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(ServiceState {
            behaviours: behaviours.iter().copied().collect(),
            orders: Mutex::default(),
            late_charges_allowed: Semaphore::new(0),
            late_charges_finished: Semaphore::new(0),
        });
        let mut server = JoinSet::new();
        let server_state = state.clone();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let state = server_state.clone();
                connections.spawn(async move { state.serve(connection).await });
            }
        });
        Ok(Self { address, state, _server: server })
    }

    pub(crate) async fn charge(&self, order: i64) -> Answer {
        let timeout = match self.state.behaviour(order) {
            ChargeBehaviour::ChargeAfterTimeout => LATE_ANSWER_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        };
        self.request(&format!("charge {order}\n"), timeout).await
    }

    /// Makes sure that an order is not charged later. Returns [`Answer::Charged`] if it is charged already.
    pub(crate) async fn void(&self, order: i64) -> Answer {
        self.request(&format!("void {order}\n"), ANSWER_TIMEOUT).await
    }

    /// Lets the late charges continue, and waits until they have finished.
    pub(crate) async fn finish_late_charges(&self) -> Result<()> {
        let behaviours = self.state.behaviours.values();
        let late = behaviours.filter(|it| **it == ChargeBehaviour::ChargeAfterTimeout).count();
        self.state.late_charges_allowed.add_permits(late);
        let finished = self.state.late_charges_finished.acquire_many(u32::try_from(late)?);
        let _finished = tokio::time::timeout(ANSWER_TIMEOUT, finished).await??;
        Ok(())
    }

    pub(crate) fn charged_orders(&self) -> BTreeSet<i64> {
        self.state.orders().charged.clone()
    }

    /// Sends a request. Every failure to get an answer is [`Answer::Unknown`].
    async fn request(&self, line: &str, timeout: Duration) -> Answer {
        let Ok(mut service) = TcpStream::connect(self.address).await else {
            return Answer::Unknown;
        };
        if service.write_all(line.as_bytes()).await.is_err() {
            return Answer::Unknown;
        }
        let mut answer = String::new();
        let mut service = BufReader::new(service);
        // A timeout and a closed connection are the same to the client: the answer is empty.
        let _ = tokio::time::timeout(timeout, service.read_line(&mut answer)).await;
        match answer.as_str() {
            "charged\n" => Answer::Charged,
            "refused\n" | "void\n" => Answer::Refused,
            _ => Answer::Unknown,
        }
    }
}

impl ServiceState {
    fn orders(&self) -> MutexGuard<'_, OrderStates> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self, order: i64) -> ChargeBehaviour {
        self.behaviours.get(&order).copied().unwrap_or(ChargeBehaviour::Charge)
    }

    async fn serve(&self, connection: TcpStream) {
        let mut connection = BufReader::new(connection);
        let mut line = String::new();
        if connection.read_line(&mut line).await.is_err() {
            return;
        }
        let answer = match line.trim_end().split_once(' ') {
            Some(("charge", order)) => self.charge(order.parse().unwrap_or_default()).await,
            Some(("void", order)) => Some(self.void(order.parse().unwrap_or_default())),
            _ => None,
        };
        if let Some(answer) = answer {
            // The client may have disconnected.
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    }

    async fn charge(&self, order: i64) -> Option<&'static str> {
        let behaviour = self.behaviour(order);
        if behaviour == ChargeBehaviour::Refuse {
            return Some("refused\n");
        }
        if behaviour == ChargeBehaviour::ChargeAfterTimeout {
            self.late_charges_allowed.acquire().await.ok()?.forget();
        }
        let answer = {
            let mut orders = self.orders();
            if orders.void.contains(&order) {
                "refused\n"
            } else {
                orders.charged.insert(order);
                "charged\n"
            }
        };
        if behaviour == ChargeBehaviour::ChargeAfterTimeout {
            self.late_charges_finished.add_permits(1);
        }
        (behaviour != ChargeBehaviour::ChargeThenDisconnect).then_some(answer)
    }

    fn void(&self, order: i64) -> &'static str {
        let mut orders = self.orders();
        if orders.charged.contains(&order) {
            return "charged\n";
        }
        orders.void.insert(order);
        "void\n"
    }
}
