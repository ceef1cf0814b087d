//! The network between the processes of a slot and their server, which fails when it is told to.

use super::Result;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// How long the side that was not told of a cut keeps its connection: then its network gives up.
const UNTOLD: Duration = Duration::from_secs(4);
/// How many bytes arrive at a time when they are split.
const SPLIT: usize = 3;

/// How bytes are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// As they come.
    Pass,
    /// A few at a time.
    Split,
    /// Not at all; connections stay open, and new ones are accepted.
    Stall,
    /// What the client says arrives; the answers do not.
    LoseAnswers,
}

/// Who hears that a connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Client and server.
    Both,
    /// Only the client. The server hears nothing for some seconds.
    Client,
    /// Only the server. The client hears nothing for some seconds.
    Server,
}

struct Network {
    flow: watch::Sender<Flow>,
    /// The last reset, and how many there were: connections that are open end when it changes.
    resets: watch::Sender<(u64, Reset)>,
    /// Shared by all connections that the next reset will end.
    open: Mutex<Arc<()>>,
    server: SocketAddr,
}

/// A port on the loopback that leads to a server.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    network: Arc<Network>,
    listening: AbortHandle,
}

impl Proxy {
    /// Starts one before a server.
    ///
    /// # Errors
    /// No port is free.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (flow, resets) = (watch::Sender::new(Flow::Pass), watch::Sender::new((0, Reset::Both)));
        let network = Arc::new(Network { flow, resets, open: Mutex::default(), server });
        let between = network.clone();
        let listening = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // Before a byte is forwarded: a reset must not miss it.
                let (open, resets) = between.subscribe();
                connections.spawn(carry(client, between.clone(), open, resets));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, network, listening: listening.abort_handle() })
    }

    /// Forwards in another way from now on.
    pub fn set(&self, flow: Flow) {
        self.network.flow.send_replace(flow);
    }

    /// Resets all connections that are open; that is done when it returns.
    pub async fn reset(&self, reset: Reset) {
        let open = self.network.reset(reset);
        while Arc::strong_count(&open) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Network {
    /// Begins a reset; what comes back is shared with those that it has not ended yet.
    fn reset(&self, reset: Reset) -> Arc<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.resets.send_modify(|(count, last)| (*count, *last) = (*count + 1, reset));
        std::mem::take(&mut *open)
    }

    fn subscribe(&self) -> (Arc<()>, watch::Receiver<(u64, Reset)>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        (open.clone(), self.resets.subscribe())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Forwards one connection until both directions have ended, or it is reset.
async fn carry(
    mut client: TcpStream,
    network: Arc<Network>,
    open: Arc<()>,
    mut resets: watch::Receiver<(u64, Reset)>,
) {
    let Ok(mut server) = TcpStream::connect(network.server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let reset = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let requests = async {
            pump(&mut from_client, &mut to_server, &network, false).await;
            let _ = to_server.shutdown().await;
        };
        let answers = async {
            pump(&mut from_server, &mut to_client, &network, true).await;
            let _ = to_client.shutdown().await;
        };
        tokio::select! {
            _ = async { tokio::join!(requests, answers) } => return,
            changed = resets.changed() => match changed {
                Ok(()) => resets.borrow().1,
                Err(_) => return,
            },
        }
    };
    let untold = match reset {
        Reset::Both => {
            abort(server);
            abort(client);
            return;
        }
        Reset::Client => {
            abort(client);
            server
        }
        Reset::Server => {
            abort(server);
            client
        }
    };
    drop(open);
    let _ = tokio::time::timeout(UNTOLD, swallow(untold)).await;
}

/// Closes a connection with a reset, not with an orderly end.
fn abort(stream: TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Reads until the other side has ended.
async fn swallow(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = stream.read(&mut bytes).await {}
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    network: &Network,
    are_answers: bool,
) {
    let mut bytes = [0; 16 * 1024];
    let mut flow = network.flow.subscribe();
    loop {
        let read = from.read(&mut bytes).await;
        let Ok(now) = flow.wait_for(|flow| *flow != Flow::Stall).await.map(|flow| *flow) else {
            return;
        };
        let Ok(read @ 1..) = read else { return };
        if now == Flow::LoseAnswers && are_answers {
            continue;
        }
        let size = if now == Flow::Split { SPLIT } else { read };
        for piece in bytes[..read].chunks(size) {
            if to.write_all(piece).await.is_err() {
                return;
            }
            if now == Flow::Split {
                tokio::task::yield_now().await;
            }
        }
    }
}
