//! The circle of a deadlock on PostgreSQL, from what its victim is told.

use super::connection::StageConnection;
use super::postgres::{Memory, named, quoted};
use super::who::Who;
use crate::observation::{LockKind, Name, Thing};
use crate::record::{BlockingLock, Link};
use hierlock_engine::cell;

/// The circle of a deadlock, from what its victim was told: `Process 7 waits for ShareLock on
/// transaction 740; blocked by process 8.`, a line for each; and where its own statement was: `while
/// updating tuple (0,2) in relation "numbers"`.
pub(super) async fn circle(
    connection: &mut StageConnection,
    memory: &mut Memory,
    who: &Who,
    victim: &Name,
    detail: &str,
) -> Option<Vec<Link>> {
    let is_link = |line: &&str| line.starts_with("Process ");
    let links: Option<Vec<Link>> =
        detail.lines().filter(is_link).map(|line| link(who, line)).collect();
    let mut links = links.filter(|links| !links.is_empty())?;
    for link in &mut links {
        let Some(wants) = link.wants.as_mut() else { continue };
        match wants.kind {
            LockKind::Row | LockKind::Table => {
                name_table(connection, memory, who, wants).await?;
                if wants.kind == LockKind::Row {
                    // Only who is queued for a row has a lock on its place.
                    let place = Thing { mode: String::new(), ..wants.clone() };
                    link.blocking = vec![BlockingLock::new(place, false)];
                }
            }
            LockKind::Transaction if link.waiter == *victim => {
                if let Some(context) = detail.lines().find_map(Context::read) {
                    *wants = context.thing(connection, memory, who).await?;
                }
            }
            _ => {}
        }
    }
    Some(links)
}

/// Tables are numbers there, and rows places.
async fn name_table(
    connection: &mut StageConnection,
    memory: &mut Memory,
    who: &Who,
    wants: &mut Thing,
) -> Option<()> {
    let name = format!(
        "SELECT n.nspname, c.relname FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {}",
        wants.object.parse::<u32>().ok()?
    );
    if let Some(row) = connection.ask(&name).await.ok()?.first() {
        wants.object = who.table(cell(row, 0), cell(row, 1));
        if let Some(place) = wants.record.take() {
            wants.record = Some(
                memory.row_at(connection, who, [cell(row, 0), cell(row, 1)], &place).await.ok()?,
            );
        }
    }
    Some(())
}

/// Where a statement was when it failed.
#[derive(Debug, PartialEq, Eq)]
struct Context<'a> {
    /// `updating`, `locking`, `inserting`.
    verb: &'a str,
    place: &'a str,
    /// A table, or an index.
    relation: &'a str,
}

impl<'a> Context<'a> {
    /// `while updating tuple (0,2) in relation "numbers"`
    fn read(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("while ")?;
        let (what, relation) = rest.split_once(" in relation \"")?;
        let (begin, end) = (what.find('(')?, what.find(')')?);
        Some(Self {
            verb: what.split(' ').next()?,
            place: what.get(begin..=end)?,
            relation: relation.strip_suffix('"')?,
        })
    }

    /// The row, or the key in an index that is to be inserted.
    async fn thing(
        &self,
        connection: &mut StageConnection,
        memory: &mut Memory,
        who: &Who,
    ) -> Option<Thing> {
        let table = format!(
            "SELECT t.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_class t ON t.oid = i.indrelid \
             WHERE n.nspname = {} AND c.relname = {}",
            quoted(&who.home, '\''),
            quoted(self.relation, '\'')
        );
        if let Some(row) = connection.ask(&table).await.ok()?.first() {
            let index = Some(self.relation.to_owned());
            return Some(Thing {
                index,
                ..named(LockKind::Row, cell(row, 0).to_owned(), self.verb)
            });
        }
        let row =
            memory.row_at(connection, who, [&who.home, self.relation], self.place).await.ok()?;
        let table = named(LockKind::Row, self.relation.to_owned(), self.verb);
        Some(Thing { record: Some(row), ..table })
    }
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
    Some(Link::new(session(waiter)?, session(holder)?, Some(wants)))
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

    #[test]
    fn where_the_victim_was_is_read() {
        for (line, read) in [
            ("while updating tuple (0,2) in relation \"t\"", Some(("updating", "(0,2)", "t"))),
            (
                "while locking updated version (3,4) of tuple in relation \"a b\"",
                Some(("locking", "(3,4)", "a b")),
            ),
            (
                "while inserting index tuple (0,3) in relation \"t_pkey\"",
                Some(("inserting", "(0,3)", "t_pkey")),
            ),
            ("while updating", None),
            ("SQL statement \"select 1\"", None),
        ] {
            let context = Context::read(line).map(|it| (it.verb, it.place, it.relation));
            assert_eq!(context, read);
        }
    }

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
