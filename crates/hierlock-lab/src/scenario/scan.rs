//! Quotes, comments and separators of a line. Knows nothing of what the line says.
//!
//! A line of SQL has the quotes and comments of all servers, also over several lines. In a line of our own a quote
//! opens at the beginning of a word and closes on the same line, so that an apostrophe is only an apostrophe.

use hierlock_engine::lexer::{OpenToken, Rules, TokenKind, resume};

/// Reads a line of SQL on from what is `open`; returns where its `#` comment begins, or its end. Gives every
/// character outside of comments to `each`, with whether it belongs to a quote.
pub(crate) fn scan_sql(
    line: &str,
    open: &mut OpenToken,
    mut each: impl FnMut(usize, char, bool),
) -> usize {
    let mut goes_on = *open != OpenToken::Nothing;
    // A file may run on several engines, so the rules are those that fit all of them.
    let mut tokens = resume(Rules::ANY_SERVER, std::mem::take(open), line);
    let (mut at, mut last) = (0, ' ');
    for token in tokens.by_ref() {
        let is_line_comment = !goes_on && token.text.starts_with("--");
        // Behind an SQL comment that ends with its line, a `#` is ours all the same.
        let may_be_ours = token.kind == TokenKind::Code || is_line_comment;
        for (offset, c) in token.text.char_indices() {
            if may_be_ours && last.is_whitespace() && begins_comment(&line[at + offset..]) {
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

/// The same for a line of our own.
pub(crate) fn scan_words(line: &str, mut each: impl FnMut(usize, char, bool)) -> usize {
    // A blank may always follow a mark, so a mark is as good as a blank.
    let marks = ['=', '|', '!', ':', '<', '[', ']', ','];
    let mut quote = None;
    let mut last = ' ';
    for (at, c) in line.char_indices() {
        let rest = &line[at..];
        match (quote, c) {
            (Some(open), _) => {
                each(at, c, true);
                quote = quote.filter(|_| c != open);
            }
            (None, '#')
                if (last.is_whitespace() || marks.contains(&last)) && begins_comment(rest) =>
            {
                return at;
            }
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

/// A `#` with white space or nothing behind it.
pub(crate) fn begins_comment(text: &str) -> bool {
    let behind = text.strip_prefix('#');
    behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// The parts of one of our own lines between separators, each with the byte at which it begins.
pub(crate) fn split(text: &str, separator: char) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut depth = 0usize;
    scan_words(text, |at, c, quoted| match c {
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

/// One blank where there were several, outside of quotes; none at the ends.
pub(crate) fn squeezed(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    let end = scan_words(text, |_, c, quoted| {
        if quoted || !c.is_whitespace() {
            squeezed.push(c);
        } else if !squeezed.is_empty() && !squeezed.ends_with(' ') {
            squeezed.push(' ');
        }
    });
    squeezed.push_str(&text[end..]);
    squeezed.truncate(squeezed.trim_end().len());
    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stands_between_blanks_and_outside_of_quotes() {
        for (line, content) in [
            ("# all of it", ""),
            ("engines: mysql # why", "engines: mysql "),
            ("don't # x", "don't "),
            ("'tis # x", "'tis "),
        ] {
            assert_eq!(&line[..scan_words(line, |_, _, _| {})], content, "{line}");
        }
        for (line, content, mark) in [
            ("select a#b", "select a#b", None),
            ("select a #b", "select a #b", None),
            ("select ' # ' # x", "select ' # ' ", None),
            ("select 'it''s # ' #", "select 'it''s # ' ", None),
            ("select ` # `, \" # \"", "select ` # `, \" # \"", None),
            ("select 'a # b", "select 'a # b", Some("'")),
            ("as $$ # x", "as $$ # x", Some("$$")),
            ("as $f$ it's $$ $f$ # x", "as $f$ it's $$ $f$ ", None),
            ("select 1 -- don't # x", "select 1 -- don't ", None),
            ("select 1 --# x", "select 1 --# x", None),
            ("select /* it's # */ 2 # x", "select /* it's # */ 2 ", None),
            ("select a$b$c # x", "select a$b$c ", None),
            ("select $1 # x", "select $1 ", None),
        ] {
            check_sql(line, content, mark, &mut OpenToken::Nothing);
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
            check_sql(line, content, mark, &mut open);
        }
    }

    fn check_sql(line: &str, content: &str, mark: Option<&str>, open: &mut OpenToken) {
        let end = scan_sql(line, open, |_, _, _| {});
        assert_eq!((&line[..end], open.mark().as_deref()), (content, mark), "{line}");
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
