//! The last deadlock, as InnoDB tells it: who held what, and who wanted what. Pure: text in, links out.

use super::dictionary::Dictionary;
use super::status::{StatusLock, first_number, lock_line};
use super::who::Who;
use crate::record::Link;

/// A deadlock, told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Story {
    /// Its time, and the numbers of the statements in it: tells it from another.
    pub(super) mark: String,
    members: Vec<Member>,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Member {
    /// The number of its connection.
    thread: Option<i64>,
    /// Its own number; none before it has changed anything.
    number: Option<u64>,
    wants: Vec<StatusLock>,
    /// What MySQL lists.
    holds: Vec<StatusLock>,
    /// What MariaDB lists: the locks of others that are in its way.
    conflicts: Vec<StatusLock>,
}

/// What a line belongs to.
enum Part {
    Head,
    Wants,
    Holds,
    Conflicts,
}

impl Story {
    /// Finds the last one in the whole text.
    pub(super) fn read(status: &str) -> Option<Self> {
        let (_, section) = status.split_once("\nLATEST DETECTED DEADLOCK\n")?;
        let section = section.split_once("\nTRANSACTIONS\n").map_or(section, |(story, _)| story);
        let mut members: Vec<Member> = Vec::new();
        let mut part = Part::Head;
        let mut mark = String::new();
        for line in section.lines() {
            if let Some(title) = line.strip_prefix("*** ") {
                part = match title {
                    title if title.contains("HOLDS THE LOCK") => Part::Holds,
                    title if title.contains("WAITING FOR THIS LOCK") => Part::Wants,
                    title if title.contains("CONFLICTING WITH") => Part::Conflicts,
                    _ => Part::Head,
                };
                if title.ends_with(" TRANSACTION:") {
                    members.push(Member::default());
                }
                continue;
            }
            if let Some((_, query)) = line.split_once(" query id ") {
                mark.extend(query.split(' ').take(1));
            }
            match members.last_mut() {
                Some(member) => member.read(&part, line),
                None if line.starts_with(|c: char| c.is_ascii_digit()) => mark.push_str(line),
                None => {}
            }
        }
        (members.len() > 1).then_some(Self { mark, members })
    }

    /// Tables whose keys are to be written out, each with an index.
    pub(super) fn places(&self) -> Vec<[&str; 3]> {
        let locks = self
            .members
            .iter()
            .flat_map(|member| member.wants.iter().chain(&member.holds).chain(&member.conflicts));
        locks.filter_map(StatusLock::place).collect()
    }

    /// The circle, if all who are in it are of the case.
    pub(super) fn circle(&self, who: &Who, dictionary: &Dictionary) -> Option<Vec<Link>> {
        let name = |member: &Member| who.name(member.thread?).cloned();
        let things = |locks: Vec<&StatusLock>| {
            let mut things: Vec<_> =
                locks.into_iter().flat_map(|lock| lock.things(who, dictionary)).collect();
            things.sort();
            things.dedup();
            things
        };
        let mut circle = Vec::new();
        let mut at = 0;
        loop {
            let member = self.members.get(at)?;
            let next = self.holder(at)?;
            // What it has that others want.
            let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
            let wanted = others.flat_map(|(other, it)| match self.holder(other) == Some(at) {
                true if it.conflicts.is_empty() => {
                    let in_way = |held: &&StatusLock| it.wants.iter().any(|w| w.waits_for(held));
                    member.holds.iter().filter(in_way).collect::<Vec<_>>()
                }
                true => it.conflicts.iter().collect(),
                false => Vec::new(),
            });
            circle.push(Link {
                waiter: name(member)?,
                holder: name(self.members.get(next)?)?,
                wants: things(member.wants.iter().take(1).collect()).into_iter().next(),
                holds: things(wanted.collect()),
                taken_in: None,
            });
            at = next;
            // Back at the beginning, or going round without it.
            if at == 0 || circle.len() > self.members.len() {
                break;
            }
        }
        (at == 0).then_some(circle)
    }

    /// For whom a member waits.
    fn holder(&self, waiter: usize) -> Option<usize> {
        let member = self.members.get(waiter)?;
        let others = || (0..self.members.len()).filter(|other| *other != waiter);
        let owns = |other: &usize| {
            let it = &self.members[*other];
            let holds = it.holds.iter().any(|held| member.wants.iter().any(|w| w.waits_for(held)));
            let owner = |lock: &StatusLock| it.number.unwrap_or(0) == lock.owner;
            holds || member.conflicts.iter().any(owner)
        };
        let mut found = others().filter(owns);
        match (found.next(), found.next()) {
            (Some(only), None) => Some(only),
            // Those who have changed nothing have no number; the text goes round in order.
            _ => Some((waiter + 1) % self.members.len()),
        }
    }
}

impl Member {
    fn read(&mut self, part: &Part, line: &str) {
        let locks = match part {
            Part::Wants => &mut self.wants,
            Part::Holds => &mut self.holds,
            Part::Conflicts => &mut self.conflicts,
            Part::Head => {
                if let Some(rest) = line.strip_prefix("TRANSACTION ") {
                    self.number = first_number(rest);
                } else if let Some((_, rest)) = line.split_once(" thread id ") {
                    self.thread = self.thread.or(first_number(rest).map(|id| id as i64));
                }
                return;
            }
        };
        match (lock_line(line), locks.last_mut()) {
            (Some(lock), _) => locks.push(lock),
            (None, Some(lock)) => lock.read_record(line),
            (None, None) => {}
        }
    }
}
