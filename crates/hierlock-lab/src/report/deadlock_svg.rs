//! Draws a deadlock that a server has reported: the wait-for graph, and the statement of each session.

use super::display::{one_line, truncate, wrap};
use super::wait_graph::{SESSION_COLOURS, WaitGraphPicture};
use crate::deadlock::{DeadlockSkeleton, member_name};
use crate::text::join;
use askama::Template;
use hierlock_engine::introspection::DeadlockMember;

/// The maximum length of a statement, and the width of its lines, in characters.
const MAX_STATEMENT: usize = 240;
const STATEMENT_WIDTH: usize = 84;

const HEADER_HEIGHT: f64 = 76.0;
const SESSION_HEIGHT: f64 = 30.0;
const LINE_HEIGHT: f64 = 16.0;

#[derive(Template)]
#[template(path = "deadlock.svg")]
struct DeadlockPicture {
    title: String,
    description: String,
    graph: WaitGraphPicture,
    height: f64,
    sessions: Vec<SessionText>,
}

/// A session below the graph.
struct SessionText {
    name: String,
    colour: usize,
    y: f64,
    header: String,
    /// The lines of the statement.
    statement: Vec<String>,
}

impl DeadlockSkeleton<'_> {
    /// Draws the deadlock as SVG. None if the text does not contain the whole cycle.
    pub fn svg(&self) -> Option<String> {
        let (dump, cycle) = (self.dump, self.cycle());
        let names: Vec<_> = (0..dump.members.len()).map(member_name).collect();
        let victim = dump.victim.map(|victim| &names[victim]);
        let graph = WaitGraphPicture::new(&cycle, victim, &names.iter().collect::<Vec<_>>())?;
        let mut y = HEADER_HEIGHT + graph.height + SESSION_HEIGHT;
        let mut sessions = Vec::new();
        for (index, (member, name)) in dump.members.iter().zip(&names).enumerate() {
            let statement = one_line(member.statement.as_deref().unwrap_or_default());
            let statement = wrap(&truncate(&statement, MAX_STATEMENT), STATEMENT_WIDTH);
            let height = LINE_HEIGHT * statement.len() as f64 + SESSION_HEIGHT;
            let (name, header, colour) =
                (name.to_string(), account(member), index % SESSION_COLOURS);
            sessions.push(SessionText { name, colour, y, header, statement });
            y += height;
        }
        let time = dump.time.as_deref().map(|time| format!(", {}", one_line(time)));
        let waits = cycle.iter().map(|edge| format!("{} waits for {}", edge.waiter, edge.holder));
        let victim = victim.map(|victim| format!("; {victim} was rolled back"));
        let picture = DeadlockPicture {
            title: format!("Deadlock on {}{}", self.server_name(), time.unwrap_or_default()),
            description: join(waits, ", ") + &victim.unwrap_or_default(),
            graph,
            height: y,
            sessions,
        };
        // Rendering into a String fails only in a filter, and the template uses none that can fail.
        picture.render().ok()
    }
}

/// Returns `session 23, root@127.0.0.1, program billing`.
fn account(member: &DeadlockMember) -> String {
    let host = member.host.as_ref().map(|host| format!("@{host}")).unwrap_or_default();
    let parts = [
        member.session.map(|session| format!("session {session}")),
        member.user.as_ref().map(|user| format!("{user}{host}")),
        member.program.as_ref().map(|program| format!("program {program}")),
    ];
    truncate(&one_line(&join(parts.into_iter().flatten(), ", ")), 100)
}
