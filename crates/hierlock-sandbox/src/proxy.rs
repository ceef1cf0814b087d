//! A network between a client and a server, for tests: it counts turns, and it can fail in each of the ways in
//! which networks do. Feature `proxy`.
//!
//! ```text
//!   client ──► Proxy ──► server
//!     becomes(Mood): for all connections, or all that are open now
//!     strikes(When, Fault): one connection, at one of the next requests
//!     cuts_at(words, Fate): one connection, at a request that ends with these words
//! ```
#![expect(clippy::unwrap_used, reason = "it is for tests, which may panic")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// What it does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Everything arrives.
    Passes,
    /// Everything arrives, each byte by itself.
    SplitsBytes,
    /// Of the connections that were opened before that many, the client's sides are reset. The server does not hear
    /// of it. New ones pass.
    ResetsClients(usize),
    /// Nothing is forwarded either way; sockets stay open, and new ones are accepted.
    Stalls,
    /// The same, but only for the connection that was opened as the so many-th, counted from 0.
    StallsOne(usize),
    /// The same for all that are open already: forgotten by a firewall, say. New ones pass.
    Forgets(usize),
    /// What the client says still arrives; the server's answers end.
    HalfClosesToClient,
    /// The server's answers still arrive; what the client says ends.
    HalfClosesToServer,
    /// Both sides are closed, and new connections too.
    Drops,
}

impl Mood {
    fn stalls(self, connection: usize) -> bool {
        match self {
            Mood::Stalls => true,
            Mood::StallsOne(one) => connection == one,
            Mood::Forgets(old) => connection < old,
            _ => false,
        }
    }
}

/// Which request a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The one after so many.
    After(usize),
    /// The next that has these words in it.
    Says(&'static str),
}

/// What becomes of one connection, when its client has said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request arrives, and no answer ever does; nobody says so.
    LoseAnswers,
    /// The request arrives; then the client's side is reset, and the server's stays open.
    ResetClient,
    /// The server's side is reset, and the client's stays open, in silence.
    ResetServer,
    /// The request arrives; then the client hears that the server has nothing more to say. The server's side stays open.
    HalfCloseToClient,
    /// The request arrives; then the server hears that the client has nothing more to say. Answers still arrive.
    HalfCloseToServer,
    /// From now on each byte is written by itself, both ways.
    SplitBytes,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 6] = [
        Fault::LoseAnswers,
        Fault::ResetClient,
        Fault::ResetServer,
        Fault::HalfCloseToClient,
        Fault::HalfCloseToServer,
        Fault::SplitBytes,
    ];
}

/// What becomes of the request at which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lost,
    /// It is answered, and the answer does not arrive.
    Answered,
    /// The same, and from then on the whole network [drops](Mood::Drops) everything.
    Last,
    /// It arrives long after the client was told that the connection has ended.
    Late,
}

/// The state of the network, and where a connection is cut.
struct Network {
    mood: watch::Sender<Mood>,
    /// At the next request that ends with these words, once.
    cut: Mutex<Option<(&'static str, Fate)>>,
    /// What one connection meets, once.
    strike: Mutex<Option<(When, Fault)>>,
    /// What is late may arrive now.
    arrives: Notify,
    /// What is held back, of whoever was the last to speak while it stalls.
    held: Mutex<Option<Vec<u8>>>,
}

impl Network {
    /// The fault that this request meets.
    fn strikes(&self, request: &[u8]) -> Option<Fault> {
        let mut strike = self.strike.lock().unwrap();
        let is_met = match &mut strike.as_mut()?.0 {
            When::After(0) => true,
            When::After(left) => {
                *left -= 1;
                false
            }
            When::Says(words) => request.windows(words.len()).any(|part| part == words.as_bytes()),
        };
        is_met.then(|| strike.take()).flatten().map(|(_, fault)| fault)
    }

