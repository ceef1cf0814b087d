//! One case, from its first step to its last.

use super::circle::{circle_closed_by, circle_of};
use super::settle::{Over, Pending, Settled, Unfinished, Wanted, is_same, settle};
use crate::ledger::{Incomplete, Ledger};
use crate::observation::{Failure, FailureKind, Lock, Name, Observation, Wait};
use crate::record::{Circle, Deadlock, Ended, StepRecord, Verdict};
use crate::scenario::{Case, CaseDeed, Expected, Step};
use crate::stage::{Stage, StageError};
use crate::verdict::{Pair, Seen, difference, fits};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How a case is played.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Record the locks of all sessions after each step.
    pub(crate) locks: bool,
}

/// What playing a case left behind.
pub(crate) struct Played {
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) deadlocks: Vec<Deadlock>,
    pub(crate) circles: Vec<Circle>,
    pub(crate) verdict: Verdict,
    pub(crate) anomaly: bool,
    pub(crate) took: Duration,
}

/// Plays a case. The stage is left with whatever its sessions still do; closing it ends that.
pub(crate) async fn play<S: Stage>(stage: &S, case: &Case, options: Options) -> Played {
    let mut player = Player {
        stage,
        case,
        options,
        begun: Instant::now(),
        unfinished: Unfinished::new(),
        last: BTreeMap::new(),
        looked_at: Vec::new(),
        incomplete: Vec::new(),
        pair: None,
        unended: Vec::new(),
        played: Played {
            steps: Vec::new(),
            deadlocks: Vec::new(),
            circles: Vec::new(),
            verdict: Verdict::Agrees,
            anomaly: false,
            took: Duration::ZERO,
        },
    };
    for step in &case.steps {
        if let Err(why) = player.step(step).await {
            // A difference that was seen before may well be the reason.
            if player.played.verdict == Verdict::Agrees {
                player.played.verdict = Verdict::Failed { why };
            }
            break;
        }
    }
    player.judge_what_nobody_looked_at();
    if !options.locks {
        // They were recorded to explain deadlocks.
        player.played.steps.iter_mut().for_each(|step| step.locks = None);
    }
    player.played.took = player.begun.elapsed();
    player.played
}

struct Player<'a, S> {
    stage: &'a S,
    case: &'a Case,
    options: Options,
    begun: Instant,
    unfinished: Unfinished,
    /// The last step of each session, as an index.
    last: BTreeMap<Name, usize>,
    /// Steps whose end was judged by a later line.
    looked_at: Vec<usize>,
    /// For each step: the sessions whose locks after it are not told in full.
    incomplete: Vec<Incomplete>,
    pair: Option<Pair>,
    /// The waits in circles that the server does not end.
    unended: Vec<Wait>,
    played: Played,
}

/// Why a case cannot go on, in a sentence.
type Stop = String;

