use std::collections::HashSet;
use std::thread;

use proptest::prelude::*;

use super::*;

fn one_to_ten() -> IntervalAllocator {
    IntervalAllocator::new(1, 10).unwrap()
}

// Rules: M2.
#[test]
fn rejects_a_range_that_ends_before_it_begins() {
    assert_eq!(IntervalAllocator::new(10, 1).unwrap_err(), AllocatorError::InvalidRange);
}

// Rules: M3.
#[test]
fn set_range_keeps_numbers_that_are_in_use() {
    let mut numbers = one_to_ten();
    assert_eq!(numbers.set_range(10, 1), Err(AllocatorError::InvalidRange));
    assert_eq!(numbers.free(), 10);
    numbers.set_range(1, 2).unwrap();
    assert_eq!(numbers.free(), 2);
    numbers.allocate(1).unwrap();
    assert_eq!(numbers.free(), 1);
    numbers.set_range(1, 1).unwrap();
    assert_eq!(numbers.free(), 0);
    numbers.set_range(2, 2).unwrap();
    assert_eq!(numbers.free(), 1);
    assert!(numbers.has(1));
    numbers.release(1);
    assert!(!numbers.has(1));
    assert_eq!(numbers.free(), 1);
}

// Rules: M5.
#[test]
fn allocate_next_fails_when_the_range_is_full() {
    let mut numbers = one_to_ten();
    let taken: Vec<_> = (0..10).map(|_| numbers.allocate_next().unwrap()).collect();
    assert_eq!(taken, (1..=10).collect::<Vec<_>>());
    assert_eq!(numbers.allocate_next(), Err(AllocatorError::Full));
    assert_eq!(numbers.free(), 0);
}

// Rules: M1, M4, M6, M7, M8, M9.
#[test]
fn each_number_of_the_range_is_allocated_once() {
    let mut numbers = one_to_ten();
    assert_eq!(numbers.free(), 10);
    numbers.allocate(3).unwrap();
    assert_eq!((numbers.has(3), numbers.free()), (true, 9));
    assert_eq!(numbers.allocate(3), Err(AllocatorError::Conflict));
    for outside in [0, 11] {
        assert_eq!(numbers.allocate(outside), Err(AllocatorError::OutOfRange));
    }
    assert_eq!(numbers.free(), 9);
    let next = numbers.allocate_next().unwrap();
    assert_eq!((numbers.has(next), numbers.free()), (true, 8));
    for _ in 0..2 {
        numbers.release(3);
        assert_eq!((numbers.has(3), numbers.free()), (false, 9));
    }
    numbers.allocate(3).unwrap();
}

#[test]
fn allocates_the_lowest_and_highest_u64() {
    assert_eq!(IntervalAllocator::new(0, u64::MAX).unwrap_err(), AllocatorError::InvalidRange);
    for (min, max) in [(0, u64::MAX - 1), (1, u64::MAX)] {
        let mut numbers = IntervalAllocator::new(min, max).unwrap();
        assert_eq!(numbers.free(), u64::MAX);
        for number in [min, max] {
            numbers.allocate(number).unwrap();
            assert!(numbers.has(number));
        }
        numbers.release(max);
        numbers.release(min);
        assert_eq!((numbers.free(), numbers.gaps()), (u64::MAX, 1));
    }
}

