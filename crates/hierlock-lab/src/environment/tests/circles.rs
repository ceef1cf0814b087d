//! Deadlocks: who is chosen, and the circle.

use super::*;
use crate::record::{Cycle, WaitEdge};

on_all!(
    a_circle_of_keys;
    on numbers:
    two_in_a_circle,
    three_in_a_circle,
    readers_who_want_to_write,
    another_deadlock_is_another_story,
);

/// A server tells only its last deadlock, so these tests take turns.
static TURNS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn update(id: u32) -> String {
    format!("update numbers set value = value + 1 where id = {id}")
}

/// Begins the statements, of which the last closes the circle; returns how the victim failed, and the circle.
async fn deadlock(db: &OpenDatabase, statements: &[(&str, String)]) -> (Failure, Option<Cycle>) {
    let mut waiting = tokio::task::JoinSet::new();
    for (place, (who, sql)) in statements.iter().enumerate() {
        let (session, reply) = (name(who), db.start(who, sql));
        waiting.spawn(async move { (session, end(reply).await) });
        if let Some((next, _)) = statements.get(place + 1) {
            assert_eq!(by(&db.blocked(who).await), *next);
        }
    }
    while let Some(ended) = waiting.join_next().await {
        let (who, result) = ended.unwrap();
        let Err(failure) = result else { continue };
        assert_eq!(failure.kind, FailureKind::Deadlock, "{failure:?}");
        let circle = db.deadlock(&who, &failure).await;
        return (failure, circle);
    }
    panic!("nobody was chosen")
}

fn around(circle: &[WaitEdge]) -> Vec<String> {
    let mut around: Vec<String> =
        circle.iter().map(|link| format!("{}→{}", link.waiter, link.holder)).collect();
    around.sort();
    for (link, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
        assert_eq!(link.holder, next.waiter, "each waits for the next: {circle:?}");
    }
    around
}

async fn two_in_a_circle(db: &OpenDatabase) {
    let _turn = TURNS.lock().await;
    for (who, id) in [("A", 1), ("B", 2)] {
        db.all(who, &["begin", &update(id)]).await;
    }
    let (failure, circle) = deadlock(db, &[("A", update(2)), ("B", update(1))]).await;
    let circle = circle.unwrap();
    assert_eq!(around(&circle), ["A→B", "B→A"]);
    let of_a = circle.iter().find(|link| link.waiter == name("A")).unwrap();
    let wants = of_a.wants.as_ref().unwrap();
    if db.is_postgres() {
        assert_eq!((failure.code.as_str(), wants.kind), ("40P01", LockKind::Row));
    } else {
        assert_eq!((failure.code.as_str(), wants.record.as_deref()), ("1213", Some("2")));
        assert_eq!((wants.object.as_str(), wants.kind), ("numbers", LockKind::Row));
        let of_b = &of_a.blocking[0];
        assert_eq!((of_b.target.record.as_deref(), of_b.granted), (Some("2"), true), "{of_a:?}");
    }
}

async fn three_in_a_circle(db: &OpenDatabase) {
    let _turn = TURNS.lock().await;
    let around_the_table = [("A", 1, 2), ("B", 2, 10), ("C", 10, 1)];
    for (who, id, _) in around_the_table {
        db.all(who, &["begin", &update(id)]).await;
    }
    let (_, circle) = deadlock(db, &around_the_table.map(|(who, _, id)| (who, update(id)))).await;
    assert_eq!(around(&circle.unwrap()), ["A→B", "B→C", "C→A"]);
}

/// Neither has changed anything yet, so on MariaDB neither has a number.
async fn readers_who_want_to_write(db: &OpenDatabase) {
    let _turn = TURNS.lock().await;
    let share = if db.is_postgres() { "for share" } else { "lock in share mode" };
    for who in ["A", "B"] {
        let read = format!("select * from numbers where id = 1 {share}");
        db.all(who, &["begin", &read]).await;
    }
    let (_, circle) = deadlock(db, &[("A", update(1)), ("B", update(1))]).await;
    assert_eq!(around(&circle.unwrap()), ["A→B", "B→A"]);
}

async fn a_circle_of_keys(server: Arc<TestServer>) {
    let _turn = TURNS.lock().await;
    let mut case = case(server.engine(), &[]);
    let take = |key: u32| match server.engine() {
        Engine::Postgres => format!("select pg_advisory_lock({key})"),
        _ => format!("select get_lock('k{key}', 30)"),
    };
    will_run(&mut case, &take(1));
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &[&take(1)]).await;
    db.all("B", &[&take(2)]).await;
    let (_, circle) = deadlock(&db, &[("A", take(2)), ("B", take(1))]).await;
    let circle = circle.unwrap();
    assert_eq!(around(&circle), ["A→B", "B→A"]);
    let wanted = |waiter: &str| {
        let edge = circle.iter().find(|edge| edge.waiter == name(waiter)).unwrap();
        edge.wants.as_ref().unwrap().object.clone()
    };
    if db.is_postgres() {
        let mut keys = [wanted("A"), wanted("B")];
        keys.sort();
        assert_eq!(keys, ["1", "2"]);
    } else {
        // InnoDB knows nothing of these; what was seen is told, and no old story instead.
        assert_eq!(wanted("A"), "k2");
    }
    db.close().await;
}

async fn another_deadlock_is_another_story(db: &OpenDatabase) {
    let _turn = TURNS.lock().await;
    for (mine, other) in [(1, 2), (2, 10)] {
        db.all("A", &["begin", &update(mine)]).await;
        db.all("B", &["begin", &update(other)]).await;
        let (_, circle) = deadlock(db, &[("A", update(other)), ("B", update(mine))]).await;
        let circle = circle.unwrap();
        assert_eq!(around(&circle), ["A→B", "B→A"]);
        if !db.is_postgres() {
            let of_a = circle.iter().find(|link| link.waiter == name("A")).unwrap();
            let wants = of_a.wants.as_ref().unwrap().record.clone();
            assert_eq!((wants, of_a.blocking.len()), (Some(other.to_string()), 1));
        }
        for who in ["A", "B"] {
            db.run(who, "rollback").await.unwrap();
        }
    }
}
