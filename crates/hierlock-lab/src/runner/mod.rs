//! Runs a case: one step after the other, each settled before the next begins.
//!
//! ```text
//!   step ──begin──► session        settle: until every session with an unfinished step
//!    ▲                │                    has ended it, or waits in two probes that agree
//!    │                ▼
//!   next ◄──judge── settled ──► StepRecord
//! ```
//!
//! 1. A step is *blocked* when two probes, some milliseconds apart, both see its session wait, and for the
//!    same sessions.
//! 2. A cycle of waiting sessions is a deadlock that the server has not detected yet: settling continues until
//!    it has. A cycle that lasts longer than deadlock detection takes is one that the server does not resolve:
//!    its sessions are *blocked*, and the record contains the cycle.
//! 3. A step that neither ends nor is seen to wait within the limit is stuck: it is cancelled on the server
//!    and the case has failed.
//! 4. A difference does not end a case, so that the record is complete. A step that cannot begin, because its
//!    session still waits, ends the case.

mod settle;
pub(crate) mod wait_graph;

use crate::environment::{CaseEnvironment, LabError};
use crate::lock_history::LockHistory;
use crate::observation::{Failure, FailureKind, Lock, Observation, SessionName, SessionWait};
use crate::record::{Deadlock, Record, StepRecord, Verdict, WaitCycle, WaitEnd};
use crate::scenario::{Action, Case, ExpectedOutcome, ScenarioStep};
use crate::text::join;
use crate::verdict::{DeadlockPair, ObservedStep, difference, predicate};
use settle::{EndedStep, Goal, PendingStep, PendingSteps, SettleOutcome, same_wait, settle};
use std::collections::BTreeMap;
use tokio::time::Instant;
use wait_graph::{cycle_closed_by, cycle_of};

/// Runs the steps of a case and writes the observations into its record. `on_step` is called with each step once it is
/// judged. With `record_locks` the record contains the locks of all sessions after each step.
///
/// Unfinished statements continue until the environment is closed.
pub(crate) async fn run_steps(
    environment: &CaseEnvironment,
    case: &Case,
    record: &mut Record,
    record_locks: bool,
    on_step: impl Fn(&StepRecord),
) {
    record.anomaly = case.scenario.anomaly.is_some().then_some(false);
    let mut run = CaseRun {
        environment,
        case,
        record,
        record_locks,
        started: Instant::now(),
        unfinished: PendingSteps::new(),
        last: BTreeMap::new(),
        inspected: Vec::new(),
        pair: None,
        unresolved: Vec::new(),
    };
    for step in &case.steps {
        match run.step(step).await {
            Ok(index) => on_step(&run.record.steps[index]),
            Err(why) => {
                // An earlier difference may be the reason for the failure.
                run.record.verdict.keep_first(Verdict::Failed { why });
                break;
            }
        }
    }
    run.judge_uninspected_ends();
    run.record.took = run.started.elapsed();
    if !record_locks {
        // The locks were recorded only to explain deadlocks.
        run.record.steps.iter_mut().for_each(|step| step.locks = None);
    }
}

struct CaseRun<'a> {
    environment: &'a CaseEnvironment,
    case: &'a Case,
    record: &'a mut Record,
    record_locks: bool,
    started: Instant,
    unfinished: PendingSteps,
    /// The index of the last step of each session.
    last: BTreeMap<SessionName, usize>,
    /// The steps whose end was judged by a later line.
    inspected: Vec<usize>,
    pair: Option<DeadlockPair>,
    /// The waits in cycles that the server does not resolve.
    unresolved: Vec<SessionWait>,
}

/// The deadlock victims of a step, or the reason why the case cannot continue, in a sentence.
type StepResult = Result<Vec<SessionName>, String>;

