//! The tokens of leases and locks only increase, even when the server restarts after an orderly shutdown or a kill. A
//! reused token would let an old holder write.

use crate::servers::OutsideSession;
use crate::support::eventually;
use hierlock::database::Database;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::{Hierlock, Target};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

on_each_server!(tokens_increase_across_restarts);

async fn tokens_increase_across_restarts(engine: Engine) {
    // Commits must survive the kill, as they do by default on a server.
    let (durable, locks, shutdown): (&[_], &[_], _) = match engine {
        Engine::Postgres => (
            // Otherwise data that was not flushed might survive by chance.
            &["-c", "synchronous_commit=on", "-c", "wal_writer_delay=10s"],
            &["strategy=on-demand", "strategy=advisory&table=advisory"],
            Signal::SIGINT,
        ),
        Engine::Mysql | Engine::Mariadb => {
            (&["--innodb-flush-log-at-trx-commit=1"], &["strategy=on-demand"], Signal::SIGTERM)
        }
    };
    let Some(mut server) = Sandbox::for_tests_with(engine, durable) else { return };
    let mut last_lease = 0;
    let mut last_locks = vec![0; locks.len()];
    for end in [Some(shutdown), Some(Signal::SIGKILL), None] {
        // Locks first and last, so that no other operation changes the counters right before or after a restart.
        lock_all(&server, locks, &mut last_locks).await;
        last_lease = acquire_leases(server.url(), last_lease).await;
        lock_all(&server, locks, &mut last_locks).await;
        println!("{engine}: leases {last_lease}, locks {last_locks:?}, then {end:?}");
        let Some(end) = end else { return };
        wait_until_a_second_old(&server).await;
        let pid = i32::try_from(server.pid().unwrap()).unwrap();
        kill(Pid::from_raw(pid), end).unwrap();
        server.restart().unwrap();
    }
}

async fn lock_all(server: &Sandbox, locks: &[&str], last: &mut [u64]) {
    for (last, how) in last.iter_mut().zip(locks) {
        *last = acquire_locks(&format!("{}?{how}", server.url()), *last).await;
    }
}

/// Waits until the server runs for a second: tokens of MySQL and MariaDB count from the second of the server's start.
async fn wait_until_a_second_old(server: &Sandbox) {
    if server.engine() != Engine::Postgres {
        let mut outside = OutsideSession::connect(server.url()).await;
        let age = "SHOW GLOBAL STATUS LIKE 'Uptime'";
        eventually("the server runs for a second", async || outside.number(age).await > 1).await;
    }
}

/// Acquires and ends some leases, and returns the last token. Each token must be greater than the one before. No lease is
/// left, so only the server's counter prevents a reuse.
async fn acquire_leases(url: &str, mut last: i64) -> i64 {
    let leases = Leases::new(Database::connect(url).await.unwrap());
    leases.provision().await.unwrap();
    for end in ["released", "forced", "swept"] {
        let request = LeaseRequest::new(Target::user("u").unwrap(), "ada");
        let request = match end {
            "swept" => request.ttl(std::time::Duration::from_millis(1)),
            _ => request,
        };
        let token = leases.acquire(request).await.unwrap().token();
        assert!(token > last, "{token} after {last}");
        last = token;
        match end {
            "released" => assert!(leases.release(token).await.unwrap()),
            "forced" => {
                leases.force_release(token, "root", "test").await.unwrap().unwrap();
            }
            _ => {
                let swept = async || leases.sweep().await.unwrap() == 1;
                eventually("the expired lease is swept", swept).await;
            }
        }
    }
    last
}

async fn acquire_locks(url: &str, mut last: u64) -> u64 {
    let locks = Hierlock::connect(url).await.unwrap();
    for _ in 0..20 {
        let guard = locks.acquire(Target::user("u").unwrap()).await.unwrap();
        let token = guard.token().await.unwrap();
        assert!(token > last, "{token} after {last}: {url}");
        last = token;
        guard.release().await.unwrap();
    }
    last
}
