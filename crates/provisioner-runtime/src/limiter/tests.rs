use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_group_gets_four_fifths_and_leaves_room_for_a_newcomer() {
    for (total, alone) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4), (10, 8), (100, 80)] {
        let mut shares = shares(total, 0);
        assert_eq!(fill(&mut shares, &["a"]), [alone], "of {total}");
        assert_eq!(shares.try_acquire("b").is_some(), total > 1);
    }
}

#[test]
fn several_groups_get_equal_parts() {
    let mut two = shares(100, 0);
    assert_eq!(fill(&mut two, &["a", "b"]), [44, 44]);
    assert!(two.try_acquire("c").is_some());
    assert_eq!(fill(&mut shares(100, 0), &["a", "b", "c"]), [31, 31, 30]);
    assert_eq!(fill(&mut shares(100, 7), &["a", "b"]), [7, 7]);
    assert_eq!(fill(&mut shares(0, 7), &["a", "b"]), [7, 7]);
    // Every group has one before any has two, up to the last permit.
    let names: Vec<String> = (0..10).map(|name| name.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(fill(&mut shares(10, 0), &names), [1; 10]);
}

#[test]
fn within_a_group_in_order_and_between_groups_in_turns() {
    let mut shares = shares(1, 0);
    shares.try_acquire("a").unwrap();
    for (group, waiter) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("c", 6)] {
        shares.wait(group, waiter);
    }
    let mut order = Vec::new();
    let mut holder: Arc<str> = "a".into();
    for _ in 0..6 {
        assert!(shares.admit().is_none());
        shares.release(&holder);
        let (group, waiter) = shares.admit().unwrap();
        holder = group;
        order.push(waiter);
    }
    assert_eq!(order, [1, 3, 6, 2, 5, 4]);
    shares.release(&holder);
    assert_eq!((shares.len(), shares.waiting()), (0, 0));
}

#[test]
fn a_group_that_may_have_no_more_lets_others_pass() {
    let mut shares = shares(0, 1);
    for group in ["a", "b"] {
        shares.try_acquire(group).unwrap();
        shares.wait(group, group);
    }
    shares.release("b");
    assert_eq!(shares.admit().unwrap().1, "b");
    assert!(shares.admit().is_none());
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_permit_that_is_given_back() {
    let limiter = Limiter::new(Limits { total: 0, per_group: 1, one_each: false });
    let permit = limiter.acquire("a").await;
    let _other = limiter.acquire("b").await;
    assert!(timeout(SECOND, limiter.acquire("a")).await.is_err());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("a").await }
    });
    sleep(SECOND).await;
    drop(permit);
    assert!(limiter.acquire("a").now_or_never().is_none(), "it is promised to whoever waits");
    drop(waiting.await.unwrap());
    assert!(limiter.acquire("a").now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_with_or_without_its_permit_loses_none() {
    let limiter = Limiter::new(Limits { total: 1, per_group: 0, one_each: false });
    let permit = limiter.acquire("a").await;
    let mut waits = Box::pin(limiter.acquire("a"));
    let mut gone = Box::pin(limiter.acquire("b"));
    assert!((&mut waits).now_or_never().is_none() && (&mut gone).now_or_never().is_none());
    drop(gone);
    assert_eq!(crate::sync::lock(&limiter.shares).len(), 1);
    drop(permit);
    // It was given the permit, and goes away before it has looked.
    drop(waits);
    assert_eq!(crate::sync::lock(&limiter.shares).len(), 0);
    assert!(limiter.acquire("b").now_or_never().is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize),
    Release(usize),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..GROUPS.len()).prop_map(Step::Acquire),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

const GROUPS: [&str; 4] = ["a", "b", "c", "d"];

proptest! {
    /// Against a list of waiters that is searched from end to end.
    #[test]
    fn whatever_happens_the_shares_are_those_of_the_model(
        total in 0..8_usize,
        per_group in 0..4_usize,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut real = shares(total, per_group);
        let mut held: Vec<usize> = Vec::new();
        let mut waiting: Vec<(usize, u64)> = Vec::new();
        // The groups with waiters, in their order.
        let mut turns: Vec<usize> = Vec::new();
        for step in steps {
            let of = |held: &[usize], group| held.iter().filter(|of| **of == group).count();
            let may = |held: &[usize], group| {
                let (own, all) = (of(held, group), held.len());
                let fair = total == 0 || (all < total && (own == 0 || own < 4 * (total - all - 1)));
                fair && (per_group == 0 || own < per_group)
            };
            match step {
                Step::Acquire(group) => {
                    let acquired = real.try_acquire(GROUPS[group]).is_some();
                    prop_assert_eq!(acquired, may(&held, group));
                    if acquired {
                        held.push(group);
                    } else {
                        waiting.push((group, real.wait(GROUPS[group], group)));
                        if !turns.contains(&group) {
                            turns.push(group);
                        }
                    }
                }
                Step::Release(at) if !held.is_empty() => real.release(GROUPS[held.remove(at % held.len())]),
                Step::Cancel(at) if !waiting.is_empty() => {
                    let (group, ticket) = waiting.remove(at % waiting.len());
                    prop_assert_eq!(real.cancel(GROUPS[group], ticket), Some(group));
                    prop_assert_eq!(real.cancel(GROUPS[group], ticket), None);
                }
                Step::Release(_) | Step::Cancel(_) => {}
            }
            turns.retain(|group| waiting.iter().any(|(of, _)| of == group));
            while let Some(at) = turns.iter().position(|group| may(&held, *group)) {
                let group = turns.remove(at);
                let first = waiting.iter().position(|(of, _)| *of == group).unwrap();
                let (_, ticket) = waiting.remove(first);
                prop_assert_eq!(real.admit().map(|(_, waiter)| waiter), Some(group));
                prop_assert_eq!(real.cancel(GROUPS[group], ticket), None);
                held.push(group);
                if waiting.iter().any(|(of, _)| *of == group) {
                    turns.push(group);
                }
            }
            prop_assert!(real.admit().is_none());
            let known = (0..GROUPS.len()).filter(|group| held.contains(group) || turns.contains(group)).count();
            prop_assert_eq!((real.len(), real.waiting()), (known, waiting.len()));
        }
    }
}

fn shares<W>(total: usize, per_group: usize) -> Shares<W> {
    Shares::new(Limits { total, per_group, one_each: false })
}

/// Lets the groups take permits in turns until none may take more; returns how many each has.
fn fill(shares: &mut Shares<()>, groups: &[&str]) -> Vec<usize> {
    let mut held = vec![0; groups.len()];
    loop {
        let before = held.clone();
        for (group, held) in groups.iter().zip(&mut held) {
            *held += usize::from(shares.try_acquire(group).is_some());
        }
        if held == before {
            return held;
        }
    }
}

/// Groups that hang one after another take all there is, and the next one works all the same.
#[test]
fn a_group_that_holds_none_gets_one_where_that_is_so() {
    let hang = |one_each: bool| {
        let mut shares = Shares::<()>::new(Limits { total: 10, per_group: 0, one_each });
        for group in 0..20 {
            while shares.try_acquire(&format!("hangs-{group}")).is_some() {}
        }
        shares.try_acquire("healthy").is_some() && shares.try_acquire("healthy").is_none()
    };
    assert!(hang(true) && !hang(false));
}
