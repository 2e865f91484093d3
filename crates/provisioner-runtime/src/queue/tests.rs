//! One test for each promise of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use tokio::time::{advance, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;

use Priority::{Change, Resync};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_key_woken_twice_is_handed_out_once() {
    let queue = queue();
    queue.wake("a", 1, Change);
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn keys_of_one_priority_come_in_the_order_in_which_they_were_woken() {
    let queue = queue();
    for key in ["c", "a", "b"] {
        queue.wake(key, 1, Resync);
    }
    assert_eq!(order(&queue), ["c", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_wake_moves_a_ready_key() {
    let queue = queue();
    queue.wake("first", 1, Resync);
    queue.wake("second", 1, Resync);
    queue.wake("second", 1, Change);
    queue.wake("second", 1, Resync);
    assert_eq!(order(&queue), ["second", "first"]);
}

#[tokio::test(start_paused = true)]
async fn the_newest_inputs_of_a_ready_key_count() {
    let queue = queue();
    queue.wake("a", 1, Change);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").inputs(), 2);
}

#[tokio::test(start_paused = true)]
async fn new_inputs_of_a_ready_retry_restart_its_attempts() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Retry);
    advance(SECOND).await;
    assert_eq!(queue.stats().ready, 1);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_key_is_not_handed_out_again() {
    let queue = queue();
    queue.wake("a", 1, Change);
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    assert_nothing_ready(&queue);
    work.finish(Next::Done);
    take(&queue, "a").finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn after_done_a_wake_during_the_run_counts_even_with_the_same_inputs() {
    let queue = queue();
    queue.wake("a", 1, Change);
    let work = take(&queue, "a");
    queue.wake("a", 1, Resync);
    work.finish(Next::Done);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_a_wake_during_the_run_with_the_same_inputs_changes_nothing() {
    for next in [Next::Retry, Next::RetryAfter(SECOND), Next::AwaitChange] {
        let queue = queue();
        queue.wake("a", 1, Change);
        let work = take(&queue, "a");
        queue.wake("a", 1, Change);
        work.finish(next);
        assert_nothing_ready(&queue);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_a_wake_during_the_run_with_other_inputs_runs_at_once() {
    for next in [Next::Retry, Next::RetryAfter(SECOND), Next::AwaitChange, Next::Again] {
        let queue = queue();
        queue.wake("a", 1, Change);
        take(&queue, "a").finish(Next::Again);
        let work = take(&queue, "a");
        queue.wake("a", 2, Change);
        work.finish(next);
        let work = take(&queue, "a");
        assert_eq!((work.attempt(), work.inputs()), (1, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_that_changed_and_changed_back_during_the_run_count_as_changed() {
    let queue = queue();
    queue.wake("a", 1, Change);
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    queue.wake("a", 1, Change);
    work.finish(Next::Retry);
    assert_eq!(take(&queue, "a").inputs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wake_with_the_same_inputs_does_not_cut_a_backoff_short() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Retry);
    queue.wake("a", 1, Change);
    assert_nothing_ready(&queue);
    advance(SECOND).await;
    assert_eq!(take(&queue, "a").attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wake_with_other_inputs_cuts_a_backoff_short_and_restarts_the_attempts() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Retry);
    queue.wake("a", 2, Change);
    let work = take(&queue, "a");
    assert_eq!((work.attempt(), work.inputs()), (1, 2));
    work.finish(Next::Done);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn the_backoff_grows_with_the_attempts() {
    let queue = queue();
    queue.wake("a", 1, Change);
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
async fn retry_after_waits_as_long_as_it_says_and_counts_as_an_attempt() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::RetryAfter(100 * SECOND));
    let start = Instant::now();
    let work = queue.next().await.unwrap();
    assert_eq!((start.elapsed(), work.attempt()), (100 * SECOND, 2));
    work.finish(Next::RetryAfter(Duration::MAX));
    assert_eq!(queue.stats().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_work_item_is_a_retry() {
    let queue = queue();
    queue.wake("a", 1, Change);
    drop(take(&queue, "a"));
    assert_eq!(queue.stats().delayed, 1);
    assert_eq!(queue.next().await.unwrap().attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_awaits_a_change_runs_only_with_other_inputs() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::AwaitChange);
    queue.wake("a", 1, Change);
    assert_nothing_ready(&queue);
    assert_eq!(queue.stats().awaiting_change, 1);
    queue.wake("a", 2, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
    assert_eq!(queue.stats().awaiting_change, 0);
}

#[tokio::test(start_paused = true)]
async fn revive_runs_a_key_that_awaits_a_change_and_no_other() {
    let queue = queue();
    queue.wake("waits", 1, Change);
    take(&queue, "waits").finish(Next::AwaitChange);
    queue.wake("delayed", 1, Change);
    take(&queue, "delayed").finish(Next::Retry);
    for key in ["waits", "delayed", "unknown"] {
        queue.revive(&key);
    }
    assert_eq!(take(&queue, "waits").attempt(), 2);
    assert_nothing_ready(&queue);
}

#[tokio::test(start_paused = true)]
async fn again_runs_at_once_with_the_attempts_unchanged() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Retry);
    queue.next().await.unwrap().finish(Next::Again);
    assert_eq!(take(&queue, "a").attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn done_forgets_the_attempts() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Retry);
    queue.next().await.unwrap().finish(Next::Done);
    assert_empty(&queue);
    queue.wake("a", 1, Change);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn forget_drops_a_key_wherever_it_waits() {
    let lane = lane("l", 1);
    for next in [Next::Again, Next::Retry, Next::AwaitChange, Next::AwaitLane(lane.clone())] {
        let queue = queue();
        queue.wake("holder", 1, Change);
        let holder = take(&queue, "holder");
        let permit = holder.enter(&lane);
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
    let queue = queue();
    queue.wake("a", 1, Change);
    let work = take(&queue, "a");
    queue.wake("a", 2, Change);
    queue.forget(&"a");
    work.finish(Next::Retry);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_that_is_woken_during_its_run_starts_anew() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::Again);
    let work = take(&queue, "a");
    queue.forget(&"a");
    queue.wake("a", 1, Change);
    work.finish(Next::Retry);
    assert_eq!(take(&queue, "a").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_lets_nobody_in_and_parks_without_a_worker() {
    let queue = queue();
    let lane = lane("l", 1);
    let permit = enter(&queue, "a", &lane).unwrap();
    assert!(enter(&queue, "b", &lane).is_none());
    let stats = queue.stats();
    assert_eq!((stats.awaiting_lane, stats.running, stats.ready), (1, 0, 0));
    drop(permit);
    assert_eq!(take(&queue, "b").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_free_place_readies_the_key_that_waits_longest() {
    let queue = queue();
    let lane = lane("l", 2);
    let first = enter(&queue, "a", &lane).unwrap();
    let second = enter(&queue, "b", &lane).unwrap();
    for key in ["c", "d", "e"] {
        assert!(enter(&queue, key, &lane).is_none());
    }
    drop(first);
    assert_eq!((queue.stats().ready, queue.stats().awaiting_lane), (1, 2));
    drop(second);
    let _held = (take(&queue, "c"), take(&queue, "d"));
    assert_nothing_ready(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_place_goes_to_the_front_and_nobody_takes_it_away() {
    let queue = queue();
    let lane = lane("l", 1);
    let permit = enter(&queue, "a", &lane).unwrap();
    assert!(enter(&queue, "b", &lane).is_none());
    queue.wake("c", 1, Change);
    drop(permit);
    let parked = take(&queue, "b");
    let other = take(&queue, "c");
    assert!(other.enter(&lane).is_none());
    assert!(parked.enter(&lane).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_is_freed_between_enter_and_finish_loses_nobody() {
    let queue = queue();
    let lane = lane("l", 1);
    let permit = enter(&queue, "a", &lane).unwrap();
    queue.wake("b", 1, Change);
    let work = take(&queue, "b");
    assert!(work.enter(&lane).is_none());
    drop(permit);
    work.finish(Next::AwaitLane(lane.clone()));
    assert!(take(&queue, "b").enter(&lane).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_not_used_goes_to_the_next() {
    let queue = queue();
    let lane = lane("l", 1);
    let permit = enter(&queue, "a", &lane).unwrap();
    for key in ["b", "c", "d", "e"] {
        assert!(enter(&queue, key, &lane).is_none());
    }
    drop(permit);
    take(&queue, "b").finish(Next::Done);
    take(&queue, "c").finish(Next::Retry);
    queue.forget(&"d");
    assert!(take(&queue, "e").enter(&lane).is_some());
}

#[tokio::test(start_paused = true)]
async fn other_inputs_take_a_key_out_of_its_lane() {
    let queue = queue();
    let lane = lane("l", 1);
    let permit = enter(&queue, "a", &lane).unwrap();
    assert!(enter(&queue, "b", &lane).is_none());
    queue.wake("b", 1, Change);
    assert_nothing_ready(&queue);
    queue.wake("b", 2, Change);
    take(&queue, "b").finish(Next::Done);
    drop(permit);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn an_unlimited_lane_lets_everybody_in() {
    let queue = queue();
    let lane = lane("l", 0);
    let permits: Vec<_> = ["a", "b", "c"].map(|key| enter(&queue, key, &lane)).into();
    assert!(permits.iter().all(Option::is_some));
    drop(permits);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_grows_takes_more_keys_at_once() {
    let queue = queue();
    let permit = enter(&queue, "a", &lane("l", 1)).unwrap();
    for key in ["b", "c", "d"] {
        assert!(enter(&queue, key, &lane("l", 1)).is_none());
    }
    assert!(enter(&queue, "e", &lane("l", 3)).is_some());
    drop(permit);
    assert_eq!(queue.stats().awaiting_lane, 0);
}

#[tokio::test(start_paused = true)]
async fn lanes_do_not_hinder_each_other() {
    let queue = queue();
    let _permit = enter(&queue, "a", &lane("one", 1)).unwrap();
    assert!(enter(&queue, "b", &lane("two", 1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn next_waits_for_a_wake() {
    let queue = queue();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|work| *work.key()) }
    });
    sleep(SECOND).await;
    queue.wake("a", 1, Change);
    assert_eq!(waiting.await.unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_wakes_those_who_wait_for_a_later_one() {
    let queue = queue();
    queue.wake("late", 1, Change);
    take(&queue, "late").finish(Next::RetryAfter(100 * SECOND));
    queue.wake("early", 1, Change);
    let work = take(&queue, "early");
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|work| *work.key()) }
    });
    sleep(SECOND).await;
    work.finish(Next::RetryAfter(SECOND));
    assert_eq!(timeout(2 * SECOND, waiting).await.unwrap().unwrap(), Some("early"));
}

#[tokio::test(start_paused = true)]
async fn many_callers_of_next_get_all_keys() {
    let queue = queue();
    let taken = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let (queue, taken) = (queue.clone(), Arc::clone(&taken));
            tokio::spawn(async move {
                while let Some(work) = queue.next().await {
                    taken.fetch_add(1, Ordering::Relaxed);
                    let next = if work.attempt() < 3 { Next::Retry } else { Next::Done };
                    work.finish(next);
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for key in 0..100_u64 {
        queue.wake(leak(key), key, Change);
    }
    sleep(10 * SECOND).await;
    assert_eq!(taken.load(Ordering::Relaxed), 300);
    assert_empty(&queue);
    queue.shut_down();
    for caller in callers {
        timeout(SECOND, caller).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_its_timer_to_the_others() {
    let queue = queue();
    // This one waits before there is any delay, so it keeps no timer.
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|work| *work.key()) }
    });
    sleep(SECOND).await;
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::RetryAfter(10 * SECOND));
    // Whoever of the two keeps the timer: when this one is dropped, the key still comes.
    assert!(timeout(SECOND, queue.next()).await.is_err());
    assert_eq!(timeout(10 * SECOND, waiting).await.unwrap().unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn after_shut_down_nothing_is_handed_out() {
    let queue = queue();
    queue.wake("a", 1, Change);
    queue.shut_down();
    queue.wake("b", 1, Change);
    assert!(queue.next().await.is_none());
    assert!(queue.next().await.is_none());
    assert_eq!(queue.stats().ready, 1);
}

#[tokio::test(start_paused = true)]
async fn the_statistics_tell_what_is_where() {
    let queue = queue();
    let lane = lane("l", 1);
    for key in ["runs", "delayed", "waits", "ready"] {
        queue.wake(key, 1, Change);
    }
    let running = take(&queue, "runs");
    let _permit = running.enter(&lane);
    take(&queue, "delayed").finish(Next::RetryAfter(100 * SECOND));
    take(&queue, "waits").finish(Next::AwaitChange);
    queue.wake("parked", 1, Resync);
    queue.wake("older", 1, Resync);
    advance(3 * SECOND).await;
    let work = take(&queue, "ready");
    assert_eq!(work.waited(), 3 * SECOND);
    work.finish(Next::Done);
    take(&queue, "parked").finish(Next::AwaitLane(lane));
    queue.wake("younger", 1, Change);
    let expected = QueueStats {
        ready: 2,
        delayed: 1,
        awaiting_change: 1,
        awaiting_lane: 1,
        running: 1,
        oldest_ready: Some(3 * SECOND),
        adds: 7,
        retries: 1,
        longest_running: Some(3 * SECOND),
    };
    assert_eq!(queue.stats(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_due_counts_as_ready_while_nobody_asks() {
    let queue = queue();
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::RetryAfter(SECOND));
    advance(5 * SECOND).await;
    let stats = queue.stats();
    assert_eq!((stats.ready, stats.delayed), (1, 0));
    assert_eq!(stats.oldest_ready, Some(4 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_seed_makes_the_jitter_repeatable() {
    async fn times(seed: u64) -> Vec<Duration> {
        let queue = Queue::new(QueueOptions { seed: Some(seed), ..QueueOptions::default() });
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

#[tokio::test(start_paused = true)]
async fn work_keeps_to_its_concurrency_and_ends_when_all_is_done() {
    let queue = queue();
    for key in 0..20 {
        queue.wake(leak(key), 1, Change);
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = CancellationToken::new();
    let start = Instant::now();
    let handle = |work: Work<&'static str>| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        async move {
            let now = running.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            sleep(SECOND).await;
            running.fetch_sub(1, Ordering::Relaxed);
            work.finish(Next::Done);
        }
    };
    let stopping = async {
        sleep(2 * SECOND + SECOND / 2).await;
        stop.cancel();
    };
    tokio::join!(work(&queue, 4, stop.clone(), handle), stopping);
    assert_eq!(most.load(Ordering::Relaxed), 4);
    assert_eq!(start.elapsed(), 3 * SECOND);
    assert_eq!((queue.stats().ready, queue.stats().running), (8, 0));
    assert!(queue.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_attempt_of_one_key() {
    let queue = queue();
    for key in ["at once", "later", "never"] {
        queue.wake(key, 1, Change);
    }
    let stop = CancellationToken::new();
    let handle = |work: Work<&'static str>| {
        let first = work.attempt() == 1;
        assert!(!(first && *work.key() == "at once"), "a panic before the future");
        async move {
            tokio::task::yield_now().await;
            assert!(!(first && *work.key() == "later"), "a panic in the future");
            work.finish(Next::Done);
        }
    };
    let stopping = async {
        sleep(5 * SECOND).await;
        stop.cancel();
    };
    tokio::join!(work(&queue, 2, stop.clone(), handle), stopping);
    assert_eq!(queue.stats().retries, 2);
    assert_eq!(crate::lock(&queue.shared.state).remembered(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_workers_aborts_what_runs_and_keeps_the_keys() {
    let queue = queue();
    queue.wake("a", 1, Change);
    let workers = work(&queue, 1, CancellationToken::new(), |work| async move {
        std::future::pending::<()>().await;
        work.finish(Next::Done);
    });
    assert!(timeout(SECOND, workers).await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(queue.stats().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_leaves_no_memory_behind() {
    let numbers = Queue::new(QueueOptions::default());
    for key in 0..50_000_u64 {
        numbers.wake(key, 0, Change);
    }
    let full = crate::lock(&numbers.shared.state).room();
    while let Some(Some(work)) = numbers.next().now_or_never() {
        work.finish(Next::Done);
    }
    let state = crate::lock(&numbers.shared.state);
    assert_eq!(state.remembered(), (0, 0));
    assert!(state.room() < full / 20);
}

fn queue() -> Queue<&'static str> {
    let backoff = Backoff::exponential(SECOND, 300 * SECOND).with_jitter(0.0);
    Queue::new(QueueOptions { backoff, seed: Some(0) })
}

fn lane(name: &str, limit: usize) -> Lane {
    Lane { name: name.into(), limit }
}

/// The next key, which must be there at once and be this one.
fn take(queue: &Queue<&'static str>, key: &str) -> Work<&'static str> {
    let work = queue.next().now_or_never().flatten().expect("a key is ready");
    assert_eq!(*work.key(), key);
    work
}

/// Runs a key that wants a place; without one it is parked, with one it is done and keeps the place.
fn enter(queue: &Queue<&'static str>, key: &'static str, lane: &Lane) -> Option<Permit<&'static str>> {
    queue.wake(key, 1, Change);
    let work = take(queue, key);
    let permit = work.enter(lane);
    work.finish(if permit.is_some() { Next::Done } else { Next::AwaitLane(lane.clone()) });
    permit
}

/// Takes all that is ready.
fn order(queue: &Queue<&'static str>) -> Vec<&'static str> {
    let take = || {
        let work = queue.next().now_or_never().flatten()?;
        let key = *work.key();
        work.finish(Next::AwaitChange);
        Some(key)
    };
    std::iter::from_fn(take).collect()
}

fn assert_nothing_ready(queue: &Queue<&'static str>) {
    assert!(queue.next().now_or_never().is_none());
}

fn assert_empty(queue: &Queue<&'static str>) {
    assert_nothing_ready(queue);
    assert_eq!(crate::lock(&queue.shared.state).remembered(), (0, 0));
}

fn leak(key: u64) -> &'static str {
    Box::leak(key.to_string().into_boxed_str())
}

/// `cargo test --release -- --ignored --nocapture cost`
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "the measurement's result")]
fn the_cost_per_key() {
    for keys in [1_000_u128, 100_000, 1_000_000] {
        let queue = Queue::new(QueueOptions::default());
        let start = std::time::Instant::now();
        for key in 0..keys {
            queue.wake(key, 0, Priority::Resync);
        }
        for next in [Next::RetryAfter(Duration::ZERO), Next::AwaitChange] {
            for _ in 0..keys {
                let work = queue.next().now_or_never().flatten().unwrap();
                work.finish(next.clone());
            }
        }
        for key in 0..keys {
            queue.wake(key, 1, Priority::Change);
        }
        for _ in 0..keys {
            queue.next().now_or_never().flatten().unwrap().finish(Next::Done);
        }
        let cost = start.elapsed() / u32::try_from(keys).unwrap();
        println!("{keys} keys: {cost:?} for two wakes and three runs each");
    }
}
