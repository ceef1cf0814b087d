//! Quotes, comments and separators of a line, independent of its meaning.
//!
//! A line of SQL has the quotes and comments of all servers, also over several lines. In any other line a quote opens
//! at the beginning of a word and closes on the same line, so an apostrophe within a word is no quote.

use hierlock_engine::lexer::{OpenToken, TokenKind, resume};

/// Scans a line of SQL, starting inside of the token `open`; returns the byte at which its `#` comment begins, or its
/// end. Calls `each` for every character outside of comments, with whether it belongs to a quote.
pub(crate) fn scan_sql(
    line: &str,
    open: &mut OpenToken,
    mut each: impl FnMut(usize, char, bool),
) -> usize {
    let mut is_continued = *open != OpenToken::Nothing;
    // A file may run on several engines, so the rules are those that fit all of them.
    let mut tokens = resume(None, std::mem::take(open), line);
    let (mut at, mut last) = (0, ' ');
    for token in tokens.by_ref() {
        let is_line_comment = !is_continued && token.text.starts_with("--");
        // After an SQL comment that ends with its line, a `#` still begins a comment of the file.
        let may_have_comment = token.kind == TokenKind::Code || is_line_comment;
        for (offset, c) in token.text.char_indices() {
            if may_have_comment && last.is_whitespace() && begins_comment(&line[at + offset..]) {
                return at + offset;
            }
            if token.kind != TokenKind::Comment {
                each(at + offset, c, token.kind == TokenKind::Quoted);
            }
            last = c;
        }
        at += token.text.len();
        is_continued = false;
    }
    *open = tokens.open().clone();
    line.len()
}

/// Like [`scan_sql`], for a line that is not SQL.
pub(crate) fn scan_words(line: &str, mut each: impl FnMut(usize, char, bool)) -> usize {
    // A blank may always follow a mark, so a mark counts as a blank.
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

/// Returns whether the text begins with a `#` that is followed by whitespace or nothing.
pub(crate) fn begins_comment(text: &str) -> bool {
    let after = text.strip_prefix('#');
    after.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// Splits a line that is not SQL at separators; returns each part with its byte offset.
pub(crate) fn split(text: &str, separator: char) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut depth = 0usize;
    scan_words(text, |at, c, quoted| match c {
        _ if quoted => {}
        '(' => depth += 1,
        ')' => depth = depth.saturating_sub(1),
        // In `(1, 30)` a comma separates cells, not the parts of the line.
        _ if c == separator && (depth == 0 || separator == '|') => {
            parts.push((from, &text[from..at]));
            from = at + c.len_utf8();
        }
        _ => {}
    });
    parts.push((from, &text[from..]));
    parts
}

/// Replaces each run of whitespace outside of quotes by one blank, and trims both ends.
pub(crate) fn with_single_blanks(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let end = scan_words(text, |_, c, quoted| {
        if quoted || !c.is_whitespace() {
            line.push(c);
        } else if !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
    });
    line.push_str(&text[end..]);
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_begins_after_a_blank_and_outside_of_quotes() {
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
    fn a_comment_of_several_lines_hides_comments_and_quotes() {
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
        let parts = [(0, "rows (1, 2)"), (12, " in any order")];
        assert_eq!(split("rows (1, 2), in any order", ','), parts);
        assert_eq!(split("", '|'), [(0, "")]);
    }
}
