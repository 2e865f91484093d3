//! Tests that permits are handed out in order and that every waiter gets one.

use super::*;

#[tokio::test(start_paused = true)]
async fn key_without_a_permit_is_parked_and_occupies_no_worker() {
    let (queue, permit) = full();
    assert!(enter(&queue, "b", "g").is_none());
    let stats = queue.stats();
    assert_eq!((stats.awaiting_permit, stats.running, stats.ready), (1, 0, 0));
    drop(permit);
    assert_eq!(take(&queue, "b").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn reserved_permit_moves_its_key_to_the_front() {
    let (queue, permit) = full();
    assert!(enter(&queue, "b", "g").is_none());
    queue.wake("c", 1, Change);
    drop(permit);
    let parked = take(&queue, "b");
    let other = take(&queue, "c");
    assert!(other.enter(&flow("g")).is_none());
    assert!(parked.enter(&flow("g")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_permit_released_between_enter_and_finish_is_noticed() {
    let (queue, permit) = full();
    queue.wake("b", 1, Change);
    let work = take(&queue, "b");
    assert!(work.enter(&flow("g")).is_none());
    drop(permit);
    work.finish(Next::AwaitPermit(flow("g")));
    assert!(take(&queue, "b").enter(&flow("g")).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unused_permit_is_passed_to_the_next_key() {
    let (queue, permit) = full();
    for key in ["b", "c", "d", "e"] {
        assert!(enter(&queue, key, "g").is_none());
    }
    drop(permit);
    take(&queue, "b").finish(Next::Done);
    take(&queue, "c").finish(Next::Retry);
    queue.forget(&"d");
    assert!(take(&queue, "e").enter(&flow("g")).is_some());
}

#[tokio::test(start_paused = true)]
async fn changed_inputs_end_the_wait_for_a_permit() {
    let (queue, permit) = full();
    assert!(enter(&queue, "b", "g").is_none());
    queue.wake("b", 1, Change);
    assert_nothing_ready(&queue);
    queue.wake("b", 2, Change);
    take(&queue, "b").finish(Next::Done);
    drop(permit);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn parking_keeps_the_number_of_repeats() {
    let (queue, permit) = full();
    queue.wake("b", 1, Change);
    take(&queue, "b").finish(Next::Again);
    take(&queue, "b").finish(Next::AwaitPermit(flow("g")));
    drop(permit);
    assert_eq!(take(&queue, "b").repeats(), 1);
}

/// Returns a queue with one permit, which `a` holds.
fn full() -> (Queue<&'static str>, Permit<&'static str>) {
    let queue = limited(1, 0);
    let permit = enter(&queue, "a", "g").unwrap();
    (queue, permit)
}
