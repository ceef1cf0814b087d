//! What is special to files: threads that end, files that move, paths that cannot be opened.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::{Error, Hierlock, Mode, Target};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

/// A client of a lock file in a directory of its own.
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

/// Polls a future once.
fn is_pending(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

/// The directories in `/proc` of this process's threads that wait in the kernel, by name.
fn waiting_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_waiting = |task: &PathBuf| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "hierlock-wait")
    };
    tasks.filter_map(|task| Some(task.ok()?.path())).filter(is_waiting).collect()
}

/// The processor time a thread has used, in clock ticks.
fn ticks(task: &Path) -> u64 {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    // After the name in parentheses: state, …, user time (12th), system time (13th).
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields.iter().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum()
}

/// A cancelled wait is over when the drop returns: its thread is gone and its byte is free. The
/// moment of cancelling is varied, for a thread that is only about to wait must end as well.
#[tokio::test]
async fn cancelling_ends_the_thread_whenever_it_comes() {
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
    assert!(no_thread_is_left());
}

/// Other tests of this process may have waiters of their own: looks until there is none.
fn no_thread_is_left() -> bool {
    (0..2_000).any(|_| {
        waiting_threads().is_empty() || {
            std::thread::sleep(Duration::from_millis(5));
            false
        }
    })
}

#[tokio::test]
async fn a_waiting_thread_sleeps() {
    let (_directory, _, locks) = new_lock_file().await;
    let _held = locks.acquire(target("u1")).await.unwrap();
    let wait = locks.request(target("u1/a1")).within(Duration::from_millis(300)).acquire();
    let (waited, used) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        waiting_threads().iter().map(|task| ticks(task)).max()
    });
    assert!(waited.unwrap_err().is_timeout());
    // A loop would have used 25 ticks in that time.
    assert!(used.is_some_and(|used| used <= 2), "{used:?} ticks of processor time");
}

#[tokio::test]
async fn a_removed_file_is_a_lost_lock() {
    let (_directory, path, locks) = new_lock_file().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), guard.lost()).await.is_err());
    std::fs::remove_file(&path).unwrap();
    let error = guard.lost().await;
    assert!(error.is_lost() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("`u1`"), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
    // Those who come now make it anew, and agree among themselves.
    let _anew = locks.acquire(target("u1")).await.unwrap();
    assert!(locks.try_acquire(target("u1/a1")).await.unwrap().is_none());
}

/// Whoever waited on a file that was replaced in the meantime goes on with the new one.
#[tokio::test]
async fn a_waiter_follows_a_replaced_file() {
    let (_directory, path, locks) = new_lock_file().await;
    let old = locks.acquire(target("u1")).await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    let waits = || locks.holders().into_iter().find(|holder| holder.waits.is_some()).map(|h| h.id);
    while waits().is_none() {
        tokio::task::yield_now().await;
    }
    let on_the_old_one = waits();
    std::fs::remove_file(&path).unwrap();
    let anew = locks.acquire(target("u1")).await.unwrap();
    drop(old);
    // Each try at the file is an entry of its own.
    while waits() == on_the_old_one || waits().is_none() {
        assert!(!waiter.is_finished(), "it must not take the old file for the lock");
        tokio::task::yield_now().await;
    }
    drop(anew);
    drop(waiter.await.unwrap().unwrap());
}

/// A wait that was granted but is dropped before its owner noticed: the byte must not stay with the
/// guard that was being extended.
#[tokio::test]
async fn a_grant_that_nobody_noticed_is_given_back() {
    let (_directory, _, locks) = new_lock_file().await;
    for _ in 0..20 {
        let other = locks.acquire(target("u2/a1/r1")).await.unwrap();
        let mut guard = locks.acquire(target("u1")).await.unwrap();
        {
            let mut extend = std::pin::pin!(guard.extend([target("u2/a1/r1")]));
            assert!(is_pending(extend.as_mut()));
            drop(other);
            // Not free although the other is gone: then the waiting thread has it.
            while locks.try_acquire(target("u2/a1/r1")).await.unwrap().is_some() {}
        }
        assert!(locks.try_acquire(target("u2/a1/r1")).await.unwrap().is_some());
        assert!(locks.try_acquire(target("u1")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let (directory, path, _) = new_lock_file().await;
    let message = connect(&path.join("below")).await.unwrap_err().to_string();
    assert!(message.contains("below") && message.contains("directory"), "{message}");
    let message = connect(directory.path()).await.unwrap_err().to_string();
    assert!(message.contains("open the lock file"), "{message}");
}

/// An upgrade from shared beside another reader could wait for ever, so it is refused at once; an
/// update lock was exclusive from the start.
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
