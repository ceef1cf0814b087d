//! The proxy between the processes of a slot and their server. It fails on request.

use super::Result;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The time that a half-open connection stays open after the other side was reset.
const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(4);
/// The number of bytes that are forwarded at a time with [`Flow::Split`].
const SPLIT_SIZE: usize = 3;

/// How bytes are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// As they arrive.
    Pass,
    /// A few at a time.
    Split,
    /// Not at all; connections stay open, and new ones are accepted.
    Stall,
    /// Requests of the client are forwarded, responses are dropped.
    LoseResponses,
}

/// The side that sees a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Client and server.
    Both,
    /// Only the client. For the server the connection stays half-open for some seconds.
    Client,
    /// Only the server. For the client the connection stays half-open for some seconds.
    Server,
}

struct Network {
    flow: watch::Sender<Flow>,
    /// The number of resets and the last of them. Open connections end when it changes.
    resets: watch::Sender<(u64, Reset)>,
    /// Cloned by every connection that the next reset ends. The reference count is the number of open connections.
    open: Mutex<Arc<()>>,
    server: SocketAddr,
}

/// A port on the loopback that forwards to a server.
pub struct Proxy {
    /// The port on which it listens.
    pub port: u16,
    network: Arc<Network>,
    listening: AbortHandle,
}

impl Proxy {
    /// Starts a proxy for a server.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (flow, resets) = (watch::Sender::new(Flow::Pass), watch::Sender::new((0, Reset::Both)));
        let network = Arc::new(Network { flow, resets, open: Mutex::default(), server });
        let listener_network = network.clone();
        let listening = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // Subscribed before the first byte is forwarded, so that no reset misses this connection.
                let (open, resets) = listener_network.subscribe();
                let network = listener_network.clone();
                connections.spawn(forward_connection(client, network, open, resets));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, network, listening: listening.abort_handle() })
    }

    /// Changes how bytes are forwarded from now on.
    pub fn set_flow(&self, flow: Flow) {
        self.network.flow.send_replace(flow);
    }

    /// Resets all open connections, and waits until they are closed.
    pub async fn reset(&self, reset: Reset) {
        let open = self.network.reset(reset);
        while Arc::strong_count(&open) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Network {
    /// Starts a reset. The result is shared with the connections that are still open.
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
async fn forward_connection(
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
            forward_bytes(&mut from_client, &mut to_server, &network, false).await;
            let _ = to_server.shutdown().await;
        };
        let responses = async {
            forward_bytes(&mut from_server, &mut to_client, &network, true).await;
            let _ = to_client.shutdown().await;
        };
        tokio::select! {
            _ = async { tokio::join!(requests, responses) } => return,
            changed = resets.changed() => match changed {
                Ok(()) => resets.borrow().1,
                Err(_) => return,
            },
        }
    };
    let half_open = match reset {
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
    let _ = tokio::time::timeout(HALF_OPEN_TIMEOUT, discard_input(half_open)).await;
}

/// Closes a connection with a TCP reset.
fn abort(stream: TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Reads and drops bytes until the other side closes the connection.
async fn discard_input(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = stream.read(&mut bytes).await {}
}

async fn forward_bytes(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    network: &Network,
    are_responses: bool,
) {
    let mut bytes = [0; 16 * 1024];
    let mut flow = network.flow.subscribe();
    loop {
        let read = from.read(&mut bytes).await;
        let Ok(now) = flow.wait_for(|flow| *flow != Flow::Stall).await.map(|flow| *flow) else {
            return;
        };
        let Ok(read @ 1..) = read else { return };
        if now == Flow::LoseResponses && are_responses {
            continue;
        }
        let size = if now == Flow::Split { SPLIT_SIZE } else { read };
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
