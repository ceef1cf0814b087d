//! A server whose settings an administrator changes, and a client that reads the state.

use super::list::Setting;
use hierlock_engine::{Connection, ServerAddress};
use hierlock_sandbox::{Engine, Sandbox};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server with a connection of its administrator.
pub(crate) struct SettingsServer {
    pub(crate) engine: Engine,
    sandbox: Sandbox,
    admin: Client,
    pub(crate) has_tls: bool,
    databases: usize,
    _certificate: TempDir,
}

/// A database of an unprivileged user, for one setting.
pub(crate) struct TestDatabase {
    pub(crate) engine: Engine,
    /// The URL for the unprivileged user, with the parameters of the setting. (Servers do not run `init_connect` for
    /// administrators.)
    pub(crate) url: String,
    name: String,
    admin_url: String,
}

impl SettingsServer {
    /// Starts a server. Returns `None` if the engine is not installed, except in CI.
    pub(crate) async fn start(engine: Engine) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let certificate = if engine == Engine::Mariadb { certificate(&directory) } else { None };
        let options = match engine {
            Engine::Postgres => Vec::new(),
            _ => [
                vec!["--lower-case-table-names=1".to_owned()],
                certificate.clone().unwrap_or_default(),
            ]
            .concat(),
        };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let sandbox = Sandbox::for_tests_with(engine, &options)?;
        let mut admin = Client::connect(sandbox.url()).await;
        match engine {
            Engine::Postgres => admin.run("CREATE ROLE app LOGIN CREATEDB").await,
            _ => {
                admin.run("CREATE USER app@'127.0.0.1'").await;
                // For lock waits, and for the databases of the lab.
                admin.run("GRANT PROCESS, CREATE ON *.* TO app@'127.0.0.1'").await;
                admin.run("GRANT ALL ON `hierlock%`.* TO app@'127.0.0.1'").await;
                admin.run("GRANT SELECT ON performance_schema.* TO app@'127.0.0.1'").await;
            }
        }
        // MySQL creates its own certificate.
        let has_tls = engine == Engine::Mysql || certificate.is_some();
        if !has_tls && engine == Engine::Mariadb {
            eprintln!(
                "require_secure_transport is skipped: openssl, which creates the certificate, is not installed"
            );
        }
        Some(Self { engine, sandbox, admin, has_tls, databases: 0, _certificate: directory })
    }

    /// Applies a setting for all new sessions, and creates a database.
    pub(crate) async fn apply(&mut self, setting: &Setting) -> TestDatabase {
        self.databases += 1;
        // The upper-case letter tests `lower_case_table_names`.
        let name = format!("hierlock_S{}", self.databases);
        match self.engine {
            Engine::Postgres => {
                let encoding = setting.encoding;
                let sql = format!(
                    "CREATE DATABASE \"{name}\" OWNER app TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
                );
                self.admin.run(&sql).await;
            }
            _ => self.admin.run(&format!("CREATE DATABASE {name}")).await,
        }
        for sql in &setting.set {
            self.admin.run(sql).await;
        }
        let (address, _) = self.sandbox.url().rsplit_once('/').unwrap();
        let (scheme, address) = address.split_once("://").unwrap();
        let (root, host) = address.split_once('@').unwrap();
        // Without TLS where it is not tested, because it would take most of the time.
        let plain =
            if self.engine == Engine::Postgres { "sslmode=disable" } else { "ssl-mode=disabled" };
        let tls = if setting.needs_tls { "" } else { plain };
        let parameters: Vec<&str> =
            [tls, setting.parameters].into_iter().filter(|text| !text.is_empty()).collect();
        TestDatabase {
            engine: self.engine,
            url: format!("{scheme}://app@{host}/{name}?{}", parameters.join("&")),
            admin_url: format!("{scheme}://{root}@{host}/{name}"),
            name,
        }
    }

    /// Undoes the setting and drops the database.
    pub(crate) async fn undo(&mut self, setting: &Setting, test_database: &TestDatabase) {
        for sql in &setting.undo {
            self.admin.run(sql).await;
        }
        let drop = match self.engine {
            Engine::Postgres => format!("DROP DATABASE \"{}\" WITH (FORCE)", test_database.name),
            _ => format!("DROP DATABASE {}", test_database.name),
        };
        self.admin.run(&drop).await;
    }
}

impl TestDatabase {
    /// Connects an administrator, who reads only committed data and does not depend on the setting.
    pub(crate) async fn outside(&self) -> Client {
        Client::connect(&self.admin_url).await
    }

    /// Returns the URL with more parameters.
    pub(crate) fn with(&self, parameters: &str) -> String {
        format!("{}&{parameters}", self.url)
    }
}

/// A connection of the administrator.
pub(crate) struct Client(Connection);

impl Client {
    async fn connect(url: &str) -> Self {
        let address = ServerAddress::from_url(&url.parse().unwrap()).unwrap();
        let mut client = Self(address.connect().await.unwrap());
        let settings = match &client.0 {
            Connection::Postgres(_) => "SET search_path = public",
            Connection::Mysql(_) => {
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
                 SET SESSION autocommit = 1, completion_type = 0, sql_mode = '', sql_select_limit = 1000000, \
                 sql_safe_updates = 0, sql_big_selects = 1, wait_timeout = 28800"
            }
        };
        client.run(settings).await;
        client
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        let ran = self.0.as_ref().run(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Returns the first value of a query as text.
    pub(crate) async fn text(&mut self, sql: &str) -> String {
        let answer = self.0.as_ref().packet(sql).await;
        let mut rows = answer.unwrap_or_else(|error| panic!("{sql}: {error}")).rows;
        rows.swap_remove(0).into_text().unwrap().swap_remove(0)
    }

    /// Waits until the unprivileged user has no sessions.
    pub(crate) async fn until_no_user_sessions(&mut self) {
        let sql = match &self.0 {
            Connection::Mysql(_) => {
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'"
            }
            Connection::Postgres(_) => {
                "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'app'"
            }
        };
        let begun = Instant::now();
        while self.number(sql).await > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the sessions of the user did not end in time"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        self.text(sql).await.parse().unwrap()
    }
}

/// Returns the options for a server with a certificate, or `None` if openssl is missing.
fn certificate(directory: &TempDir) -> Option<Vec<String>> {
    let (key, cert) = (directory.path().join("key.pem"), directory.path().join("cert.pem"));
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-subj", "/CN=127.0.0.1", "-days", "2", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .ok()?;
    let options =
        vec![format!("--ssl-key={}", key.display()), format!("--ssl-cert={}", cert.display())];
    output.status.success().then_some(options)
}
