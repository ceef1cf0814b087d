//! Killed connections, notifications, and roles.

use super::endings::{count_connected, wait_until};
use super::*;

on_all!(
    a_killed_encrypted_connection_is_reported_as_ended_by_the_server,
    notifications_do_not_end_a_session,
    roles_of_a_scenario_have_their_privileges;
    on numbers:
    a_killed_connection_is_reported_as_ended_by_the_server,
);

async fn a_killed_connection_is_reported_as_ended_by_the_server(db: &TestDatabase) {
    let id = db.sessions[&name("A")].pid;
    let kill = hierlock_engine::sessions::terminate(db.guard.server.dialect(), id);
    db.run("B", &kill).await.unwrap();
    let failure = db.run("A", "select 1").await.unwrap_err();
    // MySQL and PostgreSQL may still send their own message.
    let texts = ["ended the connection", "terminating", "killed", "disconnected", "shutdown"];
    assert!(texts.iter().any(|text| failure.message.contains(text)), "{failure:?}");
    assert!(!failure.message.contains("http"), "{failure:?}");
    let again = db.run("A", "select 1").await.unwrap_err();
    assert!(again.message.contains("ended the connection"), "{again:?}");
    assert!(!again.message.contains("EOF") && !again.message.contains("http"), "{again:?}");
}

/// The failure this prevents: the message was "peer closed connection without sending TLS close_notify: https…".
async fn a_killed_encrypted_connection_is_reported_as_ended_by_the_server(server: Arc<TestServer>) {
    // The other servers do not create certificates by themselves.
    if server.engine() == Engine::Mysql {
        let url = format!("{}?ssl-mode=REQUIRED", server.url);
        let server = TestServer::connect(Engine::Mysql, &url).await.unwrap();
        let db = open_numbers(&server).await;
        a_killed_connection_is_reported_as_ended_by_the_server(&db).await;
        db.close().await.unwrap();
    }
}

/// The failure this prevents: a notification before a result ended the session with "unexpected message".
async fn notifications_do_not_end_a_session(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let db = open_numbers(&server).await;
    db.run_all("A", &["listen news"]).await;
    for _ in 0..50 {
        db.run_all("B", &["notify news, 'one'"]).await;
        let read = db.run("A", "select id from numbers where id = 1").await.unwrap();
        assert_eq!(read.rows, Some(vec![vec![Some("1".to_owned())]]));
    }
    // In a transaction, notifications arrive at its end, including the session's own.
    db.run_all("A", &["begin", "notify news, 'own'"]).await;
    db.run_all("B", &["notify news, 'two'"]).await;
    db.run_all("A", &["select 1", "commit", "select 1"]).await;
    let ids = db.pids();
    db.close().await.unwrap();
    wait_until("all are gone", async || count_connected(&server, &ids).await == 0).await;
}

/// The failure this prevents: other roles had no access to the schema: `relation "numbers" does not exist`.
async fn roles_of_a_scenario_have_their_privileges(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    let role = format!("{}_clerk", server.prefix);
    case.setup.push(statement(&format!("create role {role}")));
    case.setup.push(statement(&format!("grant select on numbers to {role}")));
    case.teardown.push(statement(&format!("drop owned by {role}")));
    case.teardown.push(statement(&format!("drop role {role}")));
    for command in ["set role", "set session authorization"] {
        let db = open(&server, &case).await;
        db.run_all("A", &[&format!("{command} {role}"), "select * from numbers where id = 1"])
            .await;
        let denied = db.run("A", "update numbers set value = 1").await.unwrap_err();
        assert_eq!(denied.code, "42501", "{denied:?}");
        db.close().await.unwrap();
    }
}
