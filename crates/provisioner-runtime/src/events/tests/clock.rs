//! Tests that nothing depends on the wall clock, which is only informational.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::super::state::SendOutcome;
use super::*;

// Rules: G32.
#[tokio::test(start_paused = true)]
async fn clock_jumps_do_not_end_series_or_repeat_names() {
    let mut state = State::new(&options());
    let (start, noon) = (Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
    let year = Duration::from_secs(365 * 24 * 3600);
    let clocks = [noon, noon + year, noon - year, noon, noon];
    let mut counts = Vec::new();
    for (step, clock) in (0..).zip(clocks) {
        let now = start + step * 60 * SECOND;
        state.record(event("a", "note"), now, clock);
        let job = state.take(now).expect("at once, whatever the clock says");
        counts.push(job.series.as_ref().map(|written| written.count));
        state.conclude(job, SendOutcome::Written, now);
    }
    assert_eq!(counts, [None, Some(1), Some(2), Some(3), Some(4)]);
    let mut names = BTreeSet::new();
    for clock in clocks {
        state.record(event("b", &format!("note {}", names.len())), start, clock);
        let job = state.take(start).expect("at once");
        names.insert(job.pending.id);
        state.conclude(job, SendOutcome::Written, start);
    }
    assert_eq!(names.len(), clocks.len());
}

// Rules: G32.
#[tokio::test(start_paused = true)]
async fn clock_jumps_do_not_change_pauses() {
    let leap = Duration::from_secs(365 * 24 * 3600);
    let noon = Timestamp::from_second(1_800_000_000).unwrap();
    for clock in [noon + leap, noon - leap] {
        let mut state = State::new(&EventOptions { burst: 1, refill: 300 * SECOND, ..options() });
        let start = Instant::now();
        state.record(event("a", "one"), start, noon);
        let job = state.take(start).expect("the first at once");
        state.conclude(job, SendOutcome::Written, start);
        state.record(event("a", "two"), start, clock);
        assert!(state.take(start + 299 * SECOND).is_none());
        let job = state.take(start + 300 * SECOND).expect("when the object has another");
        state.conclude(job, SendOutcome::Failed(Some(20 * SECOND)), start + 300 * SECOND);
        state.record(event("b", "three"), start + 300 * SECOND, clock);
        assert!(state.take(start + 319 * SECOND).is_none(), "the pause is not over");
        assert!(state.take(start + 330 * SECOND).is_some());
    }
}
