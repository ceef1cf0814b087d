//! Injects faults into processes, their connections and their server at random.

use super::check::Fault;
use super::clock;
use super::driver_log::LogEntries;
use super::proxy::{Flow, Proxy, Reset};
use super::random::Random;
use super::setup::SoakBackend;
use super::setup_run::SetupRun;
use super::slot::WorkerSlot;
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Injects faults for `length`. All of them have ended when this returns.
pub async fn inject(run: Arc<SetupRun>, mut random: Random, length: Duration) {
    let started = Instant::now();
    let mut restarts = plan_restarts(&run, &mut random, length);
    let mut active = JoinSet::new();
    while started.elapsed() < length && !run.is_interrupted() {
        sleep(Duration::from_millis(random.between(100, 700))).await;
        while active.try_join_next().is_some() {}
        if let Some((_, gracefully)) = restarts.pop_if(|(at, _)| started.elapsed() > *at) {
            run.restart(gracefully).await;
            continue;
        }
        let slot = run.slots[random.below(run.slots.len() as u64) as usize].clone();
        if slot.is_disturbed.swap(true, Ordering::SeqCst) {
            continue;
        }
        let (run, random) = (run.clone(), Random::new(random.next_u64()));
        active.spawn(async move {
            inject_one(&run, &slot, random).await;
            slot.is_disturbed.store(false, Ordering::SeqCst);
        });
    }
    while active.join_next().await.is_some() {}
}

/// Returns the times of the restarts, the latest first: once by an orderly shutdown, once by SIGKILL.
fn plan_restarts(run: &SetupRun, random: &mut Random, length: Duration) -> Vec<(Duration, bool)> {
    if run.server.is_none() || length < Duration::from_secs(20) {
        return Vec::new();
    }
    let first_is_graceful = random.chance(50);
    let mut at = |from, to| length.mul_f64(random.between(from, to) as f64 / 100.0);
    vec![(at(60, 75), !first_is_graceful), (at(25, 40), first_is_graceful)]
}

/// Injects one fault into a slot.
async fn inject_one(run: &SetupRun, slot: &WorkerSlot, mut random: Random) {
    let kind = random.below(100);
    match &slot.proxy {
        _ if run.setup.backend == SoakBackend::Memory => stop(run, slot, &mut random, false).await,
        Some(proxy) if kind < 50 => cut(run, slot, proxy, &mut random).await,
        _ if kind < 80 => kill(run, slot),
        _ => stop(run, slot, &mut random, true).await,
    }
}

fn kill(run: &SetupRun, slot: &WorkerSlot) {
    slot.signal(Signal::SIGKILL, |worker| {
        let mut entries = run.log.entries();
        entries.counts.kills += 1;
        if let Some(process) = entries.processes.get_mut(&worker) {
            process.killed = process.killed.or(Some(clock::now()));
        }
    });
}

async fn stop(run: &SetupRun, slot: &WorkerSlot, random: &mut Random, may_kill: bool) {
    let Some(stopped) = slot.signal(Signal::SIGSTOP, |_| run.log.entries().counts.stops += 1)
    else {
        return;
    };
    let is_long = random.chance(30);
    let millis = if is_long { random.between(1000, 6000) } else { random.between(5, 300) };
    run.pause(Duration::from_millis(millis)).await;
    if may_kill && random.chance(20) {
        return kill(run, slot);
    }
    // Another process may run in the slot by now. SIGCONT has no effect on it.
    slot.signal(Signal::SIGCONT, |worker| {
        let (slot, since) = (Some(slot.number), clock::now());
        if worker == stopped {
            run.log.add_fault(Fault { slot, since, until: since, closes_connections: false });
        }
    });
}

async fn cut(run: &SetupRun, slot: &WorkerSlot, proxy: &Proxy, random: &mut Random) {
    let count = |count: &dyn Fn(&mut LogEntries)| count(&mut run.log.entries());
    let since = clock::now();
    let is_long = random.chance(30);
    let millis = if is_long { random.between(1000, 5000) } else { random.between(5, 500) };
    let duration = Duration::from_millis(millis);
    let closes_connections = match random.below(10) {
        kind @ 0..=5 => {
            count(&|entries| entries.counts.resets += 1);
            let reset = match kind {
                0..=1 => Reset::Both,
                2..=3 => Reset::Client,
                _ => Reset::Server,
            };
            proxy.reset(reset).await;
            true
        }
        6..=7 => {
            count(&|entries| entries.counts.stalls += 1);
            proxy.set_flow(Flow::Stall);
            run.pause(duration).await;
            let closes_connections = random.chance(30);
            if closes_connections {
                proxy.reset(Reset::Both).await;
            }
            proxy.set_flow(Flow::Pass);
            closes_connections
        }
        8 => {
            count(&|entries| entries.counts.lost_responses += 1);
            proxy.set_flow(Flow::LoseResponses);
            run.pause(duration).await;
            proxy.reset(Reset::Both).await;
            proxy.set_flow(Flow::Pass);
            true
        }
        _ => {
            count(&|entries| entries.counts.splits += 1);
            proxy.set_flow(Flow::Split);
            run.pause(duration).await;
            proxy.set_flow(Flow::Pass);
            // All bytes arrive, so no lock may be lost, and this is not recorded as a fault.
            return;
        }
    };
    let (slot, until) = (Some(slot.number), clock::now());
    run.log.add_fault(Fault { slot, since, until, closes_connections });
}
