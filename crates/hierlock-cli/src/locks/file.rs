//! Reads the locks of a lock file from `/proc`.
//!
//! `/proc/PID/fdinfo` lists the locks of each open file. Waiters are listed only in `/proc/locks`, by byte and without a
//! process id. A process counts as the waiter of a byte if it has the file open, has a waiting thread, and has a target at
//! that byte.

use crate::exit::CommandError;
use crate::run;
use crate::time::duration_text;
use crate::usage::redact_argument;
use hierlock::sql::lock_report::{
    LockSlot, LockSnapshot, PathFilter, ReportedLock, ReportedWait, SessionLocks,
};
use hierlock::sql::{ClientIdentity, SessionLabel};
use hierlock::{Claim, Mode, Target};
use hierlock_engine::introspection::{LockKind, LockTarget, LockWait, SessionInfo, wait_trees};
use nix::unistd::{Uid, User};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The name of the threads in which `hierlock` waits for a byte.
const WAIT_THREAD: &str = "hierlock-wait";
/// A byte that is not a slot: clients lock it briefly to check that the file supports locks.
const NO_SLOT: u64 = i64::MAX as u64;

/// Returns the slots of a node and its ancestors in a lock file.
pub(super) fn filter(node: &Target) -> PathFilter {
    let slot = |level| LockSlot::Byte(node.ancestor(level).file_offset());
    let slots = (0..=node.level()).map(|level| (level, slot(level)));
    PathFilter::new(node.clone(), slots.collect())
}

/// A process that has the lock file open.
struct LockProcess {
    pid: i64,
    uid: u32,
    arguments: Vec<String>,
    age: Option<Duration>,
    /// The locked bytes, with the kernel's name of the mode.
    held: BTreeMap<u64, String>,
    is_waiting: bool,
    /// How long it has been waiting.
    waiting_for: Option<Duration>,
}

/// Reads the locks and waits of a file. Fails if the file or `/proc` cannot be read.
pub(super) fn snapshot(path: &Path) -> Result<LockSnapshot, CommandError> {
    let mut snapshot = LockSnapshot::new(format!("file:{}", path.display()));
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            snapshot.notes.push("the file does not exist, so nothing is locked".to_owned());
            return Ok(snapshot);
        }
        result => result.map_err(CommandError::cannot(format!("read `{}`", path.display())))?,
    };
    let file = (metadata.dev(), metadata.ino());
    let (mut processes, mut hidden) = (Vec::new(), 0);
    for entry in fs::read_dir("/proc").map_err(CommandError::cannot("read `/proc`"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match read_process(pid, file) {
            Ok(process) => processes.extend(process),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => hidden += 1,
            // The process has ended.
            Err(_) => {}
        }
    }
    if hidden > 0 {
        snapshot.notes.push(format!(
            "the open files of {hidden} processes of other users may not be read; root sees them all"
        ));
    }
    processes.sort_by_key(|process| process.pid);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    add_processes(&mut snapshot, &processes, &blocked_bytes(&locks, file.1));
    Ok(snapshot)
}

fn add_processes(
    snapshot: &mut LockSnapshot,
    processes: &[LockProcess],
    blocked: &BTreeMap<u64, String>,
) {
    let mut waits = Vec::new();
    for process in processes {
        let paths = targets(&process.arguments);
        let mut session = SessionLocks::default();
        session.info = SessionInfo {
            pid: process.pid,
            user: Some(user_name(process.uid)),
            state: process.age.map(|age| format!("process started {} ago", duration_text(age))),
            statement: Some(process.arguments.join(" ")),
            // The kernel does not report since when a byte is held.
            waiting_for: process.waiting_for,
            ..SessionInfo::default()
        };
        session.label = label(process, &paths);
        let nodes = nodes(&paths);
        let reported = |byte: u64, mode: &str| {
            let target = LockTarget::new(LockKind::Other, format!("byte {byte}"), mode);
            let nodes = nodes.iter().filter(|node| node.file_offset() == byte).cloned();
            ReportedLock::on_slot(target, LockSlot::Byte(byte), nodes.collect())
        };
        session.held = process.held.iter().map(|(byte, mode)| reported(*byte, mode)).collect();
        if process.is_waiting {
            let wanted = nodes
                .iter()
                .map(Target::file_offset)
                .find(|byte| blocked.contains_key(byte) && !process.held.contains_key(byte));
            let others = processes.iter().filter(|other| other.pid != process.pid);
            let blockers: Vec<i64> = others
                .filter(|other| wanted.is_some_and(|byte| other.held.contains_key(&byte)))
                .map(|other| other.pid)
                .collect();
            let mut wait = ReportedWait::default();
            wait.wanted = wanted.map(|byte| reported(byte, &blocked[&byte]));
            wait.blockers = blockers.clone();
            session.wait = Some(wait);
            waits.push(LockWait { waiter: process.pid, blockers, wanted: None });
        }
        snapshot.sessions.push(session);
    }
    snapshot.trees = wait_trees(&waits);
}

