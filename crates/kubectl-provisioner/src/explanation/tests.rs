//! Checks that every decision of both controllers is explained. A new variant does not compile until it has an
//! explanation and a sample in these lists.

use kube_provisioner::explain::{bucket, volume};

use super::*;

/// Returns a sample of each variant. The generated match does not compile if a variant is missing.
macro_rules! all {
    ($kind:ty: $($pattern:pat => $sample:expr),+ $(,)?) => {{
        fn _is_complete(one: &$kind) {
            match one { $($pattern => {}),+ }
        }
        let samples: Vec<$kind> = vec![$($sample),+];
        samples
    }};
}

fn volume_no_actions() -> Vec<volume::NoAction> {
    use volume::NoAction as N;
    all!(N: N::Unrelated => N::Unrelated, N::Bound => N::Bound, N::Provisioned => N::Provisioned,
        N::Vetoed => N::Vetoed, N::AwaitsAdoption => N::AwaitsAdoption, N::ForeignClass => N::ForeignClass,
        N::OtherNode => N::OtherNode, N::OtherInstallation => N::OtherInstallation, N::OtherCluster => N::OtherCluster,
        N::AwaitsNode => N::AwaitsNode,
        N::ClaimTerminating => N::ClaimTerminating, N::NotReleased => N::NotReleased, N::Retained => N::Retained,
        N::ClaimStillExists => N::ClaimStillExists, N::VolumeTerminating => N::VolumeTerminating)
}

fn volume_refusals() -> Vec<volume::Refusal> {
    use volume::Refusal as R;
    let text = || "x".to_owned();
    all!(R: R::AccessModes(_) => R::AccessModes(vec![]), R::AllowedTopologies => R::AllowedTopologies,
        R::AttributesClass(_) => R::AttributesClass(text()),
        R::BindCompleted => R::BindCompleted, R::Block => R::Block, R::ClassMissing(Some(_)) => R::ClassMissing(Some(text())),
        R::ClassMissing(None) => R::ClassMissing(None),
        R::DataSource { .. } => R::DataSource { kind: text(), name: text() }, R::Expansion => R::Expansion,
        R::ImmediateClass => R::ImmediateClass, R::MountOptions => R::MountOptions, R::NameTaken => R::NameTaken,
        R::NameShared { .. } => R::NameShared { rival: text() },
        R::NodeGone { .. } => R::NodeGone { node: text() }, R::NoUsableNode { .. } => R::NoUsableNode { place: text() },
        R::Copy { .. } => R::Copy { uid: text() }, R::Unowned => R::Unowned,
        R::Unreadable { .. } => R::Unreadable { problem: text() },
        R::UnreadableVolume { .. } => R::UnreadableVolume { problem: text() },
        R::OtherCluster { .. } => R::OtherCluster { creator: text() },
        R::OtherInstallation { .. } => R::OtherInstallation { creator: text() }, R::Parameters(_) => R::Parameters(text()),
        R::ParametersCrash(_) => R::ParametersCrash(text()),
        R::Populator { .. } => R::Populator { kind: text(), name: text() }, R::Request(_) => R::Request(text()),
        R::RetainedTooLate => R::RetainedTooLate, R::Selector => R::Selector,
        R::SourceNamespace { .. } => R::SourceNamespace { namespace: text(), name: text() }, R::Unadopted => R::Unadopted,
        R::Unreleased { .. } => R::Unreleased { uid: text() })
}

fn volume_actions() -> Vec<volume::Decision> {
    use volume::{Decision as D, Deletion};
    all!(D: D::NoAction(_) => D::NoAction(volume::NoAction::Bound), D::Refuse(_) => D::Refuse(volume::Refusal::Block),
        D::Provision => D::Provision, D::Bid => D::Bid, D::CleanUp => D::CleanUp, D::DeleteSurplus => D::DeleteSurplus,
        D::Confirm => D::Confirm, D::ConfirmVolume => D::ConfirmVolume,
        D::Save => D::Save, D::CheckNode { .. } => D::CheckNode { name: "n".to_owned() }, D::Protect => D::Protect,
        D::Unprotect => D::Unprotect, D::Expand { .. } => D::Expand { bytes: 1 },
        D::Delete(Deletion::Protected) => D::Delete(Deletion::Protected),
        D::Delete(Deletion::Checked) => D::Delete(Deletion::Checked),
        D::Delete(Deletion::NeverBound) => D::Delete(Deletion::NeverBound), D::FinishDelete => D::FinishDelete)
}

