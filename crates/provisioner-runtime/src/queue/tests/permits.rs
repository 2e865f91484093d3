//! Permits: their order, and that every waiter gets one.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_finds_no_permit_is_parked_without_a_worker() {
    let (queue, permit) = full();
    assert!(enter(&queue, "b", "g").is_none());
    let stats = queue.stats();
    assert_eq!((stats.awaiting_permit, stats.running, stats.ready), (1, 0, 0));
    drop(permit);
    assert_eq!(take(&queue, "b").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_free_permit_readies_the_key_that_waits_longest() {
    let queue = limited(0, 2);
    let first = enter(&queue, "a", "g").unwrap();
    let second = enter(&queue, "b", "g").unwrap();
    for key in ["c", "d", "e"] {
        assert!(enter(&queue, key, "g").is_none());
    }
    drop(first);
    assert_eq!((queue.stats().ready, queue.stats().awaiting_permit), (1, 2));
    drop(second);
    let _held = (take(&queue, "c"), take(&queue, "d"));
    assert_nothing_ready(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_reserved_permit_goes_to_the_front_and_nobody_takes_it() {
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
async fn a_permit_that_is_given_back_between_enter_and_finish_is_not_missed() {
    let (queue, permit) = full();
    queue.wake("b", 1, Change);
    let work = take(&queue, "b");
    assert!(work.enter(&flow("g")).is_none());
    drop(permit);
    work.finish(Next::AwaitPermit(flow("g")));
    assert!(take(&queue, "b").enter(&flow("g")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_not_used_goes_to_the_next() {
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
async fn other_inputs_end_the_wait_for_a_permit() {
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
async fn parking_breaks_no_row() {
    let (queue, permit) = full();
    queue.wake("b", 1, Change);
    take(&queue, "b").finish(Next::Again);
    take(&queue, "b").finish(Next::AwaitPermit(flow("g")));
    drop(permit);
    assert_eq!(take(&queue, "b").repeats(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_limits_everybody_gets_a_permit() {
    let queue = limited(0, 0);
    let permits: Vec<_> = ["a", "b", "c"].map(|key| enter(&queue, key, "g")).into();
    assert!(permits.iter().all(Option::is_some));
    drop(permits);
    assert_empty(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_hangs_leaves_room_for_others() {
    let queue = limited(10, 0);
    let hung: Vec<_> = (0..10).map_while(|key| enter(&queue, leak(key), "hangs")).collect();
    assert_eq!((hung.len(), queue.stats().awaiting_permit), (8, 1));
    let other = enter(&queue, "a", "works").unwrap();
    assert!(enter(&queue, "b", "works").is_none());
    drop(other);
    assert!(take(&queue, "b").enter(&flow("works")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_many_keys_delays_nobody_else_of_its_group() {
    let queue = limited(0, 1);
    let permit = enter(&queue, "first", "g/many").unwrap();
    for key in 0..500 {
        assert!(enter(&queue, leak(key), "g/many").is_none());
    }
    assert!(enter(&queue, "other", "g/one").is_none());
    drop(permit);
    let next = take(&queue, "0").enter(&flow("g/many")).unwrap();
    drop(next);
    assert!(take(&queue, "other").enter(&flow("g/one")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_hangs_leaves_room_for_others_of_its_group() {
    let queue = limited(0, 10);
    let hung: Vec<_> = (0..100).filter_map(|key| enter(&queue, leak(key), "g/hangs")).collect();
    assert_eq!((hung.len(), queue.stats().awaiting_permit), (8, 92));
    assert!(enter(&queue, "a", "g/works").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_removes_takes_no_permit_of_what_creates() {
    let queue = limited(1, 1);
    queue.wake("gone", 1, Change);
    let _removing = take(&queue, "gone").enter(&Flow::removing("g")).unwrap();
    let creating = enter(&queue, "a", "g").unwrap();
    queue.wake("gone too", 1, Change);
    let gone = take(&queue, "gone too");
    assert!(gone.enter(&Flow::removing("g")).is_none());
    gone.finish(Next::AwaitPermit(Flow::removing("g")));
    drop(creating);
    assert_nothing_ready(&queue);
}

/// Returns a queue with one permit, which `a` holds.
fn full() -> (Queue<&'static str>, Permit<&'static str>) {
    let queue = limited(1, 0);
    let permit = enter(&queue, "a", "g").unwrap();
    (queue, permit)
}
