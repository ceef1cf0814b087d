//! The dialogs that are drawn over the list: help, explanations, questions.

use super::draw::BOLD;
use super::explain::explain;
use super::state::{Dialog, TopState};
use crate::output::{cell, escape_controls};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

const HELP: &[&str] = &[
    "q, Esc, Ctrl-C   quit",
    "↑ ↓, k j         select a session; PgUp PgDn Home End too",
    "s                sort: tree, wait time, session, waiters",
    "/                filter by path, program, host or user",
    "Enter            explain the selected session",
    "x                end the selected session: asks why, and again",
    "p                pause the picture; the figures go on",
    "",
    "Red rows wait. BEHIND is the blocker, WAITERS the number of",
    "sessions that wait directly behind. Waits that begin and end",
    "between two snapshots are not seen.",
];

pub(super) fn draw_dialog(frame: &mut Frame, area: Rect, state: &TopState) {
    let (title, lines, scroll) = match &state.dialog {
        // The filter is typed above the list.
        Dialog::None | Dialog::Filter { .. } => return,
        Dialog::Help => (" help ", HELP.iter().map(|line| (*line).to_owned()).collect(), 0),
        Dialog::Explain { scroll } => {
            let snapshot = state.sample.as_ref().map(|it| &it.snapshot);
            let lines = snapshot.zip(state.selected).map(|(snapshot, pid)| explain(snapshot, pid));
            (" explain: ↑↓ scroll, x end, Esc back ", lines.unwrap_or_default(), *scroll)
        }
        Dialog::Reason { pid, reason } => (
            " end a session: Enter continues, Esc cancels ",
            vec![format!("Why is session {pid} to be ended? It is logged."), input_line(reason)],
            0,
        ),
        Dialog::Preparing { pid, .. } => {
            (" end a session ", vec![format!("asking the server about session {pid} …")], 0)
        }
        Dialog::Confirm { pid, reason, description, answer } => {
            let mut lines = vec![
                format!("End session {pid}? Type yes and Enter; Esc leaves."),
                input_line(answer),
                format!("Reason: {}", cell(reason, 200)),
                String::new(),
            ];
            lines.extend(escape_controls(description).lines().map(str::to_owned));
            (" end a session ", lines, 0)
        }
    };
    let text_height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let width = if area.width > 20 { area.width * 9 / 10 } else { area.width };
    // Long lines are wrapped.
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let is_wrapped = longest + 2 > usize::from(width);
    let height = if is_wrapped { text_height.saturating_mul(2) } else { text_height };
    let scroll = scroll.min(u16::try_from(lines.len()).unwrap_or(u16::MAX));
    let place =
        area.centered(Constraint::Length(width), Constraint::Length(height.min(area.height)));
    let block = Block::bordered().title(Line::styled(title, BOLD));
    let text: Vec<Line> = lines.into_iter().map(Line::from).collect();
    let paragraph =
        Paragraph::new(text).wrap(Wrap { trim: false }).scroll((scroll, 0)).block(block);
    frame.render_widget(Clear, place);
    frame.render_widget(paragraph, place);
}

/// Returns the text that a person types, with a cursor.
fn input_line(text: &str) -> String {
    format!("> {}▏", cell(text, 200))
}
