//! The state of the screen, and the effects of keys. Pure.

use super::history::{History, LockSample};
use super::rows::{SessionRow, SortOrder, session_rows};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cell::Cell;

/// The number of rows of a page.
const PAGE: isize = 10;

/// An action that a key requests, beyond changing the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    /// Find and describe the session to end.
    PrepareEnd {
        pid: i64,
    },
    /// End the session that was described.
    End {
        reason: String,
    },
}

/// The dialog over the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialog {
    #[default]
    None,
    Help,
    /// The user types a filter; Esc restores the filter before.
    Filter {
        before: String,
    },
    Explain {
        scroll: u16,
    },
    /// The user types the reason for ending a session.
    Reason {
        pid: i64,
        reason: String,
    },
    /// The session is being looked up on the server.
    Preparing {
        pid: i64,
        reason: String,
    },
    /// The user confirms with `yes`.
    Confirm {
        pid: i64,
        reason: String,
        description: String,
        answer: String,
    },
}

#[derive(Debug, Default)]
pub(super) struct TopState {
    /// The sample on the screen; `None` before the first.
    pub(super) sample: Option<LockSample>,
    pub(super) history: History,
    pub(super) rows: Vec<SessionRow>,
    /// The index of the first row on the screen in the last drawing.
    pub(super) first_row: Cell<usize>,
    /// The id of the selected session.
    pub(super) selected: Option<i64>,
    pub(super) order: SortOrder,
    pub(super) filter: String,
    pub(super) is_paused: bool,
    /// The error of the last sample, if it failed.
    pub(super) error: Option<String>,
    /// The result of the last action.
    pub(super) message: Option<String>,
    pub(super) dialog: Dialog,
}

impl TopState {
    /// Adds a sample, or the error of a failed one. While paused, the list stays the same and the figures change.
    pub(super) fn observe(&mut self, sample: Result<LockSample, String>) {
        match sample {
            Ok(sample) => {
                self.history.add(&sample);
                self.error = None;
                if !self.is_paused || self.sample.is_none() {
                    self.sample = Some(sample);
                    self.update_rows();
                }
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn update_rows(&mut self) {
        let index = self.selected_index();
        let snapshot = self.sample.as_ref().map(|it| &it.snapshot);
        self.rows = snapshot
            .map(|snapshot| session_rows(snapshot, self.order, &self.filter))
            .unwrap_or_default();
        if self.selected_index().is_none() {
            // The selected session is gone: select the one that is now in its row.
            self.select(index.unwrap_or_default());
        }
    }

    /// Returns the index of the selected session in the list.
    pub(super) fn selected_index(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(row.pid) == self.selected)
    }

    fn move_by(&mut self, rows: isize) {
        self.select(self.selected_index().unwrap_or_default().saturating_add_signed(rows));
    }

    fn select(&mut self, index: usize) {
        let index = index.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(index).map(|row| row.pid);
    }

    /// Shows the description of the session to end, and asks for confirmation. Does nothing if the dialog was closed in the
    /// meantime.
    pub(super) fn prepared(&mut self, description: Result<String, String>) {
        match (std::mem::take(&mut self.dialog), description) {
            (Dialog::Preparing { pid, reason }, Ok(description)) => {
                let answer = String::new();
                self.dialog = Dialog::Confirm { pid, reason, description, answer };
            }
            (Dialog::Preparing { .. }, Err(error)) => self.message = Some(error),
            (dialog, _) => self.dialog = dialog,
        }
    }

    /// Handles a key; returns the action that it requests.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<KeyAction> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(KeyAction::Quit);
        }
        match std::mem::take(&mut self.dialog) {
            Dialog::None => return self.list_key(key.code),
            Dialog::Help => {}
            Dialog::Filter { before } => self.filter_key(key.code, before),
            Dialog::Explain { scroll } => self.explain_key(key.code, scroll),
            Dialog::Reason { pid, reason } => return self.reason_key(key.code, pid, reason),
            Dialog::Preparing { .. } if key.code == KeyCode::Esc => {}
            dialog @ Dialog::Preparing { .. } => self.dialog = dialog,
            Dialog::Confirm { pid, reason, description, mut answer } => match key.code {
                KeyCode::Enter if answer == "yes" => {
                    self.message = Some(format!("ending session {pid} …"));
                    return Some(KeyAction::End { reason });
                }
                KeyCode::Enter | KeyCode::Esc => {
                    self.message = Some("not confirmed; nothing was ended".to_owned());
                }
                code => {
                    edit(&mut answer, code);
                    self.dialog = Dialog::Confirm { pid, reason, description, answer };
                }
            },
        }
        None
    }

    fn list_key(&mut self, code: KeyCode) -> Option<KeyAction> {
        self.message = None;
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(KeyAction::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX),
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.update_rows();
            }
            KeyCode::Char('/') => self.dialog = Dialog::Filter { before: self.filter.clone() },
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.dialog = Dialog::Help,
            KeyCode::Enter if self.selected.is_some() => {
                self.dialog = Dialog::Explain { scroll: 0 };
            }
            KeyCode::Char('x') => self.ask_reason(),
            _ => {}
        }
        None
    }

    fn ask_reason(&mut self) {
        match self.selected {
            Some(0) => {
                self.message = Some("a prepared transaction has no session to end".to_owned());
            }
            Some(pid) => self.dialog = Dialog::Reason { pid, reason: String::new() },
            None => {}
        }
    }

    fn filter_key(&mut self, code: KeyCode, before: String) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => self.filter = before,
            code => {
                edit(&mut self.filter, code);
                self.dialog = Dialog::Filter { before };
            }
        }
        self.update_rows();
    }

    fn explain_key(&mut self, code: KeyCode, scroll: u16) {
        let scroll = match code {
            KeyCode::Down | KeyCode::Char('j') => scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => scroll.saturating_sub(1),
            KeyCode::Char('x') => return self.ask_reason(),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => return,
            _ => scroll,
        };
        self.dialog = Dialog::Explain { scroll };
    }

    fn reason_key(&mut self, code: KeyCode, pid: i64, mut reason: String) -> Option<KeyAction> {
        match code {
            KeyCode::Esc => {}
            KeyCode::Enter if !reason.trim().is_empty() => {
                let reason = reason.trim().to_owned();
                self.dialog = Dialog::Preparing { pid, reason };
                return Some(KeyAction::PrepareEnd { pid });
            }
            code => {
                edit(&mut reason, code);
                self.dialog = Dialog::Reason { pid, reason };
            }
        }
        None
    }
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(c) => text.push(c),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
