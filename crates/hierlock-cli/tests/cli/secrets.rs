//! No password is ever printed. The tests pass a password to every command, in options, in variables and in wrong
//! positions, and search all output for it.

use crate::support::{TestDirectory, code, hierlock, stderr, stdout};
use hierlock_sandbox::{Engine, Server};
use std::process::{Command, Output, Stdio};
use std::thread;

/// The password in plain text, and its encodings in URLs.
const SECRET: &str = "s3cr/t:Pa@ss";
const ENCODED: [&str; 2] = ["s3cr%2Ft%3APa%40ss", "s3cr%2ft%3apa%40ss"];

/// Returns addresses in all forms that users write. No server listens on port 1.
fn addresses() -> Vec<String> {
    let encoded = ENCODED[0];
    vec![
        format!("mysql://root:{encoded}@127.0.0.1:1/d"),
        format!("mariadb://root:{encoded}@127.0.0.1:1/d?tabel=x"),
        format!("postgres://root:{encoded}@127.0.0.1:1/d"),
        format!("postgres://127.0.0.1:1/d?user=root&password={encoded}"),
        format!("postgres://127.0.0.1:1/d?user=root&sslpassword={encoded}"),
        format!("mysql://root:{SECRET}@127.0.0.1:1/d"),
        format!("root:{SECRET}@tcp(127.0.0.1:1)/d?parseTime=true"),
        format!("root:{SECRET}@127.0.0.1:1/d"),
        format!("host=127.0.0.1 port=1 user=root password='{SECRET}'"),
        format!("mysql:root:{encoded}@127.0.0.1:1/d"),
    ]
}

/// All commands, each with arguments with which it connects to its server. The test fails if a command is missing here, so
/// new commands are tested too.
const COMMANDS: [(&str, &[&str]); 34] = [
    ("run", &["u1", "--", "true"]),
    ("plan", &["u1"]),
    ("provision", &[]),
    ("size", &["--ids", "5", "--held", "2"]),
    ("doctor", &[]),
    ("locks", &["u1"]),
    ("locks kill", &["7", "--reason", "x", "--yes", "--log", "/dev/null"]),
    ("top", &["--once"]),
    ("hot", &["--for", "200ms"]),
    ("deadlocks", &[]),
    ("lease provision", &[]),
    ("lease acquire", &["u1", "--owner", "ada"]),
    ("lease renew", &["7"]),
    ("lease release", &["7"]),
    ("lease list", &[]),
    ("lease force-release", &["7", "--actor", "ada", "--reason", "x"]),
    ("lease audit", &[]),
    ("lease sweep", &[]),
    ("queue provision", &[]),
    ("queue add", &["mail", "{}"]),
    ("queue stats", &[]),
    ("queue dead", &["mail"]),
    ("queue retry-dead", &["mail", "7"]),
    ("queue work", &["mail", "--until-empty", "--", "true"]),
    ("lab list", &[]),
    ("lab run", &["deadlock/conversion-cured", "--engine", "mysql,postgres"]),
    ("lab matrix", &["--engine", "mysql"]),
    ("lab anomalies", &["--engine", "postgres"]),
    ("lab fmt", &["/dev/null/nowhere/x.lab"]),
    ("lab new", &["/dev/null/nowhere/x.lab"]),
    ("lab docs", &[]),
    // This command takes no address: only addresses by mistake matter.
    ("sandbox", &["oracle"]),
    ("completions", &["bash"]),
    ("man", &["run"]),
];

/// The commands that are called with every form of an address.
const COMMANDS_WITH_URL: [&str; 7] =
    ["run", "plan", "provision", "doctor", "lease acquire", "queue work", "lab matrix"];

/// Every variable that holds an address.
const VARIABLES: [&str; 6] = [
    "HIERLOCK_URL",
    "HIERLOCK_DATABASE_URL",
    "HIERLOCK_MYSQL_URL",
    "HIERLOCK_MARIADB_URL",
    "HIERLOCK_POSTGRES_URL",
    "MYSQL_DSN",
];