    fn cuts(&self, request: &[u8]) -> Option<Fate> {
        let mut cut = self.cut.lock().unwrap();
        // A text of PostgreSQL's ends with a zero.
        let request = request.strip_suffix(&[0]).unwrap_or(request);
        let (_, fate) = cut.take_if(|(words, _)| request.ends_with(words.as_bytes()))?;
        Some(fate)
    }
}

/// The turns of one connection: one begins when the client speaks after the server did.
#[derive(Default)]
struct Turns {
    count: AtomicUsize,
    client_speaks: AtomicBool,
}

impl Turns {
    fn client(&self) {
        if !self.client_speaks.swap(true, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn server(&self) {
        self.client_speaks.store(false, Ordering::SeqCst);
    }
}

/// A network before a server.
pub struct Proxy {
    /// Of the database, but through here.
    pub url: String,
    network: Arc<Network>,
    connections: Arc<Mutex<Vec<Arc<Turns>>>>,
    accepts: AbortHandle,
}

impl Proxy {
    /// Of a database by its URL.
    pub async fn before(url: &str) -> Self {
        let (login, rest) = url.rsplit_once('@').unwrap();
        let (address, rest) = rest.split_once('/').unwrap();
        let server = address.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("{login}@127.0.0.1:{port}/{rest}");
        let connections: Arc<Mutex<Vec<Arc<Turns>>>> = Arc::default();
        let known = connections.clone();
        let mood = watch::Sender::new(Mood::Passes);
        let network = Arc::new(Network {
            mood,
            cut: Mutex::default(),
            strike: Mutex::default(),
            arrives: Notify::new(),
            held: Mutex::default(),
        });
        let between = network.clone();
        let accepts = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let turns = Arc::<Turns>::default();
                let number = {
                    let mut known = known.lock().unwrap();
                    known.push(turns.clone());
                    known.len() - 1
                };
                all.spawn(join(number, client, server.clone(), between.clone(), turns));
            }
        });
        Self { url, network, connections, accepts: accepts.abort_handle() }
    }

    /// Changes what it does with everything.
    pub fn becomes(&self, mood: Mood) {
        *self.network.held.lock().unwrap() = None;
        self.network.mood.send_replace(mood);
    }

    /// Nothing is forwarded any more on what is open now.
    pub fn forgets(&self) {
        self.becomes(Mood::Forgets(self.connections()));
    }

    /// Resets the client's side of what is open now; the server does not hear of it.
    pub fn resets_clients(&self) {
        self.becomes(Mood::ResetsClients(self.connections()));
    }

    /// Lets one connection fail: whichever that request comes on.
    pub fn strikes(&self, when: When, fault: Fault) {
        *self.network.strike.lock().unwrap() = Some((when, fault));
    }

    /// Did that request come?
    pub fn has_struck(&self) -> bool {
        self.network.strike.lock().unwrap().is_none()
    }

    /// Cuts a connection at the next request that ends with these words, and no other.
    pub fn cuts_at(&self, words: &'static str, fate: Fate) {
        *self.network.cut.lock().unwrap() = Some((words, fate));
    }

    /// Lets a request arrive that is [late](Fate::Late).
    pub fn lets_arrive(&self) {
        self.network.arrives.notify_one();
    }

    /// How many have been opened so far.
    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// The turns so far of the connection that was opened first.
    pub fn turns(&self) -> usize {
        self.connections.lock().unwrap()[0].count.load(Ordering::SeqCst)
    }

