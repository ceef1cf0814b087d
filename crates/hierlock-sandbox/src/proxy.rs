//! A network between a client and a server, for tests: it counts round trips, and fails as networks do. Feature `proxy`.
//!
//! ```text
//!   client ──► Proxy ──► server
//!     set_mode(NetworkMode): for all connections, or all that are open now
//!     inject(FaultTrigger, Fault): one connection, at one of the next requests
//! ```
#![expect(clippy::unwrap_used, reason = "it is for tests, which may panic")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// What the network does with what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// Everything arrives.
    #[default]
    Passes,
    /// Everything arrives, each byte by itself.
    SplitsBytes,
    /// The client's side of the first so many connections is reset. The server is not told.
    ResetsClients(usize),
    /// Nothing is forwarded either way; sockets stay open, and new ones are accepted.
    Stalls,
    /// The same, but only for the connection of this number, counted from 0.
    StallsOne(usize),
    /// The same for the first so many connections, as if a firewall had forgotten them.
    StallsOpened(usize),
    /// What the client says still arrives; the server's answers end.
    HalfClosesToClient,
    /// The server's answers still arrive; what the client says ends.
    HalfClosesToServer,
    /// Both sides are closed, and new connections too.
    Drops,
}

/// The request at which a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// The request after so many others.
    After(usize),
    /// The next request that contains these words.
    Says(&'static str),
    /// The next request that ends with these words.
    EndsWith(&'static str),
}

/// What happens to one connection at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request arrives, but no answer; neither side is told.
    LoseAnswers,
    /// The request arrives; then the client's side is reset, and the server's stays open.
    ResetClient,
    /// The server's side is reset, and the client's stays open, in silence.
    ResetServer,
    /// The request arrives; then the client is told that there are no more answers. The server's side stays open.
    HalfCloseToClient,
    /// The request arrives; then the server is told that there are no more requests. Answers still arrive.
    HalfCloseToServer,
    /// From now on each byte is written by itself, both ways.
    SplitBytes,
    /// The connection is closed, and the request does not arrive.
    CloseBeforeRequest,
    /// The connection is closed when the request was answered, and the answer does not arrive.
    CloseBeforeAnswer,
    /// The same, and from then on the whole network [drops](NetworkMode::Drops) everything.
    DropAllBeforeAnswer,
    /// The connection is closed; the request arrives at [`deliver_late_request`](Proxy::deliver_late_request).
    DelayRequest,
}

impl Fault {
    /// Those that leave a side of the connection open, or as it was.
    pub const ALL: [Fault; 6] = [
        Fault::LoseAnswers,
        Fault::ResetClient,
        Fault::ResetServer,
        Fault::HalfCloseToClient,
        Fault::HalfCloseToServer,
        Fault::SplitBytes,
    ];

    /// Returns whether it ends the connection otherwise than by passing on that a side has ended.
    fn breaks_connection(self) -> bool {
        use Fault::{HalfCloseToClient, HalfCloseToServer, ResetClient, ResetServer};
        matches!(self, ResetClient | ResetServer | HalfCloseToClient | HalfCloseToServer)
    }
}

#[derive(Default)]
struct Network {
    mode: watch::Sender<NetworkMode>,
    /// What one connection meets, once.
    fault: Mutex<Option<(FaultTrigger, Fault)>>,
    /// What is late may arrive now.
    late_request: Notify,
    /// What is held back, of whoever was the last to speak while it stalls.
    held: Mutex<Option<Vec<u8>>>,
    /// How many round trips each connection has made: one begins when the client speaks after the server did.
    round_trips: Mutex<Vec<usize>>,
}

impl Network {
    /// Returns the fault that this request meets.
    fn fault(&self, request: &[u8]) -> Option<Fault> {
        let mut injected = self.fault.lock().unwrap();
        let (trigger, fault) = injected.as_mut()?;
        let is_met = match trigger {
            FaultTrigger::After(0) => true,
            FaultTrigger::After(left) => {
                *left -= 1;
                false
            }
            FaultTrigger::Says(words) => {
                request.windows(words.len()).any(|part| part == words.as_bytes())
            }
            // A text of PostgreSQL's ends with a zero.
            FaultTrigger::EndsWith(words) => {
                request.strip_suffix(&[0]).unwrap_or(request).ends_with(words.as_bytes())
            }
        };
        let fault = *fault;
        is_met.then(|| *injected = None).map(|()| fault)
    }

    async fn wait_for_mode(&self, is_it: impl FnMut(&NetworkMode) -> bool) -> Option<NetworkMode> {
        self.mode.subscribe().wait_for(is_it).await.ok().map(|mode| *mode)
    }
}

