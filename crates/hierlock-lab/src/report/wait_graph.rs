//! The wait-for graph of a deadlock: positions and texts, which `wait_graph.svg` draws.

use super::display::{locked_object, truncate, wrap};
use crate::observation::SessionName;
use crate::record::WaitEdge;
use std::f64::consts::TAU;

/// The colours of sessions, `.s0` to `.s5` in `colours.css`.
pub(super) const SESSION_COLOURS: usize = 6;

const NODE_RADIUS: f64 = 24.0;
const LINE_HEIGHT: f64 = 15.0;

type Point = (f64, f64);

pub(super) struct WaitGraphPicture {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) nodes: Vec<GraphNode>,
    pub(super) edges: Vec<Edge>,
}

pub(super) struct GraphNode {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) x: f64,
    pub(super) y: f64,
    /// The label of the victim, outside of the circle.
    pub(super) victim: Option<Label>,
}

pub(super) struct Edge {
    pub(super) path: String,
    pub(super) label: Label,
}

/// Lines of text, the first at this position.
pub(super) struct Label {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) anchor: &'static str,
    pub(super) lines: Vec<String>,
}

impl WaitGraphPicture {
    /// Draws a cycle, in which each session waits for the next and the last for the first. `names` are all sessions of the
    /// run, so that a session has the same colour in every picture. Returns None for fewer than two sessions.
    pub(super) fn new(
        cycle: &[WaitEdge],
        victim: Option<&SessionName>,
        names: &[&SessionName],
    ) -> Option<Self> {
        let n = cycle.len();
        if n < 2 {
            return None;
        }
        // Two nodes are side by side; more are on a circle, the first on top.
        let (width, height, radius, first) = match n {
            2 => (600.0, 190.0, 170.0, TAU / 2.0),
            _ => (720.0, 330.0, 112.0, -TAU / 4.0),
        };
        let centre = (width / 2.0, height / 2.0);
        let at = |i: usize| {
            let angle = first + TAU * (i % n) as f64 / n as f64;
            (centre.0 + radius * angle.cos(), centre.1 + radius * angle.sin())
        };
        let nodes = cycle.iter().enumerate().map(|(i, link)| GraphNode {
            name: truncate(link.waiter.as_str(), 6),
            colour: names.iter().position(|name| **name == link.waiter).unwrap_or(i)
                % SESSION_COLOURS,
            x: at(i).0.round(),
            y: at(i).1.round(),
            victim: (Some(&link.waiter) == victim).then(|| victim_label(at(i), centre)),
        });
        let edges = cycle.iter().enumerate().map(|(i, link)| {
            let wants = link.wants.as_ref().map(locked_object).unwrap_or_default();
            Edge::new(at(i), at(i + 1), centre, n == 2, &wants)
        });
        Some(WaitGraphPicture { width, height, nodes: nodes.collect(), edges: edges.collect() })
    }
}

/// Returns the label of the victim, on the side of the node that is away from the centre.
fn victim_label(node: Point, centre: Point) -> Label {
    let (x, y) = towards(node, centre, -(NODE_RADIUS + 10.0));
    Label {
        x: x.round(),
        y: y.round() + if y < node.1 - 5.0 { -2.0 } else { 4.0 },
        anchor: anchor(node.0 - centre.0),
        lines: vec!["victim".to_owned()],
    }
}

/// Returns the anchor of a text that is `right` pixels to the right of the centre.
fn anchor(right: f64) -> &'static str {
    match right {
        30.0.. => "start",
        ..-30.0 => "end",
        _ => "middle",
    }
}

impl Edge {
    /// Makes a curved arrow that bends away from the centre, with its label outside of the curve.
    fn new(a: Point, b: Point, centre: Point, flat: bool, wants: &str) -> Self {
        let middle = ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length = dx.hypot(dy).max(1.0);
        // The nodes are in clockwise order, so the outside is on the left of the line from a to b.
        let out = (dy / length, -dx / length);
        let bulge = if flat { 62.0 } else { 34.0 };
        let bend = (middle.0 + out.0 * bulge, middle.1 + out.1 * bulge);
        let from = towards(a, bend, NODE_RADIUS + 3.0);
        let to = towards(b, bend, NODE_RADIUS + 7.0);
        let path = format!(
            "M{:.0} {:.0}Q{:.0} {:.0} {:.0} {:.0}",
            from.0, from.1, bend.0, bend.1, to.0, to.1
        );
        // The curve reaches half as far as its control point.
        let crest = (middle.0 + out.0 * bulge / 2.0, middle.1 + out.1 * bulge / 2.0);
        let lines = wrap(wants, if flat { 64 } else { 26 });
        let height = LINE_HEIGHT * (lines.len() as f64 - 1.0);
        let above = match out.1 {
            ..-0.5 => height,
            -0.5..=0.5 => height / 2.0,
            _ => 0.0,
        };
        let label = Label {
            x: (crest.0 + out.0 * 12.0).round(),
            y: (crest.1 + out.1 * 16.0 + 4.0 - above).round(),
            anchor: anchor(crest.0 - centre.0),
            lines,
        };
        Edge { path, label }
    }
}

/// Returns the point at distance `by` from `a` in the direction of `b`.
fn towards(a: Point, b: Point, by: f64) -> Point {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy).max(1.0);
    (a.0 + dx / length * by, a.1 + dy / length * by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::report::fixtures::{cycle, ring};
    use crate::report::grouping::sessions;

    #[test]
    fn a_cycle_has_as_many_edges_as_nodes_and_one_victim() {
        for record in [cycle(Engine::Mysql, "B"), ring()] {
            let deadlock = &record.deadlocks[0];
            let victim = Some(&deadlock.victim);
            let graph = WaitGraphPicture::new(&deadlock.cycle, victim, &sessions(&record)).unwrap();
            assert_eq!(graph.nodes.len(), deadlock.cycle.len());
            assert_eq!(graph.edges.len(), graph.nodes.len());
            assert_eq!(graph.nodes.iter().filter(|node| node.victim.is_some()).count(), 1);
            for node in &graph.nodes {
                assert!(node.x > NODE_RADIUS && node.x < graph.width - NODE_RADIUS);
                assert!(node.y > NODE_RADIUS && node.y < graph.height - NODE_RADIUS);
            }
        }
    }
}
