use proptest::prelude::*;
use std::io;

use super::*;

#[test]
fn refuses_zero_and_the_largest_project_number() {
    assert_eq!(ProjectId::new(0), None);
    assert_eq!(ProjectId::new(u32::MAX), None);
    assert_eq!(ProjectId::new(1).map(ProjectId::get), Some(1));
    assert_eq!(ProjectId::new(u32::MAX - 1).map(ProjectId::get), Some(u32::MAX - 1));
}

#[test]
fn rounds_limits_up_to_kib_and_never_to_zero() {
    assert_eq!(limit_in_sectors(0), 2);
    assert_eq!(limit_in_sectors(1), 2);
    assert_eq!(limit_in_sectors(1024), 2);
    assert_eq!(limit_in_sectors(1025), 4);
    assert_eq!(limit_in_sectors(64 << 20), 131_072);
}

#[test]
fn inheritance_ends_without_a_change_of_the_project() {
    let attributes = kernel::FileAttributes::default().in_project(7);
    assert!(attributes.inherits());
    let attributes = attributes.without_inheritance();
    assert!(!attributes.inherits() && attributes.project == 7);
}

proptest! {
    #[test]
    fn limits_are_at_least_as_large_as_requested(asked in 0..=MAX_LIMIT) {
        let limit = bytes(limit_in_sectors(asked));
        prop_assert!(limit >= asked && limit - asked <= UNIT && limit.is_multiple_of(UNIT));
    }

    #[test]
    fn caps_limits_at_the_maximum_of_ext4(asked in MAX_LIMIT..=u64::MAX) {
        prop_assert_eq!(bytes(limit_in_sectors(asked)), MAX_LIMIT);
    }
}

#[test]
fn proc_has_no_project_quotas() {
    let proc = std::fs::File::open("/proc").unwrap();
    assert!(ProjectQuota::of(proc).unwrap().is_none());
}

#[test]
fn errors_name_the_remedy() {
    let text = |error| QuotaError::of("cannot set the limit of the project", error).to_string();
    assert!(text(Errno::PERM).contains("CAP_SYS_ADMIN"));
    assert!(text(Errno::SRCH).contains("prjquota"));
    let other = io::Error::from(Errno::ROFS).to_string();
    assert_eq!(text(Errno::ROFS), format!("cannot set the limit of the project: {other}"));
}
