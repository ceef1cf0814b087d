//! Leases of other owners on a node, above it and below it exclude each other.

use super::*;
use crate::support::on_every_engine;
use std::sync::{Arc, Mutex};

on_every_engine! {
    a_lease_excludes_other_owners_above_and_below,
    a_refusal_names_the_holder,
    one_owner_can_hold_several_leases,
    concurrent_owners_never_hold_conflicting_leases,
    an_acquire_does_not_wait_for_a_renewal,
    a_waiting_acquire_gets_a_released_lease,
}

async fn a_lease_excludes_other_owners_above_and_below(store: Store) {
    let leases = provision_leases(&store).await;
    let long = vec!["x".repeat(255); 8].join("/");
    let long_parent = vec!["x".repeat(255); 7].join("/");
    let paths = [
        "u",
        "u/a",
        "u/a1",
        "u/a/r",
        "u/a%2F",
        "u/a%2F/r",
        "u/b",
        "v",
        "u/a/1/2/3/4/5/6",
        "ユ/%25",
        &long,
        &long_parent,
    ];
    for held in paths {
        let lease = acquire(&leases, held, "ada").await;
        for wanted in paths {
            let (held, wanted) = (target(held), target(wanted));
            let is_conflict = held.contains(&wanted) || wanted.contains(&held);
            for (owner, excluded) in [("ada", false), ("bob", is_conflict), ("ada2", is_conflict)] {
                match leases.acquire(LeaseRequest::new(wanted.clone(), owner)).await {
                    Ok(lease) => {
                        assert!(!excluded, "{owner} got {wanted} beside {held}");
                        assert!(lease.release().await.unwrap());
                    }
                    Err(error) => {
                        assert!(excluded && error.is_held(), "{owner}, {held}, {wanted}: {error}");
                        assert_eq!(error.lease_holder().unwrap().target, held);
                    }
                }
            }
        }
        assert!(lease.release().await.unwrap());
    }
}

async fn a_refusal_names_the_holder(store: Store) {
    let leases = provision_leases(&store).await;
    let wanted = request("u1/a1", "ada").session("tab-7").reason("edits the 住所");
    let lease = leases.acquire(wanted).await.unwrap();
    let error = assert_refused(&leases, "u1", "bob").await;
    let holder = error.lease_holder().unwrap();
    assert_eq!(holder, lease.info());
    assert_eq!((holder.token, &holder.target), (lease.token(), &target("u1/a1")));
    assert_eq!((holder.owner.as_str(), holder.session.as_deref()), ("ada", Some("tab-7")));
    assert_eq!(holder.reason.as_deref(), Some("edits the 住所"));
    assert_eq!(holder.expires, holder.acquired + Duration::from_secs(300));
    let message = error.to_string();
    for part in [
        "`u1` is not free",
        "`u1/a1` is leased by ada (session tab-7) since 20",
        "until 20",
        "edits the 住所",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(error.is_retryable() && !error.is_lost() && !error.is_usage());
}

async fn one_owner_can_hold_several_leases(store: Store) {
    let leases = provision_leases(&store).await;
    let first = acquire(&leases, "u1/a1", "ada").await;
    let second = acquire(&leases, "u1/a1", "ada").await;
    let above = acquire(&leases, "u1", "ada").await;
    assert!(first.token() < second.token() && second.token() < above.token());
    assert!(first.release().await.unwrap());
    assert!(above.release().await.unwrap());
    assert_refused(&leases, "u1/a1/r1", "bob").await;
    assert!(second.release().await.unwrap());
    assert!(acquire(&leases, "u1/a1/r1", "bob").await.release().await.unwrap());
}

/// The leases that are held now, and all leases in the order of their acquire.
#[derive(Default)]
struct History {
    now: Vec<(i64, Target, String)>,
    all: Vec<(i64, Target, String)>,
}

impl History {
    /// Records an acquire, and asserts that no held lease conflicts. It is called after the acquire, and `end` before the
    /// release, so every lease in `now` is held.
    fn begin(&mut self, lease: &Lease) {
        let entry = (lease.token(), lease.target().clone(), lease.owner().to_owned());
        let is_conflict = |held: &&(i64, Target, String)| {
            held.2 != entry.2 && (held.1.contains(&entry.1) || entry.1.contains(&held.1))
        };
        assert!(!self.now.iter().any(|held| is_conflict(&held)), "{entry:?} beside {:?}", self.now);
        let later = self.all.iter().filter(is_conflict).find(|held| held.0 >= entry.0);
        assert_eq!(later, None, "an earlier conflicting lease has a greater token than {entry:?}");
        self.now.push(entry.clone());
        self.all.push(entry);
    }

    fn end(&mut self, token: i64) {
        self.now.retain(|held| held.0 != token);
    }
}

async fn concurrent_owners_never_hold_conflicting_leases(store: Store) {
    provision_leases(&store).await;
    let history = Arc::new(Mutex::new(History::default()));
    let mut tasks = Vec::new();
    for pool in 0..4 {
        let leases = other_client(&store).await;
        for task in 0..4 {
            let (leases, history) = (leases.clone(), history.clone());
            tasks.push(tokio::spawn(async move {
                let paths = ["u", "u/a", "u/b", "u/a/r", "u/a/s", "u/b/r", "v/a", "v"];
                let mut acquired = 0;
                for turn in 0..40usize {
                    let path = paths[(turn * 5 + task * 3 + pool) % paths.len()];
                    let request = request(path, &format!("{pool}.{task}"));
                    match leases.acquire(request).await {
                        Ok(lease) => {
                            acquired += 1;
                            history.lock().unwrap().begin(&lease);
                            tokio::task::yield_now().await;
                            history.lock().unwrap().end(lease.token());
                            assert!(lease.release().await.unwrap());
                        }
                        Err(error) => assert!(error.is_held(), "{error}"),
                    }
                }
                acquired
            }));
        }
    }
    let mut acquired = 0;
    for task in tasks {
        acquired += task.await.unwrap();
    }
    assert_eq!(history.lock().unwrap().all.len(), acquired);
    assert!(acquired > 16, "only {acquired} leases were acquired");
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0);
}

/// An acquire that waited for a row of another session could be part of a deadlock.
async fn an_acquire_does_not_wait_for_a_renewal(store: Store) {
    if store.engine == TestEngine::Sqlite {
        return; // There is only one writer.
    }
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u/a", "ada").await;
    let mut tx = store.database.begin().await.unwrap();
    let update = "UPDATE hier_leases SET expires_ms = expires_ms + 1 WHERE token = ?";
    assert_eq!(tx.execute(update, [lease.token().into()]).await.unwrap(), 1);
    assert_refused(&leases, "u", "bob").await;
    assert!(acquire(&leases, "u/b", "bob").await.release().await.unwrap());
    tx.commit().await.unwrap();
}

async fn a_waiting_acquire_gets_a_released_lease(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u/a", "ada").await;
    let short = request("u", "bob").wait_up_to(Duration::from_millis(50));
    assert!(leases.acquire(short).await.unwrap_err().is_held());
    let waiting = {
        let leases = other_client(&store).await;
        let request = request("u", "bob").wait_up_to(crate::servers::TEST_LIMIT);
        tokio::spawn(async move { leases.acquire(request).await })
    };
    assert!(lease.release().await.unwrap());
    assert_eq!(waiting.await.unwrap().unwrap().owner(), "bob");
}
