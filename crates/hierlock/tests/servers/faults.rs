//! Every fault of a network, at every operation on a lock, on every server. Whatever happens, three things hold: who
//! is told that it holds does; nothing stays locked on the server, and no session of ours; and nobody waits
//! for ever.

use crate::support::{Database, GENEROUS, Outside, Setup, in_order, on_each_engine, target};
use hierlock::{Guard, Hierlock, Target};
use hierlock_conformance::{is_free, until_free};
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use std::time::{Duration, Instant};

/// Nobody asks by the way, so the fault meets the operation.
const QUICK: &str = "keep_alive_ms=3600000&silence_ms=500&reconnect_ms=10000";

on_each_engine!(every_fault_at_every_operation);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Acquire,
    Try,
    Extend,
    Release,
}

const OPERATIONS: [Operation; 4] =
    [Operation::Acquire, Operation::Try, Operation::Extend, Operation::Release];

async fn every_fault_at_every_operation(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let begun = Instant::now();
    let others = database.connect().await;
    let mut outside = database.outside().await;
    drop(others.try_acquire(target("u1")).await.unwrap());
    until_free(&others, "u1").await;
    let before = outside.sessions().await.len();
    for fault in Fault::ALL {
        for operation in OPERATIONS {
            // The first request of an operation, and the next: a statement that is prepared is two.
            for skip in [0, 1] {
                let case = format!("{fault:?} at {operation:?}, after {skip}");
                let case = Case { name: case, database: &database, others: &others };
                let tried = case.run(fault, operation, skip);
                let proxy = tokio::time::timeout(GENEROUS, tried).await;
                let proxy = proxy.unwrap_or_else(|_| panic!("{}: it does not end", case.name));
                // While the network still hides the client's end from the server.
                case.nothing_is_left(&mut outside, before).await;
                drop(proxy);
            }
        }
    }
    println!("{setup:?}: {:?}", begun.elapsed());
}

struct Case<'a> {
    name: String,
    database: &'a Database,
    others: &'a Hierlock,
}

impl Case<'_> {
    /// Returns the network, through which all is over.
    async fn run(&self, fault: Fault, operation: Operation, skip: usize) -> Proxy {
        let name = &self.name;
        let proxy = Proxy::before(&self.database.url).await;
        if fault == Fault::SplitBytes {
            // Connecting, too.
            proxy.set_mode(NetworkMode::SplitsBytes);
        }
        let locks = Hierlock::connect(&format!("{}&{QUICK}", proxy.url)).await.unwrap();
        let (first, second) = in_order(&locks);
        let strike = || proxy.inject(FaultTrigger::After(skip), fault);
        match operation {
            Operation::Acquire => {
                strike();
                // It holds nothing that could be lost, so it goes on.
                let guard = locks.acquire(first.clone()).await;
                let guard = guard.unwrap_or_else(|error| panic!("{name}: {error}"));
                self.held_then_released(guard, &[first]).await;
            }
            Operation::Try => {
                strike();
                match locks.try_acquire(first.clone()).await {
                    Ok(Some(guard)) => self.held_then_released(guard, &[first]).await,
                    Ok(None) => panic!("{name}: in the way of itself"),
                    Err(error) => assert!(!error.is_usage() && !error.is_lost(), "{name}: {error}"),
                }
            }
            Operation::Extend => {
                // With a session to spare: one that is cut while it is being opened is known to nobody, so nobody can end it
                // before the server notices.
                let spare = locks.acquire(second.clone()).await.unwrap();
                let mut guard = locks.acquire(first.clone()).await.unwrap();
                spare.release().await.unwrap();
                strike();
                match guard.extend([second.clone()]).await {
                    Ok(()) => self.held_then_released(guard, &[first, second]).await,
                    Err(error) if error.is_lost() => {
                        assert!(guard.lost().await.is_lost(), "{name}");
                    }
                    Err(error) => {
                        assert!(!error.is_usage(), "{name}: {error}");
                        self.held_then_released(guard, &[first]).await;
                    }
                }
            }
            Operation::Release => {
                let guard = locks.acquire(first).await.unwrap();
                strike();
                if let Err(error) = guard.release().await {
                    assert!(error.is_lost(), "{name}: {error}");
                }
            }
        }
        let closed = locks.close(GENEROUS).await;
        closed.unwrap_or_else(|error| panic!("{name}: {error}"));
        proxy
    }

    /// What a guard is said to hold nobody else gets. If the server has ended its session since, which it may do after any
    /// grant, the guard says so when it is asked.
    async fn held_then_released(&self, guard: Guard, targets: &[Target]) {
        let name = &self.name;
        let mut are_free = Vec::new();
        for target in targets {
            are_free.push(is_free(self.others, &target.to_string()).await);
        }
        match guard.release().await {
            Ok(()) => {
                assert!(!are_free.contains(&true), "{name}: {targets:?} are free: {are_free:?}")
            }
            Err(error) => assert!(error.is_lost(), "{name}: {error}"),
        }
    }

    /// Read from the server, on another connection.
    async fn nothing_is_left(&self, outside: &mut Outside, before: usize) {
        until_free(self.others, "u1").await;
        until_free(self.others, "u2").await;
        let begun = Instant::now();
        while outside.sessions().await.len() > before {
            assert!(begun.elapsed() < GENEROUS, "{}: a session is left", self.name);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