impl<S: Stage> Player<'_, S> {
    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        let session = Pair::resolve(self.pair.as_ref(), &step.who).cloned().ok_or_else(|| {
            format!(
                "line {}: there was no deadlock of two, so nobody is the {}",
                step.line, step.who
            )
        })?;
        let index = self.played.steps.len();
        let victims = match &step.deed {
            CaseDeed::Look => self.look(step, &session).await?,
            deed => self.act(step, &session, deed).await?,
        };
        self.judge(step, index, &victims);
        Ok(())
    }

    /// A look at the session's last step, as it stands; who was chosen to end a deadlock comes back.
    async fn look(&mut self, step: &Step, session: &Name) -> Result<Vec<Name>, Stop> {
        let last = *self.last.get(session).ok_or_else(|| {
            format!("line {}: {session} has done nothing that could be looked at", step.line)
        })?;
        self.looked_at.push(last);
        let before = self.waits_now();
        let locks = self.played.steps.last().and_then(|step| step.locks.clone());
        let record = begun(step, session, String::new(), self.begun.elapsed());
        self.played.steps.push(StepRecord { waits: before.clone(), locks, ..record });
        self.incomplete.push(self.incomplete.last().cloned().unwrap_or_default());
        let victims = match ends_by_itself(step) && self.unfinished.contains_key(session) {
            true => self.settle(step, session, &before).await?,
            false => Vec::new(),
        };
        let seen = stands(&self.played.steps[last]).clone();
        let now = self.begun.elapsed();
        if let Some(record) = self.played.steps.last_mut() {
            // Whom it waits for may have changed since it was first seen.
            let wait = record.waits.iter().find(|wait| wait.waiter == *session).cloned();
            (record.seen, record.seen_at) = match wait {
                Some(wait) if !seen.is_over() => (Observation::Blocked(wait), now),
                _ => (seen, now),
            };
        }
        Ok(victims)
    }

    /// Does a step, and settles; who was chosen to end a deadlock comes back.
    async fn act(
        &mut self,
        step: &Step,
        session: &Name,
        deed: &CaseDeed,
    ) -> Result<Vec<Name>, Stop> {
        if let Some(pending) = self.unfinished.get(session) {
            let since = self.played.steps[pending.step].line;
            let waits = self.waits_now();
            let by =
                waits.iter().find(|wait| wait.waiter == *session).map_or_else(String::new, by_whom);
            return Err(format!(
                "line {}: {session} cannot do this, it is still blocked{by} since line {since}; look for its \
                 end (`{session}<`) after a step that lets it go",
                step.line
            ));
        }
        let (index, before) = (self.played.steps.len(), self.waits_now());
        let text = match deed {
            CaseDeed::Sql(text) | CaseDeed::Lock(_, text) => text.clone(),
            CaseDeed::Look => String::new(),
        };
        self.played.steps.push(begun(step, session, text, self.begun.elapsed()));
        self.incomplete.push(Incomplete::new());
        self.last.insert(session.clone(), index);
        let reply = self.stage.begin(session, deed);
        self.unfinished.insert(session.clone(), Pending { step: index, reply });
        self.settle(step, session, &before).await
    }

    /// Until all is over or waits, as of the last record; who was chosen to end a deadlock comes back.
    async fn settle(
        &mut self,
        step: &Step,
        session: &Name,
        before: &[Wait],
    ) -> Result<Vec<Name>, Stop> {
        let index = self.played.steps.len() - 1;
        let awaited = ends_by_itself(step).then_some(session);
        let wanted = Wanted {
            limit: self.case.limit,
            awaited,
            deadlock: expected_victims(step).is_some(),
            deadlock_later: self.case.steps.iter().any(|step| expected_victims(step).is_some()),
            unended: &self.unended,
        };
        let settled = settle(self.stage, &mut self.unfinished, wanted).await;
        let settled = settled.map_err(|error| format!("line {}: {error}", step.line))?;
        let after = match self.stage.locks().await {
            Ok(after) => Some(after),
            Err(StageError(why)) if self.options.locks => return Err(why),
            // Nobody asked for them; a deadlock is explained with less.
            Err(_) => None,
        };
        let Settled { over, waits, stuck, circle, unended } = settled;
        let mut victims = Vec::new();
        for over in over {
            if let Err(failure) = &over.result
                && failure.kind == FailureKind::Deadlock
            {
                let seen = if circle.is_empty() { before } else { &circle };
                let after = after.as_ref().map(|after| &after.locks[..]).unwrap_or_default();
                self.tell_deadlock(index, &over.session, failure, seen, after).await;
                victims.push(over.session.clone());
            }
            self.note_end(index, over);
        }
        let record = &mut self.played.steps[index];
        if let Some(wait) = waits.iter().find(|wait| wait.waiter == *session)
            && self.unfinished.contains_key(session)
        {
            record.seen = Observation::Blocked(wait.clone());
            record.seen_at = self.begun.elapsed();
        }
        record.waits = waits;
        if let Some(after) = after {
            record.locks = Some(after.locks);
            self.incomplete[index] = after.incomplete;
        }
        self.note_circles(index, unended);
        match stuck.is_empty() {
            true => Ok(victims),
            false => Err(self.end_what_is_stuck(step, stuck).await),
        }
    }

    /// Something that was begun in this step, or before it, is over.
    fn note_end(&mut self, during: usize, over: Over) {
        let at = over.at.duration_since(self.begun);
        let observation = match over.result {
            Ok(answer) => Observation::Done(answer),
            Err(failure) => Observation::Failed(failure),
        };
        let record = &mut self.played.steps[over.step];
        match over.step == during {
            true => (record.seen, record.seen_at) = (observation, at),
            false => record.ended = Some(Ended { observation, at, during }),
        }
    }

    /// Records each circle that the server does not end, once.
    fn note_circles(&mut self, step: usize, unended: Vec<Wait>) {
        let is_known = |wait: &Wait| self.unended.iter().any(|known| is_same(known, wait));
        let mut told: Vec<Name> = Vec::new();
        for wait in unended.iter().filter(|wait| !is_known(wait)) {
            if told.contains(&wait.waiter) {
                continue;
            }
            let mut links = circle_of(&wait.waiter, &unended).unwrap_or_default();
            told.extend(links.iter().map(|link| link.waiter.clone()));
            // It stays, so the locks after the step are those of the circle.
            let ledger = Ledger::new(&self.played.steps, &self.incomplete);
            ledger.complete(&mut links, step + 1, &[]);
            self.played.circles.push(Circle { step, links });
        }
        self.unended = unended;
    }

    /// Finds out who waited for whom when `victim` was chosen.
    async fn tell_deadlock(
        &mut self,
        step: usize,
        victim: &Name,
        failure: &Failure,
        seen: &[Wait],
        after: &[Lock],
    ) {
        let told = self.stage.circle(victim, failure).await;
        let known = || circle_of(victim, seen).or_else(|| circle_closed_by(victim, seen));
        let mut circle = told.or_else(known).unwrap_or_default();
        Ledger::new(&self.played.steps, &self.incomplete).complete(&mut circle, step, after);
        let others: Vec<&Name> =
            circle.iter().map(|link| &link.waiter).filter(|name| *name != victim).collect();
        let survivor = match others.as_slice() {
            [other] => Some((*other).clone()),
            _ => None,
        };
        self.pair = Some(Pair { victim: victim.clone(), survivor });
        self.played.deadlocks.push(Deadlock { step, victim: victim.clone(), circle });
    }

    async fn end_what_is_stuck(&mut self, step: &Step, stuck: Vec<Name>) -> Stop {
        let mut told = Vec::new();
        for name in stuck {
            let since =
                self.unfinished.get(&name).map(|pending| self.played.steps[pending.step].line);
            let ended = match self.stage.cancel(&name).await {
                Ok(()) => "it was ended on the server".to_owned(),
                Err(error) => format!("it could not be ended: {error}"),
            };
            let line = since.unwrap_or(step.line);
            let waits = self.waits_now();
            told.push(match waits.iter().find(|wait| wait.waiter == name) {
                None => format!(
                    "{name} (line {line}) neither ended nor was seen to wait for a lock; {ended}"
                ),
                Some(wait) if circle_of(&name, &waits).is_some() => format!(
                    "{name} (line {line}) waited{} in a circle that the engine had not ended; {ended}",
                    for_whom(wait)
                ),
                Some(wait) => format!(
                    "{name} (line {line}) waited{}, but not always for the same; {ended}",
                    for_whom(wait)
                ),
            });
        }
        let limit = self.case.limit;
        format!("line {}: within {limit:?} {}", step.line, told.join(", "))
    }

    fn waits_now(&self) -> Vec<Wait> {
        self.played.steps.last().map(|step| step.waits.clone()).unwrap_or_default()
    }

    fn judge(&mut self, step: &Step, index: usize, victims: &[Name]) {
        let record = &self.played.steps[index];
        // Looking again at a victim is looking at a deadlock that is past.
        let own = [record.session.clone()];
        let victims = match record.seen.is_deadlock() && !victims.contains(&record.session) {
            true => &own[..],
            false => victims,
        };
        let pair = self.pair.as_ref();
        let seen = Seen { session: &record.session, observation: &record.seen, victims, pair };
        let differs = difference(step.expected.as_ref(), &seen);
        self.played.anomaly |= step.signs.iter().any(|sign| fits(sign, &seen));
        if let Some(why) = &differs
            && self.played.verdict == Verdict::Agrees
        {
            self.played.verdict = Verdict::Disagrees { step: index, why: why.clone() };
        }
        if let Some(candidates) = expected_victims(step) {
            // Whoever it was, the file has said what becomes of it.
            let indices = victims.iter().filter_map(|victim| self.last.get(victim));
            self.looked_at.extend(indices);
            // Of two that the file names, the survivor is known even where the engine tells no circle.
            if let (Some(pair), [first, second]) = (&mut self.pair, candidates) {
                let other = if *first == pair.victim { second } else { first };
                pair.survivor = Some(other.clone());
            }
        }
        self.played.steps[index].difference = differs;
    }

    /// A wait that ended in a failure must be in the file.
    fn judge_what_nobody_looked_at(&mut self) {
        for (index, record) in self.played.steps.iter_mut().enumerate() {
            let Some(Ended { observation: observation @ Observation::Failed(_), .. }) =
                &record.ended
            else {
                continue;
            };
            if self.looked_at.contains(&index) || record.difference.is_some() {
                continue;
            }
            let why = format!(
                "it was blocked at first, then it {}; no line says so (`{}< = …`)",
                crate::verdict::predicate(observation),
                record.session
            );
            record.difference = Some(why.clone());
            if self.played.verdict == Verdict::Agrees {
                self.played.verdict = Verdict::Disagrees { step: index, why };
            }
        }
    }
}

