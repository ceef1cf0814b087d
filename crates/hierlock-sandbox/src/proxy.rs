//! A proxy between a client and a server, for tests: it counts round trips and injects network faults. Feature `proxy`.
//!
//! ```text
//!   client ──► Proxy ──► server
//!     set_mode(NetworkMode): for all connections, or all that are open now
//!     inject(FaultTrigger, Fault): for one connection, at one of the next requests
//! ```
#![expect(clippy::unwrap_used, reason = "it is for tests, which may panic")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The behaviour of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// Everything is forwarded.
    #[default]
    Passes,
    /// Everything is forwarded, byte by byte.
    SplitsBytes,
    /// The client's side of the first connections, this many, is reset. The server's side stays open.
    ResetsClients(usize),
    /// Nothing is forwarded in either direction. Connections stay open, and new ones are accepted.
    Stalls,
    /// Like `Stalls`, for the connection with this number only, counted from 0.
    StallsOne(usize),
    /// Like `Stalls`, for the first connections, this many, as if a firewall had forgotten them.
    StallsOpened(usize),
    /// Requests are forwarded; the client's side is closed for answers.
    HalfClosesToClient,
    /// Answers are forwarded; the server's side is closed for requests.
    HalfClosesToServer,
    /// All connections are closed on both sides, also new ones.
    Drops,
}

/// The request at which a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// The request after this many others.
    After(usize),
    /// The next request that contains this text.
    Contains(&'static str),
    /// The next request that ends with this text.
    EndsWith(&'static str),
}

/// A fault of one connection at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is forwarded, but no answer. Both sides stay open.
    LoseAnswers,
    /// The request is forwarded; then the client's side is reset. The server's side stays open.
    ResetClient,
    /// The server's side is reset. The client's side stays open and silent.
    ResetServer,
    /// The request is forwarded; then the client's side is closed for answers. The server's side stays open.
    HalfCloseToClient,
    /// The request is forwarded; then the server's side is closed for requests. Answers are still forwarded.
    HalfCloseToServer,
    /// From now on bytes are forwarded one by one, in both directions.
    SplitBytes,
    /// The connection is closed, and the request is not forwarded.
    CloseBeforeRequest,
    /// The connection is closed after the server has answered, and the answer is not forwarded.
    CloseBeforeAnswer,
    /// Like `CloseBeforeAnswer`, and from then on the whole network [drops](NetworkMode::Drops) all connections.
    DropAllBeforeAnswer,
    /// The connection is closed, and the request is forwarded by [`deliver_late_request`](Proxy::deliver_late_request).
    DelayRequest,
}

impl Fault {
    /// The faults that leave a side of the connection open.
    pub const ALL: [Fault; 6] = [
        Fault::LoseAnswers,
        Fault::ResetClient,
        Fault::ResetServer,
        Fault::HalfCloseToClient,
        Fault::HalfCloseToServer,
        Fault::SplitBytes,
    ];

    /// Returns whether the fault breaks the connection in another way than by forwarding the end of a side.
    fn breaks_connection(self) -> bool {
        use Fault::{HalfCloseToClient, HalfCloseToServer, ResetClient, ResetServer};
        matches!(self, ResetClient | ResetServer | HalfCloseToClient | HalfCloseToServer)
    }
}

#[derive(Default)]
struct Network {
    mode: watch::Sender<NetworkMode>,
    /// The injected fault of one connection.
    fault: Mutex<Option<(FaultTrigger, Fault)>>,
    /// Notified when a late request may be forwarded.
    late_request: Notify,
    /// The last data that was held back by a stall.
    held: Mutex<Option<Vec<u8>>>,
    /// The number of round trips of each connection. One begins when the client sends after the server did.
    round_trips: Mutex<Vec<usize>>,
    /// The connections whose client's side is open.
    open_clients: watch::Sender<BTreeSet<usize>>,
}

impl Network {
    /// Returns the fault to inject at this request.
    fn fault(&self, request: &[u8]) -> Option<Fault> {
        let mut injected = self.fault.lock().unwrap();
        let (trigger, fault) = injected.as_mut()?;
        let is_met = match trigger {
            FaultTrigger::After(0) => true,
            FaultTrigger::After(left) => {
                *left -= 1;
                false
            }
            FaultTrigger::Contains(words) => {
                request.windows(words.len()).any(|part| part == words.as_bytes())
            }
            // A text of PostgreSQL's protocol ends with a zero byte.
            FaultTrigger::EndsWith(words) => {
                request.strip_suffix(&[0]).unwrap_or(request).ends_with(words.as_bytes())
            }
        };
        let fault = *fault;
        is_met.then(|| *injected = None).map(|()| fault)
    }

    async fn wait_for_mode(&self, is_met: impl FnMut(&NetworkMode) -> bool) -> Option<NetworkMode> {
        self.mode.subscribe().wait_for(is_met).await.ok().map(|mode| *mode)
    }
}

