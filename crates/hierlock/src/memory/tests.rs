//! The manager as a whole: memory given back, wide plans, and (with the feature `model`) its
//! interleavings.

use super::manager::{Blocked, IfNotFree, Manager};
use crate::hierarchy::Hierarchy;
use crate::mode::Mode;
use crate::plan::Claim;
use crate::plan::Claims;
use std::sync::Arc;

fn claims(paths: &[&str], mode: Mode) -> Claims {
    paths.iter().map(|path| Claim { target: path.parse().unwrap(), mode }).collect()
}

/// Takes, waiting if need be.
async fn take(manager: &Arc<Manager>, paths: &[&str], mode: Mode) -> super::MemoryHold {
    let moves = manager.moves(claims(paths, mode)).unwrap();
    match manager.take(moves, None, IfNotFree::Wait) {
        Ok(hold) => hold,
        Err(Blocked::Waits(mut waiting)) => {
            waiting.finish().await.expect("ordered acquires do not deadlock");
            waiting.into_hold()
        }
        Err(Blocked::On(_)) => unreachable!("waiting was asked for"),
    }
}

#[cfg(not(feature = "model"))]
mod plain {
    use super::*;
    use crate::memory::{MemoryHold, Waiting};
    use proptest::prelude::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// One thing that can happen to a manager.
    #[derive(Clone, Debug)]
    enum Deed {
        Take(Vec<(usize, Mode)>, IfNotFree),
        Extend(usize, Vec<(usize, Mode)>, IfNotFree),
        Upgrade(usize),
        Poll(usize),
        Drop(usize),
        GiveUp(usize),
    }

    fn if_not_free() -> impl Strategy<Value = IfNotFree> {
        prop::sample::select(vec![IfNotFree::Wait, IfNotFree::BackOut])
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let mode = prop::sample::select(vec![Mode::Shared, Mode::Update, Mode::Exclusive]);
        let wants = prop::collection::vec((0..PATHS.len(), mode), 1..4);
        let deed = prop_oneof![
            4 => (wants.clone(), if_not_free()).prop_map(|(w, wait)| Deed::Take(w, wait)),
            3 => (any::<usize>(), wants, if_not_free()).prop_map(|(i, w, wait)| Deed::Extend(i, w, wait)),
            1 => any::<usize>().prop_map(Deed::Upgrade),
            3 => any::<usize>().prop_map(Deed::Poll),
            3 => any::<usize>().prop_map(Deed::Drop),
            1 => any::<usize>().prop_map(Deed::GiveUp),
        ];
        prop::collection::vec(deed, 1..60)
    }

    const PATHS: [&str; 9] =
        ["u1", "u2", "u1/a1", "u1/a2", "u2/a1", "u1/a1/r1", "u1/a1/r2", "u1/a2/r1", "u2/a1/r1"];

    fn wanted(wants: &[(usize, Mode)]) -> Claims {
        wants
            .iter()
            .map(|(path, mode)| Claim { target: PATHS[*path].parse().unwrap(), mode: *mode })
            .collect()
    }

    /// Someone who holds, waits, or waits to hold more.
    struct Someone {
        hold: Option<MemoryHold>,
        waiting: Option<Waiting>,
    }

