//! A proxy that replaces words in the statements of clients, so that a server appears not to do what it is asked for.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

/// Words and their replacements, in order. A replacement is padded with spaces, and must not be longer than its word.
type Changes = Arc<Vec<(String, &'static str)>>;

/// Starts a proxy in front of the server of `url`, which must have parameters; returns the URL of the proxy.
pub(crate) fn rewrite(
    url: &str,
    changes: impl IntoIterator<Item = (String, &'static str)>,
) -> String {
    let changes: Changes = Arc::new(changes.into_iter().collect());
    let (scheme, rest) = url.split_once("://").unwrap();
    let (account, rest) = rest.split_once('@').unwrap();
    let (server, place) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = server.to_owned();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let changes = changes.clone();
            std::thread::spawn(move || forward(client, server, &changes));
            std::thread::spawn(move || forward(from, to, &Changes::default()));
        }
    });
    // Encrypted statements could not be changed.
    let plain = if scheme == "postgres" { "sslmode=disable" } else { "ssl-mode=disabled" };
    format!("{scheme}://{account}@127.0.0.1:{port}/{place}&{plain}")
}

/// Forwards bytes until one side closes. Assumes that each statement arrives in one read.
fn forward(mut from: TcpStream, mut to: TcpStream, changes: &Changes) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        for (word, replacement) in changes.iter() {
            replace(&mut bytes[..count], word.as_bytes(), replacement.as_bytes());
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn replace(bytes: &mut [u8], word: &[u8], replacement: &[u8]) {
    for at in 0..(bytes.len() + 1).saturating_sub(word.len()) {
        let place = &mut bytes[at..at + word.len()];
        if place == word {
            place.fill(b' ');
            place[..replacement.len()].copy_from_slice(replacement);
        }
    }
}
