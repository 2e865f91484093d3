//! Rules about buckets and accounts separately: each of the four methods cleans up only after its counterpart.

use super::Subject;
use super::direct::Direct;
use super::fixture::Fixture;
use crate::bucket::BucketAccess;
use crate::conformance::verdict::{CheckResult, RuleVerdict, Violation};

/// Returns a uid that no claim in a simulated cluster has.
fn uid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000d{number:04}")
}

fn direct<'a>(subject: &'a Subject, fixture: &Fixture<'_>, number: u8) -> Result<Direct<'a>, Violation> {
    Direct::new(subject, fixture, Fixture::claim_name(&format!("half-{number}"), &uid(number)))
}

/// Checks a bucket with its own account, and the account of another claim.
pub(super) async fn separate_removal(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-halves";
    let fixture = Fixture::new(subject).await;
    let mut owner = direct(subject, &fixture, 1)?;
    let own = [owner.create_bucket(NAME).await?];
    let alone = (subject.assets)().await;
    if alone == fixture.before {
        return Err(Violation("`create_bucket` succeeds, and the backend has nothing more than before".to_owned()));
    }
    // Repeat the call as the controller would after a crash before it received the answer.
    let mut again = direct(subject, &fixture, 1)?;
    again.create_bucket(NAME).await?;
    fixture.assets("`create_bucket` again", &alone).await?;
    let other = direct(subject, &fixture, 2)?;
    if other.backend.create_bucket(other.claim.request(NAME)).await.is_ok() {
        return Err(Violation("`create_bucket` answers with the bucket of another claim".to_owned()));
    }
    fixture.assets("`create_bucket` of another claim", &alone).await?;
    other.delete_bucket(NAME).await?;
    fixture.assets("`delete_bucket` of another claim", &alone).await?;
    other_accounts(subject, &fixture, &own).await?;
    // The bucket outlives its own account and is deleted afterwards.
    if !owner.grant(&own).await? {
        return Err(Violation("`grant` refuses the claim's own bucket".to_owned()));
    }
    owner.revoke(&own).await?;
    let kept = (subject.assets)().await;
    owner.delete_bucket(NAME).await?;
    fixture.wait_for_initial_assets("`revoke` and `delete_bucket`").await?;
    if kept == fixture.before {
        return Err(Violation("`revoke` removes the bucket".to_owned()));
    }
    // The opposite order, which the controller uses.
    let mut owner = direct(subject, &fixture, 3)?;
    let own = [owner.create_bucket(NAME).await?];
    if !owner.grant(&own).await? {
        return Err(Violation("`grant` refuses the claim's own bucket".to_owned()));
    }
    owner.delete_bucket(NAME).await?;
    owner.revoke(&own).await?;
    fixture.wait_for_initial_assets("`delete_bucket` and `revoke`").await?;
    // A claim may be deleted before it received access.
    let mut owner = direct(subject, &fixture, 4)?;
    owner.create_bucket(NAME).await?;
    owner.delete_bucket(NAME).await?;
    fixture.wait_for_initial_assets("`delete_bucket` before any `grant`").await.map(|()| RuleVerdict::Kept)
}

/// Grants and revokes accounts of other claims, if the provisioner accepts them. The first one may leave assets of the
/// bucket behind.
async fn other_accounts(subject: &Subject, fixture: &Fixture<'_>, buckets: &[BucketAccess]) -> Result<(), Violation> {
    let (mut first, mut second) = (direct(subject, fixture, 2)?, direct(subject, fixture, 5)?);
    if !first.grant(buckets).await? {
        return Ok(());
    }
    first.revoke(buckets).await?;
    let without = (subject.assets)().await;
    if !second.grant(buckets).await? {
        return Err(Violation(
            "`grant` gives one account access, and refuses another one after the first account is removed".to_owned(),
        ));
    }
    if (subject.assets)().await == without {
        return Err(Violation("`grant` succeeds, and the backend has nothing more than before".to_owned()));
    }
    second.revoke(buckets).await?;
    fixture.assets("`revoke` after `grant`", &without).await
}

