//! How often a client and the server take turns, counted by a proxy between them. Whoever adds a ping, a
//! BEGIN of its own or a statement a node makes every lock slower by a round trip of the network.

use crate::support::{Database, Setup, on_every_setup, target};
use hierlock::Hierlock;
use hierlock_sandbox::proxy::Proxy;

on_every_setup!(a_cycle_is_two_round_trips);

/// Two: one to take, one to give back, however many nodes there are.
async fn a_cycle_is_two_round_trips(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let proxy = Proxy::before(&database.url).await;
    let locks = Hierlock::connect(&proxy.url).await.unwrap();
    for resources in [1, 2, 100] {
        let ids: Vec<String> = (0..resources).map(|i| format!("r{i}")).collect();
        database.make_rows(&ids.iter().map(|id| format!("u1/a1/{id}")).collect::<Vec<_>>()).await;
        // The first of its kind on a connection also prepares the statement, or makes its rows; on
        // PostgreSQL the second does, as the very first also begins the transaction.
        for is_known in [false, false, true] {
            let before = proxy.round_trips();
            let guard = locks.acquire_children(&target("u1/a1"), &ids).await.unwrap();
            let to_take = proxy.round_trips() - before;
            guard.release().await.unwrap();
            let whole = proxy.round_trips() - before;
            if is_known {
                assert_eq!((to_take, whole), (1, 2), "{resources} resources");
            }
        }
    }
}
