//! A network between a client and a server: it counts turns, and it can fail in each of the ways in
//! which networks do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// What it does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Passes,
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

/// What becomes of the request at which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
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
    /// What is late may arrive now.
    arrives: Notify,
    /// What is held back, of whoever was the last to speak while it stalls.
    held: Mutex<Option<Vec<u8>>>,
}

impl Network {
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

pub(crate) struct Proxy {
    /// Of the database, but through here.
    pub(crate) url: String,
    network: Arc<Network>,
    connections: Arc<Mutex<Vec<Arc<Turns>>>>,
    accepts: AbortHandle,
}

impl Proxy {
    /// Of a database by its URL.
    pub(crate) async fn before(url: &str) -> Self {
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

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.network.held.lock().unwrap() = None;
        self.network.mood.send_replace(mood);
    }

    /// Nothing is forwarded any more on what is open now.
    pub(crate) fn forgets(&self) {
        self.becomes(Mood::Forgets(self.connections()));
    }

    /// Cuts a connection at the next request that ends with these words, and no other.
    pub(crate) fn cuts_at(&self, words: &'static str, fate: Fate) {
        *self.network.cut.lock().unwrap() = Some((words, fate));
    }

    /// Lets a request arrive that is [late](Fate::Late).
    pub(crate) fn lets_arrive(&self) {
        self.network.arrives.notify_one();
    }

    /// How many have been opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// The turns so far of the connection that was opened first.
    pub(crate) fn turns(&self) -> usize {
        self.connections.lock().unwrap()[0].count.load(Ordering::SeqCst)
    }

    /// What it holds back, of whoever was the last to speak while it stalls.
    pub(crate) fn held(&self) -> Option<Vec<u8>> {
        self.network.held.lock().unwrap().clone()
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
    client: TcpStream,
    server: String,
    network: Arc<Network>,
    turns: Arc<Turns>,
) {
    let mut mood = network.mood.subscribe();
    let stalls = move |mood: Mood| mood.stalls(number);
    if mood.wait_for(|mood| !stalls(*mood)).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(&server).await else { return };
    let (mut client, mut server) = (client.into_split(), server.into_split());
    let (cut, hung_up) = (OnceLock::new(), Notify::new());
    let to_server = |request: &[u8]| {
        turns.client();
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
        if cut.get().is_some() { Passes::Never } else { Passes::Now }
    };
    let requests = async {
        let ended = until(&network, Mood::HalfClosesToServer);
        tokio::select! {
            () = pump(&mut client.0, &mut server.1, &network, stalls, to_server) => {}
            () = ended => {}
        }
        let _ = server.1.shutdown().await;
    };
    let answers = async {
        let ended = until(&network, Mood::HalfClosesToClient);
        tokio::select! {
            () = pump(&mut server.0, &mut client.1, &network, stalls, to_client) => {}
            () = ended => {}
            () = hung_up.notified() => {}
        }
        let _ = client.1.shutdown().await;
    };
    tokio::select! {
        _ = async { tokio::join!(requests, answers) } => {}
        () = until(&network, Mood::Drops) => {}
    }
}

/// What is done with something that was read.
enum Passes {
    Now,
    /// When [`lets_arrive`](Proxy::lets_arrive) says so.
    Later,
    Never,
}

/// Passes everything on in one direction, as long as the mood lets it.
async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    network: &Network,
    stalls: impl Fn(Mood) -> bool,
    passes: impl Fn(&[u8]) -> Passes,
) {
    let mut bytes = [0; 16 * 1024];
    let mut mood = network.mood.subscribe();
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        match passes(&bytes[..read]) {
            Passes::Now => {}
            Passes::Later => network.arrives.notified().await,
            Passes::Never => return,
        }
        let goes_on = |mood: &Mood| {
            let is_held = stalls(*mood);
            is_held.then(|| *network.held.lock().unwrap() = Some(bytes[..read].to_owned()));
            !is_held
        };
        if mood.wait_for(goes_on).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Comes back when it is in that mood.
async fn until(network: &Network, wanted: Mood) {
    let _ = network.mood.subscribe().wait_for(|mood| *mood == wanted).await;
}
