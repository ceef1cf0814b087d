//! The connection ends at the worst moment: it is unknown what became of the last request.

use super::*;
use crate::servers::{GENEROUS, Outside};
use crate::support::{on_every_engine, watched};
use hierlock::database::Database;
use hierlock::lease::LeaseGuard;
use hierlock_sandbox::Engine;
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};

on_every_engine! {
    an_acquire_whose_commit_is_cut_off_leaves_no_lease,
    a_commit_that_arrives_late_leaves_no_lease,
    a_lease_is_taken_back_when_the_network_is_there_again,
    a_renewal_that_is_cut_off_can_be_repeated,
    a_release_that_is_cut_off_can_be_repeated,
    a_renewed_lease_outlives_cut_connections,
    a_renewed_lease_outlives_forgotten_connections,
}

/// Returns a proxy in front of a server, and leases that use it.
async fn behind_a_network(store: &Store) -> Option<(Proxy, Leases)> {
    let plain = match store.place {
        Place::Server(Engine::Postgres) => "sslmode=disable",
        Place::Server(_) => "ssl-mode=disabled",
        Place::Sqlite => return None,
    };
    let proxy = Proxy::before(&format!("{}?{plain}", store.url)).await;
    let leases = Leases::new(Database::connect(&proxy.url).await.unwrap());
    Some((proxy, leases))
}

async fn rows(store: &Store) -> i64 {
    store.number("SELECT COUNT(*) FROM hier_leases").await
}

/// Runs an acquire that fails because its connection ends.
async fn fails(leases: &Leases) {
    let acquired = tokio::time::timeout(GENEROUS, leases.acquire(request("u/a", "ada")));
    let error = acquired.await.expect("it waits for ever").unwrap_err();
    assert!(error.to_string().contains("cannot commit"), "{error}");
}

async fn an_acquire_whose_commit_is_cut_off_leaves_no_lease(store: Store) {
    let _ = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    for fault in [Fault::CloseBeforeRequest, Fault::CloseBeforeAnswer] {
        proxy.inject(FaultTrigger::EndsWith("COMMIT"), fault);
        fails(&leases).await;
        eventually("nothing is left", async || rows(&store).await == 0).await;
        // The next acquire works.
        assert!(acquire(&leases, "u", "bob").await.release().await.unwrap());
    }
}

/// Looking for the row before that COMMIT would find none. So the session whose COMMIT is in progress is ended on
/// the server; and if the COMMIT came first, the lease is released.
async fn a_commit_that_arrives_late_leaves_no_lease(store: Store) {
    let _ = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    let mut outside = Outside::connect(&store.url).await;
    for is_ended_before in [true, false] {
        proxy.inject(FaultTrigger::EndsWith("COMMIT"), Fault::DelayRequest);
        fails(&leases).await;
        if is_ended_before {
            outside.until_busy(0).await;
            assert_eq!(rows(&store).await, 0);
        }
        proxy.deliver_late_request();
        outside.until_busy(0).await;
        eventually("nothing is left", async || rows(&store).await == 0).await;
    }
}

/// The lease would last for five minutes.
async fn a_lease_is_taken_back_when_the_network_is_there_again(store: Store) {
    let _ = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    proxy.inject(FaultTrigger::EndsWith("COMMIT"), Fault::DropAllBeforeAnswer);
    fails(&leases).await;
    assert_eq!(rows(&store).await, 1, "nobody could reach it");
    proxy.set_mode(NetworkMode::Passes);
    eventually("nothing is left", async || rows(&store).await == 0).await;
}

/// Runs an operation on a lease, and cuts its connection while the server runs it.
async fn cut_off<T: Send + 'static>(
    store: &Store,
    proxy: &Proxy,
    work: impl Future<Output = hierlock::Result<T>> + Send + 'static,
) -> Error {
    let mut obstacle = Outside::connect(&store.url).await;
    obstacle.run("BEGIN").await;
    let _ = obstacle.rows("SELECT token FROM hier_leases FOR UPDATE").await;
    let working = tokio::spawn(work);
    let mut outside = Outside::connect(&store.url).await;
    // The obstacle, and whoever stands before it.
    outside.until_busy(2).await;
    proxy.set_mode(NetworkMode::Drops);
    let ended = tokio::time::timeout(GENEROUS, working).await.expect("it waits for ever");
    proxy.set_mode(NetworkMode::Passes);
    obstacle.run("ROLLBACK").await;
    // The server has not noticed, and completes the statement.
    outside.until_busy(0).await;
    ended.unwrap().err().expect("nobody was there to say that it was done")
}

async fn a_renewal_that_is_cut_off_can_be_repeated(store: Store) {
    let direct = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    let lease = acquire(&leases, "u", "ada").await;
    let (token, first) = (lease.token(), lease.expires_at());
    let error = cut_off(&store, &proxy, async move {
        let mut lease = lease;
        lease.renew().await
    });
    let error = error.await;
    assert!(!error.is_lost(), "nobody knows that: {error}");
    let held = direct.find(token).await.unwrap().unwrap();
    assert!(held.expires > first, "it was renewed");
    let mut lease = leases.resume(token).await.unwrap();
    lease.renew().await.unwrap();
    assert!(lease.release().await.unwrap());
}

async fn a_release_that_is_cut_off_can_be_repeated(store: Store) {
    let _ = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    let lease = acquire(&leases, "u", "ada").await;
    let token = lease.token();
    let error = cut_off(&store, &proxy, lease.release()).await;
    assert!(!error.is_lost(), "{error}");
    assert_eq!(rows(&store).await, 0, "it was released");
    assert!(!leases.release(token).await.unwrap());
}

/// Nobody says that they are of no use; but what is asked on a new one is answered.
async fn a_renewed_lease_outlives_forgotten_connections(store: Store) {
    let direct = provisioned(&store).await;
    let Some((proxy, _)) = behind_a_network(&store).await else { return };
    let (database, is_at_rest) = watched(&proxy.url).await;
    let request = request("u", "ada").ttl(Duration::from_secs(12));
    let guard = Leases::new(database).acquire(request).await.unwrap().keep();
    eventually("it is at rest", async || is_at_rest()).await;
    proxy.stall_opened();
    is_renewed(&direct, &guard).await;
    assert!(guard.release().await.unwrap());
}

/// Its heartbeat asks again, until somebody answers.
async fn a_renewed_lease_outlives_cut_connections(store: Store) {
    let direct = provisioned(&store).await;
    let Some((proxy, leases)) = behind_a_network(&store).await else { return };
    let request = request("u", "ada").ttl(Duration::from_secs(12));
    let guard = leases.acquire(request).await.unwrap().keep();
    proxy.set_mode(NetworkMode::Drops);
    let before = proxy.connections();
    eventually("it has tried", async || proxy.connections() > before + 1).await;
    proxy.set_mode(NetworkMode::Passes);
    is_renewed(&direct, &guard).await;
    assert!(guard.release().await.unwrap());
}

async fn is_renewed(direct: &Leases, guard: &LeaseGuard) {
    let (token, before) = (guard.lease().token(), guard.expires_at());
    eventually("it is renewed", async || {
        assert!(direct.find(token).await.unwrap().is_some(), "it was lost");
        guard.expires_at() > before
    })
    .await;
}
