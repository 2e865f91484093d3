//! One test for each guarantee of the queue. Permits and workers are tested in separate files.

mod permits;
mod workers;

use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use tokio::time::advance;

use super::*;

use Priority::{Change, Resync};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_key_woken_twice_is_handed_out_once() {
    let queue = woken();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn new_inputs_of_a_ready_retry_restart_its_attempts() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    advance(SECOND).await;
    assert_eq!(queue.stats().ready, 1);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_key_is_not_handed_out_again() {
    let queue = woken();
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    assert_nothing_ready(&queue);
    work.finish(Next::Done);
    take(&queue, "a").finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn successful_run_repeats_after_any_wake() {
    let queue = woken();
    let work = take(&queue, "a");
    queue.wake("a", 1, Resync);
    work.finish(Next::Done);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_run_ignores_wakes_with_the_same_inputs() {
    for next in [Next::Retry, Next::RetryAfter(SECOND), Next::AwaitChange] {
        let queue = woken();
        let work = take(&queue, "a");
        queue.wake("a", 1, Change);
        work.finish(next);
        assert_nothing_ready(&queue);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_run_repeats_at_once_after_wakes_with_other_inputs() {
    for next in [Next::Retry, Next::RetryAfter(SECOND), Next::AwaitChange, Next::Again] {
        let queue = woken();
        take(&queue, "a").finish(Next::Again);
        let work = take(&queue, "a");
        queue.wake("a", 2, Change);
        work.finish(next);
        let work = take(&queue, "a");
        assert_eq!(work.attempt(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_are_compared_with_the_inputs_of_the_run() {
    for (inputs, is_ready) in [(1, true), (2, false)] {
        let queue = woken();
        let work = take(&queue, "a");
        work.begin(2);
        work.finish(Next::AwaitChange);
        queue.wake("a", inputs, Change);
        assert_eq!(queue.stats().ready == 1, is_ready, "{inputs}");
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_that_change_back_during_a_run_count_as_changed() {
    let queue = woken();
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    queue.wake("a", 1, Change);
    work.finish(Next::Retry);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn wake_with_the_same_inputs_does_not_shorten_a_backoff() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    queue.wake("a", 1, Change);
    assert_nothing_ready(&queue);
    advance(SECOND).await;
    assert_eq!(take(&queue, "a").attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn wake_with_other_inputs_ends_a_backoff_and_restarts_attempts() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    queue.wake("a", 2, Change);
    let work = take(&queue, "a");
    assert_eq!(work.attempt(), 1);
    work.finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn the_backoff_grows_with_the_attempts() {
    let queue = woken();
    let start = Instant::now();
    let mut times = Vec::new();
    for attempt in 1..=5 {
        let work = queue.next().await.unwrap();
        assert_eq!(work.attempt(), attempt);
        times.push(start.elapsed().as_secs());
        work.finish(Next::Retry);
    }
    assert_eq!(times, [0, 1, 3, 7, 15]);
    assert_eq!(queue.stats().retries, 5);
}

#[tokio::test(start_paused = true)]
async fn retry_after_waits_exactly_and_counts_as_an_attempt() {
    let queue = woken();
    take(&queue, "a").finish(Next::RetryAfter(100 * SECOND));
    let start = Instant::now();
    let work = queue.next().await.unwrap();
    assert_eq!((start.elapsed(), work.attempt()), (100 * SECOND, 2));
    work.finish(Next::RetryAfter(Duration::MAX));
    assert_eq!(queue.stats().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn retry_within_backs_off_up_to_its_own_limit() {
    let queue = woken();
    let start = Instant::now();
    let mut times = Vec::new();
    for _ in 0..5 {
        let work = queue.next().await.unwrap();
        times.push(start.elapsed().as_secs());
        work.finish(Next::RetryWithin(3 * SECOND));
    }
    assert_eq!(times, [0, 1, 3, 6, 9]);
    assert_eq!(queue.stats().retries, 5);
}

#[tokio::test(start_paused = true)]
async fn dropped_work_item_counts_as_a_retry() {
    let queue = woken();
    drop(take(&queue, "a"));
    assert_eq!(queue.stats().delayed, 1);
    assert_eq!(queue.next().await.unwrap().attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_awaits_a_change_runs_only_with_other_inputs() {
    let queue = woken();
    take(&queue, "a").finish(Next::AwaitChange);
    queue.wake("a", 1, Change);
    assert_nothing_ready(&queue);
    assert_eq!(queue.stats().awaiting_change, 1);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
    assert_eq!(queue.stats().awaiting_change, 0);
}

#[tokio::test(start_paused = true)]
async fn requeue_runs_a_key_that_awaits_a_change_and_no_other() {
    let queue = queue();
    queue.wake("waits", 1, Change);
    take(&queue, "waits").finish(Next::AwaitChange);
    queue.wake("delayed", 1, Change);
    take(&queue, "delayed").finish(Next::Retry);
    for key in ["waits", "delayed", "unknown"] {
        queue.requeue(&key);
    }
    assert_eq!(take(&queue, "waits").attempt(), 2);
    assert_nothing_ready(&queue);
}

#[tokio::test(start_paused = true)]
async fn again_runs_at_once_with_the_attempts_unchanged() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    queue.next().await.unwrap().finish(Next::Again);
    assert_eq!(take(&queue, "a").attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn third_and_later_consecutive_again_count_as_retry() {
    let queue = woken();
    for repeats in 0..2 {
        let work = take(&queue, "a");
        assert_eq!((work.attempt(), work.repeats()), (1, repeats));
        work.finish(Next::Again);
    }
    let start = Instant::now();
    for (attempt, repeats, seconds) in [(1, 2, 0), (2, 3, 1), (3, 4, 3)] {
        let work = queue.next().await.unwrap();
        assert_eq!((work.attempt(), work.repeats(), start.elapsed()), (attempt, repeats, seconds * SECOND));
        work.finish(Next::Again);
    }
    // Any other result resets the count, and so do other inputs.
    queue.next().await.unwrap().finish(Next::Wait(Some(SECOND)));
    let work = queue.next().await.unwrap();
    assert_eq!(work.repeats(), 0);
    work.finish(Next::Again);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").repeats(), 0);
}

#[tokio::test(start_paused = true)]
async fn waits_grow_to_30_seconds_without_counting_as_failures() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        let work = queue.next().await.unwrap();
        assert_eq!(work.attempt(), 2);
        pauses.push(start.elapsed().as_secs());
        work.finish(Next::Wait(None));
    }
    assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 30]);
    assert_eq!(queue.stats().retries, 1);
    // A failure resets the count; an explicit pause counts as a wait.
    queue.next().await.unwrap().finish(Next::Retry);
    queue.next().await.unwrap().finish(Next::Wait(Some(50 * SECOND)));
    let start = Instant::now();
    queue.next().await.unwrap().finish(Next::Wait(None));
    assert_eq!(queue.next().await.unwrap().attempt(), 3);
    assert_eq!(start.elapsed(), 52 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn only_other_inputs_cut_a_wait_short() {
    let queue = woken();
    take(&queue, "a").finish(Next::Wait(None));
    queue.next().await.unwrap().finish(Next::Wait(None));
    queue.wake("a", 1, Change);
    assert_nothing_ready(&queue);
    queue.wake("a", 2, Change);
    take(&queue, "a").finish(Next::Wait(None));
    let start = Instant::now();
    let _ = queue.next().await.unwrap();
    assert_eq!(start.elapsed(), SECOND, "the count of waits starts over");
}

#[tokio::test(start_paused = true)]
async fn done_forgets_the_attempts() {
    let queue = woken();
    take(&queue, "a").finish(Next::Retry);
    queue.next().await.unwrap().finish(Next::Done);
    assert_empty(&queue);
    queue.wake("a", 1, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn forget_drops_a_key_wherever_it_waits() {
    for next in [Next::Again, Next::Retry, Next::Wait(None), Next::AwaitChange, Next::AwaitPermit(flow("g"))] {
        let queue = limited(0, 1);
        queue.wake("holder", 1, Change);
        let holder = take(&queue, "holder");
        let permit = holder.enter(&flow("g"));
        queue.wake("a", 1, Change);
        take(&queue, "a").finish(next);
        queue.forget(&"a");
        drop(permit);
        holder.finish(Next::Done);
        assert_empty(&queue);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_that_runs_is_dropped_after_its_run() {
    let queue = woken();
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    queue.forget(&"a");
    work.finish(Next::Retry);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn forgotten_key_woken_during_its_run_starts_over() {
    let queue = woken();
    take(&queue, "a").finish(Next::Again);
    let work = take(&queue, "a");
    queue.forget(&"a");
    queue.wake("a", 1, Change);
    work.finish(Next::Retry);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn jitter_is_reproducible_for_a_seed() {
    async fn times(seed: u64) -> Vec<Duration> {
        let environment = Environment::simulated(seed, Timestamp::UNIX_EPOCH);
        let queue = Queue::new(QueueOptions { environment, ..QueueOptions::default() });
        queue.wake("a", 1, Change);
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..4 {
            queue.next().await.unwrap().finish(Next::Retry);
            times.push(start.elapsed());
        }
        times
    }
    assert_eq!(times(1).await, times(1).await);
    assert_ne!(times(1).await, times(2).await);
}

fn queue() -> Queue<&'static str> {
    let backoff = Backoff::exponential(SECOND, 300 * SECOND).with_jitter(0.0);
    Queue::new(QueueOptions { backoff, ..QueueOptions::default() })
}

/// Returns a queue in which `a` is ready.
fn woken() -> Queue<&'static str> {
    let queue = queue();
    queue.wake("a", 1, Change);
    queue
}

fn limited(total: usize, per_group: usize) -> Queue<&'static str> {
    Queue::new(QueueOptions { limits: Limits { total, per_group, one_each: false }, ..QueueOptions::default() })
}

/// Takes the next key, which must be available at once and be this one.
fn take(queue: &Queue<&'static str>, key: &str) -> Work<&'static str> {
    let work = queue.next().now_or_never().flatten().expect("a key is ready");
    assert_eq!(*work.key(), key);
    work
}

/// Runs a key that wants a permit: without one it is parked, with one it is done and keeps the permit.
fn enter(queue: &Queue<&'static str>, key: &'static str, group: &str) -> Option<Permit<&'static str>> {
    queue.wake(key, 1, Change);
    let work = take(queue, key);
    let permit = work.enter(&flow(group));
    work.finish(if permit.is_some() { Next::Done } else { Next::AwaitPermit(flow(group)) });
    permit
}

fn assert_nothing_ready(queue: &Queue<&'static str>) {
    assert!(queue.next().now_or_never().is_none());
}

fn assert_empty(queue: &Queue<&'static str>) {
    assert_nothing_ready(queue);
    assert_eq!(crate::sync::lock(&queue.shared.state).remembered(), (0, 0, 0));
}

fn flow(group: &str) -> Flow {
    Flow::creating(group)
}

fn leak(key: u64) -> &'static str {
    Box::leak(key.to_string().into_boxed_str())
}
