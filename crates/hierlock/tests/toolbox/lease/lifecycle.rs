//! A lease from its acquire to its release or its expiry.

use super::*;
use crate::support::on_every_engine;
use hierlock::lease::{LeaseFilter, LeaseLoss};
use std::time::UNIX_EPOCH;

on_every_engine! {
    tokens_increase_and_are_never_reused,
    an_expired_lease_is_ignored,
    a_renewal_extends_the_lease,
    a_lost_lease_reports_its_reason,
    a_lease_is_resumed_by_its_token,
    a_second_release_returns_false,
    the_time_zone_of_a_session_does_not_matter,
}

async fn tokens_increase_and_are_never_reused(store: Store) {
    let leases = provision_leases(&store).await;
    let mut last = 0;
    for turn in 0..3 {
        // The last and only lease: its token must not be reused.
        for end in ["release", "force", "expire and sweep"] {
            let lease = match end {
                "expire and sweep" => acquire_expired(&leases, "u", "ada").await,
                _ => acquire(&leases, "u", "ada").await,
            };
            assert!(lease.token() > last, "{} after {last}, to {end}", lease.token());
            last = lease.token();
            match end {
                "release" => assert!(lease.release().await.unwrap()),
                "force" => {
                    assert!(leases.force_release(last, "root", "test").await.unwrap().is_some());
                }
                _ => assert_eq!(leases.sweep().await.unwrap(), 1),
            }
        }
        let other = other_client(&store).await;
        let lease = acquire(&other, "u", &format!("owner {turn}")).await;
        assert!(lease.token() > last);
        last = lease.token();
        assert!(lease.release().await.unwrap());
    }
}

async fn an_expired_lease_is_ignored(store: Store) {
    let leases = provision_leases(&store).await;
    let mut old = acquire_expired(&leases, "u/a", "ada").await;
    let below = acquire_expired(&leases, "u/a/r", "ada").await;
    assert_eq!(leases.list(LeaseFilter::default()).await.unwrap(), []);
    let all = leases.list(LeaseFilter::default().also_expired()).await.unwrap();
    let listed: Vec<_> = all.iter().map(|lease| (lease.token, lease.is_expired)).collect();
    assert_eq!(listed, [(old.token(), true), (below.token(), true)]);

    let new = acquire(&leases, "u/a", "bob").await;
    assert!(new.token() > below.token());
    let all = leases.list(LeaseFilter::default().also_expired()).await.unwrap();
    assert_eq!(all, [new.info().clone()]);
    let error = old.renew().await.unwrap_err();
    assert!(matches!(error.lost_lease(), Some(LeaseLoss::Expired { .. })), "{error}");
    assert!(!old.release().await.unwrap());
    assert!(new.release().await.unwrap());
}

async fn a_renewal_extends_the_lease(store: Store) {
    let leases = provision_leases(&store).await;
    let mut lease = acquire(&leases, "u", "ada").await;
    let (acquired, first) = (lease.acquired_at(), lease.expires_at());
    let begun = clock(&store).await;
    // A renewal in the same millisecond would not be visible.
    eventually("two milliseconds have passed", async || clock(&store).await > begun + 2).await;
    lease.renew().await.unwrap();
    assert!(lease.expires_at() > first && lease.acquired_at() == acquired);
    assert_eq!(leases.find(lease.token()).await.unwrap().as_ref(), Some(lease.info()));
    let left = lease.expires_at().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
        - clock(&store).await;
    assert!((290_000..=300_000).contains(&left), "{left} ms left of five minutes");
}

