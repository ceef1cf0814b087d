//! The circle of a deadlock on PostgreSQL, from what its victim is told.

use super::postgres::named;
use super::who::Who;
use super::wire::{Wire, cell};
use crate::observation::{LockKind, Thing};
use crate::record::Link;

/// The circle of a deadlock, from what its victim was told: `Process 7 waits for ShareLock on
/// transaction 740; blocked by process 8.`, a line for each.
pub(super) async fn circle(wire: &mut Wire, who: &Who, detail: &str) -> Option<Vec<Link>> {
    let links: Option<Vec<Link>> = detail.lines().map(|line| link(who, line)).collect();
    let mut links = links.filter(|links| !links.is_empty())?;
    for link in &mut links {
        let Some(wants) = link.wants.as_mut() else { continue };
        if !matches!(wants.kind, LockKind::Row | LockKind::Table) {
            continue;
        }
        // Tables are numbers there.
        let name = format!(
            "SELECT n.nspname, c.relname FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {}",
            wants.object.parse::<u32>().ok()?
        );
        if let Some(row) = wire.ask(&name).await.ok()?.first() {
            wants.object = who.table(cell(row, 0), cell(row, 1));
        }
    }
    Some(links)
}

/// A link of it; tables are still numbers.
fn link(who: &Who, line: &str) -> Option<Link> {
    let (waiter, rest) = line.strip_prefix("Process ")?.split_once(" waits for ")?;
    let (wants, holder) = rest.split_once("; blocked by process ")?;
    let (mode, object) = wants.split_once(" on ")?;
    let session = |pid: &str| who.name(pid.trim_end_matches('.').parse().ok()?).cloned();
    // Where it is: "of relation 16385 of database 5".
    let relation = |text: &str| {
        let (_, number) = text.split_once("relation ")?;
        number.split(' ').next().map(str::to_owned)
    };
    let wants = match object.split_once(' ')? {
        ("transaction", number) => named(LockKind::Transaction, number.to_owned(), mode),
        ("tuple", rest) => {
            let place = rest.split(' ').next().map(str::to_owned);
            Thing { record: place, ..named(LockKind::Row, relation(rest)?, mode) }
        }
        ("relation", _) => named(LockKind::Table, relation(object)?, mode),
        ("advisory", rest) => named(LockKind::Advisory, advisory_key(rest)?, mode),
        _ => named(LockKind::Other, object.to_owned(), mode),
    };
    Some(Link {
        waiter: session(waiter)?,
        holder: session(holder)?,
        wants: Some(wants),
        holds: Vec::new(),
        taken_in: None,
    })
}

/// `lock [5,0,7,1]`: database, upper half, lower half, and whether these are one key or two.
fn advisory_key(text: &str) -> Option<String> {
    let numbers = text.strip_prefix("lock [")?.strip_suffix(']')?;
    let numbers: Option<Vec<u64>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
    match numbers?[..] {
        [_, upper, lower, 1] => Some(((upper << 32 | lower) as i64).to_string()),
        [_, first, second, _] => Some(format!("{first}, {second}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Name;

    #[test]
    fn the_circle_is_read_from_what_the_victim_is_told() {
        let mut who = Who::new("lab");
        for (id, text) in [(7, "A"), (8, "B")] {
            who.add(id, Name::new(text).unwrap());
        }
        let told = |line: &str| {
            let link = link(&who, line)?;
            Some(format!("{}→{}: {}", link.waiter, link.holder, link.wants?))
        };
        for (wants, read) in [
            ("ShareLock on transaction 740", "transaction 740, ShareLock"),
            (
                "ExclusiveLock on tuple (0,2) of relation 16385 of database 5",
                "row (0,2) of 16385, ExclusiveLock",
            ),
            (
                "AccessExclusiveLock on relation 16385 of database 5",
                "table 16385, AccessExclusiveLock",
            ),
            ("ExclusiveLock on advisory lock [5,0,7,1]", "advisory 7, ExclusiveLock"),
            (
                "ExclusiveLock on advisory lock [5,4294967295,4294967295,1]",
                "advisory -1, ExclusiveLock",
            ),
            ("ShareLock on advisory lock [5,1,7,2]", "advisory 1, 7, ShareLock"),
        ] {
            let line = format!("Process 7 waits for {wants}; blocked by process 8.");
            assert_eq!(told(&line).as_deref(), Some(format!("A→B: {read}").as_str()));
            assert_eq!(told(&line.replace("process 8", "process 9")), None, "a stranger");
            for cut in 0..line.len() {
                told(&line[..cut]);
            }
        }
    }
}