/// How a step stands: as it ended, or as it was first seen.
fn stands(record: &StepRecord) -> &Observation {
    record.ended.as_ref().map_or(&record.seen, |ended| &ended.observation)
}

/// A wait with a limit ends without anybody letting it go.
fn ends_by_itself(step: &Step) -> bool {
    let mut either = step.expected.iter().flat_map(|expected| &expected.either);
    either.any(|one| matches!(one, Expected::TimedOut))
}

/// The candidates of a deadlock, if the file expects one.
fn expected_victims(step: &Step) -> Option<&[Name]> {
    let mut either = step.expected.iter().flat_map(|expected| &expected.either);
    either.find_map(|one| match one {
        Expected::Deadlock { victims } => Some(victims.as_slice()),
        _ => None,
    })
}

fn by_whom(wait: &Wait) -> String {
    let names: Vec<&str> = wait.blockers.iter().map(Name::as_str).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" by {}", names.join(" and ")),
    }
}

fn for_whom(wait: &Wait) -> String {
    by_whom(wait).replacen(" by ", " for ", 1)
}

/// A step that has just begun.
fn begun(step: &Step, session: &Name, text: String, at: Duration) -> StepRecord {
    StepRecord {
        line: step.line,
        session: session.clone(),
        text,
        began: at,
        seen: Observation::Stuck,
        seen_at: at,
        ended: None,
        expected: step.expected.as_ref().map(ToString::to_string).unwrap_or_default(),
        difference: None,
        waits: Vec::new(),
        locks: None,
    }
}
