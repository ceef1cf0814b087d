//! Interprets the terminal output of `hierlock top`, and returns the text on the screen.

const ROWS: usize = 60;
const COLUMNS: usize = 250;

/// Returns the lines of the screen. Colours are ignored.
pub(crate) fn text_on_screen(output: &str) -> String {
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut rest = output.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                let mut parameters = String::new();
                while let Some(c) = rest.next_if(|c| !('@'..='~').contains(c)) {
                    parameters.push(c);
                }
                match rest.next() {
                    Some('H') => {
                        let number = |text: &str| text.parse::<usize>().unwrap_or(1);
                        let (to_row, to_column) = parameters.split_once(';').unwrap_or_default();
                        (row, column) = (number(to_row) - 1, number(to_column) - 1);
                    }
                    Some('J') => cells = vec![vec![' '; COLUMNS]; ROWS],
                    Some('h') if parameters == "?1049" => cells = vec![vec![' '; COLUMNS]; ROWS],
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c if c.is_control() => {}
            c => {
                if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    let lines = cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn cursor_movements_overwrite_earlier_text() {
    let output = "shell\u{1b}[?1049h\u{1b}[2;3Hab\u{1b}[1mc\u{1b}[0m\u{1b}[1;1Hx\r\ny";
    assert!(text_on_screen(output).starts_with("x\ny abc\n"), "{:?}", text_on_screen(output));
}
