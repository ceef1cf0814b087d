//! Ways to a server: a socket, TLS, beside the program's own pool; and a pooler in between, refused.

use crate::support::{Database, Outside, Setup, server};
use hierlock::sql::{Provision, Scope, Strategy, sqlx};
use hierlock::{Hierarchy, Hierlock, Mode, Target};
use hierlock_sandbox::{Engine, Sandbox, Server};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Takes and gives back once, and sees somebody else's lock.
async fn works(url: &str, other: &str) {
    let (locks, others) =
        (Hierlock::connect(url).await.unwrap(), Hierlock::connect(other).await.unwrap());
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(others.try_acquire(target("u1")).await.unwrap().is_some());
}

/// The sandbox behind a server, if it is ours.
fn sandbox(engine: Engine) -> Option<&'static Sandbox> {
    match server(engine)? {
        Server::Own(sandbox) => Some(sandbox),
        Server::Given { .. } => {
            eprintln!("skipped, because {engine} was given, and its files are not ours");
            None
        }
    }
}

/// What a URL says of a port, a name and a user.
fn parts(url: &str) -> (&str, &str, &str) {
    let (_, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (address, database) = rest.split_once('/').unwrap();
    (user, address.rsplit_once(':').unwrap().1, database)
}

#[tokio::test]
async fn a_socket_leads_to_every_server() {
    for engine in Engine::ALL {
        let Some(sandbox) = sandbox(engine) else { continue };
        let (user, port, database) = parts(sandbox.url());
        let directory = sandbox.directory().display();
        let more = "strategy=on-demand&table=by_socket";
        let url = match engine {
            Engine::Postgres => {
                format!("postgres:///{database}?host={directory}&port={port}&user={user}&{more}")
            }
            _ => format!("{engine}://{user}@localhost/{database}?socket={directory}/socket&{more}"),
        };
        works(&url, &format!("{}?{more}", sandbox.url())).await;
        let message = Hierlock::connect(&url.replace("socket&", "nowhere&").replace(port, "1"))
            .await
            .unwrap_err()
            .to_string();
        assert!(message.contains(&directory.to_string()), "{message}");
    }
}

/// The options of the driver show the password, and were part of what is shown of a client.
#[tokio::test]
async fn nothing_that_can_be_shown_shows_the_password() {
    // Whatever the password is: this server lets everybody in.
    let Some(server) = server(Engine::Postgres) else { return };
    let url = server.url().replacen('@', ":s3cret@", 1);
    let locks = Hierlock::connect(&url).await.unwrap();
    let guard = locks.acquire(target("u1")).await.unwrap();
    let striped = format!("{url}?strategy=striped");
    let provision = Provision::connect(&striped, Hierarchy::default()).await.unwrap();
    let database = hierlock::database::Database::connect(&url).await.unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let beside = Hierlock::beside(&pool).await.unwrap();
    let wrong = ["?tabel=x", "?strategy=x", "0/x", "?sslmode=x"];
    let mut errors = Vec::new();
    for wrong in wrong {
        errors.push(Hierlock::connect(&format!("{url}{wrong}")).await.unwrap_err());
    }
    let shown = format!("{locks:?} {guard:?} {provision:?} {database:?} {beside:?} {errors:?}");
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(!shown.contains("s3cret") && !told.concat().contains("s3cret"), "{shown} {told:?}");
    assert!(told[0].contains("did you mean `table`?"), "{told:?}");
    let error = Hierlock::builder().table("a-b").beside(&pool).await.unwrap_err();
    assert!(
        error.to_string().contains("`table`") && !format!("{error:?}").contains("s3cret"),
        "{error}"
    );
}

#[tokio::test]
async fn tls_is_used_where_it_is_asked_for() {
    if let Some(sandbox) = sandbox(Engine::Mysql) {
        let mut outside = Outside::connect(sandbox.url()).await;
        outside.run("CREATE USER IF NOT EXISTS tls@'127.0.0.1' REQUIRE SSL").await;
        outside.run("GRANT ALL ON *.* TO tls@'127.0.0.1'").await;
        let (_, port, database) = parts(sandbox.url());
        let more = "strategy=on-demand&table=by_tls";
        let url = |mode| format!("mysql://tls@127.0.0.1:{port}/{database}?ssl-mode={mode}&{more}");
        works(&url("REQUIRED"), &format!("{}?{more}", sandbox.url())).await;
        assert!(Hierlock::connect(&url("DISABLED")).await.is_err());
        // Nobody vouches for a certificate that the server has made itself.
        assert!(Hierlock::connect(&url("VERIFY_CA")).await.is_err());
    }
    let files = tempfile::tempdir().unwrap();
    make_certificate(files.path());
    let option = |name: &str, file| format!("--{name}={}", files.path().join(file).display());
    let options = [option("ssl-cert", "server.crt"), option("ssl-key", "server.key")];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    if let Some(sandbox) = Sandbox::for_tests_with(Engine::Mariadb, &options) {
        let mut outside = Outside::connect(sandbox.url()).await;
        outside.run("CREATE USER tls@'127.0.0.1' REQUIRE SSL").await;
        outside.run("GRANT ALL ON *.* TO tls@'127.0.0.1'").await;
        let (_, port, database) = parts(sandbox.url());
        let more = "strategy=on-demand";
        let url =
            |mode| format!("mariadb://tls@127.0.0.1:{port}/{database}?ssl-mode={mode}&{more}");
        works(&url("REQUIRED"), &format!("{}?{more}", sandbox.url())).await;
        assert!(Hierlock::connect(&url("DISABLED")).await.is_err());
        assert!(Hierlock::connect(&url("VERIFY_CA")).await.is_err());
    }
    if let Some(sandbox) = Sandbox::for_tests(Engine::Postgres) {
        let mut outside = Outside::connect(sandbox.url()).await;
        let data = outside.rows("SHOW data_directory").await[0][0].clone();
        make_certificate(Path::new(&data));
        outside.run("ALTER SYSTEM SET ssl = on").await;
        outside.run("SELECT pg_reload_conf()").await;
        let url = |mode| format!("{}?sslmode={mode}", sandbox.url());
        // The reload takes effect a moment later.
        let begun = Instant::now();
        while Hierlock::connect(&url("require")).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "TLS is never there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let locks = Hierlock::connect(&url("require")).await.unwrap();
        let _guard = locks.acquire(target("u1")).await.unwrap();
        let plain = "SELECT count(*)::text FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE application_name = 'hierlock' AND NOT ssl";
        assert_eq!(outside.number(plain).await, 0);
        assert!(Hierlock::connect(&url("verify-full")).await.is_err());
    }
}

/// A certificate that nobody vouches for, where the server looks for it.
fn make_certificate(data: &Path) {
    let [key, certificate] = ["server.key", "server.crt"].map(|name| data.join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl is there").success());
    let owner = std::fs::metadata(data).unwrap();
    for path in [key, certificate] {
        use std::os::unix::fs::MetadataExt;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

#[tokio::test]
async fn beside_the_pool_of_a_program() {
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
                let wrong = advisory.beside(&pool).await.unwrap_err();
                assert!(wrong.is_usage() && wrong.to_string().contains("advisory"), "{wrong}");
                builder.beside(&pool).await.unwrap()
            }
        };
        let others = Hierlock::connect(&format!("{url}?{more}")).await.unwrap();
        let guard = locks.acquire(target("u1")).await.unwrap();
        assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// The options of a builder mean what the parameters of a URL mean.
#[tokio::test]
async fn options_of_a_builder_are_those_of_a_url() {
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

        let twice = builder.clone().connect(&format!("{url}?connections=1")).await.unwrap_err();
        assert!(twice.is_usage() && twice.to_string().contains("`connections`"), "{twice}");
        let other = Hierarchy::new(["org", "team"]).unwrap();
        let error = builder.clone().hierarchy(other).connect_sql(url).await.unwrap_err();
        assert!(error.to_string().contains("user/account/resource"), "{error}");
        let scoped = Hierlock::builder().strategy(Strategy::OnDemand).scope(Scope::Session);
        let error = scoped.connect(url).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`scope`"), "{error}");
    }
}

/// A URL that is no server's has no client that can lock in transactions.
#[tokio::test]
async fn only_a_server_is_opened_as_a_database() {
    for url in ["memory:", "file:/nowhere/x.lock"] {
        let error = Hierlock::connect_sql(url).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no database"), "{error}");
    }
}

/// pgbouncer on a port of its own; ended when dropped.
struct Bouncer {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// None where it is not installed and this is not CI.
fn bouncer(sandbox: &Sandbox, mode: &str, port: u16) -> Option<Bouncer> {
    let directory = tempfile::tempdir().unwrap();
    let (user, server_port, database) = parts(sandbox.url());
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
    // It refuses to run as root.
    command.args(["-u", "nobody"]).arg(&settings).stderr(Stdio::null()).stdout(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(Bouncer { child, _directory: directory }),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped, because pgbouncer does not run ({error}); install pgbouncer");
            None
        }
        Err(error) => panic!("pgbouncer: {error}"),
    }
}

/// A cancel would hit somebody else's transaction.
#[tokio::test]
async fn a_transaction_pooler_is_refused_by_name() {
    let Some(sandbox) = sandbox(Engine::Postgres) else { return };
    for mode in ["transaction", "session"] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let Some(_bouncer) = bouncer(sandbox, mode, port) else { return };
        let (user, _, database) = parts(sandbox.url());
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
            }
        }
    }
}

/// Each schema of PostgreSQL has a lock table of its own, and whoever updates in one is nobody to the other.
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
            guards.push(held.unwrap_or_else(|| panic!("{mode:?}: kept out by another schema")));
            assert!(attempt(others).await.is_none(), "{mode:?}: two in one schema");
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
}
