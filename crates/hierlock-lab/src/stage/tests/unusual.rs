//! Statements that do more than answer, and sessions that are more than one user's.

use super::*;

on_all!(
    a_refusal_inside_of_a_prepared_statement_is_one,
    a_killed_connection_was_ended_by_the_server,
    an_encrypted_connection_that_is_killed_was_ended_by_the_server,
    notifications_do_not_end_a_session,
    rows_to_and_from_the_client_are_refused,
    roles_of_a_scenario_see_what_they_are_granted,
);

const TAKE: &str = "select * from numbers where id = 1 for update";

/// MariaDB has one number for a wait that ran out and for NOWAIT; `EXECUTE s` does not say NOWAIT, so it
/// was told as "timed out".
async fn a_refusal_inside_of_a_prepared_statement_is_one(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", TAKE]).await;
    let impatient = format!("{TAKE} nowait");
    let mut ways = match server.engine() {
        Engine::Postgres => vec![vec![format!("prepare s as {impatient}"), "execute s".to_owned()]],
        _ => vec![
            vec![format!("prepare s from '{impatient}'"), "execute s".to_owned()],
            vec![
                format!("set @text = '{impatient}'"),
                "PREPARE `s2` FROM @text".to_owned(),
                "set @text = 'select 1'".to_owned(),
                "EXECUTE `s2`".to_owned(),
            ],
        ],
    };
    if server.engine() == Engine::Mariadb {
        ways.push(vec![format!("execute immediate '{impatient}'")]);
        ways.push(vec![format!("execute immediate concat('{TAKE}', ' nowait')")]);
    }
    for way in ways {
        let (last, before) = way.split_last().unwrap();
        for sql in before {
            play.run("B", sql).await.unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        }
        let refused = play.run("B", last).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Refused, "{way:?}: {refused:?}");
    }
    // What was prepared also tells an empty answer from none.
    let none = "select id from numbers where id = 77";
    let prepare = match server.engine() {
        Engine::Postgres => format!("prepare n as {none}"),
        _ => format!("prepare n from '{none}'"),
    };
    play.all("B", &[&prepare]).await;
    assert_eq!(play.run("B", "execute n").await.unwrap().rows, Some(Vec::new()));
    play.close().await;
}

async fn kill(play: &Play, who: &str) {
    let id = play.stage.connection(&name(who));
    let kill = match play.is_postgres() {
        true => format!("select pg_terminate_backend({id})"),
        false => format!("kill {id}"),
    };
    play.run("B", &kill).await.unwrap();
    let failure = play.run(who, "select 1").await.unwrap_err();
    // MySQL and PostgreSQL may still say it themselves.
    let is_told = ["ended the connection", "terminating", "killed", "disconnected", "shutdown"];
    assert!(is_told.iter().any(|words| failure.message.contains(words)), "{failure:?}");
    assert!(!failure.message.contains("http"), "{failure:?}");
    let again = play.run(who, "select 1").await.unwrap_err();
    assert!(again.message.contains("ended the connection"), "{again:?}");
    assert!(!again.message.contains("EOF") && !again.message.contains("http"), "{again:?}");
}

async fn a_killed_connection_was_ended_by_the_server(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    kill(&play, "A").await;
    play.close().await;
}

/// "peer closed connection without sending TLS close_notify: https://docs.rs/…" was what a person read.
async fn an_encrypted_connection_that_is_killed_was_ended_by_the_server(server: Server) {
    // The others make no certificates by themselves.
    if server.engine() == Engine::Mysql {
        let url = format!("{}?ssl-mode=REQUIRED", server.inner.url);
        let server = Server::connect(Engine::Mysql, &url).await.unwrap();
        let play = Play::open(server, &numbers(Engine::Mysql)).await;
        kill(&play, "A").await;
        play.close().await;
    }
}

/// A notification came between a statement and its answer, and the session was "lost: execute: unexpected
/// message: NotificationResponse".
async fn notifications_do_not_end_a_session(server: Server) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["listen news"]).await;
    for _ in 0..50 {
        play.all("B", &["notify news, 'one'"]).await;
        let read = play.run("A", "select id from numbers where id = 1").await.unwrap();
        assert_eq!(read.rows, Some(vec![vec![Some("1".to_owned())]]));
    }
    // In a transaction they come when it ends; one's own as well.
    play.all("A", &["begin", "notify news, 'own'"]).await;
    play.all("B", &["notify news, 'two'"]).await;
    play.all("A", &["select 1", "commit", "select 1"]).await;
    let ids = play.stage.connections();
    play.close().await;
    let mut connection = StageConnection::open(&server.inner.address).await.unwrap();
    let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let left = format!("select pid from pg_stat_activity where pid in ({list})");
    let gone = async { while !connection.ask(&left).await.unwrap().is_empty() {} };
    tokio::time::timeout(LONG, gone).await.expect("sessions are left on the server");
}

/// `COPY … FROM STDIN` left the session waiting for rows, and everything after it too.
async fn rows_to_and_from_the_client_are_refused(server: Server) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin"]).await;
    for (sql, instead) in
        [("copy numbers from stdin", "INSERT"), ("copy numbers to stdout", "SELECT")]
    {
        let refused = play.run("A", sql).await.unwrap_err();
        assert!(refused.message.contains(instead), "{refused:?}");
        play.all("A", &["select 1"]).await;
    }
    play.all("A", &["commit"]).await;
    play.close().await;
    let case = case(server.engine(), &["create table t (id int)", "copy t from stdin"]);
    let error = server.open(&case).await.err().unwrap().to_string();
    assert!(error.starts_with("line 7: ") && error.contains("INSERT"), "{error}");
}

/// The case's schema was closed to every other role: `relation "numbers" does not exist`, whatever was
/// granted.
async fn roles_of_a_scenario_see_what_they_are_granted(server: Server) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    let role = format!("{}_clerk", server.inner.mark());
    case.setup.push(statement(&format!("create role {role}")));
    case.setup.push(statement(&format!("grant select on numbers to {role}")));
    case.teardown.push(statement(&format!("drop owned by {role}")));
    case.teardown.push(statement(&format!("drop role {role}")));
    for way in ["set role", "set session authorization"] {
        let play = Play::open(server.clone(), &case).await;
        play.all("A", &[&format!("{way} {role}"), "select * from numbers where id = 1"]).await;
        let denied = play.run("A", "update numbers set value = 1").await.unwrap_err();
        assert_eq!(denied.code, "42501", "{denied:?}");
        play.close().await;
    }
}
