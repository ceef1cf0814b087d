//! The cases of the matrix: A holds a node, B requests another, both release. They run like any other case.
//!
//! ```text
//!   A> lock …
//!   B> lock …      granted, or blocked by A, as the lock manager reports
//!   A> release     B is granted now, if it was blocked
//!   B> release
//! ```

use super::MatrixOptions;
use super::expected::expected;
use super::report::{MatrixBoard, MatrixCell, ModePair, PairOutcome};
use super::tree::TreeNode;
use crate::engine::BackendKind;
use crate::environment::{CaseEnvironment, LabError, TreeSpec};
use crate::lab::{Lab, RunEvent};
use crate::observation::{LockKind, Observation, SessionName};
use crate::record::{Record, Verdict, WaitEnd};
use crate::scenario::{
    Action, Case, Expectation, ExpectedOutcome, LockAction, LockRequest, Scenario, ScenarioStep,
    SessionSelector,
};
use crate::verdict::predicate;
use hierlock::{Buckets, Mode, Target};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// The smallest number of buckets to try: so few rows are created quickly.
const MIN_BUCKETS: u32 = 1009;

/// Runs all pairs on one backend, one after the other, in one environment.
pub(super) async fn run_backend(
    lab: &Lab,
    backend: BackendKind,
    options: &MatrixOptions,
    on_event: &(impl Fn(RunEvent<'_>) + Sync),
) -> Result<Vec<MatrixBoard>, LabError> {
    let nodes = options.tree.nodes();
    let targets = targets(&nodes)?;
    let buckets = options.buckets.map_or_else(|| buckets_without_collision(&targets), Ok)?;
    let spec = TreeSpec { backend, buckets, targets };
    let names = [holder(), requester()];
    let mut environment = CaseEnvironment::open_tree(lab, &spec, names.iter()).await?;
    let name = format!("matrix/{}", options.tree);
    let scenario = Arc::new(Scenario { name, ..Scenario::default() });
    let mut boards = Vec::new();
    for &modes in &options.modes {
        let started = Instant::now();
        let mut cells = Vec::with_capacity(options.tree.pairs());
        for (held, held_target) in nodes.iter().zip(&spec.targets) {
            for (requested, requested_target) in nodes.iter().zip(&spec.targets) {
                let expected = expected(backend, held, requested, modes);
                let case = Case {
                    sessions: names.clone().map(|name| (name, Vec::new())).into(),
                    steps: steps(held_target, requested_target, modes, &expected),
                    ..Case::new(scenario.clone(), backend)
                };
                let record = lab.run_in(&environment, &case, 1, false, on_event).await;
                on_event(RunEvent::CaseFinished(&record));
                let seen = outcome(&record);
                if let PairOutcome::Unexpected { .. } = seen {
                    // The next pair must start without the locks of this one.
                    environment.reset_tree().await;
                }
                let (held, requested) = (held.clone(), requested.clone());
                cells.push(MatrixCell { held, requested, expected, seen });
            }
        }
        boards.push(MatrixBoard { backend, modes, cells, elapsed: started.elapsed() });
    }
    environment.close(None).await?;
    Ok(boards)
}

fn holder() -> SessionName {
    SessionName::of_letter('A')
}

fn requester() -> SessionName {
    SessionName::of_letter('B')
}

fn steps(
    held: &Target,
    requested: &Target,
    modes: ModePair,
    expected: &PairOutcome,
) -> Vec<ScenarioStep> {
    let lock = |target: &Target, mode: Mode| {
        let request = LockRequest { mode, targets: vec![target.clone()], within: None };
        Action::Lock(LockAction::Lock(request), format!("lock {mode} {target}"))
    };
    let release = || Action::Lock(LockAction::Release, "release".to_owned());
    let mut steps = vec![
        ScenarioStep::new(1, holder(), lock(held, modes.held)),
        ScenarioStep::new(2, requester(), lock(requested, modes.requested)),
        ScenarioStep::new(3, holder(), release()),
        ScenarioStep::new(4, requester(), release()),
    ];
    if let PairOutcome::Blocked { at } = expected {
        let by = vec![SessionSelector::Session(holder())];
        let blocked =
            ExpectedOutcome::Blocked { by, kind: Some(LockKind::Node), object: Some(at.clone()) };
        steps[1].expected = Some(Expectation { alternatives: vec![blocked] });
    }
    steps
}

fn outcome(record: &Record) -> PairOutcome {
    let unexpected = |why: String| PairOutcome::Unexpected { why };
    let failed = record.steps.iter().find_map(|step| match step.last_observation() {
        Observation::Failed(failure) => Some(format!("`{}` fails: {}", step.text, failure.message)),
        _ => None,
    });
    if let Some(why) = failed {
        return unexpected(why);
    }
    if let Verdict::Failed { why } = &record.verdict {
        return unexpected(why.clone());
    }
    let [hold, request, ..] = &record.steps[..] else {
        return unexpected("was not run".to_owned());
    };
    if !matches!(hold.seen, Observation::Done(_)) {
        return unexpected(format!("the first lock {}", predicate(&hold.seen)));
    }
    let Observation::Blocked(wait) = &request.seen else { return PairOutcome::Granted };
    let at = wait.target.as_ref().map(|target| target.object.clone()).unwrap_or_default();
    if wait.has_outside_blocker || wait.blockers != [holder()] {
        return unexpected(format!("waits at {at}, but not for the holder"));
    }
    match &request.ended {
        Some(WaitEnd { during: 2, .. }) => PairOutcome::Blocked { at },
        _ => unexpected(format!("waits at {at}, and was not granted when the holder let go")),
    }
}

fn targets(nodes: &[TreeNode]) -> Result<Vec<Target>, LabError> {
    let lab_error = |error: hierlock::Error| LabError(error.to_string());
    nodes.iter().map(|node| node.to_string().parse().map_err(lab_error)).collect()
}

/// Returns the smallest number of buckets, from [`MIN_BUCKETS`] on, in which no two nodes share one.
fn buckets_without_collision(nodes: &[Target]) -> Result<u32, LabError> {
    let has_no_collision = |count: &u32| {
        let Ok(buckets) = Buckets::new(*count) else { return false };
        let mut taken = HashSet::new();
        nodes.iter().all(|node| taken.insert((node.level(), node.bucket(buckets))))
    };
    (MIN_BUCKETS..1000 * MIN_BUCKETS)
        .step_by(2)
        .find(has_no_collision)
        .ok_or_else(|| LabError(format!("no count of buckets keeps {} nodes apart", nodes.len())))
}

#[cfg(test)]
mod tests {
    use super::super::report::MatrixReport;
    use super::super::tree::TreeSize;
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn no_two_nodes_share_a_bucket() {
        for tree in [TreeSize::default(), TreeSize { users: 5, accounts: 5, resources: 5 }] {
            let targets = targets(&tree.nodes()).unwrap();
            let buckets = buckets_without_collision(&targets).unwrap();
            let buckets = Buckets::new(buckets).unwrap();
            let used: HashSet<_> =
                targets.iter().map(|node| (node.level(), node.bucket(buckets))).collect();
            assert_eq!(used.len(), targets.len(), "{tree}");
        }
    }

    #[tokio::test]
    async fn a_missing_server_is_named() {
        let options = MatrixOptions {
            backends: BackendKind::all([Engine::Mysql]),
            ..MatrixOptions::default()
        };
        let mut report = MatrixReport::new(&options).unwrap();
        Lab::new().unwrap().matrix(&options, &mut report, |_| ()).await;
        assert_eq!(report.unusable.len(), 3);
        assert!(report.unusable[0].why.contains("mysql"), "{:?}", report.unusable);
    }
}
