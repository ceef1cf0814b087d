//! What is done to processes, their networks and their server, at random.

use super::arena::Arena;
use super::check::Disturbance;
use super::clock;
use super::ledger::Entries;
use super::proxy::{Flow, Proxy, Reset};
use super::random::Random;
use super::setup::Place;
use super::slot::Slot;
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Does something every now and then until the time is over; all of it has ended when this returns.
pub async fn disturb(arena: Arc<Arena>, mut random: Random, length: Duration) {
    let begun = Instant::now();
    let mut restarts = restarts(&arena, &mut random, length);
    let mut under_way = JoinSet::new();
    while begun.elapsed() < length && !arena.is_interrupted() {
        sleep(Duration::from_millis(random.between(100, 700))).await;
        while under_way.try_join_next().is_some() {}
        if let Some((_, gracefully)) = restarts.pop_if(|(at, _)| begun.elapsed() > *at) {
            arena.restart(gracefully).await;
            continue;
        }
        let slot = arena.slots[random.below(arena.slots.len() as u64) as usize].clone();
        if slot.is_disturbed.swap(true, Ordering::SeqCst) {
            continue;
        }
        let (arena, random) = (arena.clone(), Random::new(random.number()));
        under_way.spawn(async move {
            one(&arena, &slot, random).await;
            slot.is_disturbed.store(false, Ordering::SeqCst);
        });
    }
    while under_way.join_next().await.is_some() {}
}

/// When the server is restarted, the latest first: once in good order, once by a kill.
fn restarts(arena: &Arena, random: &mut Random, length: Duration) -> Vec<(Duration, bool)> {
    if arena.server.is_none() || length < Duration::from_secs(20) {
        return Vec::new();
    }
    let first_is_graceful = random.chance(50);
    let mut at = |from, to| length.mul_f64(random.between(from, to) as f64 / 100.0);
    vec![(at(60, 75), !first_is_graceful), (at(25, 40), first_is_graceful)]
}

/// Does one thing to a slot.
async fn one(arena: &Arena, slot: &Slot, mut random: Random) {
    let kind = random.below(100);
    match &slot.proxy {
        _ if arena.setup.place == Place::Memory => stop(arena, slot, &mut random, false).await,
        Some(proxy) if kind < 50 => cut(arena, slot, proxy, &mut random).await,
        _ if kind < 80 => kill(arena, slot),
        _ => stop(arena, slot, &mut random, true).await,
    }
}

fn kill(arena: &Arena, slot: &Slot) {
    slot.signal(Signal::SIGKILL, |worker| {
        let mut entries = arena.ledger.entries();
        entries.counts.kills += 1;
        if let Some(process) = entries.processes.get_mut(&worker) {
            process.killed = process.killed.or(Some(clock::now()));
        }
    });
}

async fn stop(arena: &Arena, slot: &Slot, random: &mut Random, may_kill: bool) {
    let Some(stopped) = slot.signal(Signal::SIGSTOP, |_| arena.ledger.entries().counts.stops += 1)
    else {
        return;
    };
    let is_long = random.chance(30);
    let millis = if is_long { random.between(1000, 6000) } else { random.between(5, 300) };
    arena.pause(Duration::from_millis(millis)).await;
    if may_kill && random.chance(20) {
        return kill(arena, slot);
    }
    // Another one may be there now: then that one goes on, which it does anyway.
    slot.signal(Signal::SIGCONT, |worker| {
        let (slot, since) = (Some(slot.number), clock::now());
        if worker == stopped {
            arena.ledger.disturb(Disturbance { slot, since, until: since, severs: false });
        }
    });
}

async fn cut(arena: &Arena, slot: &Slot, proxy: &Proxy, random: &mut Random) {
    let count = |count: &dyn Fn(&mut Entries)| count(&mut arena.ledger.entries());
    let since = clock::now();
    let span = Duration::from_millis(match random.chance(30) {
        true => random.between(1000, 5000),
        false => random.between(5, 500),
    });
    let severs = match random.below(10) {
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
            proxy.set(Flow::Stall);
            arena.pause(span).await;
            let severs = random.chance(30);
            if severs {
                proxy.reset(Reset::Both).await;
            }
            proxy.set(Flow::Pass);
            severs
        }
        8 => {
            count(&|entries| entries.counts.lost_answers += 1);
            proxy.set(Flow::LoseAnswers);
            arena.pause(span).await;
            proxy.reset(Reset::Both).await;
            proxy.set(Flow::Pass);
            true
        }
        _ => {
            count(&|entries| entries.counts.splits += 1);
            proxy.set(Flow::Split);
            arena.pause(span).await;
            proxy.set(Flow::Pass);
            // Everything arrives: nothing may be lost by that.
            return;
        }
    };
    let (slot, until) = (Some(slot.number), clock::now());
    arena.ledger.disturb(Disturbance { slot, since, until, severs });
}
