//! Tests of `file:` alone: waiting threads, replaced files, paths that cannot be opened.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::{Error, Hierlock, Mode, Target};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

/// Returns a client of a lock file in a new directory.
async fn new_lock_file() -> (tempfile::TempDir, PathBuf, Hierlock) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks");
    let locks = connect(&path).await.unwrap();
    (directory, path, locks)
}

async fn connect(path: &Path) -> Result<Hierlock, Error> {
    Hierlock::connect(&format!("file:{}", path.display())).await
}

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Polls a future once, and returns whether it is pending.
fn is_pending(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

/// Returns the `/proc` directories of the threads that wait in the kernel.
fn waiting_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_waiting = |task: &PathBuf| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "hierlock-wait")
    };
    tasks.filter_map(|task| Some(task.ok()?.path())).filter(is_waiting).collect()
}

/// Returns the CPU time of a thread, in clock ticks.
fn ticks(task: &Path) -> u64 {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    // After the name in parentheses: state, …, user time (12th), system time (13th).
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields.iter().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum()
}

/// A cancelled wait is over when the drop returns: its thread has ended and its byte is free. The time of the
/// cancellation varies, because a thread that is about to wait must end as well.
#[tokio::test]
async fn a_cancelled_wait_ends_its_thread_at_any_time() {
    let (_directory, _, locks) = new_lock_file().await;
    let held = locks.acquire(target("u1")).await.unwrap();
    for round in 0..300_u32 {
        {
            let mut waiting = std::pin::pin!(locks.request(target("u1/a1")).acquire());
            assert!(is_pending(waiting.as_mut()));
            for _ in 0..round % 60 * 500 {
                std::hint::spin_loop();
            }
        }
        assert_eq!(locks.holders().len(), 1, "only the holder is left");
    }
    drop(held);
    assert!(locks.try_acquire(target("u1")).await.unwrap().is_some());
    assert!(wait_until_no_thread_waits(), "a waiting thread is left");
}

/// Waits until there is no waiting thread, since other tests of this process may have some.
fn wait_until_no_thread_waits() -> bool {
    (0..2_000).any(|_| {
        waiting_threads().is_empty() || {
            std::thread::sleep(Duration::from_millis(5));
            false
        }
    })
}

#[tokio::test]
async fn a_waiting_thread_uses_no_cpu_time() {
    let (_directory, _, locks) = new_lock_file().await;
    let _held = locks.acquire(target("u1")).await.unwrap();
    let wait = locks.request(target("u1/a1")).within(Duration::from_millis(300)).acquire();
    let (waited, used) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        waiting_threads().iter().map(|task| ticks(task)).max()
    });
    assert!(waited.unwrap_err().is_timeout());
    // A busy loop would use 25 ticks in that time.
    assert!(used.is_some_and(|used| used <= 2), "{used:?} ticks of CPU time");
}

#[tokio::test]
async fn a_lock_is_lost_when_its_file_is_removed() {
    let (_directory, path, locks) = new_lock_file().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), guard.lost()).await.is_err());
    std::fs::remove_file(&path).unwrap();
    let error = guard.lost().await;
    assert!(error.is_lost() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("`u1`"), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
    // The next acquire creates a new file, which excludes as before.
    let _new = locks.acquire(target("u1")).await.unwrap();
    assert!(locks.try_acquire(target("u1/a1")).await.unwrap().is_none());
}

/// If the lock file is replaced during a wait, the waiter continues with the new file.
#[tokio::test]
async fn a_waiter_follows_a_replaced_file() {
    let (_directory, path, locks) = new_lock_file().await;
    let old = locks.acquire(target("u1")).await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    let waiter_id =
        || locks.holders().into_iter().find(|holder| holder.waits.is_some()).map(|h| h.id);
    while waiter_id().is_none() {
        tokio::task::yield_now().await;
    }
    let id_on_old_file = waiter_id();
    std::fs::remove_file(&path).unwrap();
    let new = locks.acquire(target("u1")).await.unwrap();
    drop(old);
    // Each opening of the file has its own entry.
    while waiter_id() == id_on_old_file || waiter_id().is_none() {
        assert!(!waiter.is_finished(), "the lock of the old file must not count");
        tokio::task::yield_now().await;
    }
    drop(new);
    drop(waiter.await.unwrap().unwrap());
}

/// A wait is granted and then dropped before it is polled again. The guard that was being extended must not keep the byte.
#[tokio::test]
async fn a_granted_wait_that_is_dropped_releases_its_byte() {
    let (_directory, _, locks) = new_lock_file().await;
    for _ in 0..20 {
        let other = locks.acquire(target("u2/a1/r1")).await.unwrap();
        let mut guard = locks.acquire(target("u1")).await.unwrap();
        {
            let mut extend = std::pin::pin!(guard.extend([target("u2/a1/r1")]));
            assert!(is_pending(extend.as_mut()));
            drop(other);
            // When the byte is not free although the other guard is dropped, the waiting thread has locked it.
            while locks.try_acquire(target("u2/a1/r1")).await.unwrap().is_some() {}
        }
        assert!(locks.try_acquire(target("u2/a1/r1")).await.unwrap().is_some());
        assert!(locks.try_acquire(target("u1")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn the_error_of_a_file_that_cannot_be_opened_has_the_reason() {
    let (directory, path, _) = new_lock_file().await;
    let message = connect(&path.join("below")).await.unwrap_err().to_string();
    assert!(message.contains("below") && message.contains("directory"), "{message}");
    let message = connect(directory.path()).await.unwrap_err().to_string();
    assert!(message.contains("open the lock file"), "{message}");
}

/// An upgrade from shared could wait for ever beside another reader, so it fails at once. An update lock is exclusive from
/// the start.
#[tokio::test]
async fn an_upgrade_that_could_deadlock_is_refused() {
    let (_directory, _, locks) = new_lock_file().await;
    let request = || locks.request(target("u1/a1/r1"));
    let mut one = request().mode(Mode::Shared).acquire().await.unwrap();
    let two = request().mode(Mode::Shared).acquire().await.unwrap();
    let error = one.upgrade().await.unwrap_err();
    assert!(error.is_deadlock() && error.is_retryable(), "{error}");
    drop(two);
    one.upgrade().await.unwrap();
    drop(one);
    let mut updater = request().mode(Mode::Update).acquire().await.unwrap();
    updater.upgrade().await.unwrap();
}
