//! Quotes and comments of a line: what in it counts, and where its comment begins. Knows nothing of
//! what the line says.

/// How quotes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As in SQL: `'…'`, `"…"`, backquotes, `$$…$$`, `-- …` and `/* … */`, over several lines.
    Sql,
    /// As in our own lines: a quote opens at the beginning of a word and closes on the same line, so
    /// that an apostrophe is only an apostrophe.
    Words,
}

/// What is open at the end of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Open {
    /// Nothing.
    #[default]
    Nothing,
    /// A quote, by the character that closes it.
    Quote(char),
    /// `$tag$`, with the dollars.
    Dollar(String),
    /// `/*`
    Comment,
}

impl Open {
    /// How it is opened, for messages.
    pub(crate) fn opening(&self) -> Option<String> {
        match self {
            Open::Nothing => None,
            Open::Quote(quote) => Some(quote.to_string()),
            Open::Dollar(tag) => Some(tag.clone()),
            Open::Comment => Some("/*".to_owned()),
        }
    }
}

/// Reads a line on from what is open, gives every character that is no comment to `each` with whether
/// it belongs to a quote, and returns where the line's own comment begins; its end if it has none.
pub(crate) fn scan(
    line: &str,
    style: Style,
    open: &mut Open,
    mut each: impl FnMut(usize, char, bool),
) -> usize {
    let mut at = 0;
    let mut last = ' ';
    while let Some(c) = line[at..].chars().next() {
        let rest = &line[at..];
        let mut length = c.len_utf8();
        match open {
            Open::Quote(quote) => {
                each(at, c, true);
                if c == *quote {
                    *open = Open::Nothing;
                }
            }
            Open::Dollar(tag) => {
                each(at, c, true);
                if rest.starts_with(tag.as_str()) {
                    length = tag.len();
                    *open = Open::Nothing;
                }
            }
            Open::Comment => {
                if rest.starts_with("*/") {
                    length = 2;
                    *open = Open::Nothing;
                }
            }
            Open::Nothing => match c {
                '#' if is_comment(rest, last, style) => return at,
                '\'' | '"' | '`' if opens(style, last, rest, c) => {
                    each(at, c, true);
                    *open = Open::Quote(c);
                }
                '$' if style == Style::Sql && !last.is_alphanumeric() && last != '_' => {
                    match dollar_tag(rest) {
                        Some(tag) => {
                            each(at, c, true);
                            length = tag.len();
                            *open = Open::Dollar(tag.to_owned());
                        }
                        None => each(at, c, false),
                    }
                }
                '/' if style == Style::Sql && rest.starts_with("/*") => {
                    length = 2;
                    *open = Open::Comment;
                }
                '-' if style == Style::Sql && is_sql_comment(rest) => {
                    // An apostrophe in it opens nothing; a `#` behind it is ours all the same.
                    let ours = rest.char_indices().zip(rest.chars().skip(1)).find_map(
                        |((i, before), c)| {
                            let here = i + before.len_utf8();
                            (c == '#' && is_comment(&rest[here..], before, style))
                                .then_some(at + here)
                        },
                    );
                    return ours.unwrap_or(line.len());
                }
                _ => each(at, c, false),
            },
        }
        last = c;
        at += length;
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

fn is_sql_comment(rest: &str) -> bool {
    rest.strip_prefix("--").is_some_and(|text| text.chars().next().is_none_or(char::is_whitespace))
}

fn opens(style: Style, last: char, rest: &str, quote: char) -> bool {
    match style {
        Style::Sql => true,
        Style::Words => !last.is_alphanumeric() && rest[1..].contains(quote),
    }
}

/// `$$` or `$tag$` at the beginning of the text.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 1;
    let tag = &rest[1..end];
    let plain = tag.chars().all(|c| c.is_alphanumeric() || c == '_');
    (plain && !tag.starts_with(|c: char| c.is_ascii_digit())).then(|| &rest[..=end])
}

/// The parts of one of our own lines between separators, each with the byte at which it begins.
pub(crate) fn split(text: &str, separator: char) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut depth = 0usize;
    scan(text, Style::Words, &mut Open::Nothing, |at, c, quoted| match c {
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
            let mut state = Open::Nothing;
            let end = scan(line, style, &mut state, |_, _, _| {});
            assert_eq!(&line[..end], content, "{line}");
            assert_eq!(state.opening().as_deref(), open, "{line}");
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
