//! Tests the queue against a naive model: one list of keys that is searched linearly. The model of the permits is in
//! the limiter's tests.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::state::{AssignedKey, State};
use super::{Next, Priority, QueueOptions, QueueStats};
use crate::backoff::Backoff;
use crate::limiter::{Flow, Limits, Shares};

const KEYS: u8 = 8;
/// Group and tenant of flows that create; the last flow removes in the first group.
const FLOWS: [(&str, Option<&str>); 6] =
    [("a", None), ("a", Some("x")), ("a", Some("y")), ("b", Some("x")), ("b", Some("y")), ("a", Some("x"))];
const BACKOFF: Backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60)).with_jitter(0.0);

proptest! {
    #[test]
    fn the_queue_behaves_like_the_model(
        total in 0..9_usize,
        per_group in 0..6_usize,
        one_each in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let start = Instant::now();
        let limits = Limits { total, per_group, one_each };
        let options = QueueOptions { backoff: BACKOFF, limits, ..QueueOptions::default() };
        let mut pair = QueueAndModel {
            real: State::new(&options),
            model: Model { keys: Vec::new(), permits: Shares::new(limits), passed_over: [0; 3], sequence: 0 },
            running: Vec::new(),
            permits: Vec::new(),
            now: start,
        };
        for step in steps {
            pair.run(step);
            pair.compare();
        }
        pair.settle();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u8, u64, Priority),
    Revive(u8),
    Forget(u8),
    Take,
    Begin(usize, u64),
    /// The running key with this number, modulo the number of running keys.
    Finish(usize, Outcome),
    Enter(usize, usize),
    Leave(usize),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Done,
    Retry,
    RetryAfter(u64),
    AwaitChange,
    Wait(Option<u64>),
    AwaitPermit(usize),
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    use Outcome::*;
    let outcome = prop_oneof![
        Just(Done),
        Just(Retry),
        (0..20_u64).prop_map(RetryAfter),
        Just(AwaitChange),
        Just(Again),
        (0..FLOWS.len()).prop_map(AwaitPermit),
        prop::option::of(0..5_u64).prop_map(Wait),
    ];
    let priority = prop_oneof![Just(Priority::Change), Just(Priority::Retry), Just(Priority::Resync)];
    prop_oneof![
        6 => (0..KEYS, 0..3_u64, priority).prop_map(|(key, inputs, p)| Step::Wake(key, inputs, p)),
        1 => (0..KEYS).prop_map(Step::Revive),
        1 => (0..KEYS).prop_map(Step::Forget),
        6 => Just(Step::Take),
        2 => (any::<usize>(), 0..3_u64).prop_map(|(at, inputs)| Step::Begin(at, inputs)),
        4 => (any::<usize>(), outcome).prop_map(|(at, outcome)| Step::Finish(at, outcome)),
        3 => (any::<usize>(), 0..FLOWS.len()).prop_map(|(at, flow)| Step::Enter(at, flow)),
        2 => any::<usize>().prop_map(Step::Leave),
        2 => (0..5_u64).prop_map(Step::Pass),
    ]
}

/// The real queue and the model, taken through the same steps.
struct QueueAndModel {
    real: State<u8>,
    model: Model,
    running: Vec<(u8, u64)>,
    permits: Vec<usize>,
    now: Instant,
}

