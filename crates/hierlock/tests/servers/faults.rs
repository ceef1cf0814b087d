//! Every network fault, at every lock operation, on every server. Three rules must hold: a client with a guard holds the
//! lock; no lock and no session is left on the server; and every operation ends.

use crate::support::{
    Database, OutsideSession, Setup, TEST_LIMIT, connect, in_order, on_each_engine, target,
};
use hierlock::{Guard, Hierlock, Target};
use hierlock_conformance::{is_free, until_free};
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use std::time::{Duration, Instant};

/// No keep-alive runs, so the fault hits the operation.
const URL_PARAMETERS: &str = "keep_alive_ms=3600000&silence_ms=500&reconnect_ms=10000";

on_each_engine!(no_fault_at_any_operation_leaves_a_lock);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Acquire,
    Try,
    Extend,
    Release,
}

const OPERATIONS: [Operation; 4] =
    [Operation::Acquire, Operation::Try, Operation::Extend, Operation::Release];

async fn no_fault_at_any_operation_leaves_a_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let begun = Instant::now();
    let others = database.connect().await;
    let mut outside = database.outside().await;
    drop(others.try_acquire(target("u1")).await.unwrap());
    until_free(&others, "u1").await;
    let before = outside.sessions().await.len();
    for fault in Fault::ALL {
        for operation in OPERATIONS {
            // The fault hits the first or the second request: preparing and running a statement are two.
            for skip in [0, 1] {
                let name = format!("{fault:?} at {operation:?}, after {skip} requests");
                let case = Case { name, database: &database, others: &others };
                let run = case.run(fault, operation, skip);
                let proxy = tokio::time::timeout(TEST_LIMIT, run).await;
                let proxy =
                    proxy.unwrap_or_else(|_| panic!("{}: did not end within the limit", case.name));
                // The open proxy still hides the end of the client from the server.
                case.check_nothing_is_left(&mut outside, before).await;
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
    /// Runs the case and returns the proxy.
    async fn run(&self, fault: Fault, operation: Operation, skip: usize) -> Proxy {
        let name = &self.name;
        let proxy = Proxy::start(&self.database.url).await;
        if fault == Fault::SplitBytes {
            // The fault also hits connecting.
            proxy.set_mode(NetworkMode::SplitsBytes);
        }
        let locks = connect(&format!("{}&{URL_PARAMETERS}", proxy.url)).await;
        let (first, second) = in_order(&locks);
        let inject = || proxy.inject(FaultTrigger::After(skip), fault);
        match operation {
            Operation::Acquire => {
                inject();
                // The acquire holds nothing that could be lost, so it continues after the fault.
                let guard = locks.acquire(first.clone()).await;
                let guard = guard.unwrap_or_else(|error| panic!("{name}: {error}"));
                self.check_held_and_release(guard, &[first]).await;
            }
            Operation::Try => {
                inject();
                match locks.try_acquire(first.clone()).await {
                    Ok(Some(guard)) => self.check_held_and_release(guard, &[first]).await,
                    Ok(None) => panic!("{name}: blocked by its own client"),
                    Err(error) => assert!(!error.is_usage() && !error.is_lost(), "{name}: {error}"),
                }
            }
            Operation::Extend => {
                // A spare session is open, because a session that is cut while it is being opened cannot be ended: its
                // process id is not known yet.
                let spare = locks.acquire(second.clone()).await.unwrap();
                let mut guard = locks.acquire(first.clone()).await.unwrap();
                spare.release().await.unwrap();
                inject();
                match guard.extend([second.clone()]).await {
                    Ok(()) => self.check_held_and_release(guard, &[first, second]).await,
                    Err(error) if error.is_lost() => {
                        assert!(guard.lost().await.is_lost(), "{name}");
                    }
                    Err(error) => {
                        assert!(!error.is_usage(), "{name}: {error}");
                        self.check_held_and_release(guard, &[first]).await;
                    }
                }
            }
            Operation::Release => {
                let guard = locks.acquire(first).await.unwrap();
                inject();
                if let Err(error) = guard.release().await {
                    assert!(error.is_lost(), "{name}: {error}");
                }
            }
        }
        let closed = locks.close(TEST_LIMIT).await;
        closed.unwrap_or_else(|error| panic!("{name}: {error}"));
        proxy
    }

    /// Checks that other clients cannot lock the nodes of the guard, and releases it. The server may have ended the session
    /// after the grant; then the release must report the loss.
    async fn check_held_and_release(&self, guard: Guard, targets: &[Target]) {
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

    /// Checks on another connection that no lock and no session is left on the server.
    async fn check_nothing_is_left(&self, outside: &mut OutsideSession, before: usize) {
        until_free(self.others, "u1").await;
        until_free(self.others, "u2").await;
        let begun = Instant::now();
        while outside.sessions().await.len() > before {
            assert!(begun.elapsed() < TEST_LIMIT, "{}: a session is left", self.name);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
