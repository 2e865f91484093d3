mod model;
mod tenants;

use std::time::Duration;

use futures::FutureExt;
use tokio::time::{sleep, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn single_group_gets_four_fifths_of_the_permits() {
    for (total, alone) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4), (10, 8), (100, 80)] {
        let mut shares = shares(total, 0);
        assert_eq!(fill(&mut shares, &["a"]), [alone], "of {total}");
        assert_eq!(shares.try_acquire(&flow("b")), total > 1);
    }
}

#[test]
fn several_groups_get_equal_parts() {
    let mut two = shares(100, 0);
    assert_eq!(fill(&mut two, &["a", "b"]), [44, 44]);
    assert!(two.try_acquire(&flow("c")));
    assert_eq!(fill(&mut shares(100, 0), &["a", "b", "c"]), [31, 31, 30]);
    assert_eq!(fill(&mut shares(100, 7), &["a", "b"]), [7, 7]);
    assert_eq!(fill(&mut shares(0, 7), &["a", "b"]), [7, 7]);
    // Every group has one permit before any has two, up to the last permit.
    let names: Vec<String> = (0..10).map(|name| name.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(fill(&mut shares(10, 0), &names), [1; 10]);
}

#[test]
fn waiters_of_a_group_keep_order_and_groups_take_turns() {
    let mut shares = shares(1, 0);
    assert!(shares.try_acquire(&flow("a")));
    for (group, waiter) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("c", 6)] {
        shares.wait(&flow(group), waiter);
    }
    let mut order = Vec::new();
    let mut holder = flow("a");
    for _ in 0..6 {
        assert!(shares.admit().is_none());
        shares.release(&holder);
        let (flow, waiter) = shares.admit().unwrap();
        holder = flow;
        order.push(waiter);
    }
    assert_eq!(order, [1, 3, 6, 2, 5, 4]);
    shares.release(&holder);
    assert_eq!((shares.remembered(), shares.waiting()), ((0, 0), 0));
}

#[test]
fn group_at_its_limit_does_not_block_others() {
    let mut shares = shares(0, 1);
    for group in ["a", "b"] {
        assert!(shares.try_acquire(&flow(group)));
        shares.wait(&flow(group), group);
    }
    shares.release(&flow("b"));
    assert_eq!(shares.admit().unwrap().1, "b");
    assert!(shares.admit().is_none());
}

#[tokio::test(start_paused = true)]
async fn returned_permit_is_given_to_the_waiter() {
    let limiter = Limiter::new(Limits { total: 0, per_group: 1, one_each: false });
    let permit = limiter.acquire(&flow("a")).await;
    let _other = limiter.acquire(&flow("b")).await;
    assert!(timeout(SECOND, limiter.acquire(&flow("a"))).await.is_err());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(&flow("a")).await }
    });
    sleep(SECOND).await;
    drop(permit);
    assert!(limiter.acquire(&flow("a")).now_or_never().is_none(), "the permit is reserved for the waiter");
    drop(waiting.await.unwrap());
    assert!(limiter.acquire(&flow("a")).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn dropped_futures_lose_no_permit() {
    let limiter = Limiter::new(Limits { total: 1, per_group: 0, one_each: false });
    let permit = limiter.acquire(&flow("a")).await;
    let (a, b) = (flow("a"), flow("b"));
    let mut waits = Box::pin(limiter.acquire(&a));
    let mut gone = Box::pin(limiter.acquire(&b));
    assert!((&mut waits).now_or_never().is_none() && (&mut gone).now_or_never().is_none());
    drop(gone);
    assert_eq!(crate::sync::lock(&limiter.shares).remembered(), (1, 1));
    drop(permit);
    // The waiter has been given the permit, but is dropped before it has polled for it.
    drop(waits);
    assert_eq!(crate::sync::lock(&limiter.shares).remembered(), (0, 0));
    assert!(limiter.acquire(&flow("b")).now_or_never().is_some());
}

/// Groups that hang one after another take all permits, yet with `one_each` the next group still gets one.
#[test]
fn group_without_permits_gets_one_only_with_one_each() {
    let hang = |one_each: bool| {
        let mut shares = Shares::<()>::new(Limits { total: 10, per_group: 0, one_each });
        for group in 0..20 {
            while shares.try_acquire(&flow(&format!("hangs-{group}"))) {}
        }
        shares.try_acquire(&flow("healthy")) && !shares.try_acquire(&flow("healthy"))
    };
    assert!(hang(true) && !hang(false));
}

fn shares<W>(total: usize, per_group: usize) -> Shares<W> {
    Shares::new(Limits { total, per_group, one_each: false })
}

/// Lets the flows take permits in turns until none may take more; returns the number of permits of each.
fn fill(shares: &mut Shares<()>, flows: &[&str]) -> Vec<usize> {
    let mut held = vec![0; flows.len()];
    loop {
        let before = held.clone();
        for (name, held) in flows.iter().zip(&mut held) {
            *held += usize::from(shares.try_acquire(&flow(name)));
        }
        if held == before {
            return held;
        }
    }
}

/// Returns the flow of work that creates in this group; `text` is `group` or `group/tenant`.
fn flow(text: &str) -> Flow {
    match text.split_once('/') {
        Some((group, tenant)) => Flow::creating(group).of_tenant(tenant),
        None => Flow::creating(text),
    }
}
