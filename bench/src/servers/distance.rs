//! A network of some length, on the loopback: what is sent arrives so much later, each way. Threads, not
//! tasks: a runtime's clock counts milliseconds, and a rack is less than one across.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Opens the far end of a network to that port; it ends with the process. Its near end is another port,
/// which comes back.
///
/// # Errors
/// No port is free.
pub(super) fn away(server: u16, one_way: Duration) -> std::io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Whoever is not connected sees it.
            let _ = join(client, server, one_way);
        }
    });
    Ok(port)
}

fn join(client: TcpStream, server: u16, one_way: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    // What is sent is sent at once: the length of the network is all that is added.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    carry(client.try_clone()?, server.try_clone()?, one_way);
    carry(server, client, one_way);
    Ok(())
}

/// One thread takes what comes and notes when it is due, another delivers it then: so what is under way
/// does not hold up what comes after.
fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
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
    fn what_is_sent_comes_back_two_ways_later() {
        let echo = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = echo.local_addr().unwrap().port();
        thread::spawn(move || {
            let (stream, _) = echo.accept().unwrap();
            std::io::copy(&mut &stream, &mut &stream).unwrap();
        });
        let one_way = Duration::from_millis(3);
        let mut client = TcpStream::connect(("127.0.0.1", away(server, one_way).unwrap())).unwrap();
        let begun = Instant::now();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(begun.elapsed() >= 2 * one_way);
    }
}
