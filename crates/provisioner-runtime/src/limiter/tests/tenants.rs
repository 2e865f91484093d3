//! The tenants of a group, and the purposes.

use super::*;

#[test]
fn one_tenant_leaves_room_for_a_newcomer_of_its_group() {
    for (per_group, alone) in [(1, 1), (2, 1), (3, 2), (5, 4), (10, 8), (100, 80)] {
        let mut shares = shares(0, per_group);
        assert_eq!(fill(&mut shares, &["g/a"]), [alone], "of {per_group}");
        assert_eq!(shares.try_acquire(&flow("g/b")), per_group > 1);
    }
    let mut shares = shares(100, 0);
    assert_eq!(fill(&mut shares, &["g/a"]), [64]);
    assert_eq!(fill(&mut shares, &["g/b"]), [12]);
    assert!(shares.try_acquire(&flow("g/c")) && shares.try_acquire(&flow("h/a")));
}

#[test]
fn tenants_together_use_the_whole_share_of_their_group() {
    let many: Vec<String> = (0..200).map(|tenant| format!("g/{tenant}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (total, per_group, all) in [(100, 0, 80), (0, 7, 7), (100, 7, 7), (4, 0, 3)] {
        let mut shares = shares(total, per_group);
        assert_eq!(fill(&mut shares, &many).iter().sum::<usize>(), all, "of {total} and {per_group}");
    }
    assert_eq!(fill(&mut shares(100, 0), &["g/a", "g/b"]), [36, 35]);
}

/// One tenant has 500 waiters, then two others have one each.
#[test]
fn tenants_take_turns_regardless_of_arrival_order() {
    let mut shares = shares(0, 1);
    assert!(shares.try_acquire(&flow("g/many")));
    for waiter in 0..500 {
        shares.wait(&flow("g/many"), waiter);
    }
    shares.wait(&flow("g/one"), 1000);
    shares.wait(&flow("g/two"), 1001);
    let mut holder = flow("g/many");
    let mut next = || {
        shares.release(&holder);
        let (flow, waiter) = shares.admit().unwrap();
        holder = flow;
        waiter
    };
    assert_eq!([next(), next(), next(), next(), next()], [0, 1000, 1001, 1, 2]);
}

#[test]
fn tenant_at_its_limit_does_not_block_others() {
    let mut shares = shares(0, 5);
    assert_eq!(fill(&mut shares, &["g/hangs"]), [4]);
    shares.wait(&flow("g/hangs"), ());
    assert!(shares.admit().is_none());
    assert!(shares.try_acquire(&flow("g/works")));
    shares.wait(&flow("g/works"), ());
    shares.release(&flow("g/works"));
    assert_eq!(shares.admit().unwrap().0, flow("g/works"));
    assert!(shares.admit().is_none());
}

#[test]
fn creating_and_removing_flows_share_no_permits() {
    for limits in [(1, 0), (0, 1), (100, 0)] {
        let mut shares = shares::<()>(limits.0, limits.1);
        let removing = |group: usize| Flow::removing(group.to_string()).of_tenant("a");
        for group in 0..200 {
            while shares.try_acquire(&removing(group)) {}
            shares.wait(&removing(group), ());
        }
        assert!(shares.try_acquire(&flow("0/a")), "{limits:?}");
        shares.release(&flow("0/a"));
        assert!(shares.admit().is_none());
    }
}

#[test]
fn a_tenant_is_forgotten_with_its_last_permit_and_waiter() {
    let mut shares = shares(0, 1);
    assert!(shares.try_acquire(&flow("g/a")));
    let ticket = shares.wait(&flow("g/b"), 1);
    assert_eq!(shares.remembered(), (1, 2));
    assert_eq!(shares.cancel(&flow("g/b"), ticket), Some(1));
    assert_eq!(shares.remembered(), (1, 1));
    shares.release(&flow("g/a"));
    assert_eq!(shares.remembered(), (0, 0));
}