async fn a_lost_lease_reports_its_reason(store: Store) {
    let leases = provision_leases(&store).await;

    let mut forced = acquire(&leases, "u", "ada").await;
    let info = leases.force_release(forced.token(), "root", "she went home").await.unwrap();
    assert_eq!(info.as_ref(), Some(forced.info()));
    for error in
        [forced.renew().await.unwrap_err(), leases.resume(forced.token()).await.unwrap_err()]
    {
        let Some(LeaseLoss::Forced { actor, why, at }) = error.lost_lease() else {
            panic!("{error}")
        };
        assert_eq!((actor.as_str(), why.as_str()), ("root", "she went home"));
        assert_eq!(*at, leases.audit(1).await.unwrap()[0].released);
        assert!(error.is_lost() && error.to_string().contains("root ended it at 20"), "{error}");
    }

    let mut released = acquire(&leases, "u", "ada").await;
    assert_eq!(leases.release_owner("ada").await.unwrap(), 1);
    let error = released.renew().await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Released), "{error}");
    assert!(error.to_string().contains("of `u` is lost: it was released"), "{error}");

    let mut over = acquire_expired(&leases, "u", "ada").await;
    let error = over.renew().await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Expired { at: over.expires_at() }), "{error}");
    assert_eq!(leases.sweep().await.unwrap(), 1);
    let error = over.renew().await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Expired { at: over.expires_at() }), "{error}");

    let error = leases.resume(1_000_000).await.unwrap_err();
    assert_eq!(error.lost_lease(), Some(&LeaseLoss::Gone), "{error}");
}

async fn a_lease_is_resumed_by_its_token(store: Store) {
    let leases = provision_leases(&store).await;
    let request = request("u/a", "ada").session("tab-7").ttl(Duration::from_secs(60));
    let lease = leases.acquire(request).await.unwrap();
    let (token, info) = (lease.token(), lease.info().clone());
    drop(lease);
    let mut resumed = other_client(&store).await.resume(token).await.unwrap();
    assert_eq!((resumed.info(), resumed.ttl()), (&info, Duration::from_secs(60)));
    resumed.renew().await.unwrap();
    assert!(resumed.release().await.unwrap());
    assert_eq!(leases.find(token).await.unwrap(), None);
}

async fn a_second_release_returns_false(store: Store) {
    let leases = provision_leases(&store).await;
    let token = acquire(&leases, "u", "ada").await.token();
    assert!(leases.release(token).await.unwrap());
    assert!(!leases.release(token).await.unwrap());
}

async fn the_time_zone_of_a_session_does_not_matter(store: Store) {
    let TestEngine::Server(engine) = store.engine else { return };
    let leases = provision_leases(&store).await;
    let here = acquire(&leases, "u/a", "ada").await;
    let there = Leases::new(connect_in_another_time_zone(&store, engine).await);
    assert_refused(&there, "u/a", "bob").await;
    let lease = there.acquire(request("u/b", "bob").ttl(Duration::from_secs(60))).await.unwrap();
    let seen = leases.find(lease.token()).await.unwrap();
    assert_eq!(seen.as_ref(), Some(lease.info()));
    let apart = lease.acquired_at().duration_since(here.acquired_at()).unwrap();
    assert!(apart < crate::servers::TEST_LIMIT, "{apart:?} between two acquires");
    there.resume(here.token()).await.unwrap().renew().await.unwrap();
    let renewed = leases.find(here.token()).await.unwrap().unwrap();
    let longer = renewed.expires.duration_since(here.expires_at()).unwrap();
    assert!(longer < crate::servers::TEST_LIMIT, "{longer:?} later than before");
}

/// Returns a database whose sessions have a time zone far from UTC.
async fn connect_in_another_time_zone(
    store: &Store,
    engine: hierlock_sandbox::Engine,
) -> hierlock::database::Database {
    use sqlx::Executor as _;
    match engine {
        hierlock_sandbox::Engine::Postgres => {
            let options = sqlx::postgres::PgPoolOptions::new().after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute("SET TIME ZONE 'Pacific/Chatham'").await.map(|_| ())
                })
            });
            options.connect(&store.url).await.unwrap().into()
        }
        _ => {
            let url = store.url.replacen("mariadb:", "mysql:", 1);
            let options = sqlx::mysql::MySqlPoolOptions::new().after_connect(|connection, _| {
                Box::pin(
                    async move { connection.execute("SET time_zone = '+12:45'").await.map(|_| ()) },
                )
            });
            options.connect(&url).await.unwrap().into()
        }
    }
}
