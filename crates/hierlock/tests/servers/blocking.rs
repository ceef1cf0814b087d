//! The blocking API on servers, from threads outside of a runtime.

use crate::support::{Database, Setup, on_each_engine, target};
use hierlock::blocking;
use std::time::Duration;

on_each_engine!(locks_in_a_transaction_without_async);

async fn locks_in_a_transaction_without_async(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let url = database.url.clone();
    let bare = database.bare_url().to_owned();
    let thread = std::thread::spawn(move || {
        let options = hierlock::Hierlock::builder().connections(2);
        let locks = blocking::Hierlock::open_sql(&url, options).unwrap();
        let others = blocking::Hierlock::connect(&url).unwrap();
        let toolbox = blocking::Database::connect(&bare).unwrap();
        let is_free = || others.try_acquire(target("u1")).unwrap().is_some();
        for commits in [true, false] {
            let mut tx = toolbox.begin().unwrap();
            let taken = locks.acquire_in(&mut tx, [target("u1/a1")]).unwrap();
            assert_eq!(taken.len(), 2);
            assert!(!is_free());
            if commits {
                tx.commit().unwrap()
            } else {
                tx.rollback().unwrap()
            }
            assert!(is_free());
        }
        let mut guard = locks.acquire(target("u1")).unwrap();
        assert!(guard.request(target("u1/a1")).try_acquire().unwrap());
        let late = others.request(target("u1")).within(Duration::from_millis(20)).acquire();
        assert!(late.unwrap_err().is_timeout());
        // Dropped on a thread without a runtime, and still released.
        drop(guard);
        locks.close(Duration::from_secs(30)).unwrap();
        assert!(is_free());
        toolbox.close();
    });
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
}