/// Returns the subcommands of a command, from its help.
pub(crate) fn commands_below(path: &str) -> Vec<String> {
    let mut words: Vec<&str> = path.split_whitespace().collect();
    words.push("--help");
    let help = stdout(&hierlock(&words).output().unwrap());
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    if commands.is_empty() {
        return vec![path.to_owned()];
    }
    // A command whose subcommand is optional is also a command itself.
    let is_command = |line: &&str| line.starts_with("Usage:") && !line.contains("<COMMAND>");
    let own_path = help.lines().find(is_command).map(|_| path.to_owned());
    let below =
        commands.into_iter().flat_map(|name| commands_below(format!("{path} {name}").trim()));
    own_path.into_iter().chain(below).collect()
}

/// Runs a command with the address in every variable, and checks that its output does not contain the secret.
fn search(words: &[&str], address: &str, more: &[&str]) -> Output {
    search_with(&VARIABLES, words, address, more)
}

fn search_with(variables: &[&str], words: &[&str], address: &str, more: &[&str]) -> Output {
    let mut command: Command = hierlock(words);
    command.args(more).envs(variables.iter().map(|name| (*name, address)));
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let printed = format!("{}{}", stdout(&output), stderr(&output)).to_lowercase();
    for secret in [SECRET, ENCODED[0], "s3cr", "Pa@ss"] {
        let found = printed.contains(&secret.to_lowercase());
        assert!(!found, "{words:?} {more:?} with {address}:\n{printed}");
    }
    output
}

/// The failure this prevents: a Go DSN, a URL without a scheme and `MYSQL_DSN` were printed in full, also by
/// `--json`; and clap quotes arguments as they are.
#[test]
fn no_command_prints_a_password() {
    let known: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    let all = commands_below("");
    assert_eq!(all, known, "COMMANDS must list every command; add the new one");
    thread::scope(|scope| {
        for commands in COMMANDS.chunks(COMMANDS.len().div_ceil(2)) {
            scope.spawn(move || commands.iter().for_each(|(name, rest)| search_all(name, rest)));
        }
    });
}

/// MYSQL_DSN is read only if no other variable has the address of the server.
#[test]
fn the_variable_of_go_programs_is_not_printed() {
    for address in addresses() {
        let output = search_with(&["MYSQL_DSN"], &["lab", "run"], &address, &["--engine", "mysql"]);
        assert_ne!(code(&output), Some(0));
    }
}

fn search_all(name: &str, rest: &[&str]) {
    let words: Vec<&str> = name.split_whitespace().collect();
    let help: Vec<&str> = words.iter().copied().chain(["--help"]).collect();
    let help = stdout(&search(&help, &addresses()[0], &[]));
    let takes_url = help.contains("--url");
    let mut tested = addresses();
    if !takes_url {
        tested.truncate(1);
    } else if !COMMANDS_WITH_URL.contains(&name) {
        // A URL, a DSN and a list of `key=value`. This command parses addresses like one of `COMMANDS_WITH_URL`.
        tested = [0, 6, 8].map(|number| tested[number].clone()).to_vec();
    }
    for (number, address) in tested.iter().enumerate() {
        // The address in the variables.
        let output = search(&words, address, rest);
        if takes_url && number == 0 {
            assert_ne!(code(&output), Some(64), "{name}: {}", stderr(&output));
        }
        if takes_url {
            let is_flag = help.contains("--json") && !help.contains("--json <");
            let options: &[&str] = if is_flag { &["--json"] } else { &[] };
            let url = ["--url", address];
            search(&words, address, &[&url, options, rest].concat());
        }
        if number % 5 == 0 {
            // Mistakes: the address in a wrong position, in an unknown option, and twice. An address without a scheme may be a
            // valid node or file name, so it is not passed in a wrong position.
            if !name.starts_with("lab") && address.contains("://") {
                search(&words, address, &[address]);
            }
            search(&words, address, &[&format!("--ulr={address}")]);
            search(&words, address, &[&format!("--url={address}"), "--url", address]);
            search(&words, address, &["--levels", address, "--within", address]);
        }
    }
}