fn bucket_no_actions() -> Vec<bucket::NoAction> {
    use bucket::NoAction as N;
    all!(N: N::Bound => N::Bound, N::ClassMissing => N::ClassMissing, N::ForeignClass => N::ForeignClass,
        N::Unrelated => N::Unrelated, N::ObjectBeingDeleted => N::ObjectBeingDeleted,
        N::OtherInstallation => N::OtherInstallation, N::OtherProvisioner => N::OtherProvisioner,
        N::OtherCluster => N::OtherCluster)
}

fn bucket_refusals() -> Vec<bucket::Refusal> {
    use bucket::Refusal as R;
    let text = || "x".to_owned();
    all!(R: R::FormerBucket => R::FormerBucket, R::OrphanedBucket { .. } => R::OrphanedBucket { object: text() },
        R::UnprovenOwner { .. } => R::UnprovenOwner { object: text() }, R::NoClaim { .. } => R::NoClaim { object: text() },
        R::Unclaimed { .. } => R::Unclaimed { object: text() },
        R::NoCluster { .. } => R::NoCluster { object: text() },
        R::Unreadable { .. } => R::Unreadable { kind: "ObjectBucket", problem: text() },
        R::OtherCluster { .. } => R::OtherCluster { creator: text() },
        R::OtherInstallation { .. } => R::OtherInstallation { creator: text() }, R::NoName => R::NoName,
        R::BadName { .. } => R::BadName { name: text(), problem: "p" }, R::Parameters(_) => R::Parameters(text()),
        R::ParametersCrash(_) => R::ParametersCrash(text()),
        R::ConfigNotAllowed(_) => R::ConfigNotAllowed(Default::default()), R::Record(_) => R::Record(text()),
        R::ObjectDeleted => R::ObjectDeleted, R::NoRotation => R::NoRotation,
        R::BadObjectName { .. } => R::BadObjectName { kind: "Secret", name: text() },
        R::NotOwned { .. } => R::NotOwned { kind: "Secret" },
        R::BucketClaim { .. } => R::BucketClaim { claim: text(), problem: bucket::BucketClaimProblem::Missing },
        R::ChangeWithoutEffect(_) => R::ChangeWithoutEffect(bucket::ChangeWithoutEffect::Config { key: "k" }), R::InUse { .. } => R::InUse { by: vec![] })
}

fn bucket_actions() -> Vec<bucket::Decision> {
    use bucket::{Decision as D, Reason, ReleaseMode as E};
    all!(D: D::NoAction(_) => D::NoAction(bucket::NoAction::Bound), D::Refuse(_) => D::Refuse(bucket::Refusal::NoName),
        D::Attempt(Reason::New) => D::Attempt(Reason::New), D::Attempt(Reason::Config) => D::Attempt(Reason::Config),
        D::Attempt(Reason::Secret) => D::Attempt(Reason::Secret), D::Adopt => D::Adopt, D::Restore => D::Restore,
        D::Rotate => D::Rotate, D::Retire => D::Retire, D::Release(E::Delete) => D::Release(E::Delete),
        D::Release(E::Revoke) => D::Release(E::Revoke), D::Release(E::RevokeUnknown) => D::Release(E::RevokeUnknown),
        D::Release(E::CleanUp) => D::Release(E::CleanUp), D::Release(E::Abandon) => D::Release(E::Abandon),
        D::ReleaseClaim => D::ReleaseClaim)
}

/// Asserts that these texts are well-formed, and that different states have different reasons.
fn check(all: &[Explanation]) {
    for (at, Explanation { state, why, remedy }) in all.iter().enumerate() {
        assert!(!state.is_empty() && !state.ends_with('.'), "{state:?}");
        assert!(
            why.is_empty() || why.ends_with('.') && why.starts_with(|c: char| c.is_uppercase() || "kA".contains(c)),
            "{why:?}"
        );
        assert!(!remedy.ends_with('.'), "{remedy:?}");
        assert!(
            all[..at].iter().all(|other| other.why != *why || why.is_empty() || other.state == *state),
            "duplicate: {why:?}"
        );
    }
}

#[test]
fn every_volume_decision_is_explained() {
    let no_actions = volume_no_actions().into_iter().map(volume_no_action);
    let refusals = volume_refusals();
    let actions = volume_actions();
    let all: Vec<Explanation> =
        no_actions.chain(refusals.iter().map(volume_refusal)).chain(actions.iter().filter_map(volume_action)).collect();
    assert_eq!(all.len(), 15 + 30 + 15);
    check(&all);
}

#[test]
fn every_bucket_decision_is_explained() {
    let no_actions = bucket_no_actions().into_iter().map(bucket_no_action);
    let refusals = bucket_refusals();
    let actions = bucket_actions();
    let all: Vec<Explanation> =
        no_actions.chain(refusals.iter().map(bucket_refusal)).chain(actions.iter().filter_map(bucket_action)).collect();
    assert_eq!(all.len(), 8 + 22 + 13);
    check(&all);
}