/// Reads a process; returns `None` if it has no lock in the file and waits for none.
fn read_process(pid: i64, file: (u64, u64)) -> std::io::Result<Option<LockProcess>> {
    let directory = format!("/proc/{pid}");
    let (mut held, mut has_file) = (BTreeMap::new(), false);
    for entry in fs::read_dir(format!("{directory}/fd"))? {
        let entry = entry?;
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if (metadata.dev(), metadata.ino()) == file {
            has_file = true;
            let info = format!("{directory}/fdinfo/{}", entry.file_name().to_string_lossy());
            held.extend(held_bytes(&fs::read_to_string(info).unwrap_or_default()));
        }
    }
    if !has_file {
        return Ok(None);
    }
    let mut wait_threads = Vec::new();
    for task in fs::read_dir(format!("{directory}/task"))?.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == WAIT_THREAD {
            wait_threads.push(task.path().join("stat"));
        }
    }
    let is_waiting = !wait_threads.is_empty();
    // A thread waits for one byte during its whole life. With several threads, the byte of each is not known.
    let waiting_for = match &wait_threads[..] {
        [stat] => fs::read_to_string(stat).ok().and_then(|stat| age(&stat)),
        _ => None,
    };
    if held.is_empty() && !is_waiting {
        return Ok(None);
    }
    let command = fs::read(format!("{directory}/cmdline"))?;
    let arguments = command.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    let arguments = arguments.map(|argument| redact_argument(&String::from_utf8_lossy(argument)));
    Ok(Some(LockProcess {
        pid,
        uid: fs::metadata(&directory)?.uid(),
        arguments: arguments.collect(),
        age: age(&fs::read_to_string(format!("{directory}/stat"))?),
        held,
        is_waiting,
        waiting_for,
    }))
}

/// Returns the locked bytes of lines such as `lock: 1: OFDLCK ADVISORY WRITE -1 00:1f:42 7 7`.
fn held_bytes(info: &str) -> impl Iterator<Item = (u64, String)> {
    info.lines().filter_map(|line| locked_byte(line.strip_prefix("lock:")?, "OFDLCK"))
}

/// Returns the bytes with waiters, from lines such as `1: -> OFDLCK ADVISORY WRITE -1 00:1f:42 7 7`.
fn blocked_bytes(locks: &str, inode: u64) -> BTreeMap<u64, String> {
    let file = format!(":{inode} ");
    let lines = locks.lines().filter(|line| line.contains("->") && line.contains(&file));
    lines.filter_map(|line| locked_byte(line, "->")).collect()
}

/// Returns the byte and the mode of a line whose second word is `second`.
fn locked_byte(line: &str, second: &str) -> Option<(u64, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // With the arrow, all further words are shifted by one.
    let shift = usize::from(second == "->");
    let is_ofd = words.get(1) == Some(&second) && words.get(1 + shift) == Some(&"OFDLCK");
    let byte: u64 = words.get(6 + shift)?.parse().ok().filter(|byte| *byte != NO_SLOT)?;
    is_ofd.then(|| (byte, words[3 + shift].to_owned()))
}

/// Returns the targets of a `hierlock run` process. They are shown for a lock only if they map to its byte.
fn targets(arguments: &[String]) -> Vec<Target> {
    let is_hierlock = arguments.first().is_some_and(|program| program.ends_with("hierlock"));
    if is_hierlock { run::targets_of(arguments) } else { Vec::new() }
}