impl QueueAndModel {
    fn run(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Wake(key, inputs, priority) => {
                self.real.wake(key, inputs, priority, now);
                self.model.wake(key, inputs, priority, now);
            }
            Step::Revive(key) => {
                self.real.requeue(&key, now);
                self.model.requeue(key, now);
            }
            Step::Forget(key) => {
                self.real.forget(&key, now);
                self.model.forget(key, now);
            }
            Step::Take => self.take(),
            Step::Begin(at, inputs) if !self.running.is_empty() => {
                let (key, _) = self.running[at % self.running.len()];
                self.real.begin(&key, inputs);
                self.model.begin(key, inputs);
            }
            Step::Finish(at, outcome) if !self.running.is_empty() => {
                let (key, run) = self.running.remove(at % self.running.len());
                let next = match outcome {
                    Outcome::Done => Next::Done,
                    Outcome::Retry => Next::Retry,
                    Outcome::RetryAfter(seconds) => Next::RetryAfter(Duration::from_secs(seconds)),
                    Outcome::AwaitChange => Next::AwaitChange,
                    Outcome::Wait(pause) => Next::Wait(pause.map(Duration::from_secs)),
                    Outcome::AwaitPermit(index) => Next::AwaitPermit(flow(index)),
                    Outcome::Again => Next::Again,
                };
                self.real.finish(&key, run, next, now);
                self.model.finish(key, outcome, now);
            }
            Step::Enter(at, index) if !self.running.is_empty() => {
                let (key, _) = self.running[at % self.running.len()];
                let entered = self.real.enter(&key, &flow(index));
                assert_eq!(entered, self.model.enter(key, index));
                if entered {
                    self.permits.push(index);
                }
            }
            Step::Leave(at) if !self.permits.is_empty() => {
                let index = self.permits.remove(at % self.permits.len());
                self.real.leave(&flow(index), now);
                self.model.leave(index, now);
            }
            Step::Pass(seconds) => self.now += Duration::from_secs(seconds),
            Step::Begin(..) | Step::Finish(..) | Step::Enter(..) | Step::Leave(_) => {}
        }
        self.model.reset_idle_levels();
    }

    fn take(&mut self) {
        let real = self.real.take(self.now);
        let model = self.model.take(self.now);
        let facts = |work: &AssignedKey<u8>| (work.key, work.attempt, work.repeats);
        assert_eq!(real.as_ref().map(facts), model);
        if let Some(work) = real {
            assert!(self.running.iter().all(|(key, _)| *key != work.key), "handed out twice");
            self.running.push((work.key, work.run));
        }
    }

    fn compare(&mut self) {
        let real = self.real.stats(self.now);
        assert_eq!(QueueStats { adds: 0, retries: 0, ..real }, self.model.stats(self.now));
        assert_eq!(self.real.remembered().0, self.model.keys.len());
        self.model.check_parked();
    }

    /// When all running work succeeds, only keys that await a change remain.
    fn settle(&mut self) {
        loop {
            for (key, run) in std::mem::take(&mut self.running) {
                self.real.finish(&key, run, Next::Done, self.now);
                self.model.finish(key, Outcome::Done, self.now);
            }
            for index in std::mem::take(&mut self.permits) {
                self.real.leave(&flow(index), self.now);
                self.model.leave(index, self.now);
            }
            self.take();
            if self.running.is_empty() {
                match self.real.next_due() {
                    None => break,
                    Some(due) => self.now = due,
                }
            }
        }
        let stats = self.real.stats(self.now);
        assert_eq!((stats.ready, stats.delayed, stats.awaiting_permit, stats.running), (0, 0, 0, 0));
        assert_eq!(self.real.remembered(), (stats.awaiting_change, 0, 0));
    }
}

fn flow(index: usize) -> Flow {
    let (group, tenant) = FLOWS[index];
    let flow = if removes(index) { Flow::removing(group) } else { Flow::creating(group) };
    tenant.map_or(flow.clone(), |tenant| flow.of_tenant(tenant))
}

fn removes(index: usize) -> bool {
    index == FLOWS.len() - 1
}

struct Model {
    keys: Vec<Key>,
    permits: Shares<u8>,
    passed_over: [usize; 3],
    sequence: i64,
}

struct Key {
    name: u8,
    inputs: u64,
    attempt: u32,
    waits: u32,
    repeats: u32,
    phase: Phase,
    reserved: Option<Flow>,
}

impl Key {
    fn renew(&mut self, inputs: u64) {
        (self.inputs, self.attempt, self.waits, self.repeats) = (inputs, 1, 0, 0);
    }
}

#[derive(Clone)]
enum Phase {
    /// Keys at the front have a sequence below zero.
    Ready(Priority, i64, Instant),
    Delayed(Instant, i64),
    Waits,
    /// The flow, and the ticket.
    Parked(usize, u64),
    Runs {
        priority: Priority,
        since: Instant,
        /// Each wake, and whether its inputs differed from the run's inputs.
        wakes: Vec<(u64, Priority, bool)>,
        forgotten: bool,
    },
}

