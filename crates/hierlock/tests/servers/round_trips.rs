//! How often a client and the server take turns, counted by a proxy between them.

use crate::support::Database;
use hierlock::Hierlock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// Passes everything on, and counts.
struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<Arc<Turns>>>>,
}

impl Proxy {
    async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections: Arc<Mutex<Vec<Arc<Turns>>>> = Arc::default();
        let known = connections.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let turns = Arc::<Turns>::default();
                known.lock().unwrap().push(turns.clone());
                let server = TcpStream::connect(&server).await.unwrap();
                let (client, server) = (client.into_split(), server.into_split());
                let counted = turns.clone();
                tokio::spawn(pump(client.0, server.1, move || counted.client()));
                tokio::spawn(pump(server.0, client.1, move || turns.server()));
            }
        });
        Self { port, connections }
    }

    /// The turns so far of the connection that was opened first.
    fn turns(&self) -> usize {
        self.connections.lock().unwrap()[0].count.load(Ordering::SeqCst)
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    count: impl Fn(),
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        count();
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

/// Two: one to take, one to give back, however many nodes there are.
#[tokio::test]
async fn a_cycle_is_two_round_trips() {
    let Some(database) = Database::new().await else { return };
    let (login, rest) = database.url.rsplit_once('@').unwrap();
    let (address, name) = rest.split_once('/').unwrap();
    let proxy = Proxy::before(address.to_owned()).await;
    let url = format!("{login}@127.0.0.1:{}/{name}", proxy.port);
    let locks = Hierlock::connect(&url).await.unwrap();
    for resources in [1, 100] {
        let ids: Vec<String> = (0..resources).map(|i| format!("r{i}")).collect();
        let before = proxy.turns();
        let guard = locks.acquire_resources("u1", "a1", &ids).await.unwrap();
        assert_eq!(proxy.turns() - before, 1, "to take {resources}");
        guard.release().await.unwrap();
        assert_eq!(proxy.turns() - before, 2, "a whole cycle of {resources}");
    }
}
