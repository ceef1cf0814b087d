//! The wait-for graph of a deadlock: sessions as nodes, each with an arrow to the one it waits for, labelled
//! with what it wants. Only places and words are computed here; the template draws them.

use crate::observation::Name;
use crate::record::Deadlock;
use crate::report::words;
use std::f64::consts::TAU;

const NODE: f64 = 24.0;

/// Everything that is drawn.
pub(super) struct Graph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) label: String,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) nth: usize,
    pub(super) x: i64,
    pub(super) y: i64,
    /// If it is the victim, where that is said: outside of the circle.
    pub(super) victim: Option<Sign>,
}

pub(super) struct Sign {
    pub(super) x: i64,
    pub(super) y: i64,
    pub(super) anchor: &'static str,
}

pub(super) struct Edge {
    pub(super) path: String,
    pub(super) anchor: &'static str,
    pub(super) lines: Vec<(i64, i64, String)>,
}

impl Graph {
    /// `names` are all sessions of the run, so that a session has one colour everywhere.
    pub(super) fn of(deadlock: &Deadlock, names: &[Name]) -> Option<Self> {
        let n = deadlock.circle.len();
        if n < 2 {
            return None;
        }
        let (width, height, radius) = match n {
            2 => (600.0, 190.0, 170.0),
            _ => (720.0, 330.0, 112.0),
        };
        let centre = (width / 2.0, height / 2.0);
        // Two lie side by side; more stand on a circle, the first on top.
        let angle = |i: usize| match n {
            2 => TAU / 2.0 + TAU * i as f64 / 2.0,
            _ => TAU * i as f64 / n as f64 - TAU / 4.0,
        };
        let at = |i: usize| {
            let angle = angle(i % n);
            (centre.0 + radius * angle.cos(), centre.1 + radius * angle.sin())
        };
        let nodes = deadlock.circle.iter().enumerate().map(|(i, link)| Node {
            name: words::shorten(link.waiter.as_str(), 6),
            nth: names.iter().position(|name| *name == link.waiter).unwrap_or(i) % 6,
            x: at(i).0.round() as i64,
            y: at(i).1.round() as i64,
            victim: (link.waiter == deadlock.victim).then(|| sign(at(i), centre)),
        });
        let edges = deadlock.circle.iter().enumerate().map(|(i, link)| {
            let wants = link.wants.as_ref().map(|thing| words::one_line(&thing.to_string()));
            edge(at(i), at(i + 1), centre, n == 2, &wants.unwrap_or_default())
        });
        let told: Vec<String> = deadlock
            .circle
            .iter()
            .map(|link| format!("{} waits for {}", link.waiter, link.holder))
            .collect();
        Some(Graph {
            width: width as usize,
            height: height as usize,
            label: format!(
                "Wait-for graph: {}; {} was chosen to end it",
                told.join(", "),
                deadlock.victim
            ),
            nodes: nodes.collect(),
            edges: edges.collect(),
        })
    }
}

/// Beside a node, on the side that is away from the centre.
fn sign(node: (f64, f64), centre: (f64, f64)) -> Sign {
    let far = towards(node, centre, -(NODE + 10.0));
    let side = node.0 - centre.0;
    Sign {
        x: far.0.round() as i64,
        y: far.1.round() as i64 + if far.1 < node.1 - 5.0 { -2 } else { 4 },
        anchor: anchor(side),
    }
}

fn anchor(side: f64) -> &'static str {
    match side {
        side if side > 30.0 => "start",
        side if side < -30.0 => "end",
        _ => "middle",
    }
}

/// A bent arrow that bulges away from the centre, with its label outside of the bulge.
fn edge(a: (f64, f64), b: (f64, f64), centre: (f64, f64), flat: bool, wants: &str) -> Edge {
    let middle = ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy).max(1.0);
    // The left hand of somebody who walks from a to b; of a circle that is walked clockwise, outwards.
    let out = (dy / length, -dx / length);
    let bulge = if flat { 62.0 } else { 34.0 };
    let bend = (middle.0 + out.0 * bulge, middle.1 + out.1 * bulge);
    let (from, to) = (towards(a, bend, NODE + 3.0), towards(b, bend, NODE + 7.0));
    let path =
        format!("M{:.0} {:.0}Q{:.0} {:.0} {:.0} {:.0}", from.0, from.1, bend.0, bend.1, to.0, to.1);
    // The curve itself reaches half as far as its control point.
    let crest = (middle.0 + out.0 * bulge / 2.0, middle.1 + out.1 * bulge / 2.0);
    let anchor = anchor(crest.0 - centre.0);
    let lines = words::wrap(wants, if flat { 64 } else { 26 });
    let height = 15.0 * (lines.len() as f64 - 1.0);
    let x = crest.0 + out.0 * 12.0;
    let y = crest.1 + out.1 * 16.0 + 4.0
        - match out.1 {
            up if up < -0.5 => height,
            down if down > 0.5 => 0.0,
            _ => height / 2.0,
        };
    let place =
        |(i, line): (usize, String)| (x.round() as i64, (y + 15.0 * i as f64).round() as i64, line);
    Edge { path, anchor, lines: lines.into_iter().enumerate().map(place).collect() }
}

/// The point that is `by` away from `a` on the way to `b`.
fn towards(a: (f64, f64), b: (f64, f64), by: f64) -> (f64, f64) {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy).max(1.0);
    (a.0 + dx / length * by, a.1 + dy / length * by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, ring};
    use crate::report::grouping::sessions;

    #[test]
    fn a_circle_has_as_many_edges_as_nodes_and_one_victim() {
        for record in [cycle(Engine::Mysql, "B"), ring()] {
            let graph = Graph::of(&record.deadlocks[0], &sessions(&record)).unwrap();
            assert_eq!(graph.nodes.len(), record.deadlocks[0].circle.len());
            assert_eq!(graph.edges.len(), graph.nodes.len());
            assert_eq!(graph.nodes.iter().filter(|node| node.victim.is_some()).count(), 1);
            for node in &graph.nodes {
                assert!(node.x > 24 && node.x < graph.width as i64 - 24);
                assert!(node.y > 24 && node.y < graph.height as i64 - 24);
            }
        }
    }
}
