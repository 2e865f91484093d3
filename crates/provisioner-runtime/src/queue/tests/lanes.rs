//! Lanes: who gets a place, and that nobody waits for ever.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_full_lane_lets_nobody_in_and_parks_without_a_worker() {
    let (queue, lane, permit) = full_lane();
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
    let (queue, lane, permit) = full_lane();
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
    let (queue, lane, permit) = full_lane();
    queue.wake("b", 1, Change);
    let work = take(&queue, "b");
    assert!(work.enter(&lane).is_none());
    drop(permit);
    work.finish(Next::AwaitLane(lane.clone()));
    assert!(take(&queue, "b").enter(&lane).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_not_used_goes_to_the_next() {
    let (queue, lane, permit) = full_lane();
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
    let (queue, lane, permit) = full_lane();
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

/// A lane whose only place `a` has.
fn full_lane() -> (Queue<&'static str>, Lane, Permit<&'static str>) {
    let (queue, lane) = (queue(), lane("l", 1));
    let permit = enter(&queue, "a", &lane).unwrap();
    (queue, lane, permit)
}
