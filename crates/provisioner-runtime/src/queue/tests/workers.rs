//! Workers that wait for keys, statistics, and cleanup.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test(start_paused = true)]
async fn next_waits_for_a_wake() {
    let queue = queue();
    let waiting = next_key(&queue);
    sleep(SECOND).await;
    queue.wake("a", 1, Change);
    assert_eq!(waiting.await.unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn earlier_delay_wakes_callers_that_wait_for_a_later_one() {
    let queue = queue();
    queue.wake("late", 1, Change);
    take(&queue, "late").finish(Next::RetryAfter(100 * SECOND));
    queue.wake("early", 1, Change);
    let work = take(&queue, "early");
    let waiting = next_key(&queue);
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
async fn dropped_caller_passes_on_its_timer() {
    let queue = queue();
    // This caller waits before there is any delay, so it is not responsible for a timer.
    let waiting = next_key(&queue);
    sleep(SECOND).await;
    queue.wake("a", 1, Change);
    take(&queue, "a").finish(Next::RetryAfter(10 * SECOND));
    // Whichever of the two is responsible for the timer, the key still arrives when this one is dropped.
    assert!(timeout(SECOND, queue.next()).await.is_err());
    assert_eq!(timeout(10 * SECOND, waiting).await.unwrap().unwrap(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn after_shut_down_nothing_is_handed_out() {
    let queue = woken();
    queue.shut_down();
    queue.wake("b", 1, Change);
    assert!(queue.next().await.is_none());
    assert!(queue.next().await.is_none());
    assert_eq!(queue.stats().ready, 1);
}

#[tokio::test(start_paused = true)]
async fn the_statistics_count_keys_by_state() {
    let queue = limited(1, 0);
    for key in ["runs", "delayed", "waits", "ready"] {
        queue.wake(key, 1, Change);
    }
    let running = take(&queue, "runs");
    let _permit = running.enter(&flow("g"));
    take(&queue, "delayed").finish(Next::RetryAfter(100 * SECOND));
    take(&queue, "waits").finish(Next::AwaitChange);
    queue.wake("parked", 1, Resync);
    queue.wake("older", 1, Resync);
    advance(3 * SECOND).await;
    take(&queue, "ready").finish(Next::Done);
    take(&queue, "parked").finish(Next::AwaitPermit(flow("g")));
    queue.wake("younger", 1, Change);
    let expected = QueueStats {
        ready: 2,
        delayed: 1,
        awaiting_change: 1,
        awaiting_permit: 1,
        running: 1,
        oldest_ready: Some(3 * SECOND),
        adds: 7,
        retries: 1,
        longest_running: Some(3 * SECOND),
    };
    assert_eq!(queue.stats(), expected);
}

#[tokio::test(start_paused = true)]
async fn due_keys_count_as_ready_before_they_are_requested() {
    let queue = woken();
    take(&queue, "a").finish(Next::RetryAfter(SECOND));
    advance(5 * SECOND).await;
    let stats = queue.stats();
    assert_eq!((stats.ready, stats.delayed), (1, 0));
    assert_eq!(stats.oldest_ready, Some(4 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn work_limits_concurrency_and_finishes_running_keys() {
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
async fn panic_fails_only_one_attempt_of_its_key() {
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
    assert_eq!(crate::sync::lock(&queue.shared.state).remembered(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_workers_aborts_runs_and_keeps_keys() {
    let queue = woken();
    let workers = work(&queue, 1, CancellationToken::new(), |work| async move {
        std::future::pending::<()>().await;
        work.finish(Next::Done);
    });
    assert!(timeout(SECOND, workers).await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(queue.stats().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn memory_is_released_after_a_burst() {
    let numbers = Queue::new(QueueOptions::default());
    for key in 0..50_000_u64 {
        numbers.wake(key, 0, Change);
    }
    let full = crate::sync::lock(&numbers.shared.state).room();
    while let Some(Some(work)) = numbers.next().now_or_never() {
        work.finish(Next::Done);
    }
    let state = crate::sync::lock(&numbers.shared.state);
    assert_eq!(state.remembered(), (0, 0, 0));
    assert!(state.room() < full / 20);
}

/// Waits for one key in a task.
fn next_key(queue: &Queue<&'static str>) -> JoinHandle<Option<&'static str>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.next().await.map(|work| *work.key()) })
}