/// Returns the paths with all their ancestors, in the order in which they are locked.
fn nodes(paths: &[Target]) -> BTreeSet<Target> {
    paths.iter().flat_map(|path| (0..=path.level()).map(|level| path.ancestor(level))).collect()
}

/// Returns the label of a process: the command of a `hierlock run`, or the program itself.
fn label(process: &LockProcess, paths: &[Target]) -> Option<SessionLabel> {
    let arguments = &process.arguments;
    let start = arguments.iter().position(|word| word == "--").map(|separator| separator + 1);
    let command = start.filter(|_| !paths.is_empty()).and_then(|start| arguments.get(start));
    let program = command.or(arguments.first())?;
    let program = program.rsplit('/').next().unwrap_or(program).to_owned();
    // An argument that is not a target maps to no locked byte.
    let is_target =
        |path: &&Target| process.is_waiting || process.held.contains_key(&path.file_offset());
    let pid = process.pid.try_into().ok()?;
    let client = ClientIdentity { application: None, program, host: "this host".to_owned(), pid };
    // The modes are read from the kernel, not from the label.
    let claim = |path: &Target| Claim { target: path.clone(), mode: Mode::default() };
    Some(SessionLabel {
        client,
        since: None,
        claims: paths.iter().filter(is_target).map(claim).collect(),
        cut_target: None,
        omitted: 0,
    })
}

/// Returns how long a process or thread has been running. The 22nd field of its `stat` is its start, in hundredths of a
/// second since the boot of the system.
fn age(stat: &str) -> Option<Duration> {
    // The program name, in parentheses, may contain spaces and parentheses.
    let fields = stat.rsplit_once(')')?.1;
    let started: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime - started / 100.0).ok()
}

fn user_name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_and_awaited_bytes_are_parsed() {
        let info = "pos:\t0\nlock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1f:42 7 7\n\
                    lock:\t1: POSIX  ADVISORY  WRITE 9 00:1f:42 8 8\n\
                    lock:\t2: OFDLCK  ADVISORY  READ -1 00:1f:42 9223372036854775807 9223372036854775807\n";
        assert_eq!(held_bytes(info).collect::<Vec<_>>(), [(7, "WRITE".to_owned())]);
        let locks = "1: OFDLCK  ADVISORY  WRITE -1 00:1f:42 7 7\n\
                     1: -> OFDLCK  ADVISORY  READ -1 00:1f:42 7 7\n\
                     2: -> OFDLCK  ADVISORY  READ -1 00:1f:43 9 9\n";
        assert_eq!(blocked_bytes(locks, 42), BTreeMap::from([(7, "READ".to_owned())]));
    }

    /// The failure this prevents: a process that had been running for a day was listed as waiting for a day.
    #[test]
    fn a_wait_is_as_old_as_its_thread() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let own = || {
            let pid = std::process::id().into();
            read_process(pid, (metadata.dev(), metadata.ino())).unwrap()
        };
        let process_age = || {
            let stat = fs::read_to_string("/proc/self/stat").unwrap();
            age(&stat).unwrap()
        };
        while process_age() < Duration::from_millis(300) {
            std::thread::yield_now();
        }
        assert!(own().is_none(), "a process without locks and waits is listed");
        let begun = std::time::Instant::now();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name(WAIT_THREAD.to_owned());
        let thread = thread.spawn(move || wait.recv()).unwrap();
        let process = loop {
            // The thread has its name only a moment after its start.
            if let Some(process) = own() {
                break process;
            }
        };
        // The kernel counts hundredths of a second.
        let waited = process.waiting_for.unwrap();
        assert!(waited <= begun.elapsed() + Duration::from_millis(20), "{waited:?}");
        assert!(process.is_waiting && process.age.unwrap() >= Duration::from_millis(300));
        drop(end);
        let _ = thread.join();
    }

    #[test]
    fn targets_are_read_only_from_a_hierlock_run() {
        let paths = |line: &str| -> Vec<String> {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            targets(&arguments).iter().map(Target::to_string).collect()
        };
        assert_eq!(paths("/bin/hierlock run --try u1/a1 u7 -- make x"), ["u1/a1", "u7"]);
        assert_eq!(paths("hierlock run --url file:/x --within 5s u1 -- make"), ["u1"]);
        assert!(paths("hierlock lease list u1").is_empty());
        assert!(paths("vim run u1").is_empty());
    }
}
