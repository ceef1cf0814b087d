//! Quotes and comments of a line: what in it counts, and where its comment begins. Knows nothing of
//! what the line says.

use hierlock_engine::lexer::{OpenToken, Rules, TokenKind, resume};

/// How quotes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As in SQL: `'…'`, `"…"`, backquotes, `$$…$$`, `-- …` and `/* … */`, over several lines.
    Sql,
    /// As in our own lines: a quote opens at the beginning of a word and closes on the same line, so
    /// that an apostrophe is only an apostrophe.
    Words,
}

/// Reads a line on from what is open, gives every character that is no comment to `each` with whether
/// it belongs to a quote, and returns where the line's own comment begins; its end if it has none.
///
/// One of our own lines opens nothing: what is open before it is left as it is.
pub(crate) fn scan(
    line: &str,
    style: Style,
    open: &mut OpenToken,
    each: impl FnMut(usize, char, bool),
) -> usize {
    match style {
        Style::Sql => scan_sql(line, open, each),
        Style::Words => scan_words(line, each),
    }
}

/// A file may run on several engines, so the rules are those that fit all of them.
fn scan_sql(line: &str, open: &mut OpenToken, mut each: impl FnMut(usize, char, bool)) -> usize {
    let mut goes_on = *open != OpenToken::Nothing;
    let mut tokens = resume(Rules::ANY_SERVER, std::mem::take(open), line);
    let (mut at, mut last) = (0, ' ');
    for token in tokens.by_ref() {
        let is_line_comment = !goes_on && token.text.starts_with("--");
        // Behind an SQL comment that ends with its line, a `#` is ours all the same.
        let may_be_ours = token.kind == TokenKind::Code || is_line_comment;
        for (offset, c) in token.text.char_indices() {
            if may_be_ours && c == '#' && is_comment(&line[at + offset..], last, Style::Sql) {
                return at + offset;
            }
            if token.kind != TokenKind::Comment {
                each(at + offset, c, token.kind == TokenKind::Quoted);
            }
            last = c;
        }
        at += token.text.len();
        goes_on = false;
    }
    *open = tokens.open().clone();
    line.len()
}

fn scan_words(line: &str, mut each: impl FnMut(usize, char, bool)) -> usize {
    let mut quote = None;
    let mut last = ' ';
    for (at, c) in line.char_indices() {
        let rest = &line[at..];
        match (quote, c) {
            (Some(open), _) => {
                each(at, c, true);
                quote = quote.filter(|_| c != open);
            }
            (None, '#') if is_comment(rest, last, Style::Words) => return at,
            (None, '\'' | '"' | '`') if !last.is_alphanumeric() && rest[1..].contains(c) => {
                each(at, c, true);
                quote = Some(c);
            }
            _ => each(at, c, false),
        }
        last = c;
    }
    line.len()
}

/// A `#` is one after white space (or at the beginning) and before white space (or at the end). In
/// our own lines a mark is as good as a blank, since a blank may always follow it.
fn is_comment(rest: &str, last: char, style: Style) -> bool {
    let marks = ['=', '|', '!', ':', '<', '[', ']', ','];
    (last.is_whitespace() || (style == Style::Words && marks.contains(&last)))
        && rest[1..].chars().next().is_none_or(char::is_whitespace)
}

/// The parts of one of our own lines between separators, each with the byte at which it begins.
pub(crate) fn split(text: &str, separator: char) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut depth = 0usize;
    scan(text, Style::Words, &mut OpenToken::Nothing, |at, c, quoted| match c {
        _ if quoted => {}
        '(' => depth += 1,
        ')' => depth = depth.saturating_sub(1),
        // In `(1, 30)` a comma separates cells, not what the whole line lists.
        _ if c == separator && (depth == 0 || separator == '|') => {
            parts.push((from, &text[from..at]));
            from = at + c.len_utf8();
        }
        _ => {}
    });
    parts.push((from, &text[from..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stands_between_blanks_and_outside_of_quotes() {
        for (line, style, content, open) in [
            ("# all of it", Style::Words, "", None),
            ("engines: mysql # why", Style::Words, "engines: mysql ", None),
            ("select a#b", Style::Sql, "select a#b", None),
            ("select a #b", Style::Sql, "select a #b", None),
            ("select ' # ' # x", Style::Sql, "select ' # ' ", None),
            ("select 'it''s # ' #", Style::Sql, "select 'it''s # ' ", None),
            ("select ` # `, \" # \"", Style::Sql, "select ` # `, \" # \"", None),
            ("don't # x", Style::Words, "don't ", None),
            ("'tis # x", Style::Words, "'tis ", None),
            ("select 'a # b", Style::Sql, "select 'a # b", Some("'")),
            ("as $$ # x", Style::Sql, "as $$ # x", Some("$$")),
            ("as $f$ it's $$ $f$ # x", Style::Sql, "as $f$ it's $$ $f$ ", None),
            ("select 1 -- don't # x", Style::Sql, "select 1 -- don't ", None),
            ("select 1 --# x", Style::Sql, "select 1 --# x", None),
            ("select /* it's # */ 2 # x", Style::Sql, "select /* it's # */ 2 ", None),
            ("select a$b$c # x", Style::Sql, "select a$b$c ", None),
            ("select $1 # x", Style::Sql, "select $1 ", None),
        ] {
            let mut state = OpenToken::Nothing;
            let end = scan(line, style, &mut state, |_, _, _| {});
            assert_eq!(&line[..end], content, "{line}");
            assert_eq!(state.mark().as_deref(), open, "{line}");
        }
    }

    #[test]
    fn a_comment_of_several_lines_hides_what_looks_like_another() {
        let mut open = OpenToken::Nothing;
        for (line, content, mark) in [
            ("select /* one # x", "select /* one # x", Some("/*")),
            ("-- two # x */ 1 # y", "-- two # x */ 1 ", None),
            ("as $$ # x", "as $$ # x", Some("$$")),
            ("# it's $$; # y", "# it's $$; ", None),
        ] {
            let end = scan(line, Style::Sql, &mut open, |_, _, _| {});
            assert_eq!(&line[..end], content, "{line}");
            assert_eq!(open.mark().as_deref(), mark, "{line}");
        }
    }

    #[test]
    fn parts_are_split_outside_of_quotes() {
        assert_eq!(split("1 | 'a | b' | 30", '|'), [(0, "1 "), (3, " 'a | b' "), (13, " 30")]);
        assert_eq!(
            split("rows (1, 2), in any order", ','),
            [(0, "rows (1, 2)"), (12, " in any order")]
        );
        assert_eq!(split("", '|'), [(0, "")]);
    }
}
