//! Deadlocks: who is chosen, and the circle.

use super::*;
use crate::record::Link;

on_all!(
    two_in_a_circle,
    three_in_a_circle,
    readers_who_want_to_write,
    a_circle_of_keys,
    another_deadlock_is_another_story,
);

/// A server tells only its last deadlock, so these tests take turns.
static TURNS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn update(id: u32) -> String {
    format!("update numbers set value = value + 1 where id = {id}")
}

/// Closes the circle; the victim, how it failed, and the circle.
async fn ended(play: &Play, replies: Vec<(&str, Reply)>) -> (Name, Failure, Option<Vec<Link>>) {
    let mut waiting = tokio::task::JoinSet::new();
    for (who, reply) in replies {
        let who = name(who);
        waiting.spawn(async move { (who, end(reply).await) });
    }
    while let Some(over) = waiting.join_next().await {
        let (who, over) = over.unwrap();
        let Err(failure) = over else { continue };
        assert_eq!(failure.kind, FailureKind::Deadlock, "{failure:?}");
        let circle = play.stage.circle(&who, &failure).await;
        return (who, failure, circle);
    }
    panic!("nobody was chosen")
}

fn around(circle: &[Link]) -> Vec<String> {
    let mut around: Vec<String> =
        circle.iter().map(|link| format!("{}→{}", link.waiter, link.holder)).collect();
    around.sort();
    for (link, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
        assert_eq!(link.holder, next.waiter, "each waits for the next: {circle:?}");
    }
    around
}

async fn two_in_a_circle(server: Server) {
    let _turn = TURNS.lock().await;
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    for (who, id) in [("A", 1), ("B", 2)] {
        play.all(who, &["begin", &update(id)]).await;
    }
    let first = play.begin("A", &update(2));
    play.blocked("A").await;
    let second = play.begin("B", &update(1));
    let (_, failure, circle) = ended(&play, vec![("A", first), ("B", second)]).await;
    let circle = circle.unwrap();
    assert_eq!(around(&circle), ["A→B", "B→A"]);
    let of_a = circle.iter().find(|link| link.waiter == name("A")).unwrap();
    let wants = of_a.wants.as_ref().unwrap();
    match play.is_postgres() {
        true => assert_eq!((failure.code.as_str(), wants.kind), ("40P01", LockKind::Row)),
        false => {
            assert_eq!((failure.code.as_str(), wants.record.as_deref()), ("1213", Some("2")));
            assert_eq!((wants.object.as_str(), wants.kind), ("numbers", LockKind::Row));
            let of_b = &of_a.blocking[0];
            assert_eq!((of_b.thing.record.as_deref(), of_b.granted), (Some("2"), true), "{of_a:?}");
        }
    }
    play.close().await;
}

async fn three_in_a_circle(server: Server) {
    let _turn = TURNS.lock().await;
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let around_the_table = [("A", 1, 2), ("B", 2, 10), ("C", 10, 1)];
    for (who, id, _) in around_the_table {
        play.all(who, &["begin", &update(id)]).await;
    }
    let mut replies = Vec::new();
    for (who, _, id) in around_the_table {
        replies.push((who, play.begin(who, &update(id))));
        if who != "C" {
            play.blocked(who).await;
        }
    }
    let (_, _, circle) = ended(&play, replies).await;
    assert_eq!(around(&circle.unwrap()), ["A→B", "B→C", "C→A"]);
    play.close().await;
}

/// Neither has changed anything yet, so on MariaDB neither has a number.
async fn readers_who_want_to_write(server: Server) {
    let _turn = TURNS.lock().await;
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let share = if play.is_postgres() { "for share" } else { "lock in share mode" };
    for who in ["A", "B"] {
        let read = format!("select * from numbers where id = 1 {share}");
        play.all(who, &["begin", &read]).await;
    }
    let first = play.begin("A", &update(1));
    assert_eq!(by(&play.blocked("A").await), "B");
    let second = play.begin("B", &update(1));
    let (_, _, circle) = ended(&play, vec![("A", first), ("B", second)]).await;
    assert_eq!(around(&circle.unwrap()), ["A→B", "B→A"]);
    play.close().await;
}

async fn a_circle_of_keys(server: Server) {
    let _turn = TURNS.lock().await;
    let mut case = case(server.engine(), &[]);
    let take = |key: u32| match server.engine() {
        Engine::Postgres => format!("select pg_advisory_lock({key})"),
        _ => format!("select get_lock('k{key}', 30)"),
    };
    will_run(&mut case, &take(1));
    let play = Play::open(server.clone(), &case).await;
    play.all("A", &[&take(1)]).await;
    play.all("B", &[&take(2)]).await;
    let first = play.begin("A", &take(2));
    play.blocked("A").await;
    let second = play.begin("B", &take(1));
    let (_, _, circle) = ended(&play, vec![("A", first), ("B", second)]).await;
    let circle = circle.unwrap();
    assert_eq!(around(&circle), ["A→B", "B→A"]);
    match play.is_postgres() {
        true => {
            let keys: Vec<_> =
                circle.iter().map(|link| &link.wants.as_ref().unwrap().object).collect();
            assert!(keys.contains(&&"1".to_owned()) && keys.contains(&&"2".to_owned()), "{keys:?}");
        }
        // InnoDB knows nothing of these; what was seen is told, and no old story instead.
        false => {
            let of_a = circle.iter().find(|link| link.waiter == name("A")).unwrap();
            assert_eq!(of_a.wants.as_ref().unwrap().object, "k2");
        }
    }
    play.close().await;
}

async fn another_deadlock_is_another_story(server: Server) {
    let _turn = TURNS.lock().await;
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    for (mine, other) in [(1, 2), (2, 10)] {
        play.all("A", &["begin", &update(mine)]).await;
        play.all("B", &["begin", &update(other)]).await;
        let first = play.begin("A", &update(other));
        play.blocked("A").await;
        let second = play.begin("B", &update(mine));
        let (_, _, circle) = ended(&play, vec![("A", first), ("B", second)]).await;
        let circle = circle.unwrap();
        assert_eq!(around(&circle), ["A→B", "B→A"]);
        if !play.is_postgres() {
            let of_a = circle.iter().find(|link| link.waiter == name("A")).unwrap();
            let wants = of_a.wants.as_ref().unwrap().record.clone();
            assert_eq!((wants, of_a.blocking.len()), (Some(other.to_string()), 1));
        }
        for who in ["A", "B"] {
            play.run(who, "rollback").await.unwrap();
        }
    }
    play.close().await;
}
