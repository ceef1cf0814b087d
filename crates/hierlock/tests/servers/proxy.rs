//! A network between a client and a server: it counts turns, and it can fail in each of the ways in
//! which networks do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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
    mood: watch::Sender<Mood>,
    connections: Arc<Mutex<Vec<Arc<Turns>>>>,
    held: Held,
    accepts: AbortHandle,
}

type Held = Arc<Mutex<Option<Vec<u8>>>>;

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
        let (known, held) = (connections.clone(), Held::default());
        let holds = held.clone();
        let (mood, now) = watch::channel(Mood::Passes);
        let accepts = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let turns = Arc::<Turns>::default();
                let number = {
                    let mut known = known.lock().unwrap();
                    known.push(turns.clone());
                    known.len() - 1
                };
                let (server, now, holds) = (server.clone(), now.clone(), holds.clone());
                all.spawn(join(number, client, server, now, turns, holds));
            }
        });
        Self { url, mood, connections, held, accepts: accepts.abort_handle() }
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.held.lock().unwrap() = None;
        self.mood.send_replace(mood);
    }

    /// Nothing is forwarded any more on what is open now.
    pub(crate) fn forgets(&self) {
        let open = self.connections.lock().unwrap().len();
        self.becomes(Mood::Forgets(open));
    }

    /// The turns so far of the connection that was opened first.
    pub(crate) fn turns(&self) -> usize {
        self.connections.lock().unwrap()[0].count.load(Ordering::SeqCst)
    }

    /// What it holds back, of whoever was the last to speak while it stalls.
    pub(crate) fn held(&self) -> Option<Vec<u8>> {
        self.held.lock().unwrap().clone()
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
    mut mood: watch::Receiver<Mood>,
    turns: Arc<Turns>,
    held: Held,
) {
    let stalls = move |mood: Mood| mood.stalls(number);
    if mood.wait_for(|mood| !stalls(*mood)).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(&server).await else { return };
    let (mut client, mut server) = (client.into_split(), server.into_split());
    let dropped = mood.clone();
    let holds = |said: &[u8]| *held.lock().unwrap() = Some(said.to_owned());
    let pumps = async {
        tokio::join!(
            pump(
                &mut client.0,
                &mut server.1,
                mood.clone(),
                stalls,
                Mood::HalfClosesToServer,
                || {
                    turns.client();
                },
                holds,
            ),
            pump(
                &mut server.0,
                &mut client.1,
                mood.clone(),
                stalls,
                Mood::HalfClosesToClient,
                || {
                    turns.server();
                },
                holds,
            ),
        )
    };
    tokio::select! {
        _ = pumps => {}
        () = until(dropped, Mood::Drops) => {}
    }
}

/// Passes everything on in one direction, as long as the mood lets it.
async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut mood: watch::Receiver<Mood>,
    stalls: impl Fn(Mood) -> bool,
    ends: Mood,
    count: impl Fn(),
    hold: impl Fn(&[u8]),
) {
    let mut bytes = [0; 16 * 1024];
    let ended = mood.clone();
    let passing = async {
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            count();
            let passes = |mood: &Mood| {
                let is_held = stalls(*mood);
                is_held.then(|| hold(&bytes[..read]));
                !is_held
            };
            if mood.wait_for(passes).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = passing => {}
        () = until(ended, ends) => {}
    }
    let _ = to.shutdown().await;
}

/// Comes back when it is in that mood, or there is no proxy any more.
async fn until(mut mood: watch::Receiver<Mood>, wanted: Mood) {
    let _ = mood.wait_for(|mood| *mood == wanted).await;
}
