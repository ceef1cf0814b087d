//! The connection ends during a request, so that the outcome of the request is unknown.

use super::*;
use crate::servers::{OutsideSession, TEST_LIMIT};
use crate::support::{database_with_idle_check, on_every_engine};
use hierlock::database::Database;
use hierlock::lease::LeaseGuard;
use hierlock_sandbox::Engine;
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};

on_every_engine! {
    an_acquire_that_loses_its_connection_at_commit_leaves_no_lease,
    a_commit_that_arrives_late_leaves_no_lease,
    a_lease_is_deleted_when_the_network_works_again,
    a_renewal_that_loses_its_connection_can_be_repeated,
    a_release_that_loses_its_connection_can_be_repeated,
    a_lease_is_renewed_after_its_connections_are_cut,
    a_lease_is_renewed_after_its_connections_go_silent,
}

/// Returns a proxy in front of a server, and leases that use it.
async fn leases_behind_proxy(store: &Store) -> Option<(Proxy, Leases)> {
    let plain = match store.engine {
        TestEngine::Server(Engine::Postgres) => "sslmode=disable",
        TestEngine::Server(_) => "ssl-mode=disabled",
        TestEngine::Sqlite => return None,
    };
    let proxy = Proxy::start(&format!("{}?{plain}", store.url)).await;
    let leases = Leases::new(Database::connect(&proxy.url).await.unwrap());
    Some((proxy, leases))
}

async fn count_leases(store: &Store) -> i64 {
    store.number("SELECT COUNT(*) FROM hier_leases").await
}

/// Runs an acquire that fails because its connection ends.
async fn assert_acquire_fails(leases: &Leases) {
    let acquired = tokio::time::timeout(TEST_LIMIT, leases.acquire(request("u/a", "ada")));
    let error = acquired.await.expect("the acquire did not return within the limit").unwrap_err();
    assert!(error.to_string().contains("cannot commit"), "{error}");
}

async fn an_acquire_that_loses_its_connection_at_commit_leaves_no_lease(store: Store) {
    let _ = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    for fault in [Fault::CloseBeforeRequest, Fault::CloseBeforeAnswer] {
        proxy.inject(FaultTrigger::EndsWith("COMMIT"), fault);
        assert_acquire_fails(&leases).await;
        eventually("no lease is left", async || count_leases(&store).await == 0).await;
        // The next acquire works.
        assert!(acquire(&leases, "u", "bob").await.release().await.unwrap());
    }
}

/// A DELETE before that COMMIT would find no row. So the session whose COMMIT is in progress is ended on the server; and
/// if the COMMIT came first, the lease is deleted.
async fn a_commit_that_arrives_late_leaves_no_lease(store: Store) {
    let _ = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    let mut outside = OutsideSession::connect(&store.url).await;
    for is_ended_before in [true, false] {
        proxy.inject(FaultTrigger::EndsWith("COMMIT"), Fault::DelayRequest);
        assert_acquire_fails(&leases).await;
        if is_ended_before {
            outside.until_busy(0).await;
            assert_eq!(count_leases(&store).await, 0);
        }
        proxy.deliver_late_request();
        outside.until_busy(0).await;
        eventually("no lease is left", async || count_leases(&store).await == 0).await;
    }
}

/// Otherwise the lease would last for five minutes.
async fn a_lease_is_deleted_when_the_network_works_again(store: Store) {
    let _ = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    proxy.inject(FaultTrigger::EndsWith("COMMIT"), Fault::DropAllBeforeAnswer);
    assert_acquire_fails(&leases).await;
    assert_eq!(count_leases(&store).await, 1, "the lease cannot be deleted yet");
    proxy.set_mode(NetworkMode::Passes);
    eventually("no lease is left", async || count_leases(&store).await == 0).await;
}

/// Runs an operation on a lease, cuts its connection while the server runs it, and returns its error. By then the server
/// has completed the statement: the network is down until then, or the client would end its session on the server.
async fn run_and_cut<T: Send + 'static>(
    store: &Store,
    proxy: &Proxy,
    work: impl Future<Output = hierlock::Result<T>> + Send + 'static,
) -> Error {
    let mut blocker = OutsideSession::connect(&store.url).await;
    blocker.run("BEGIN").await;
    let _ = blocker.rows("SELECT token FROM hier_leases FOR UPDATE").await;
    let operation = tokio::spawn(work);
    let mut observer = OutsideSession::connect(&store.url).await;
    observer.until_lock_wait().await;
    proxy.set_mode(NetworkMode::Drops);
    let result = tokio::time::timeout(TEST_LIMIT, operation).await;
    let result = result.expect("the operation did not return within the limit");
    blocker.run("ROLLBACK").await;
    observer.until_busy(0).await;
    proxy.set_mode(NetworkMode::Passes);
    result.unwrap().err().expect("the operation succeeded without a connection")
}

async fn a_renewal_that_loses_its_connection_can_be_repeated(store: Store) {
    let direct = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    let lease = acquire(&leases, "u", "ada").await;
    let (token, first) = (lease.token(), lease.expires_at());
    let error = run_and_cut(&store, &proxy, async move {
        let mut lease = lease;
        lease.renew().await
    });
    let error = error.await;
    assert!(!error.is_lost(), "the loss is not certain: {error}");
    let held = direct.find(token).await.unwrap().unwrap();
    assert!(held.expires > first, "the server did not renew the lease");
    let mut lease = leases.resume(token).await.unwrap();
    lease.renew().await.unwrap();
    assert!(lease.release().await.unwrap());
}

async fn a_release_that_loses_its_connection_can_be_repeated(store: Store) {
    let _ = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    let lease = acquire(&leases, "u", "ada").await;
    let token = lease.token();
    let error = run_and_cut(&store, &proxy, lease.release()).await;
    assert!(!error.is_lost(), "{error}");
    assert_eq!(count_leases(&store).await, 0, "the server did not release the lease");
    assert!(!leases.release(token).await.unwrap());
}

/// The open connections go silent without an error; new connections work.
async fn a_lease_is_renewed_after_its_connections_go_silent(store: Store) {
    let direct = provision_leases(&store).await;
    let Some((proxy, _)) = leases_behind_proxy(&store).await else { return };
    let (database, is_idle) = database_with_idle_check(&proxy.url).await;
    let request = request("u", "ada").ttl(Duration::from_secs(12));
    let guard = Leases::new(database).acquire(request).await.unwrap().keep();
    eventually("all connections are idle", async || is_idle()).await;
    proxy.stall_opened();
    wait_until_renewed(&direct, &guard).await;
    assert!(guard.release().await.unwrap());
}

/// The heartbeat is retried until the server answers.
async fn a_lease_is_renewed_after_its_connections_are_cut(store: Store) {
    let direct = provision_leases(&store).await;
    let Some((proxy, leases)) = leases_behind_proxy(&store).await else { return };
    let request = request("u", "ada").ttl(Duration::from_secs(12));
    let guard = leases.acquire(request).await.unwrap().keep();
    proxy.set_mode(NetworkMode::Drops);
    let before = proxy.connections();
    eventually("the heartbeat has reconnected", async || proxy.connections() > before + 1).await;
    proxy.set_mode(NetworkMode::Passes);
    wait_until_renewed(&direct, &guard).await;
    assert!(guard.release().await.unwrap());
}

async fn wait_until_renewed(direct: &Leases, guard: &LeaseGuard) {
    let (token, before) = (guard.lease().token(), guard.expires_at());
    eventually("the lease is renewed", async || {
        assert!(direct.find(token).await.unwrap().is_some(), "the lease was lost");
        guard.expires_at() > before
    })
    .await;
}
