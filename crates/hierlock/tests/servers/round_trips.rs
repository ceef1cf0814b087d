//! Counts the round trips between client and server with a proxy. A ping, a separate BEGIN or a statement per node
//! would make every lock slower by a round trip.

use crate::support::{Database, Setup, on_every_setup, target};
use hierlock::Hierlock;
use hierlock_sandbox::proxy::Proxy;

on_every_setup!(an_acquire_and_its_release_are_two_round_trips);

/// For any number of nodes.
async fn an_acquire_and_its_release_are_two_round_trips(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let proxy = Proxy::start(&database.url).await;
    let locks = Hierlock::connect(&proxy.url).await.unwrap();
    for resources in [1, 2, 100] {
        let ids: Vec<String> = (0..resources).map(|i| format!("r{i}")).collect();
        database.make_rows(&ids.iter().map(|id| format!("u1/a1/{id}")).collect::<Vec<_>>()).await;
        // The first statement of its kind on a connection is also prepared, or inserts rows. On PostgreSQL the second is
        // prepared, because the first also begins the transaction.
        for is_prepared in [false, false, true] {
            let before = proxy.round_trips();
            let guard = locks.acquire_children(&target("u1/a1"), &ids).await.unwrap();
            let acquire = proxy.round_trips() - before;
            guard.release().await.unwrap();
            let total = proxy.round_trips() - before;
            if is_prepared {
                assert_eq!((acquire, total), (1, 2), "{resources} resources");
            }
        }
    }
}