/// A network before a server.
pub struct Proxy {
    /// Of the database, but through here.
    pub url: String,
    network: Arc<Network>,
    accepts: AbortHandle,
}

impl Proxy {
    /// Opens a network before the database of a URL.
    pub async fn before(url: &str) -> Self {
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

    /// Changes what it does with everything.
    pub fn set_mode(&self, mode: NetworkMode) {
        *self.network.held.lock().unwrap() = None;
        self.network.mode.send_replace(mode);
    }

    /// Forwards nothing any more on what is open now.
    pub fn stall_opened(&self) {
        self.set_mode(NetworkMode::StallsOpened(self.connections()));
    }

    /// Resets the client's side of what is open now; the server does not hear of it.
    pub fn reset_clients(&self) {
        self.set_mode(NetworkMode::ResetsClients(self.connections()));
    }

    /// Lets one connection fail: whichever that request comes on.
    pub fn inject(&self, when: FaultTrigger, fault: Fault) {
        *self.network.fault.lock().unwrap() = Some((when, fault));
    }

    /// Returns whether that request has come.
    pub fn has_injected(&self) -> bool {
        self.network.fault.lock().unwrap().is_none()
    }

    /// Lets a request arrive that is [late](Fault::DelayRequest).
    pub fn deliver_late_request(&self) {
        self.network.late_request.notify_one();
    }

    /// Returns how many have been opened so far.
    pub fn connections(&self) -> usize {
        self.network.round_trips.lock().unwrap().len()
    }

    /// Returns the round trips so far of the connection that was opened first.
    pub fn round_trips(&self) -> usize {
        self.network.round_trips.lock().unwrap()[0]
    }

    /// Returns what it holds back, of whoever was the last to speak while it stalls.
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
    /// Now, and nothing after it.
    Last,
    /// When the network lets late requests arrive.
    Later,
    /// Not this; what comes after it is asked about again.
    Lost,
    Never,
}

struct ProxyConnection {
    number: usize,
    network: Arc<Network>,
    /// Whether the client was the last to speak.
    client_speaks: AtomicBool,
    fault: OnceLock<Fault>,
}

impl ProxyConnection {
    fn open(network: Arc<Network>) -> Self {
        let mut round_trips = network.round_trips.lock().unwrap();
        let number = round_trips.len();
        round_trips.push(0);
        drop(round_trips);
        Self { number, network, client_speaks: AtomicBool::new(false), fault: OnceLock::new() }
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
        // A byte by itself is to be a packet by itself.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        if let Some(fault) = self.pass(&mut client, &mut server).await {
            break_connection(fault, client, server).await;
        }
    }

    /// Passes everything on, both ways, until both have ended or the connection is to be broken.
    async fn pass(&self, client: &mut TcpStream, server: &mut TcpStream) -> Option<Fault> {
        let (mut client, mut server) = (client.split(), server.split());
        let (hung_up, broken) = (Notify::new(), Notify::new());
        let is_broken = || self.fault.get().is_some_and(|fault| fault.breaks_connection());
        let to_server = |request: &[u8]| {
            if !self.client_speaks.swap(true, Ordering::SeqCst) {
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
            self.client_speaks.store(false, Ordering::SeqCst);
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
            // It ends as its fault says.
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

    /// Passes everything on in one direction, as long as the network lets it.
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
                // The other side may read it before the next one comes.
                tokio::task::yield_now().await;
            }
            if matches!(delivery, Delivery::Last) {
                return;
            }
        }
    }
}

/// Breaks a connection, and keeps open what the fault leaves open for as long as the other side wants that.
async fn break_connection(fault: Fault, mut client: TcpStream, mut server: TcpStream) {
    match fault {
        Fault::ResetClient => reset(client, server).await,
        Fault::ResetServer => reset(server, client).await,
        Fault::HalfCloseToClient => {
            let _ = client.shutdown().await;
            let (mut from_server, mut to_server) = server.split();
            let requests = async {
                let _ = tokio::io::copy(&mut client, &mut to_server).await;
                // The client has gone, and the server is not told.
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

/// Resets one side, and keeps the other open in silence.
async fn reset(one: TcpStream, mut other: TcpStream) {
    let _ = one.set_zero_linger();
    drop(one);
    discard(&mut other).await;
}

async fn discard(from: &mut (impl AsyncReadExt + Unpin)) {
    let _ = tokio::io::copy(from, &mut tokio::io::sink()).await;
}
