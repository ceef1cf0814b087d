//! The matrix as a heat map: one self-contained SVG, light or dark as the reader's screen is, with what
//! was seen in the tooltip of each cell. Pure; knows only the report. Times are left out of it, so that
//! the same observations give the same picture.

mod board;
mod panel;
mod style;

use super::report::{MatrixBoard, MatrixReport};
use board::Drawn;
use std::fmt::Write;
use style::{PAD, STYLE};

/// How many boards stand side by side.
const ABREAST: usize = 3;
/// Between boards.
const GUTTER: usize = 36;
/// What stands above the boards.
const HEAD: usize = 62;

/// See [`MatrixReport::svg`].
pub(super) fn svg(report: &MatrixReport) -> String {
    let nodes = report.tree.nodes();
    let pictures = report.pictures();
    let abreast = match pictures.len() {
        // Two by two looks better than three and one.
        4 => 2,
        count => count.clamp(1, ABREAST),
    };
    let drawn: Vec<Drawn> =
        pictures.iter().map(|alike| board::draw(alike, &nodes, pictures.len() > 1)).collect();

    let mut boards = String::new();
    let (mut bottom, mut right) = (PAD + HEAD, PAD);
    for row in drawn.chunks(abreast) {
        let (y, mut x) = (bottom, PAD);
        for drawn in row {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(boards, "<g transform=\"translate({x} {y})\">\n{}</g>", drawn.svg);
            right = right.max(x + drawn.width);
            bottom = bottom.max(y + drawn.height);
            x += drawn.width + GUTTER;
        }
        bottom += GUTTER;
    }
    let panel = panel::draw(report);
    let panel_x = right + GUTTER;
    let width = panel_x + panel.width + PAD;
    let height = (bottom - GUTTER).max(PAD + HEAD + panel.height) + PAD;

    let title = format!("Held × requested on a tree of {}", report.tree);
    let what = subtitle(report, &pictures);
    let description = format!("{what} {}", panel::summary(report).join(" "));
    let mut svg = String::new();
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="hierlock-matrix" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="hierlock-matrix-title hierlock-matrix-description">
<title id="hierlock-matrix-title">{title}</title>
<desc id="hierlock-matrix-description">{description}</desc>
<style>{STYLE}</style>
<rect class="page" width="{width}" height="{height}" rx="14"/>
<text class="title" x="{PAD}" y="{title_y}">{title}</text>
<text class="soft" x="{PAD}" y="{what_y}">{what}</text>
{boards}<g transform="translate({panel_x} {panel_y})">
{panel}</g>
</svg>
"#,
        title_y = PAD + 16,
        what_y = PAD + 38,
        panel_y = PAD + HEAD,
        panel = panel.svg,
    );
    svg
}

fn subtitle(report: &MatrixReport, pictures: &[Vec<&MatrixBoard>]) -> String {
    let pairs = format!("Every ordered pair of {} nodes", report.tree.len());
    match pictures {
        [] => format!("{pairs}: nothing was run."),
        [alike] if alike.len() == 1 => format!("{pairs}, {}.", alike[0].modes),
        [alike] => {
            format!("{pairs}, {}; the same on {} places.", alike[0].modes, alike.len())
        }
        many => format!("{pairs}; {} different pictures.", many.len()),
    }
}

/// Text that can stand in an element or an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not even escaped may they stand in XML.
            c if c.is_control() && !c.is_whitespace() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::report::fixtures::as_expected;
    use super::super::report::{ModePair, PairOutcome};
    use super::super::tree::TreeSize;
    use super::escaped;
    use super::svg;
    use crate::place::Engine;
    use crate::place::Place;

    #[test]
    fn a_small_picture() {
        let tree = TreeSize { users: 1, accounts: 1, resources: 1 };
        let mut report = as_expected(tree, Place::all([Engine::Memory]), &[ModePair::EXCLUSIVE]);
        report.boards[0].cells[1].seen =
            PairOutcome::Odd { why: "fails: <gone> & \"lost\"".into() };
        insta::assert_snapshot!(svg(&report));
    }

    #[test]
    fn a_cell_for_each_pair_and_a_picture_for_all_that_look_the_same() {
        let report =
            as_expected(TreeSize::default(), Place::all(Engine::ALL), &[ModePair::EXCLUSIVE]);
        let drawn = svg(&report);
        assert_eq!(drawn.matches("class=\"cell ").count(), 196);
        assert_eq!(drawn.matches("class=\"cell granted\"").count(), 142);
        assert_eq!(drawn.matches("class=\"chip\"").count(), 12);
        assert!(!drawn.contains("class=\"cross\""), "nothing disagrees");
        assert!(drawn.contains("u1 is held, u1/a2 requested: waits for it at u1, and is granted"));
    }

    #[test]
    fn a_disagreement_is_crossed_out_in_a_picture_of_its_own() {
        let mut report =
            as_expected(TreeSize::default(), Place::all(Engine::ALL), &[ModePair::EXCLUSIVE]);
        report.boards[2].cells[0].seen = PairOutcome::Granted;
        let drawn = svg(&report);
        assert_eq!(drawn.matches("class=\"cell ").count(), 2 * 196);
        // One in the board, one in the legend.
        assert_eq!(drawn.matches("class=\"cross\"").count(), 2);
        assert!(drawn.contains("Expected: waits for it at u1."));
    }

    #[test]
    fn nothing_breaks_out_of_its_text() {
        assert_eq!(escaped("<a b=\"c\">&\u{1}"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}");
    }
}