impl Model {
    fn wake(&mut self, name: u8, inputs: u64, priority: Priority, now: Instant) {
        let sequence = self.next_sequence();
        let ready = Phase::Ready(priority, sequence, now);
        let Some(at) = self.keys.iter().position(|key| key.name == name) else {
            return self.keys.push(Key {
                name,
                inputs,
                attempt: 1,
                waits: 0,
                repeats: 0,
                phase: ready,
                reserved: None,
            });
        };
        let key = &mut self.keys[at];
        let changed = key.inputs != inputs;
        match &mut key.phase {
            Phase::Runs { wakes, .. } => return wakes.push((inputs, priority, changed)),
            Phase::Ready(current, ..) => *current = (*current).min(priority),
            _ if changed => {
                if let Phase::Parked(index, ticket) = key.phase {
                    self.permits.cancel(&flow(index), ticket);
                }
                key.phase = ready;
            }
            _ => return,
        }
        if changed {
            key.renew(inputs);
        }
    }

    fn requeue(&mut self, name: u8, now: Instant) {
        let sequence = self.next_sequence();
        if let Some(key) = self.keys.iter_mut().find(|key| key.name == name)
            && matches!(key.phase, Phase::Waits)
        {
            key.phase = Phase::Ready(Priority::Resync, sequence, now);
        }
    }

    fn forget(&mut self, name: u8, now: Instant) {
        let Some(at) = self.keys.iter().position(|key| key.name == name) else { return };
        if let Phase::Runs { wakes, forgotten, .. } = &mut self.keys[at].phase {
            wakes.clear();
            *forgotten = true;
        } else {
            let key = self.keys.remove(at);
            if let Phase::Parked(index, ticket) = key.phase {
                self.permits.cancel(&flow(index), ticket);
            }
            key.reserved.iter().for_each(|flow| self.permits.release(flow));
        }
        self.fill(now);
    }

    fn take(&mut self, now: Instant) -> Option<(u8, u32, u32)> {
        self.move_due(now);
        let waiting = |level| self.waiting(level);
        let overdue = (0..3).rev().find(|level| waiting(*level).count() > 0 && self.passed_over[*level] >= 6 + *level);
        let level = overdue.or_else(|| (0..3).find(|level| waiting(*level).count() > 0))?;
        let (_, name) = waiting(level).min_by_key(|(sequence, _)| *sequence)?;
        for (other, count) in self.passed_over.iter_mut().enumerate() {
            *count = if other == level { 0 } else { *count + 1 };
        }
        let key = self.keys.iter_mut().find(|key| key.name == name)?;
        let Phase::Ready(priority, ..) = key.phase else { return None };
        key.phase = Phase::Runs { priority, since: now, wakes: Vec::new(), forgotten: false };
        Some((name, key.attempt, key.repeats))
    }

    fn begin(&mut self, name: u8, inputs: u64) {
        self.keys.iter_mut().find(|key| key.name == name).expect("it runs").inputs = inputs;
    }

    fn finish(&mut self, name: u8, outcome: Outcome, now: Instant) {
        let at = self.keys.iter().position(|key| key.name == name).expect("it runs");
        if let Some(flow) = self.keys[at].reserved.take() {
            self.permits.release(&flow);
        }
        self.fill(now);
        let sequence = self.next_sequence();
        let key = &mut self.keys[at];
        let Phase::Runs { priority, wakes, forgotten, .. } = key.phase.clone() else {
            panic!("it runs");
        };
        let was_again = matches!(outcome, Outcome::Again);
        let outcome = match outcome {
            Outcome::Again if key.repeats >= 2 => Outcome::Retry,
            outcome => outcome,
        };
        if !matches!(outcome, Outcome::AwaitPermit(_)) {
            key.repeats = if was_again { key.repeats + 1 } else { 0 };
            key.waits = if matches!(outcome, Outcome::Wait(_)) { key.waits + 1 } else { 0 };
        }
        let changed = wakes.iter().any(|(.., changed)| *changed);
        let urgent = wakes.iter().map(|(_, priority, _)| *priority).min();
        let phase = match (outcome, urgent) {
            (_, Some(urgent)) if forgotten || changed => Some(Phase::Ready(urgent, sequence, now)),
            (Outcome::Done, Some(urgent)) => Some(Phase::Ready(urgent, sequence, now)),
            (_, None) if forgotten => None,
            (Outcome::Done, None) => None,
            (Outcome::Again, urgent) => Some(Phase::Ready(urgent.unwrap_or(priority).min(priority), sequence, now)),
            (Outcome::Retry, _) => Some(Phase::Delayed(now + BACKOFF.delay(key.attempt, 0.0), sequence)),
            (Outcome::RetryAfter(s), _) => Some(Phase::Delayed(now + Duration::from_secs(s), sequence)),
            (Outcome::AwaitChange, _) => Some(Phase::Waits),
            (Outcome::Wait(pause), _) => {
                let growing = BACKOFF.delay(key.waits, 0.0).min(Duration::from_secs(30));
                Some(Phase::Delayed(now + pause.map_or(growing, Duration::from_secs), sequence))
            }
            (Outcome::AwaitPermit(index), _) => Some(Phase::Parked(index, self.permits.wait(&flow(index), name))),
        };
        let renewed = forgotten || changed || matches!(outcome, Outcome::Done);
        match (phase, wakes.last()) {
            (None, _) => drop(self.keys.remove(at)),
            (Some(phase), Some((inputs, ..))) if renewed => {
                key.phase = phase;
                key.renew(*inputs);
            }
            (Some(phase), _) => {
                let failed = matches!(outcome, Outcome::Retry | Outcome::RetryAfter(_) | Outcome::AwaitChange);
                key.attempt += u32::from(failed);
                key.phase = phase;
            }
        }
        self.fill(now);
    }