impl CaseRun<'_> {
    /// Runs a step and judges it; returns its index.
    async fn step(&mut self, step: &ScenarioStep) -> Result<usize, String> {
        let ScenarioStep { line, session: selector, .. } = step;
        let session =
            DeadlockPair::resolve(self.pair.as_ref(), selector).cloned().ok_or_else(|| {
                format!("line {line}: there was no deadlock of two, so there is no {selector}")
            })?;
        let index = self.record.steps.len();
        let victims = match &step.action {
            Action::Look => self.inspect(step, &session).await?,
            Action::Sql(_) | Action::Lock(..) => self.execute(step, &session).await?,
        };
        self.judge(step, index, &victims);
        Ok(index)
    }

    /// Observes the session's last step again; returns the deadlock victims.
    async fn inspect(&mut self, step: &ScenarioStep, session: &SessionName) -> StepResult {
        let last = *self.last.get(session).ok_or_else(|| {
            format!("line {}: {session} has done nothing that could be looked at", step.line)
        })?;
        self.inspected.push(last);
        let mut look = self.new_record(step, session);
        if let Some(StepRecord { waits, locks, incomplete_locks, .. }) = self.record.steps.last() {
            (look.waits, look.locks) = (waits.clone(), locks.clone());
            look.incomplete_locks = incomplete_locks.clone();
        }
        self.record.steps.push(look);
        let mut victims = Vec::new();
        if ends_by_itself(step) && self.unfinished.contains_key(session) {
            victims = self.settle(step, session).await?;
        }
        let seen = self.record.steps[last].last_observation().clone();
        let now = self.started.elapsed();
        if let Some(record) = self.record.steps.last_mut() {
            // The blockers may have changed since the first observation.
            let wait = record.waits.iter().find(|wait| wait.waiter == *session).cloned();
            let wait = wait.filter(|_| !seen.is_over()).map(Observation::Blocked);
            (record.seen, record.seen_at) = (wait.unwrap_or(seen), now);
        }
        Ok(victims)
    }

    async fn execute(&mut self, step: &ScenarioStep, session: &SessionName) -> StepResult {
        if let Some(pending) = self.unfinished.get(session) {
            let since = self.record.steps[pending.step].line;
            let by = blockers_text(" by ", session, &self.current_waits());
            return Err(format!(
                "line {}: {session} cannot do this, it is still blocked{by} since line {since}; look for its \
                 end (`{session}<`) after a step that lets it go",
                step.line
            ));
        }
        let index = self.record.steps.len();
        self.record.steps.push(self.new_record(step, session));
        self.last.insert(session.clone(), index);
        let reply = self.environment.begin(session, &step.action);
        self.unfinished.insert(session.clone(), PendingStep { step: index, reply });
        self.settle(step, session).await
    }

    /// Waits until every session is idle or waits, and completes the last record; returns the deadlock victims.
    async fn settle(&mut self, step: &ScenarioStep, session: &SessionName) -> StepResult {
        let index = self.record.steps.len() - 1;
        let previous = index.checked_sub(1).map(|previous| &self.record.steps[previous]);
        let before = previous.map(|step| step.waits.clone()).unwrap_or_default();
        let goal = Goal {
            limit: self.case.limit,
            awaited: ends_by_itself(step).then_some(session),
            deadlock: expected_victims(step).is_some(),
            deadlock_later: self.case.steps.iter().any(|step| expected_victims(step).is_some()),
            unresolved: &self.unresolved,
        };
        let settled = settle(self.environment, &mut self.unfinished, goal).await;
        let SettleOutcome { ended, waits, stuck, cycle, unresolved } =
            settled.map_err(|error| format!("line {}: {error}", step.line))?;
        let after = match self.environment.locks().await {
            Err(LabError(why)) if self.record_locks => return Err(why),
            // Without the option, a deadlock is explained without these locks.
            after => after.ok(),
        };
        let mut victims = Vec::new();
        for ended in ended {
            if let Err(failure) = &ended.result
                && failure.kind == FailureKind::Deadlock
            {
                let seen = if cycle.is_empty() { &before } else { &cycle };
                let after = after.as_ref().map(|after| &after.locks[..]).unwrap_or_default();
                self.record_deadlock(index, &ended.session, failure, seen, after).await;
                victims.push(ended.session.clone());
            }
            self.record_end(index, ended);
        }
        let record = &mut self.record.steps[index];
        if let Some(wait) = waits.iter().find(|wait| wait.waiter == *session)
            && self.unfinished.contains_key(session)
        {
            record.seen = Observation::Blocked(wait.clone());
            record.seen_at = self.started.elapsed();
        }
        record.waits = waits;
        if let Some(after) = after {
            (record.locks, record.incomplete_locks) = (Some(after.locks), after.incomplete);
        }
        self.record_cycles(index, unresolved);
        if stuck.is_empty() { Ok(victims) } else { Err(self.cancel_stuck(step, stuck).await) }
    }

    /// Records the end of a statement that was begun in step `during` or before it.
    fn record_end(&mut self, during: usize, ended: EndedStep) {
        let at = ended.at.duration_since(self.started);
        let observation = match ended.result {
            Ok(answer) => Observation::Done(answer),
            Err(failure) => Observation::Failed(failure),
        };
        let record = &mut self.record.steps[ended.step];
        if ended.step == during {
            (record.seen, record.seen_at) = (observation, at);
        } else {
            record.ended = Some(WaitEnd { observation, at, during });
        }
    }

    /// Records each cycle that the server does not resolve, once.
    fn record_cycles(&mut self, step: usize, unresolved: Vec<SessionWait>) {
        let is_known =
            |wait: &SessionWait| self.unresolved.iter().any(|known| same_wait(known, wait));
        let mut recorded: Vec<SessionName> = Vec::new();
        for wait in unresolved.iter().filter(|wait| !is_known(wait)) {
            if recorded.contains(&wait.waiter) {
                continue;
            }
            let mut links = cycle_of(&wait.waiter, &unresolved).unwrap_or_default();
            recorded.extend(links.iter().map(|edge| edge.waiter.clone()));
            // The cycle still exists, so the locks after the step are those of the cycle.
            LockHistory { steps: &self.record.steps }.complete(&mut links, step + 1, &[]);
            self.record.cycles.push(WaitCycle { step, links });
        }
        self.unresolved = unresolved;
    }

    async fn record_deadlock(
        &mut self,
        step: usize,
        victim: &SessionName,
        failure: &Failure,
        seen: &[SessionWait],
        after: &[Lock],
    ) {
        let reported = self.environment.deadlock(victim, failure).await;
        let observed = || cycle_of(victim, seen).or_else(|| cycle_closed_by(victim, seen));
        let mut cycle = reported.or_else(observed).unwrap_or_default();
        LockHistory { steps: &self.record.steps }.complete(&mut cycle, step, after);
        let mut others = cycle.iter().map(|edge| &edge.waiter).filter(|name| *name != victim);
        let survivor = others.next().filter(|_| others.next().is_none()).cloned();
        self.pair = Some(DeadlockPair { victim: victim.clone(), survivor });
        self.record.deadlocks.push(Deadlock { step, victim: victim.clone(), cycle });
    }

    async fn cancel_stuck(&mut self, step: &ScenarioStep, stuck: Vec<SessionName>) -> String {
        let waits = self.current_waits();
        let mut sentences = Vec::new();
        for name in stuck {
            let pending = self.unfinished.get(&name);
            let line = pending.map_or(step.line, |pending| self.record.steps[pending.step].line);
            let ended = match self.environment.cancel(&name).await {
                Ok(()) => "it was ended on the server".to_owned(),
                Err(error) => format!("it could not be ended: {error}"),
            };
            let by = blockers_text(" for ", &name, &waits);
            let state = if !waits.iter().any(|wait| wait.waiter == name) {
                "neither ended nor was seen to wait for a lock".to_owned()
            } else if cycle_of(&name, &waits).is_some() {
                format!("waited{by} in a cycle that the engine had not ended")
            } else {
                format!("waited{by}, but not always for the same")
            };
            sentences.push(format!("{name} (line {line}) {state}; {ended}"));
        }
        let limit = self.case.limit;
        format!("line {}: within {limit:?} {}", step.line, sentences.join(", "))
    }

    fn current_waits(&self) -> Vec<SessionWait> {
        self.record.steps.last().map(|step| step.waits.clone()).unwrap_or_default()
    }

    fn judge(&mut self, step: &ScenarioStep, index: usize, victims: &[SessionName]) {
        let record = &self.record.steps[index];
        // A look at a victim is about an earlier deadlock.
        let own = std::slice::from_ref(&record.session);
        let is_past = record.seen.is_deadlock() && !victims.contains(&record.session);
        let victims = if is_past { own } else { victims };
        let observed = ObservedStep {
            session: &record.session,
            observation: &record.seen,
            victims,
            pair: self.pair.as_ref(),
        };
        let differs = difference(step.expected.as_ref(), &observed);
        let shows = |outcome| difference(Some(outcome), &observed).is_none();
        if step.anomaly_outcomes.iter().any(shows) {
            self.record.anomaly = self.record.anomaly.map(|_| true);
        }
        if let Some(why) = &differs {
            self.record.verdict.keep_first(Verdict::Disagrees { step: index, why: why.clone() });
        }
        if let Some(candidates) = expected_victims(step) {
            // The file expects the deadlock, so the end of the victim's step is judged.
            self.inspected.extend(victims.iter().filter_map(|victim| self.last.get(victim)));
            // If the file names two candidates, the survivor is known even if the engine reports no cycle.
            if let (Some(pair), [first, second]) = (&mut self.pair, candidates) {
                let other = if *first == pair.victim { second } else { first };
                pair.survivor = Some(other.clone());
            }
        }
        self.record.steps[index].difference = differs;
    }

    /// Judges waits that ended in a failure: the file must contain such an end.
    fn judge_uninspected_ends(&mut self) {
        for (index, record) in self.record.steps.iter_mut().enumerate() {
            let is_judged = self.inspected.contains(&index) || record.difference.is_some();
            let Some(WaitEnd { observation, .. }) = &record.ended else { continue };
            if matches!(observation, Observation::Failed(_)) && !is_judged {
                let (failed, session) = (predicate(observation), &record.session);
                let then = format!("then it {failed}; no line says so (`{session}< = …`)");
                let why = format!("it was blocked at first, {then}");
                record.difference = Some(why.clone());
                self.record.verdict.keep_first(Verdict::Disagrees { step: index, why });
            }
        }
    }

    fn new_record(&self, step: &ScenarioStep, session: &SessionName) -> StepRecord {
        let expected = step.expected.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = match &step.action {
            Action::Sql(text) | Action::Lock(_, text) => text.clone(),
            Action::Look => String::new(),
        };
        let began = self.started.elapsed();
        StepRecord { expected, ..StepRecord::new(step.line, session.clone(), text, began) }
    }
}

/// Returns whether the step ends without a release: its wait has a timeout.
fn ends_by_itself(step: &ScenarioStep) -> bool {
    step.expected_outcomes().any(|one| *one == ExpectedOutcome::TimedOut)
}

/// Returns the candidates of a deadlock, if the file expects one.
fn expected_victims(step: &ScenarioStep) -> Option<&[SessionName]> {
    step.expected_outcomes().find_map(|one| match one {
        ExpectedOutcome::Deadlock { victims } => Some(victims.as_slice()),
        _ => None,
    })
}

/// Returns ` by A and B`; an empty text if no blocker is known.
fn blockers_text(preposition: &str, waiter: &SessionName, waits: &[SessionWait]) -> String {
    let wait = waits.iter().find(|wait| wait.waiter == *waiter);
    match wait.map(|wait| join(&wait.blockers, " and ")) {
        Some(names) if !names.is_empty() => preposition.to_owned() + &names,
        _ => String::new(),
    }
}