#[test]
fn consecutive_numbers_add_no_gaps() {
    let mut numbers = IntervalAllocator::new(2000, 2_147_483_647).unwrap();
    for expected in 2000..102_000 {
        assert_eq!(numbers.allocate_next(), Ok(expected));
    }
    assert_eq!(numbers.gaps(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    AllocateNext,
    Release(u64),
    SetRange(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = prop_oneof![9 => 0..24u64, 1 => (u64::MAX - 3)..=u64::MAX];
    let step = prop_oneof![
        4 => number.clone().prop_map(Step::Allocate),
        3 => Just(Step::AllocateNext),
        4 => number.clone().prop_map(Step::Release),
        1 => (0..24u64, number).prop_map(|(min, max)| Step::SetRange(min, max)),
    ];
    prop::collection::vec(step, 0..100)
}

proptest! {
    #[test]
    fn behaves_like_a_plain_set(steps in steps()) {
        let (mut min, mut max) = (4, 16);
        let mut used: HashSet<u64> = HashSet::new();
        let mut numbers = IntervalAllocator::new(min, max).unwrap();
        for step in steps {
            match step {
                Step::Allocate(number) => {
                    let expected = match number {
                        _ if !(min..=max).contains(&number) => Err(AllocatorError::OutOfRange),
                        _ if used.insert(number) => Ok(()),
                        _ => Err(AllocatorError::Conflict),
                    };
                    prop_assert_eq!(numbers.allocate(number), expected);
                }
                Step::AllocateNext => {
                    let lowest = (min..=max).find(|number| !used.contains(number));
                    used.extend(lowest);
                    prop_assert_eq!(numbers.allocate_next().ok(), lowest);
                }
                Step::Release(number) => {
                    used.remove(&number);
                    numbers.release(number);
                }
                Step::SetRange(low, high) => {
                    let valid = low <= high && (low, high) != (0, u64::MAX);
                    prop_assert_eq!(numbers.set_range(low, high).is_ok(), valid);
                    if valid {
                        (min, max) = (low, high);
                    }
                }
            }
            let inside = used.iter().filter(|number| (min..=max).contains(number)).count();
            prop_assert_eq!(numbers.free(), max - min + 1 - inside as u64);
            for number in (0..24).chain(u64::MAX - 3..=u64::MAX) {
                prop_assert_eq!(numbers.has(number), used.contains(&number));
            }
        }
    }
}

#[test]
fn reads_the_range_from_class_parameters() {
    let range = |pairs: &[(&str, &str)]| {
        GidRange::from_parameters(&pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    };
    assert_eq!(range(&[]), Ok(GidRange { min: 2000, max: 2_147_483_647 }));
    assert_eq!(range(&[]), Ok(GidRange::default()));
    assert_eq!(range(&[("other", "x"), ("gidMin", "3000")]), Ok(GidRange { min: 3000, max: 2_147_483_647 }));
    assert_eq!(range(&[("GIDMIN", "2000"), ("gidmax", "2000")]), Ok(GidRange { min: 2000, max: 2000 }));
    for (pairs, message) in [
        (
            [("gidMin", "1999"), ("", "")],
            r#""gidMin" is "1999", which is not a decimal number between 2000 and 2147483647"#,
        ),
        (
            [("gidMax", "2147483648"), ("", "")],
            r#""gidMax" is "2147483648", which is not a decimal number between 2000 and 2147483647"#,
        ),
        (
            [("GidMax", "+2000"), ("", "")],
            r#""GidMax" is "+2000", which is not a decimal number between 2000 and 2147483647"#,
        ),
        ([("gidMin", ""), ("", "")], r#""gidMin" is "", which is not a decimal number between 2000 and 2147483647"#),
        ([("gidMin", "3000"), ("gidMax", "2999")], r#"parameter "gidMin" is 3000, which is above "gidMax", 2999"#),
        ([("gidMin", "3000"), ("gidmin", "3000")], r#""gidMin" and "gidmin" are the same parameter"#),
    ] {
        assert_eq!(range(&pairs).unwrap_err().to_string(), message);
    }
    assert_eq!(GidRange::new(Some(2000), Some(2001)), Ok(GidRange { min: 2000, max: 2001 }));
    assert!(GidRange::new(Some(0), None).is_err());
}

#[test]
fn assigns_one_gid_per_volume_and_class() {
    let gids = GidAllocator::new();
    let range = GidRange::new(None, Some(2001)).unwrap();
    assert_eq!(gids.allocate("fast", "a", range), Ok(2000));
    assert_eq!(gids.allocate("fast", "a", range), Ok(2000), "a retry");
    assert_eq!(gids.allocate("fast", "b", range), Ok(2001));
    assert_eq!(gids.allocate("slow", "b", range), Ok(2000));
    assert_eq!(
        gids.allocate("fast", "c", range).unwrap_err().to_string(),
        r#"StorageClass "fast" has no free gid between 2000 and 2001"#
    );
    assert_eq!(gids.release("fast", "a"), Some(2000));
    assert_eq!(gids.release("fast", "a"), None);
    assert_eq!(gids.release("gone", "a"), None);
    assert_eq!(gids.allocate("fast", "c", range), Ok(2000));
    let narrow = GidRange::new(Some(3000), None).unwrap();
    assert_eq!(gids.allocate("fast", "c", narrow), Ok(2000), "a retry after a change of the class");
    assert_eq!(gids.allocate("fast", "d", narrow), Ok(3000));
}

#[test]
fn restores_the_gids_of_existing_volumes() {
    let gids = GidAllocator::new();
    gids.restore("fast", "a", 2000).unwrap();
    gids.restore("fast", "a", 2000).unwrap();
    gids.restore("fast", "below", 5).unwrap();
    assert_eq!(
        gids.restore("fast", "b", 2000).unwrap_err().to_string(),
        r#"PersistentVolume "b" has gid 2000, which "a" already has"#
    );
    assert!(matches!(gids.restore("fast", "c", 1 << 31), Err(GidError::OutOfRange { .. })));
    assert!(matches!(gids.restore("fast", "c", 1 << 32), Err(GidError::OutOfRange { .. })));

    let range = GidRange::default();
    assert_eq!(gids.allocate("fast", "b", range), Ok(2000));
    assert_eq!(gids.allocate("fast", "c", range), Ok(2001));
    gids.release("fast", "a");
    assert_eq!(gids.allocate("fast", "d", range), Ok(2002), "b still has 2000");
    gids.release("fast", "b");
    assert_eq!(gids.allocate("fast", "e", range), Ok(2000));

    gids.restore("fast", "e", 2005).unwrap();
    assert_eq!(gids.allocate("fast", "e", range), Ok(2005), "the restored gid");
    assert_eq!(gids.allocate("fast", "f", range), Ok(2000));
}

#[test]
fn threads_never_share_a_gid() {
    let gids = GidAllocator::new();
    let taken: Vec<u32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let gids = &gids;
                scope.spawn(move || {
                    let volume = |index| format!("{thread}-{index}");
                    let allocate = |index| gids.allocate("fast", &volume(index), GidRange::default()).unwrap();
                    (0..200).map(allocate).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 1600);
    assert_eq!(taken.iter().max(), Some(&3599));
}