/// A proxy in front of a server.
pub struct Proxy {
    /// The URL of the database through the proxy.
    pub url: String,
    network: Arc<Network>,
    accepts: AbortHandle,
}

impl Proxy {
    /// Starts a proxy in front of the database of a URL.
    pub async fn start(url: &str) -> Self {
        let (login, rest) = url.rsplit_once('@').unwrap();
        let (server, rest) = rest.split_once('/').unwrap();
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("{login}@127.0.0.1:{port}/{rest}");
        let network = Arc::<Network>::default();
        let between = network.clone();
        let accepts = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let connection = ProxyConnection::open(between.clone());
                all.spawn(connection.run(client, server.clone()));
            }
        });
        Self { url, network, accepts: accepts.abort_handle() }
    }

    /// Sets the behaviour for all connections.
    pub fn set_mode(&self, mode: NetworkMode) {
        *self.network.held.lock().unwrap() = None;
        self.network.mode.send_replace(mode);
    }

    /// Stalls the connections that are open now.
    pub fn stall_opened(&self) {
        self.set_mode(NetworkMode::StallsOpened(self.connections()));
    }

    /// Resets the client's side of the connections that are open now, and waits until they are reset. The server's side
    /// stays open.
    pub async fn reset_clients(&self) {
        let opened = self.connections();
        self.set_mode(NetworkMode::ResetsClients(opened));
        let are_reset = |open: &BTreeSet<usize>| open.first().is_none_or(|first| *first >= opened);
        let _ = self.network.open_clients.subscribe().wait_for(are_reset).await;
    }

    /// Injects a fault into the connection on which the triggering request is sent.
    pub fn inject(&self, when: FaultTrigger, fault: Fault) {
        *self.network.fault.lock().unwrap() = Some((when, fault));
    }

    /// Returns whether the triggering request has been sent.
    pub fn has_injected(&self) -> bool {
        self.network.fault.lock().unwrap().is_none()
    }

    /// Forwards the request that a [delay](Fault::DelayRequest) holds back.
    pub fn deliver_late_request(&self) {
        self.network.late_request.notify_one();
    }

    /// Returns the number of connections opened so far.
    pub fn connections(&self) -> usize {
        self.network.round_trips.lock().unwrap().len()
    }

    /// Returns the number of round trips of the first connection.
    pub fn round_trips(&self) -> usize {
        self.network.round_trips.lock().unwrap()[0]
    }

    /// Returns the last data that was held back by a stall.
    pub fn held(&self) -> Option<Vec<u8>> {
        self.network.held.lock().unwrap().clone()
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

enum Delivery {
    Now,
    /// Forwards it now, and nothing after it.
    Last,
    /// Forwards it when the network delivers late requests.
    Later,
    /// Discards it; the following data is decided on again.
    Lost,
    Never,
}

struct ProxyConnection {
    number: usize,
    network: Arc<Network>,
    /// Whether the client was the last to send.
    client_sent_last: AtomicBool,
    fault: OnceLock<Fault>,
}

impl ProxyConnection {
    fn open(network: Arc<Network>) -> Self {
        let mut round_trips = network.round_trips.lock().unwrap();
        let number = round_trips.len();
        round_trips.push(0);
        drop(round_trips);
        network.open_clients.send_if_modified(|open| open.insert(number));
        Self { number, network, client_sent_last: AtomicBool::new(false), fault: OnceLock::new() }
    }

    fn stalls(&self, mode: NetworkMode) -> bool {
        match mode {
            NetworkMode::Stalls => true,
            NetworkMode::StallsOne(one) => self.number == one,
            NetworkMode::StallsOpened(opened) => self.number < opened,
            _ => false,
        }
    }

    /// Runs until both directions have ended.
    async fn run(self, mut client: TcpStream, server: String) {
        self.network.wait_for_mode(|mode| !self.stalls(*mode)).await;
        let Ok(mut server) = TcpStream::connect(&server).await else { return };
        // Without delay, so that each byte is a packet.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        if let Some(fault) = self.pass(&mut client, &mut server).await {
            self.break_connection(fault, client, server).await;
        }
    }

    fn client_is_closed(&self) {
        self.network.open_clients.send_if_modified(|open| open.remove(&self.number));
    }

    /// Forwards in both directions until both have ended or the connection must be broken.
    async fn pass(&self, client: &mut TcpStream, server: &mut TcpStream) -> Option<Fault> {
        let (mut client, mut server) = (client.split(), server.split());
        let (hung_up, broken) = (Notify::new(), Notify::new());
        let is_broken = || self.fault.get().is_some_and(|fault| fault.breaks_connection());
        let to_server = |request: &[u8]| {
            if !self.client_sent_last.swap(true, Ordering::SeqCst) {
                self.network.round_trips.lock().unwrap()[self.number] += 1;
            }
            let Some(fault) = self.network.fault(request) else { return Delivery::Now };
            let _ = self.fault.set(fault);
            match fault {
                fault if fault.breaks_connection() => Delivery::Last,
                Fault::CloseBeforeRequest => Delivery::Never,
                Fault::DelayRequest => {
                    hung_up.notify_one();
                    Delivery::Later
                }
                _ => Delivery::Now,
            }
        };
        let to_client = |_: &[u8]| {
            self.client_sent_last.store(false, Ordering::SeqCst);
            match self.fault.get() {
                None | Some(Fault::SplitBytes) => Delivery::Now,
                Some(Fault::LoseAnswers) => Delivery::Lost,
                Some(Fault::DropAllBeforeAnswer) => {
                    self.network.mode.send_replace(NetworkMode::Drops);
                    Delivery::Never
                }
                Some(_) => Delivery::Never,
            }
        };
        let until = |wanted: NetworkMode| self.network.wait_for_mode(move |mode| *mode == wanted);
        let requests = async {
            tokio::select! {
                () = self.pump(&mut client.0, &mut server.1, to_server) => {}
                _ = until(NetworkMode::HalfClosesToServer) => {}
            }
            if is_broken() {
                broken.notify_one();
            } else {
                let _ = server.1.shutdown().await;
            }
        };
        let answers = async {
            tokio::select! {
                () = self.pump(&mut server.0, &mut client.1, to_client) => {}
                _ = until(NetworkMode::HalfClosesToClient) => {}
                () = hung_up.notified() => {}
            }
            // The fault decides how this direction ends.
            if is_broken() || self.fault.get() == Some(&Fault::LoseAnswers) {
                std::future::pending::<()>().await;
            }
            let _ = client.1.shutdown().await;
        };
        let number = self.number;
        let resets = move |mode: &NetworkMode| matches!(mode, NetworkMode::ResetsClients(opened) if number < *opened);
        tokio::select! {
            _ = async { tokio::join!(requests, answers) } => None,
            _ = until(NetworkMode::Drops) => None,
            () = broken.notified() => self.fault.get().copied(),
            _ = self.network.wait_for_mode(resets) => Some(Fault::ResetClient),
        }
    }

    /// Forwards one direction, as long as the network allows it.
    async fn pump(
        &self,
        from: &mut (impl AsyncReadExt + Unpin),
        to: &mut (impl AsyncWriteExt + Unpin),
        delivery: impl Fn(&[u8]) -> Delivery,
    ) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let bytes = &bytes[..read];
            let delivery = delivery(bytes);
            match delivery {
                Delivery::Now | Delivery::Last => {}
                Delivery::Later => self.network.late_request.notified().await,
                Delivery::Lost => continue,
                Delivery::Never => return,
            }
            let goes_on = |mode: &NetworkMode| {
                let is_held = self.stalls(*mode);
                if is_held {
                    *self.network.held.lock().unwrap() = Some(bytes.to_owned());
                }
                !is_held
            };
            let Some(mode) = self.network.wait_for_mode(goes_on).await else { return };
            let is_split =
                mode == NetworkMode::SplitsBytes || self.fault.get() == Some(&Fault::SplitBytes);
            for part in bytes.chunks(if is_split { 1 } else { read }) {
                if to.write_all(part).await.is_err() {
                    return;
                }
                // Lets the other side read this part before the next one.
                tokio::task::yield_now().await;
            }
            if matches!(delivery, Delivery::Last) {
                return;
            }
        }
    }

    /// Breaks a connection. The sides that the fault leaves open stay open until their peers close them.
    async fn break_connection(&self, fault: Fault, mut client: TcpStream, mut server: TcpStream) {
        match fault {
            Fault::ResetClient => {
                reset(client);
                self.client_is_closed();
                discard(&mut server).await;
            }
            Fault::ResetServer => {
                reset(server);
                discard(&mut client).await;
            }
            Fault::HalfCloseToClient => {
                let _ = client.shutdown().await;
                let (mut from_server, mut to_server) = server.split();
                let requests = async {
                    let _ = tokio::io::copy(&mut client, &mut to_server).await;
                    // The client has closed, but the server's side stays open.
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = discard(&mut from_server) => {}
                    () = requests => {}
                }
            }
            Fault::HalfCloseToServer => {
                let _ = server.shutdown().await;
                let (mut from_client, mut to_client) = client.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut server, &mut to_client) => {}
                    () = discard(&mut from_client) => {}
                }
            }
            _ => {}
        }
    }
}

impl Drop for ProxyConnection {
    fn drop(&mut self) {
        self.client_is_closed();
    }
}

/// Closes one side with a reset.
fn reset(side: TcpStream) {
    let _ = side.set_zero_linger();
    drop(side);
}

async fn discard(from: &mut (impl AsyncReadExt + Unpin)) {
    let _ = tokio::io::copy(from, &mut tokio::io::sink()).await;
}