    impl Someone {
        /// Polls the wait once, as a runtime would.
        fn poll(&mut self) {
            let Some(waiting) = &mut self.waiting else { return };
            let polled = pin!(waiting.finish()).poll(&mut Context::from_waker(Waker::noop()));
            match (polled, self.hold.take()) {
                (Poll::Pending, hold) => self.hold = hold,
                (Poll::Ready(Ok(())), None) => {
                    self.hold = self.waiting.take().map(Waiting::into_hold);
                }
                (Poll::Ready(Ok(())), Some(mut hold)) => {
                    hold.absorb(self.waiting.take().unwrap());
                    self.hold = Some(hold);
                }
                (Poll::Ready(Err(_)), hold) => {
                    assert!(hold.is_some(), "only an extension is ever the victim");
                    (self.hold, self.waiting) = (hold, None);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// Whatever happens in whatever order, the tables agree with the tickets after each deed,
        /// and nothing is left at the end. No one is stuck: as long as somebody waits, somebody does
        /// not.
        #[test]
        fn the_tables_agree_after_every_deed(deeds in deeds()) {
            let manager = Arc::new(Manager::new(Hierarchy::default()));
            let mut all: Vec<Someone> = vec![];
            for deed in deeds {
                let pick = |i: usize, all: &Vec<Someone>| (!all.is_empty()).then(|| i % all.len());
                match deed {
                    Deed::Take(wants, wait) => match manager.take(manager.moves(wanted(&wants)).unwrap(), None, wait) {
                        Ok(hold) => all.push(Someone { hold: Some(hold), waiting: None }),
                        Err(Blocked::Waits(waiting)) => {
                            all.push(Someone { hold: None, waiting: Some(waiting) });
                        }
                        Err(Blocked::On(_)) => {}
                    },
                    Deed::Extend(i, wants, wait) => if let Some(i) = pick(i, &all) {
                        let Someone { hold, waiting } = &mut all[i];
                        if let (Some(hold), None) = (hold, &waiting)
                            && let Err(Blocked::Waits(more)) = hold.take_more(manager.moves(wanted(&wants)).unwrap(), wait)
                        {
                            *waiting = Some(more);
                        }
                    },
                    Deed::Upgrade(i) => if let Some(i) = pick(i, &all) {
                        let Someone { hold, waiting } = &mut all[i];
                        if let (Some(hold), None) = (hold, &waiting) {
                            let exclusive = |target| Claim { target, mode: Mode::Exclusive };
                            let claims = hold.claims().into_keys().map(exclusive).collect();
                            if let Err(Blocked::Waits(more)) = hold.take_more(manager.moves(claims).unwrap(), IfNotFree::Wait) {
                                *waiting = Some(more);
                            }
                        }
                    },
                    Deed::Poll(i) => if let Some(i) = pick(i, &all) { all[i].poll() },
                    Deed::Drop(i) => if let Some(i) = pick(i, &all) {
                        let Someone { hold, waiting } = all.swap_remove(i);
                        // The future borrows the guard, so it goes first.
                        drop(waiting);
                        drop(hold);
                    },
                    Deed::GiveUp(i) => if let Some(i) = pick(i, &all) {
                        all[i].waiting = None;
                        if all[i].hold.is_none() {
                            all.swap_remove(i);
                        }
                    },
                }
                manager.verify();
            }
            // Let everyone come to an end: whoever does not wait is done. A round may only bring
            // someone from one queue to the next, or tell a victim; a plan has few nodes.
            let mut rounds = 0;
            while !all.is_empty() {
                all.iter_mut().for_each(Someone::poll);
                manager.verify();
                all.retain(|someone| someone.waiting.is_some());
                manager.verify();
                rounds += 1;
                prop_assert!(rounds < 1_000, "all who are left wait for each other");
            }
            prop_assert!(manager.is_empty());
        }
    }

    #[tokio::test]
    async fn memory_is_given_back() {
        let manager = Arc::new(Manager::new(Hierarchy::default()));
        let empty = manager.capacity();
        let mut holds = vec![];
        for i in 0..100_000 {
            let path = format!("u{}/a{}/r{i}", i % 10, i % 100);
            holds.push(take(&manager, &[&path], Mode::Exclusive).await);
        }
        let full = manager.capacity();
        assert!(full > 100_000);
        holds.truncate(1_000);
        assert!(manager.capacity() < full / 8, "most is given back while some is held");
        drop(holds);
        assert!(manager.is_empty());
        assert!(manager.capacity() < empty + 64 * 1024);
    }

    #[tokio::test]
    async fn a_plan_over_many_roots_takes_many_shards() {
        let manager = Arc::new(Manager::new(Hierarchy::default()));
        let paths: Vec<String> = (0..500).map(|i| format!("u{i}/a")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut hold = take(&manager, &paths, Mode::Exclusive).await;
        assert_eq!(hold.modes().len(), 1000);
        assert!(
            hold.take_more(
                manager.moves(claims(&["v1", "v2", "u7"], Mode::Shared)).unwrap(),
                IfNotFree::BackOut
            )
            .is_ok()
        );
        assert_eq!(hold.modes().len(), 1002);
        drop(hold);
        assert!(manager.is_empty());
    }

    /// A future that is leaked with its wait still in a queue must not be granted after its guard
    /// is gone: nobody would ever give that back.
    #[tokio::test]
    async fn a_leaked_extension_ends_with_its_guard() {
        let manager = Arc::new(Manager::new(Hierarchy::default()));
        let other = take(&manager, &["u1"], Mode::Exclusive).await;
        let mut hold = take(&manager, &["u2"], Mode::Exclusive).await;
        match hold.take_more(
            hold.manager().moves(claims(&["u1"], Mode::Exclusive)).unwrap(),
            IfNotFree::Wait,
        ) {
            Err(Blocked::Waits(waiting)) => std::mem::forget(waiting),
            _ => panic!("u1 is held"),
        }
        drop(hold);
        drop(other);
        assert!(manager.is_empty());
    }
}

/// Explored with shuttle: every run is one interleaving of the threads' lock operations.
#[cfg(feature = "model")]
mod model {
    use super::*;
    use shuttle::future::block_on;
    use shuttle::thread;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
    use std::task::Poll;

    const RUNS: usize = 2_000;

    /// Under random schedules, and under those with few preemptions at the worst places.
    fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
        shuttle::check_random(test.clone(), RUNS);
        shuttle::check_pct(test, RUNS, 3);
    }

    fn manager() -> Arc<Manager> {
        Arc::new(Manager::new(Hierarchy::default()))
    }

    fn alone(inside: &AtomicI32) {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
        thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
    }

    #[test]
    fn holders_exclude_each_other_and_every_waiter_is_woken() {
        explore(|| {
            let (manager, inside) = (manager(), Arc::new(AtomicI32::new(0)));
            let threads: Vec<_> = [["u1/a/r", "u2"], ["u2/a", "u1"], ["u1/a", "u2/b"]]
                .into_iter()
                .map(|paths| {
                    let (manager, inside) = (manager.clone(), inside.clone());
                    // The pairs all meet somewhere.
                    thread::spawn(move || {
                        block_on(async {
                            let hold = take(&manager, &paths, Mode::Exclusive).await;
                            let meets = take(&manager, &["z/z/z"], Mode::Exclusive);
                            let meets = meets.await;
                            alone(&inside);
                            drop((meets, hold));
                        });
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(manager.is_empty());
        });
    }

    #[test]
    fn a_cancelled_wait_leaves_nothing() {
        explore(|| {
            let manager = manager();
            let holder = {
                let manager = manager.clone();
                thread::spawn(move || {
                    block_on(async { drop(take(&manager, &["u1/a1"], Mode::Exclusive).await) });
                })
            };
            let canceller = {
                let manager = manager.clone();
                thread::spawn(move || {
                    block_on(async {
                        // Polled at most twice, then dropped: waiting, granted, or done.
                        let mut take = pin!(take(&manager, &["u1/a1/r1", "u2"], Mode::Exclusive));
                        let mut polls = 0;
                        poll_fn(|context| {
                            polls += 1;
                            match take.as_mut().poll(context) {
                                Poll::Ready(hold) => Poll::Ready(Some(hold)),
                                Poll::Pending if polls == 2 => Poll::Ready(None),
                                Poll::Pending => {
                                    context.waker().wake_by_ref();
                                    Poll::Pending
                                }
                            }
                        })
                        .await;
                    });
                })
            };
            block_on(async { drop(take(&manager, &["u1"], Mode::Shared).await) });
            holder.join().unwrap();
            canceller.join().unwrap();
            assert!(manager.is_empty());
        });
    }

    /// Two guards that extend crosswise: one victim, and the other goes on.
    #[test]
    fn a_circle_has_one_victim_and_the_other_goes_on() {
        explore(|| {
            let (manager, victims) = (manager(), Arc::new(AtomicUsize::new(0)));
            let first = block_on(take(&manager, &["u1"], Mode::Exclusive));
            let second = block_on(take(&manager, &["u2"], Mode::Exclusive));
            let cross = [(first, "u2"), (second, "u1")].map(|(mut hold, path)| {
                let victims = victims.clone();
                thread::spawn(move || {
                    block_on(async {
                        if let Err(Blocked::Waits(mut waiting)) = hold.take_more(
                            hold.manager().moves(claims(&[path], Mode::Exclusive)).unwrap(),
                            IfNotFree::Wait,
                        ) && waiting.finish().await.is_err()
                        {
                            victims.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                })
            });
            cross.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(victims.load(Ordering::SeqCst), 1);
            assert!(manager.is_empty());
        });
    }

    /// The acquire has u1 and waits for u2; the extension has u3 and waits for u1; then u2 is given
    /// back, and the acquire closes the circle by going on to u3. It must notice, and must not be the
    /// victim.
    #[test]
    fn an_acquire_that_closes_a_circle_is_not_the_victim() {
        explore(|| {
            let manager = manager();
            let between = block_on(take(&manager, &["u2"], Mode::Exclusive));
            let mut hold = block_on(take(&manager, &["u3"], Mode::Exclusive));
            let extends = thread::spawn(move || {
                block_on(async {
                    if let Err(Blocked::Waits(mut waiting)) = hold.take_more(
                        hold.manager().moves(claims(&["u1"], Mode::Exclusive)).unwrap(),
                        IfNotFree::Wait,
                    ) && waiting.finish().await.is_ok()
                    {
                        hold.absorb(waiting);
                    }
                });
            });
            let ordered = {
                let manager = manager.clone();
                thread::spawn(move || {
                    block_on(async {
                        drop(take(&manager, &["u1", "u2", "u3"], Mode::Exclusive).await);
                    });
                })
            };
            thread::yield_now();
            drop(between);
            extends.join().unwrap();
            ordered.join().unwrap();
            assert!(manager.is_empty());
        });
    }
}
