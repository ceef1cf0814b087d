//! Trees other than user, account, resource.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::{Hierarchy, Hierlock, SlotMode, Target};

async fn locks(levels: &[&str]) -> Hierlock {
    Hierlock::connect_with("memory:", Hierarchy::new(levels.iter().copied()).unwrap())
        .await
        .unwrap()
}

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Returns for each child of a node whether it can be locked.
async fn free_children(locks: &Hierlock, parent: &Target, ids: &[&str]) -> Vec<bool> {
    let mut free = Vec::new();
    for id in ids {
        free.push(locks.try_acquire(parent.child(id).unwrap()).await.unwrap().is_some());
    }
    free
}

#[tokio::test]
async fn children_are_locked_in_a_tree_of_two_levels() {
    let locks = locks(&["shop", "shelf"]).await;
    let shop = target("s1");
    let guard = locks.acquire_children(&shop, ["b", "a", "b"]).await.unwrap();
    let targets: Vec<Target> = guard.targets().into_keys().collect();
    assert_eq!(targets, [target("s1/a"), target("s1/b")]);
    assert_eq!(guard.modes()[&shop], SlotMode::IntentExclusive);
    assert_eq!(free_children(&locks, &shop, &["a", "b", "c"]).await, [false, false, true]);
    drop(guard);

    // A shelf is a leaf and has no children.
    let error = locks.acquire_children(&target("s1/a"), ["x"]).await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("shop/shelf"), "{error}");
    assert!(locks.holders().is_empty());
}

#[tokio::test]
async fn children_are_locked_in_a_tree_of_four_levels() {
    let locks = locks(&["org", "team", "project", "doc"]).await;
    // At every level, from the root's children to the leaves.
    for parent in ["acme", "acme/search", "acme/search/ranking"].map(target) {
        let guard = locks.acquire_children(&parent, ["2", "1"]).await.unwrap();
        assert_eq!(guard.targets().len(), 2);
        assert_eq!(guard.modes()[&parent], SlotMode::IntentExclusive);
        assert_eq!(free_children(&locks, &parent, &["1", "2", "3"]).await, [false, false, true]);
        assert!(locks.try_acquire(parent).await.unwrap().is_none());
    }
    let error = locks.acquire_children(&target("acme/search"), ["1", ""]).await.unwrap_err();
    assert!(error.to_string().contains("level 2"), "{error}");
    let error = locks.acquire_children(&target("acme"), [""; 0]).await.unwrap_err();
    assert!(error.to_string().contains("no target"), "{error}");
}

#[test]
fn a_child_is_one_level_down() {
    assert_eq!(target("a/b").child("c/d").unwrap(), target("a/b/c%2Fd"));
    let deepest = Target::path(["x"; 8]).unwrap();
    assert!(deepest.child("y").unwrap_err().to_string().contains("at most 8 levels"));
    assert!(target("a").child(&"y".repeat(256)).unwrap_err().to_string().contains("level 1"));
}