/// Checks one account with access to two buckets, next to another account with access to both.
pub(super) async fn several(subject: &Subject) -> CheckResult {
    const NAMES: [&str; 3] = ["conformance-several-1", "conformance-several-2", "conformance-several-3"];
    let fixture = Fixture::new(subject).await;
    let mut user = direct(subject, &fixture, 5)?;
    if !user.backend.capabilities().multiple_buckets {
        return Ok(RuleVerdict::NotApplicable("one account of the provisioner has access to one bucket".to_owned()));
    }
    let (mut first, mut second) = (direct(subject, &fixture, 6)?, direct(subject, &fixture, 7)?);
    let buckets = [first.create_bucket(NAMES[0]).await?, second.create_bucket(NAMES[1]).await?];
    let mut other = direct(subject, &fixture, 8)?;
    if !other.grant(&buckets).await? {
        return Err(Violation("`grant` refuses the bucket of another claim, and so several of them".to_owned()));
    }
    let without = (subject.assets)().await;
    // Simulates a crash: an earlier call only completed the first bucket.
    user.grant(&buckets[..1]).await?;
    let (in_one, key) = ((subject.assets)().await, user.key().map(str::to_owned));
    user.grant(&buckets).await?;
    let in_both = (subject.assets)().await;
    if in_both == in_one {
        return Err(Violation(
            "a grant for two buckets leaves no more in the backend than one for the first".to_owned(),
        ));
    }
    if user.key() != key.as_deref() {
        return Err(Violation("the account has another key since it received access to another bucket".to_owned()));
    }
    user.grant(&buckets).await?;
    fixture.assets("`grant` again", &in_both).await?;
    // A refused account keeps its access.
    let missing = BucketAccess::new(NAMES[2], Some(other.claim.account()));
    if user.backend.grant(user.claim.grant(vec![missing])).await.is_ok() {
        return Err(Violation("`grant` gives an account access to a bucket that does not exist".to_owned()));
    }
    fixture.assets("`grant` for a bucket that does not exist", &in_both).await?;
    // Deleting a bucket does not affect accounts of other buckets.
    let mut third = direct(subject, &fixture, 9)?;
    third.create_bucket(NAMES[2]).await?;
    third.delete_bucket(NAMES[2]).await?;
    fixture.assets("a third bucket was created and deleted", &in_both).await?;
    user.revoke(&buckets).await?;
    fixture.assets("`revoke` after `grant` for two buckets", &without).await?;
    other.revoke(&buckets).await?;
    for (owner, name) in [(first, NAMES[0]), (second, NAMES[1])] {
        owner.delete_bucket(name).await?;
    }
    fixture.wait_for_initial_assets("the buckets are deleted").await.map(|()| RuleVerdict::Kept)
}

/// Checks the keys of an account, next to another account of the same bucket.
pub(super) async fn keys(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-keys";
    let fixture = Fixture::new(subject).await;
    let mut owner = direct(subject, &fixture, 10)?;
    let own = [owner.create_bucket(NAME).await?];
    if !owner.grant(&own).await? {
        return Err(Violation("`grant` refuses the claim's own bucket".to_owned()));
    }
    let first = owner.key().unwrap_or_default().to_owned();
    let can_list = owner.expect_keys(&own, &[&first]).await?;
    if can_list {
        let mut guest = direct(subject, &fixture, 11)?;
        if guest.grant(&own).await? {
            guest.expect_keys(&own, &[guest.key().unwrap_or_default()]).await?;
            owner.expect_keys(&own, &[&first]).await?;
            guest.revoke(&own).await?;
        }
        if owner.backend.capabilities().rotation {
            owner.rotate(&own).await?;
            let second = owner.key().unwrap_or_default().to_owned();
            owner.expect_keys(&own, &[&first, &second]).await?;
            owner.retire_keys(&own).await?;
            owner.expect_keys(&own, &[&second]).await?;
        }
    }
    owner.delete_bucket(NAME).await?;
    owner.revoke(&own).await?;
    owner.expect_keys(&own, &[]).await?;
    fixture.wait_for_initial_assets("`delete_bucket` and `revoke`").await?;
    Ok(if can_list {
        RuleVerdict::Kept
    } else {
        RuleVerdict::NotApplicable("the provisioner cannot list keys".to_owned())
    })
}

/// Checks the list for the command `orphans`.
pub(super) async fn list_assets(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-listed";
    let fixture = Fixture::new(subject).await;
    let mut owner = direct(subject, &fixture, 14)?;
    if !owner.backend.capabilities().assets {
        return Ok(RuleVerdict::NotApplicable("the provisioner does not list what its backend has".to_owned()));
    }
    let own = [owner.create_bucket(NAME).await?];
    owner.grant(&own).await?;
    owner.expect_listed_bucket(NAME).await?;
    owner.delete_bucket(NAME).await?;
    owner.revoke(&own).await?;
    fixture.wait_for_initial_assets("the listed bucket is deleted").await.map(|()| RuleVerdict::Kept)
}
