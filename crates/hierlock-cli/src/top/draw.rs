//! Draws the state. Control characters in texts of the server are escaped.

use super::history::Figures;
use super::rows::SessionRow;
use super::state::{Dialog, TopState};
use crate::hot::text::slot_lines;
use crate::locks::text::missing_texts;
use crate::output::cell;
use crate::time::duration_text;
use hierlock::lease::utc;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table, TableState};
use std::time::Duration;

/// The number of slots below the list.
const MAX_SLOTS: usize = 5;
/// Slots are shown only on a terminal of at least this height.
const MIN_HEIGHT_FOR_SLOTS: u16 = 14;
const MAX_HEIGHT_WITHOUT_FIGURES: u16 = 5;
const MIN_WIDTH_FOR_ALL_COLUMNS: u16 = 70;

pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub(super) fn draw(frame: &mut Frame, state: &TopState, has_colour: bool) {
    let area = frame.area();
    let red = if has_colour { Style::new().fg(Color::Red) } else { Style::new() };
    let slots = if area.height >= MIN_HEIGHT_FOR_SLOTS {
        slot_lines(&state.history.slots.hottest(), MAX_SLOTS)
    } else {
        Vec::new()
    };
    let slots_height = if slots.is_empty() { 0 } else { slots.len() as u16 + 1 };
    let notices = notices(state, red);
    let mut header_lines = header_lines(state, area.width);
    if area.height <= MAX_HEIGHT_WITHOUT_FIGURES {
        header_lines.truncate(1);
    }
    let [header, notice_area, list, slots_area, help] = Layout::vertical([
        Constraint::Length(header_lines.len() as u16),
        Constraint::Length(notices.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(slots_height),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_lines(frame, header, header_lines);
    draw_lines(frame, notice_area, notices);
    draw_list(frame, list, state, red);
    if slots_height > 0 {
        let title = Line::styled("hot slots of the last minutes", BOLD);
        let lines = slots.into_iter().map(Line::from);
        draw_lines(frame, slots_area, std::iter::once(title).chain(lines).collect());
    }
    let keys = "q quit  ↑↓ move  s sort  / filter  ⏎ explain  x end  p pause  ? help";
    draw_lines(frame, help, vec![Line::from(keys).dim()]);
    if state.dialog != Dialog::None {
        super::dialog::draw_dialog(frame, area, state);
    }
}

fn draw_lines(frame: &mut Frame, area: Rect, lines: Vec<Line>) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

fn header_lines(state: &TopState, width: u16) -> Vec<Line<'_>> {
    let Some(sample) = &state.sample else {
        return vec![Line::from("hierlock top: connecting …")];
    };
    let snapshot = &sample.snapshot;
    let mut first = vec![
        Span::styled("hierlock top  ", BOLD),
        Span::from(cell(&snapshot.server, 120)),
        Span::from(format!("  {}  by {}", utc(snapshot.taken), state.order.name())),
    ];
    if state.is_paused {
        first.push(Span::styled("  paused", BOLD));
    }
    let figures = figures_lines(&state.history.figures, width.into());
    std::iter::once(Line::from(first)).chain(figures.into_iter().map(Line::from)).collect()
}

/// Returns `3 waiting  2 holding  longest wait 12 s (813)  waits/s +0.5 -0.0  deadlocks 1 in 60 s (7 in all)`.
pub(super) fn figures_text(figures: &Figures) -> String {
    figures_parts(figures).join(GAP)
}

/// Returns the same as lines of at most this width. A part that is wider has a line of its own.
fn figures_lines(figures: &Figures, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in figures_parts(figures) {
        match lines.last_mut() {
            Some(line) if line.len() + GAP.len() + part.len() <= width => {
                line.extend([GAP, &part]);
            }
            _ => lines.push(part),
        }
    }
    lines
}

const GAP: &str = "  ";

fn figures_parts(figures: &Figures) -> Vec<String> {
    let mut parts =
        vec![format!("{} waiting", figures.waiting), format!("{} holding", figures.holding)];
    if let Some(longest) = &figures.longest_wait {
        let waited = duration_text(Duration::from_millis(longest.waiting_ms));
        parts.push(format!("longest wait {waited} ({})", longest.session));
    }
    if let Some(rates) = &figures.rates {
        let (begun, ended) = (rates.begun_per_second, rates.ended_per_second);
        parts.push(format!("waits/s +{begun:.1} -{ended:.1}"));
    }
    parts.push(match &figures.deadlocks {
        None => "deadlocks not known".to_owned(),
        Some(it) if it.recent_ms == 0 => format!("{} deadlocks in all", it.total),
        Some(it) => {
            let over = duration_text(Duration::from_millis(it.recent_ms));
            format!("deadlocks {} in {over} ({} in all)", it.recent, it.total)
        }
    });
    parts
}

fn notices(state: &TopState, red: Style) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(error) = &state.error {
        lines.push(Line::styled(format!("{}; trying again", cell(error, 300)), red));
    }
    if let Some(message) = &state.message {
        lines.push(Line::styled(cell(message, 300), BOLD));
    }
    if let Dialog::Filter { .. } = state.dialog {
        lines.push(Line::styled(format!("filter: {}▏", cell(&state.filter, 80)), BOLD));
    } else if !state.filter.is_empty() {
        lines.push(Line::from(format!("filter: {}", cell(&state.filter, 80))));
    }
    let snapshot = state.sample.as_ref().map(|it| &it.snapshot);
    let missing = snapshot.and_then(|snapshot| missing_texts(snapshot).next());
    lines.extend(missing.map(|text| Line::from(cell(&text, 300))));
    lines
}

fn draw_list(frame: &mut Frame, area: Rect, state: &TopState, red: Style) {
    if state.rows.is_empty() && area.height > 0 {
        let text = match (&state.sample, state.filter.is_empty()) {
            (None, _) => "",
            (_, false) => "no session fits the filter",
            _ => "no session waits, and no lock of hierlock is held",
        };
        frame.render_widget(Line::from(text), area);
        return;
    }
    let is_narrow = area.width < MIN_WIDTH_FOR_ALL_COLUMNS;
    let columns = if is_narrow { NARROW_COLUMNS } else { COLUMNS };
    let rows = state.rows.iter().map(|row| {
        let cells = columns.iter().map(|(_, _, cell)| cell(row));
        Row::new(cells).style(if row.is_waiting { red } else { Style::new() })
    });
    let header = Row::new(columns.iter().map(|(header, ..)| *header));
    let table = Table::new(rows, columns.iter().map(|(_, width, _)| *width))
        .header(header.style(BOLD))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection =
        TableState::new().with_offset(state.first_row.get()).with_selected(state.selected_index());
    frame.render_stateful_widget(table, area, &mut selection);
    state.first_row.set(selection.offset());
}

/// The header of a column, its width, and its text for a session.
type SessionColumn = (&'static str, Constraint, fn(&SessionRow) -> String);

const COLUMNS: &[SessionColumn] = &[
    ("SESSION", Constraint::Length(14), |row| session_cell(row, 14)),
    ("WAITS", Constraint::Length(10), waits_cell),
    ("BEHIND", Constraint::Length(8), behind_cell),
    ("WAITERS", Constraint::Length(7), |row| match row.waiters {
        0 => String::new(),
        waiters => waiters.to_string(),
    }),
    ("LOCK", Constraint::Fill(3), |row| row.lock.clone()),
    ("WHO", Constraint::Fill(2), |row| row.client.clone()),
];
const NARROW_COLUMNS: &[SessionColumn] = &[
    ("SESSION", Constraint::Length(9), |row| session_cell(row, 9)),
    ("WAITS", Constraint::Length(6), waits_cell),
    ("LOCK", Constraint::Fill(1), |row| row.lock.clone()),
];

fn waits_cell(row: &SessionRow) -> String {
    match (row.is_waiting, row.waited) {
        (true, Some(waited)) => duration_text(waited),
        (true, None) => "yes".to_owned(),
        _ => String::new(),
    }
}

fn behind_cell(row: &SessionRow) -> String {
    match &row.blockers[..] {
        [] => String::new(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

/// Returns the id of a session, indented by its depth as far as the width allows.
fn session_cell(row: &SessionRow, width: u16) -> String {
    let pid = row.pid.to_string();
    let room = usize::from(width).saturating_sub(pid.len());
    let indent = room.min(2 * row.depth);
    format!("{:indent$}{pid}", "")
}
