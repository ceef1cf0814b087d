//! Connecting to a server: by socket, with TLS, beside the program's own pool, and through a pooler, which is refused.

use crate::support::{Database, OutsideSession, Setup, server};
use hierlock::checks::Severity;
use hierlock::sql::{Provision, Scope, Strategy, sqlx};
use hierlock::{Diagnosis, Hierarchy, Hierlock, Mode, Target};
use hierlock_sandbox::{Engine, Sandbox, Server};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Checks that clients of both URLs exclude each other.
async fn assert_works(url: &str, other_url: &str) {
    let (locks, others) =
        (Hierlock::connect(url).await.unwrap(), Hierlock::connect(other_url).await.unwrap());
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(others.try_acquire(target("u1")).await.unwrap().is_some());
}

/// Returns the sandbox of a server, unless the server is external.
fn sandbox(engine: Engine) -> Option<&'static Sandbox> {
    match server(engine)? {
        Server::Sandbox(sandbox) => Some(sandbox),
        Server::External { .. } => {
            eprintln!("skipped, because {engine} is an external server whose files are not known");
            None
        }
    }
}

/// Returns the user, the port and the database of a URL.
fn split_url(url: &str) -> (&str, &str, &str) {
    let (_, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (address, database) = rest.split_once('/').unwrap();
    (user, address.rsplit_once(':').unwrap().1, database)
}

#[tokio::test]
async fn every_server_is_reachable_by_socket() {
    for engine in Engine::ALL {
        let Some(sandbox) = sandbox(engine) else { continue };
        let (user, port, database) = split_url(sandbox.url());
        let directory = sandbox.directory().display();
        let more = "strategy=on-demand&table=by_socket";
        let url = match engine {
            Engine::Postgres => {
                format!("postgres:///{database}?host={directory}&port={port}&user={user}&{more}")
            }
            _ => format!("{engine}://{user}@localhost/{database}?socket={directory}/socket&{more}"),
        };
        assert_works(&url, &format!("{}?{more}", sandbox.url())).await;
        let message = Hierlock::connect(&url.replace("socket&", "nowhere&").replace(port, "1"))
            .await
            .unwrap_err()
            .to_string();
        assert!(message.contains(&directory.to_string()), "{message}");
    }
}

/// The failure this prevents: the driver's options contain the password, and were part of the Debug output of a
/// client.
#[tokio::test]
async fn no_output_contains_the_password() {
    // This server accepts any password.
    let Some(server) = server(Engine::Postgres) else { return };
    let url = server.url().replacen('@', ":s3cret@", 1);
    let locks = Hierlock::connect(&url).await.unwrap();
    let guard = locks.acquire(target("u1")).await.unwrap();
    let striped = format!("{url}?strategy=striped");
    let provision = Provision::connect(&striped, Hierarchy::default()).await.unwrap();
    let database = hierlock::database::Database::connect(&url).await.unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let beside = Hierlock::beside(&pool).await.unwrap();
    let mut errors = Vec::new();
    for mistake in ["?tabel=x", "?strategy=x", "0/x", "?sslmode=x"] {
        errors.push(Hierlock::connect(&format!("{url}{mistake}")).await.unwrap_err());
    }
    let debug = format!("{locks:?} {guard:?} {provision:?} {database:?} {beside:?} {errors:?}");
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(
        !debug.contains("s3cret") && !messages.concat().contains("s3cret"),
        "{debug} {messages:?}"
    );
    assert!(messages[0].contains("did you mean `table`?"), "{messages:?}");
    let error = Hierlock::builder().table("a-b").beside(&pool).await.unwrap_err();
    assert!(
        error.to_string().contains("`table`") && !format!("{error:?}").contains("s3cret"),
        "{error}"
    );
}

#[tokio::test]
async fn tls_is_used_if_requested() {
    if let Some(sandbox) = sandbox(Engine::Mysql) {
        let mut outside = OutsideSession::connect(sandbox.url()).await;
        outside.run("CREATE USER IF NOT EXISTS tls@'127.0.0.1' REQUIRE SSL").await;
        outside.run("GRANT ALL ON *.* TO tls@'127.0.0.1'").await;
        let (_, port, database) = split_url(sandbox.url());
        let more = "strategy=on-demand&table=by_tls";
        let url = |mode| format!("mysql://tls@127.0.0.1:{port}/{database}?ssl-mode={mode}&{more}");
        assert_works(&url("REQUIRED"), &format!("{}?{more}", sandbox.url())).await;
        assert!(Hierlock::connect(&url("DISABLED")).await.is_err());
        // A self-signed certificate is not trusted.
        assert!(Hierlock::connect(&url("VERIFY_CA")).await.is_err());
    }
    let files = tempfile::tempdir().unwrap();
    make_certificate(files.path());
    let option = |name: &str, file| format!("--{name}={}", files.path().join(file).display());
    let options = [option("ssl-cert", "server.crt"), option("ssl-key", "server.key")];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    if let Some(sandbox) = Sandbox::for_tests_with(Engine::Mariadb, &options) {
        let mut outside = OutsideSession::connect(sandbox.url()).await;
        outside.run("CREATE USER tls@'127.0.0.1' REQUIRE SSL").await;
        outside.run("GRANT ALL ON *.* TO tls@'127.0.0.1'").await;
        let (_, port, database) = split_url(sandbox.url());
        let more = "strategy=on-demand";
        let url =
            |mode| format!("mariadb://tls@127.0.0.1:{port}/{database}?ssl-mode={mode}&{more}");
        assert_works(&url("REQUIRED"), &format!("{}?{more}", sandbox.url())).await;
        assert!(Hierlock::connect(&url("DISABLED")).await.is_err());
        assert!(Hierlock::connect(&url("VERIFY_CA")).await.is_err());
    }
    if let Some(sandbox) = Sandbox::for_tests(Engine::Postgres) {
        let mut outside = OutsideSession::connect(sandbox.url()).await;
        let data = outside.rows("SHOW data_directory").await[0][0].clone();
        make_certificate(Path::new(&data));
        outside.run("ALTER SYSTEM SET ssl = on").await;
        outside.run("SELECT pg_reload_conf()").await;
        let url = |mode| format!("{}?sslmode={mode}", sandbox.url());
        // The reload takes effect after a moment.
        let begun = Instant::now();
        while Hierlock::connect(&url("require")).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the server did not enable TLS");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let locks = Hierlock::connect(&url("require")).await.unwrap();
        let _guard = locks.acquire(target("u1")).await.unwrap();
        let plain = "SELECT count(*)::text FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE application_name LIKE '%@%:%' AND NOT ssl";
        assert_eq!(outside.number(plain).await, 0);
        let encrypted = plain.replace("NOT ssl", "ssl");
        assert!(outside.number(&encrypted).await > 0);
        assert!(Hierlock::connect(&url("verify-full")).await.is_err());
    }
}

/// Creates a self-signed certificate in the server's data directory.
fn make_certificate(data: &Path) {
    let [key, certificate] = ["server.key", "server.crt"].map(|name| data.join(name));
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("openssl is installed").success());
    let owner = std::fs::metadata(data).unwrap();
    for path in [key, certificate] {
        use std::os::unix::fs::MetadataExt;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

#[tokio::test]
async fn a_client_locks_beside_the_pool_of_a_program() {
    let more = "strategy=on-demand&table=by_pool";
    for engine in Engine::ALL {
        let Some(server) = server(engine) else { continue };
        let url = server.url().split('?').next().unwrap();
        let builder = Hierlock::builder().strategy(Strategy::OnDemand).table("by_pool");
        let locks = match engine {
            Engine::Postgres => {
                let pool = sqlx::PgPool::connect(url).await.unwrap();
                builder.beside(&pool).await.unwrap()
            }
            _ => {
                let pool =
                    sqlx::MySqlPool::connect(&url.replacen("mariadb", "mysql", 1)).await.unwrap();
                let advisory = Hierlock::builder().strategy(Strategy::Advisory);
                let error = advisory.beside(&pool).await.unwrap_err();
                assert!(error.is_usage() && error.to_string().contains("advisory"), "{error}");
                builder.beside(&pool).await.unwrap()
            }
        };
        let others = Hierlock::connect(&format!("{url}?{more}")).await.unwrap();
        let guard = locks.acquire(target("u1")).await.unwrap();
        assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// Options of a builder have the same effect as parameters of a URL.
#[tokio::test]
async fn builder_options_equal_url_parameters() {
    for engine in Engine::ALL {
        let setup = Setup { engine, strategy: Strategy::OnDemand };
        let Some(database) = Database::new(setup).await else { continue };
        let url = database.bare_url();
        let builder = Hierlock::builder()
            .strategy(Strategy::OnDemand)
            .table("built")
            .connections(1)
            .keep_alive(Duration::from_millis(200))
            .client_silence(Duration::from_secs(60))
            .answer_timeout(Duration::from_secs(9))
            .reconnect(Duration::ZERO)
            .lock_wait_timeout(Duration::from_secs(5));
        let locks = builder.clone().connect(url).await.unwrap();
        let others =
            Hierlock::connect(&format!("{url}?strategy=on-demand&table=built")).await.unwrap();
        let elsewhere = database.connect().await;
        let guard = locks.acquire(target("u1")).await.unwrap();
        assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
        assert!(elsewhere.try_acquire(target("u1")).await.unwrap().is_some());
        // There is only one connection.
        let short = Duration::from_millis(50);
        let error = locks.request(target("u2")).within(short).acquire().await.unwrap_err();
        assert!(error.to_string().contains("all connections of this client are in use"), "{error}");
        guard.release().await.unwrap();

        let error = builder.clone().connect(&format!("{url}?connections=1")).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`connections`"), "{error}");
        let other = Hierarchy::new(["org", "team"]).unwrap();
        let error = builder.clone().hierarchy(other).connect_sql(url).await.unwrap_err();
        assert!(error.to_string().contains("user/account/resource"), "{error}");
        let scoped = Hierlock::builder().strategy(Strategy::OnDemand).scope(Scope::Session);
        let error = scoped.connect(url).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`scope`"), "{error}");
    }
}

/// Only clients of servers can lock in transactions.
#[tokio::test]
async fn connect_sql_accepts_only_servers() {
    for url in ["memory:", "file:/nowhere/x.lock"] {
        let error = Hierlock::connect_sql(url).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("not a database server"), "{error}");
    }
}

/// A running pgbouncer. Dropping it ends the process.
struct PgBouncer {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts pgbouncer. Returns `None` if it is not installed, except in CI.
fn start_pgbouncer(sandbox: &Sandbox, mode: &str, port: u16) -> Option<PgBouncer> {
    let directory = tempfile::tempdir().unwrap();
    let (user, server_port, database) = split_url(sandbox.url());
    let settings = directory.path().join("pgbouncer.ini");
    std::fs::write(
        &settings,
        format!(
            "[databases]\n{database} = host=127.0.0.1 port={server_port} user={user}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n\
             ignore_startup_parameters = extra_float_digits\nunix_socket_dir =\n"
        ),
    )
    .unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("pgbouncer");
    // pgbouncer refuses to run as root.
    command.args(["-u", "nobody"]).arg(&settings).stderr(Stdio::null()).stdout(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(PgBouncer { child, _directory: directory }),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped, because pgbouncer does not run ({error}); install pgbouncer");
            None
        }
        Err(error) => panic!("pgbouncer: {error}"),
    }
}

/// Through a transaction pooler a cancel could hit another client's transaction.
#[tokio::test]
async fn a_transaction_pooler_is_refused() {
    let Some(sandbox) = sandbox(Engine::Postgres) else { return };
    for mode in ["transaction", "session"] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let Some(_bouncer) = start_pgbouncer(sandbox, mode, port) else { return };
        let (user, _, database) = split_url(sandbox.url());
        let url = format!("postgres://{user}@127.0.0.1:{port}/{database}");
        let begun = Instant::now();
        let outcome = loop {
            match Hierlock::connect(&url).await {
                Err(error) if error.to_string().contains("cannot connect") => {
                    assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                outcome => break outcome,
            }
        };
        match mode {
            "session" => drop(outcome.unwrap().acquire(target("u9")).await.unwrap()),
            _ => {
                let error = outcome.unwrap_err();
                assert!(error.to_string().contains("pool_mode"), "{error}");
                let diagnosis = Diagnosis::of(&url, Hierarchy::default(), 1).await.unwrap();
                let mut found = diagnosis.findings.iter();
                let pooler = found.find(|finding| finding.check.name == "pooler").unwrap();
                assert_eq!(pooler.severity, Severity::Problem, "{diagnosis:?}");
            }
        }
    }
}

/// Each schema of PostgreSQL has its own lock table, and an updater in one does not exclude updaters in another.
#[tokio::test]
async fn schemas_do_not_share_locks() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::OnDemand };
    let Some(database) = Database::empty(setup).await else { return };
    let mut outside = database.outside().await;
    let mut schemas = Vec::new();
    for schema in ["one", "two"] {
        outside.run(&format!("CREATE SCHEMA {schema}")).await;
        let path = format!("options=-c%20search_path%3D{schema}");
        schemas.push((database.connect_with(&path).await, database.connect_with(&path).await));
    }
    for mode in [Mode::Update, Mode::Exclusive] {
        let attempt = async |locks: &Hierlock| {
            locks.request(target("u1/a1/r1")).mode(mode).try_acquire().await.unwrap()
        };
        let mut guards = Vec::new();
        for (locks, others) in &schemas {
            let held = attempt(locks).await;
            guards.push(held.unwrap_or_else(|| panic!("{mode:?}: blocked by another schema")));
            assert!(attempt(others).await.is_none(), "{mode:?}: two holders in one schema");
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
}
