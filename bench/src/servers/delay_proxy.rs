//! A proxy on the loopback that delivers every byte with a delay, in each direction. It uses threads, because the
//! timers of a tokio runtime count in milliseconds and the delay within a rack is less than one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Starts a proxy for the port `server` and returns the port of the proxy. It runs until the process ends.
///
/// # Errors
/// Fails if no port is free.
pub(super) fn start(server: u16, one_way: Duration) -> std::io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // If the server cannot be reached, the client sees a closed connection.
            let _ = forward_connection(client, server, one_way);
        }
    });
    Ok(port)
}

fn forward_connection(client: TcpStream, server: u16, one_way: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    // Nagle's algorithm would add a further delay.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward_delayed(client.try_clone()?, server.try_clone()?, one_way);
    forward_delayed(server, client, one_way);
    Ok(())
}

/// One thread reads bytes and sets the time of their delivery; another delivers them at that time. So bytes that are being
/// delayed do not delay later ones further.
fn forward_delayed(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (sent, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if sent.send((Instant::now() + one_way, bytes[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in due {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_twice_the_delay() {
        let echo = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = echo.local_addr().unwrap().port();
        thread::spawn(move || {
            let (stream, _) = echo.accept().unwrap();
            std::io::copy(&mut &stream, &mut &stream).unwrap();
        });
        let one_way = Duration::from_millis(3);
        let mut client =
            TcpStream::connect(("127.0.0.1", start(server, one_way).unwrap())).unwrap();
        let started = Instant::now();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(started.elapsed() >= 2 * one_way);
    }
}
