//! Leases from the view of an administrator.

use super::*;
use crate::support::on_every_engine;
use hierlock::lease::LeaseFilter;

on_every_engine! {
    leases_are_listed_by_node_owner_and_session,
    all_leases_of_a_session_or_owner_are_released,
    forced_releases_are_audited,
    a_sweep_deletes_only_expired_leases,
    a_forced_release_needs_an_actor_and_a_reason,
}

async fn leases_are_listed_by_node_owner_and_session(store: Store) {
    let leases = provision_leases(&store).await;
    let all = [
        ("u/a", "ada", None),
        ("u/a1", "ada", Some("s1")),
        ("u/a/r", "ada", None),
        ("v", "bob", Some("s2")),
    ];
    for (path, owner, session) in all {
        let mut request = request(path, owner);
        if let Some(session) = session {
            request = request.session(session);
        }
        let _ = leases.acquire(request).await.unwrap();
    }
    let filter = LeaseFilter::default;
    for (filter, paths) in [
        (filter(), vec!["u/a", "u/a1", "u/a/r", "v"]),
        (filter().within(target("u/a")), vec!["u/a", "u/a/r"]),
        (filter().within(target("u")), vec!["u/a", "u/a1", "u/a/r"]),
        (filter().owner("bob"), vec!["v"]),
        (filter().owner("Bob"), vec![]),
        (filter().session("s1"), vec!["u/a1"]),
        (filter().session("s1").owner("bob"), vec![]),
        (filter().owner("ada").within(target("u/a/r")), vec!["u/a/r"]),
    ] {
        let listed = leases.list(filter.clone()).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|lease| lease.target.to_string()).collect();
        assert_eq!(listed, paths, "{filter:?}");
    }
}

async fn all_leases_of_a_session_or_owner_are_released(store: Store) {
    let leases = provision_leases(&store).await;
    for path in ["u/a", "u/b", "v/c"] {
        let _ = leases.acquire(request(path, "ada").session("tab-7")).await.unwrap();
    }
    let _ = leases.acquire(request("u/d", "ada").session("tab-8")).await.unwrap();
    let _ = acquire(&leases, "w", "bob").await;
    let _ = acquire_expired(&leases, "x", "bob").await;
    assert_eq!(leases.release_session("tab-7").await.unwrap(), 3);
    assert_eq!(leases.release_session("tab-7").await.unwrap(), 0);
    assert_refused(&leases, "u", "eve").await;
    assert_eq!(leases.release_owner("ada").await.unwrap(), 1);
    let _ = acquire(&leases, "u", "eve").await;
    assert_eq!(leases.release_owner("bob").await.unwrap(), 1);
    let _ = acquire(&leases, "w", "eve").await;
}

async fn forced_releases_are_audited(store: Store) {
    let leases = provision_leases(&store).await;
    let first =
        leases.acquire(request("u/a", "ada").session("tab-7").reason("edits")).await.unwrap();
    let second = acquire(&leases, "u/b", "bob").await;
    for (lease, why) in [(&first, "gone home"), (&second, "it's ?")] {
        let released = leases.force_release(lease.token(), "root", why).await.unwrap();
        assert_eq!(released.as_ref(), Some(lease.info()));
        assert_eq!(leases.force_release(lease.token(), "root", why).await.unwrap(), None);
    }
    let over = acquire_expired(&leases, "u/c", "eve").await;
    assert_eq!(leases.force_release(over.token(), "root", "nothing to end").await.unwrap(), None);
    // This lease is released without force.
    assert!(acquire(&leases, "u/d", "eve").await.release().await.unwrap());

    let audit = leases.audit(10).await.unwrap();
    let seen: Vec<_> = audit.iter().map(|a| (&a.lease, a.actor.as_str(), a.why.as_str())).collect();
    assert_eq!(seen, [(second.info(), "root", "it's ?"), (first.info(), "root", "gone home")]);
    assert!(audit[0].released >= audit[1].released && audit[1].released >= first.acquired_at());
    assert_eq!(leases.audit(1).await.unwrap(), audit[..1]);
    let _ = acquire(&leases, "u", "eve").await;
}

async fn a_sweep_deletes_only_expired_leases(store: Store) {
    let leases = provision_leases(&store).await;
    let live = acquire(&leases, "u/live", "ada").await;
    let _ = acquire_expired(&leases, "u/0", "ada").await;
    // More than fit into one transaction of a sweep.
    let copy = "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) \
                SELECT node, path, owner, acquired_ms, expires_ms, ttl_ms FROM hier_leases \
                WHERE ttl_ms = 1";
    for _ in 0..8 {
        store.run(copy).await;
    }
    assert_eq!(leases.sweep().await.unwrap(), 256);
    assert_eq!(leases.sweep().await.unwrap(), 0);
    assert_eq!(
        leases.list(LeaseFilter::default().also_expired()).await.unwrap(),
        [live.info().clone()]
    );
}

async fn a_forced_release_needs_an_actor_and_a_reason(store: Store) {
    let leases = provision_leases(&store).await;
    let lease = acquire(&leases, "u", "ada").await;
    for (actor, why, expected) in [("", "why", "the actor"), ("root", "", "the reason for ending")]
    {
        let error = leases.force_release(lease.token(), actor, why).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
    }
    assert!(lease.release().await.unwrap());
}