    /// What it holds back, of whoever was the last to speak while it stalls.
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

/// One connection, until both directions have ended.
async fn join(
    number: usize,
    mut client: TcpStream,
    server: String,
    network: Arc<Network>,
    turns: Arc<Turns>,
) {
    let mut mood = network.mood.subscribe();
    let stalls = move |mood: Mood| mood.stalls(number);
    if mood.wait_for(|mood| !stalls(*mood)).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(&server).await else { return };
    // A byte by itself is to be a packet by itself.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let struck = OnceLock::new();
    if let Some(fault) =
        pass(number, &mut client, &mut server, &network, &turns, &struck, stalls).await
    {
        fail(fault, client, server).await;
    }
}

/// Passes everything on, both ways, until both have ended or a fault is to be made.
async fn pass(
    number: usize,
    client: &mut TcpStream,
    server: &mut TcpStream,
    network: &Network,
    turns: &Turns,
    struck: &OnceLock<Fault>,
    stalls: impl Fn(Mood) -> bool + Copy,
) -> Option<Fault> {
    let (mut client, mut server) = (client.split(), server.split());
    let (cut, hung_up, faulty) = (OnceLock::new(), Notify::new(), Notify::new());
    let splits = || struck.get() == Some(&Fault::SplitBytes);
    let to_server = |request: &[u8]| {
        turns.client();
        if let Some(fault) = network.strikes(request) {
            let _ = struck.set(fault);
            return match fault {
                Fault::LoseAnswers | Fault::SplitBytes => Passes::Now,
                _ => Passes::Last,
            };
        }
        let Some(fate) = network.cuts(request) else { return Passes::Now };
        let _ = cut.set(fate);
        match fate {
            Fate::Lost => Passes::Never,
            Fate::Answered | Fate::Last => Passes::Now,
            Fate::Late => {
                hung_up.notify_one();
                Passes::Later
            }
        }
    };
    let to_client = |_: &[u8]| {
        turns.server();
        if cut.get() == Some(&Fate::Last) {
            network.mood.send_replace(Mood::Drops);
        }
        match struck.get() {
            None | Some(Fault::SplitBytes) if cut.get().is_none() => Passes::Now,
            Some(Fault::LoseAnswers) => Passes::Lost,
            _ => Passes::Never,
        }
    };
    let requests = async {
        let ended = until(network, Mood::HalfClosesToServer);
        tokio::select! {
            () = pump(&mut client.0, &mut server.1, network, stalls, splits, to_server) => {}
            () = ended => {}
        }
        match struck.get() {
            None | Some(Fault::LoseAnswers | Fault::SplitBytes) => {
                let _ = server.1.shutdown().await;
            }
            Some(_) => faulty.notify_one(),
        }
    };
    let answers = async {
        let ended = until(network, Mood::HalfClosesToClient);
        tokio::select! {
            () = pump(&mut server.0, &mut client.1, network, stalls, splits, to_client) => {}
            () = ended => {}
            () = hung_up.notified() => {}
        }
        // What is struck ends as its fault says.
        match struck.get() {
            None | Some(Fault::SplitBytes) => drop(client.1.shutdown().await),
            Some(_) => std::future::pending().await,
        }
    };
    let resets = |mood: &Mood| matches!(mood, Mood::ResetsClients(old) if number < *old);
    let mut mood = network.mood.subscribe();
    tokio::select! {
        _ = async { tokio::join!(requests, answers) } => None,
        () = until(network, Mood::Drops) => None,
        () = faulty.notified() => struck.get().copied(),
        _ = mood.wait_for(resets) => Some(Fault::ResetClient),
    }
}

/// Makes a fault, and keeps open what it leaves open for as long as the other side wants that.
async fn fail(fault: Fault, mut client: TcpStream, mut server: TcpStream) {
    match fault {
        Fault::ResetClient => {
            let _ = client.set_zero_linger();
            drop(client);
            swallow(&mut server).await;
        }
        Fault::ResetServer => {
            let _ = server.set_zero_linger();
            drop(server);
            swallow(&mut client).await;
        }
        Fault::HalfCloseToClient => {
            let _ = client.shutdown().await;
            let (mut from_client, _) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let answers = swallow(&mut from_server);
            let requests = async {
                let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                // The client has gone, and the server is not told.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = answers => {}
                () = requests => {}
            }
        }
        Fault::HalfCloseToServer => {
            let _ = server.shutdown().await;
            let (mut from_client, mut to_client) = client.split();
            let answers = tokio::io::copy(&mut server, &mut to_client);
            tokio::select! {
                _ = answers => {}
                () = swallow(&mut from_client) => {}
            }
        }
        // They leave both sides as they are.
        Fault::LoseAnswers | Fault::SplitBytes => {}
    }
}

/// Reads until the other side has ended.
async fn swallow(from: &mut (impl AsyncReadExt + Unpin)) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(1..) = from.read(&mut bytes).await {}
}

/// What is done with something that was read.
enum Passes {
    Now,
    /// Now, and nothing after it.
    Last,
    /// When [`lets_arrive`](Proxy::lets_arrive) says so.
    Later,
    /// Not this; what comes after it is asked about again.
    Lost,
    Never,
}

/// Passes everything on in one direction, as long as the mood lets it.
async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    network: &Network,
    stalls: impl Fn(Mood) -> bool,
    splits: impl Fn() -> bool,
    passes: impl Fn(&[u8]) -> Passes,
) {
    let mut bytes = [0; 16 * 1024];
    let mut mood = network.mood.subscribe();
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let bytes = &bytes[..read];
        let passes = passes(bytes);
        match passes {
            Passes::Now | Passes::Last => {}
            Passes::Later => network.arrives.notified().await,
            Passes::Lost => continue,
            Passes::Never => return,
        }
        let goes_on = |mood: &Mood| {
            let is_held = stalls(*mood);
            is_held.then(|| *network.held.lock().unwrap() = Some(bytes.to_owned()));
            !is_held
        };
        let Ok(mood) = mood.wait_for(goes_on).await.map(|mood| *mood) else { return };
        let size = if splits() || mood == Mood::SplitsBytes { 1 } else { read };
        for part in bytes.chunks(size) {
            if to.write_all(part).await.is_err() {
                return;
            }
            // The other side may read it before the next one comes.
            tokio::task::yield_now().await;
        }
        if matches!(passes, Passes::Last) {
            return;
        }
    }
}

/// Comes back when it is in that mood.
async fn until(network: &Network, wanted: Mood) {
    let _ = network.mood.subscribe().wait_for(|mood| *mood == wanted).await;
}