/// The failure this prevents: the command saw the password in its environment.
#[test]
fn a_command_under_a_lock_does_not_see_the_password() {
    // This server accepts any password.
    let Some(server) = Server::for_tests(Engine::Postgres) else { return };
    let (front, back) = server.url().split_once('@').unwrap();
    let url = format!("{front}:{}@{back}", ENCODED[0]);
    let print_environment = ["u1", "--", "sh", "-c", "echo $HIERLOCK_URL; env"];
    let run = |options: &[&str]| {
        let mut command = hierlock(&["run"]);
        command.args(options).args(print_environment).env("HIERLOCK_URL", &url);
        let output = command.output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    for options in [&[][..], &["--url", &url]] {
        let environment = run(options);
        assert!(environment.starts_with(server.url()), "{environment}");
        assert!(!environment.contains("s3cr"), "{environment}");
    }
    assert!(run(&["--keep-password"]).starts_with(&url));
    // A nested run detects that it waits for the outer one, with and without the password in its URL.
    let inner = "$HIERLOCK run --within 1500ms u1 -- true; \
                 $HIERLOCK run --within 1500ms --url $WHOLE u1 -- true";
    let mut outer = hierlock(&["run", "--url", &url, "u1", "--", "sh", "-c", inner]);
    outer.env("HIERLOCK", env!("CARGO_BIN_EXE_hierlock")).env("WHOLE", &url);
    let printed = stderr(&outer.output().unwrap());
    assert_eq!(printed.matches("around this one holds `u1`").count(), 2, "{printed}");
}

/// Control characters could clear the terminal, or imitate a line of hierlock.
#[test]
fn control_characters_are_not_echoed() {
    let place = TestDirectory::new();
    let nasty = "x\u{1b}[2J\u{7}\u{9b}y";
    let file = place.directory.path().join(nasty);
    let (file, lock_url) = (file.to_str().unwrap(), format!("file:/dev/null/nowhere/{nasty}/x"));
    let database = format!("sqlite:{}", place.directory.path().join("a.db").display());
    std::fs::write(format!("{file}.lab"), "A> nonsense\u{1b}[2J(\nB> \u{7}").unwrap();
    let calls: Vec<Vec<&str>> = vec![
        vec!["run", "--url", &lock_url, "u1", "--", "true"],
        vec!["run", "--url", nasty, "u1", "--", "true"],
        vec!["run", "--url", "file:/tmp/x", nasty, nasty, "--levels", "one", "--", "true"],
        vec!["run", "a//b\u{1b}[2J\u{7}\u{9b}", "--", "true"],
        vec!["run", "--within", nasty, "u1", "--", "true"],
        vec!["run", "u1", "--", nasty],
        vec!["run", &file[..file.len() - 1]],
        vec!["plan", "--levels", "user", &lock_url],
        vec!["provision", "--url", "mysql://127.0.0.1:1/d?table=\u{1b}[2J\u{7}\u{9b}"],
        vec!["lease", "--url", &database, "acquire", "u1", "--owner", nasty],
        vec!["lease", "--url", &database, "acquire", "u1", "--owner", "a", "--reason", nasty],
        vec!["lease", "--url", &database, "acquire", "u1/x", "--owner", "b"],
        vec![
            "lease",
            "--url",
            &database,
            "force-release",
            "1",
            "--actor",
            nasty,
            "--reason",
            nasty,
        ],
        vec!["lease", "--url", &database, "list"],
        vec!["lease", "--url", &database, "audit"],
        vec!["queue", "--url", &database, "add", nasty, "{}"],
        vec!["queue", "--url", &database, "add", "mail", nasty, "--priority", nasty],
        vec!["queue", "--url", &database, "stats"],
        vec!["queue", "--url", nasty, "stats"],
        vec!["lab", "run", file],
        vec!["lab", "fmt", file],
        vec!["lab", "new", "/dev/null/nowhere/\u{1b}[2J\u{7}\u{9b}.lab"],
        vec!["man", nasty],
        vec![nasty],
    ];
    let lab = format!("{file}.lab");
    let more = [vec!["lab", "run", &lab], vec!["lab", "fmt", "--check", &lab]];
    for call in calls.iter().chain(&more) {
        let output = hierlock(call).output().unwrap();
        for printed in [stdout(&output), stderr(&output)] {
            let raw = printed.contains(|c: char| c.is_control() && c != '\n');
            assert!(!raw, "{call:?}: {printed:?}");
        }
    }
}