    fn enter(&mut self, name: u8, index: usize) -> bool {
        let key = self.keys.iter_mut().find(|key| key.name == name).expect("it runs");
        if key.reserved == Some(flow(index)) {
            key.reserved = None;
            return true;
        }
        self.permits.try_acquire(&flow(index))
    }

    fn leave(&mut self, index: usize, now: Instant) {
        self.permits.release(&flow(index));
        self.fill(now);
    }

    fn stats(&mut self, now: Instant) -> QueueStats {
        self.move_due(now);
        let mut stats = QueueStats::default();
        for key in &self.keys {
            match &key.phase {
                Phase::Ready(_, _, since) => {
                    stats.ready += 1;
                    stats.oldest_ready = stats.oldest_ready.max(Some(now - *since));
                }
                Phase::Delayed(..) => stats.delayed += 1,
                Phase::Waits => stats.awaiting_change += 1,
                Phase::Parked(..) => stats.awaiting_permit += 1,
                Phase::Runs { since, .. } => {
                    stats.running += 1;
                    stats.longest_running = stats.longest_running.max(Some(now - *since));
                }
            }
        }
        stats
    }

    /// A key is parked only while others hold or have reserved the permits that it may use, and will return them.
    fn check_parked(&mut self) {
        assert!(self.permits.admit().is_none(), "a lost wake-up");
    }

    fn waiting(&self, level: usize) -> impl Iterator<Item = (i64, u8)> {
        let level = [Priority::Change, Priority::Retry, Priority::Resync][level];
        self.keys.iter().filter_map(move |key| match key.phase {
            Phase::Ready(priority, sequence, _) if priority == level => Some((sequence, key.name)),
            _ => None,
        })
    }

    /// Counts hand-outs only while a level has a waiting key.
    fn reset_idle_levels(&mut self) {
        for level in 0..3 {
            if self.waiting(level).next().is_none() {
                self.passed_over[level] = 0;
            }
        }
    }

    fn fill(&mut self, now: Instant) {
        while let Some((flow, name)) = self.permits.admit() {
            let sequence = self.next_sequence();
            let key = self.keys.iter_mut().find(|key| key.name == name).expect("it is parked");
            key.phase = Phase::Ready(Priority::Change, i64::MIN + sequence, now);
            key.reserved = Some(flow);
        }
    }

    fn move_due(&mut self, now: Instant) {
        loop {
            let sequence = self.next_sequence();
            let due = self.keys.iter_mut().filter_map(|key| match key.phase {
                Phase::Delayed(due, sequence) if due <= now => Some(((due, sequence), key)),
                _ => None,
            });
            let Some(((due, _), key)) = due.min_by_key(|(order, _)| *order) else { return };
            key.phase = Phase::Ready(Priority::Retry, sequence, due);
        }
    }

    fn next_sequence(&mut self) -> i64 {
        self.sequence += 1;
        self.sequence
    }
}
