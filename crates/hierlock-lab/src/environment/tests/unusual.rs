//! Statements that do more than answer, and sessions that are more than one user's.

use super::*;

on_all!(
    an_encrypted_connection_that_is_killed_was_ended_by_the_server,
    notifications_do_not_end_a_session,
    rows_to_and_from_the_client_are_refused,
    roles_of_a_scenario_see_what_they_are_granted;
    on numbers:
    a_refusal_inside_of_a_prepared_statement_is_one,
    a_killed_connection_was_ended_by_the_server,
);

/// MariaDB has one number for a timeout and for NOWAIT, which `EXECUTE s` does not show: it was "timed out".
async fn a_refusal_inside_of_a_prepared_statement_is_one(db: &OpenDatabase) {
    db.all("A", &["begin", TAKE]).await;
    let impatient = format!("{TAKE} nowait");
    let mut ways = match db.server.engine() {
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
    if db.server.engine() == Engine::Mariadb {
        ways.push(vec![format!("execute immediate '{impatient}'")]);
        ways.push(vec![format!("execute immediate concat('{TAKE}', ' nowait')")]);
    }
    for way in ways {
        let (last, before) = way.split_last().unwrap();
        for sql in before {
            db.run("B", sql).await.unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        }
        let refused = db.run("B", last).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Refused, "{way:?}: {refused:?}");
    }
    // What was prepared also tells an empty answer from none.
    let none = "select id from numbers where id = 77";
    let prepare = match db.server.engine() {
        Engine::Postgres => format!("prepare n as {none}"),
        _ => format!("prepare n from '{none}'"),
    };
    db.all("B", &[&prepare]).await;
    assert_eq!(db.run("B", "execute n").await.unwrap().rows, Some(Vec::new()));
}

async fn kill(db: &OpenDatabase, who: &str) {
    let id = db.sessions[&name(who)].pid;
    let kill = hierlock_engine::sessions::terminate(db.server.dialect(), id);
    db.run("B", &kill).await.unwrap();
    let failure = db.run(who, "select 1").await.unwrap_err();
    // MySQL and PostgreSQL may still say it themselves.
    let is_told = ["ended the connection", "terminating", "killed", "disconnected", "shutdown"];
    assert!(is_told.iter().any(|words| failure.message.contains(words)), "{failure:?}");
    assert!(!failure.message.contains("http"), "{failure:?}");
    let again = db.run(who, "select 1").await.unwrap_err();
    assert!(again.message.contains("ended the connection"), "{again:?}");
    assert!(!again.message.contains("EOF") && !again.message.contains("http"), "{again:?}");
}

async fn a_killed_connection_was_ended_by_the_server(db: &OpenDatabase) {
    kill(db, "A").await;
}

/// "peer closed connection without sending TLS close_notify: https://docs.rs/…" was what a person read.
async fn an_encrypted_connection_that_is_killed_was_ended_by_the_server(server: Arc<TestServer>) {
    // The others make no certificates by themselves.
    if server.engine() == Engine::Mysql {
        let url = format!("{}?ssl-mode=REQUIRED", server.url);
        let server = TestServer::connect(Engine::Mysql, &url).await.unwrap();
        let db = OpenDatabase::numbers(&server).await;
        kill(&db, "A").await;
        db.close().await;
    }
}

/// A notification between a statement and its answer ended the session: "unexpected message".
async fn notifications_do_not_end_a_session(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let db = OpenDatabase::numbers(&server).await;
    db.all("A", &["listen news"]).await;
    for _ in 0..50 {
        db.all("B", &["notify news, 'one'"]).await;
        let read = db.run("A", "select id from numbers where id = 1").await.unwrap();
        assert_eq!(read.rows, Some(vec![vec![Some("1".to_owned())]]));
    }
    // In a transaction they come when it ends; one's own as well.
    db.all("A", &["begin", "notify news, 'own'"]).await;
    db.all("B", &["notify news, 'two'"]).await;
    db.all("A", &["select 1", "commit", "select 1"]).await;
    let ids = db.pids();
    db.close().await;
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let list = join(ids, ", ");
    let left = format!("select pid from pg_stat_activity where pid in ({list})");
    let gone = async { while !connection.query(&left).await.unwrap().is_empty() {} };
    tokio::time::timeout(LONG, gone).await.expect("sessions are left on the server");
}

/// `COPY … FROM STDIN` left the session waiting for rows, and everything after it too.
async fn rows_to_and_from_the_client_are_refused(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let db = OpenDatabase::numbers(&server).await;
    db.all("A", &["begin"]).await;
    for (sql, instead) in
        [("copy numbers from stdin", "INSERT"), ("copy numbers to stdout", "SELECT")]
    {
        let refused = db.run("A", sql).await.unwrap_err();
        assert!(refused.message.contains(instead), "{refused:?}");
        db.all("A", &["select 1"]).await;
    }
    db.all("A", &["commit"]).await;
    db.close().await;
    let case = case(server.engine(), &["create table t (id int)", "copy t from stdin"]);
    let error = TestDatabase::open(&server, &case).await.err().unwrap().to_string();
    assert!(error.starts_with("line 7: ") && error.contains("INSERT"), "{error}");
}

/// The case's schema was closed to other roles: `relation "numbers" does not exist`, whatever was granted.
async fn roles_of_a_scenario_see_what_they_are_granted(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    let role = format!("{}_clerk", server.prefix);
    case.setup.push(statement(&format!("create role {role}")));
    case.setup.push(statement(&format!("grant select on numbers to {role}")));
    case.teardown.push(statement(&format!("drop owned by {role}")));
    case.teardown.push(statement(&format!("drop role {role}")));
    for way in ["set role", "set session authorization"] {
        let db = OpenDatabase::open(&server, &case).await;
        db.all("A", &[&format!("{way} {role}"), "select * from numbers where id = 1"]).await;
        let denied = db.run("A", "update numbers set value = 1").await.unwrap_err();
        assert_eq!(denied.code, "42501", "{denied:?}");
        db.close().await;
    }
}
