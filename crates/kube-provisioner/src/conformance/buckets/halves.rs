//! Rules about buckets and accounts separately: each of the four methods cleans up only after its counterpart.

use super::Subject;
use super::direct::Direct;
use super::fixture::Fixture;
use crate::bucket::BucketAccess;
use crate::conformance::verdict::{Broken, CheckResult, RuleVerdict};

/// Returns a uid that no claim in a simulated cluster has.
fn uid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000d{number:04}")
}

fn direct<'a>(subject: &'a Subject, fixture: &Fixture<'_>, number: u8) -> Result<Direct<'a>, Broken> {
    Direct::new(subject, fixture, Fixture::claim_name(&format!("half-{number}"), &uid(number)))
}

/// Checks a bucket with its own account, and the account of another claim.
pub(super) async fn halves(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-halves";
    let fixture = Fixture::new(subject).await;
    let mut owner = direct(subject, &fixture, 1)?;
    let own = [owner.has_bucket(NAME).await?];
    let alone = (subject.assets)().await;
    if alone == fixture.before {
        return Err(Broken("`create_bucket` succeeds, and the backend has nothing more than before".to_owned()));
    }
    // Repeat the call as the controller would after a crash before it received the answer.
    let mut again = direct(subject, &fixture, 1)?;
    again.has_bucket(NAME).await?;
    fixture.assets("`create_bucket` again", &alone).await?;
    let other = direct(subject, &fixture, 2)?;
    if other.backend.create_bucket(other.claim.request(NAME)).await.is_ok() {
        return Err(Broken("`create_bucket` answers with the bucket of another claim".to_owned()));
    }
    fixture.assets("`create_bucket` of another claim", &alone).await?;
    other.has_no_bucket(NAME).await?;
    fixture.assets("`delete_bucket` of another claim", &alone).await?;
    guests(subject, &fixture, &own).await?;
    // The bucket outlives its own account and is deleted afterwards.
    if !owner.is_granted(&own).await? {
        return Err(Broken("`grant` refuses the claim's own bucket".to_owned()));
    }
    owner.is_revoked(&own).await?;
    let kept = (subject.assets)().await;
    owner.has_no_bucket(NAME).await?;
    fixture.as_before("`revoke` and `delete_bucket`").await?;
    if kept == fixture.before {
        return Err(Broken("`revoke` removes the bucket".to_owned()));
    }
    // The opposite order, which the controller uses.
    let mut owner = direct(subject, &fixture, 3)?;
    let own = [owner.has_bucket(NAME).await?];
    if !owner.is_granted(&own).await? {
        return Err(Broken("`grant` refuses the claim's own bucket".to_owned()));
    }
    owner.has_no_bucket(NAME).await?;
    owner.is_revoked(&own).await?;
    fixture.as_before("`delete_bucket` and `revoke`").await?;
    // A claim may be deleted before it received access.
    let mut owner = direct(subject, &fixture, 4)?;
    owner.has_bucket(NAME).await?;
    owner.has_no_bucket(NAME).await?;
    fixture.as_before("`delete_bucket` before any `grant`").await.map(|()| RuleVerdict::Kept)
}

/// Grants and revokes accounts of other claims, if the provisioner accepts them. The first one may leave assets of the
/// bucket behind.
async fn guests(subject: &Subject, fixture: &Fixture<'_>, buckets: &[BucketAccess]) -> Result<(), Broken> {
    let (mut first, mut second) = (direct(subject, fixture, 2)?, direct(subject, fixture, 5)?);
    if !first.is_granted(buckets).await? {
        return Ok(());
    }
    first.is_revoked(buckets).await?;
    let without = (subject.assets)().await;
    if !second.is_granted(buckets).await? {
        return Err(Broken(
            "`grant` gives one account access, and refuses another one after the first account is removed".to_owned(),
        ));
    }
    if (subject.assets)().await == without {
        return Err(Broken("`grant` succeeds, and the backend has nothing more than before".to_owned()));
    }
    second.is_revoked(buckets).await?;
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
    let buckets = [first.has_bucket(NAMES[0]).await?, second.has_bucket(NAMES[1]).await?];
    let mut other = direct(subject, &fixture, 8)?;
    if !other.is_granted(&buckets).await? {
        return Err(Broken("`grant` refuses the bucket of another claim, and so several of them".to_owned()));
    }
    let without = (subject.assets)().await;
    // Simulates a crash: an earlier call only completed the first bucket.
    user.is_granted(&buckets[..1]).await?;
    let (in_one, key) = ((subject.assets)().await, user.key().map(str::to_owned));
    user.is_granted(&buckets).await?;
    let in_both = (subject.assets)().await;
    if in_both == in_one {
        return Err(Broken("a grant for two buckets leaves no more in the backend than one for the first".to_owned()));
    }
    if user.key() != key.as_deref() {
        return Err(Broken("the account has another key since it received access to another bucket".to_owned()));
    }
    user.is_granted(&buckets).await?;
    fixture.assets("`grant` again", &in_both).await?;
    // A refused account keeps its access.
    let missing = BucketAccess::new(NAMES[2], Some(other.claim.account()));
    if user.backend.grant(user.claim.grant(vec![missing])).await.is_ok() {
        return Err(Broken("`grant` gives an account access to a bucket that does not exist".to_owned()));
    }
    fixture.assets("`grant` for a bucket that does not exist", &in_both).await?;
    // Deleting a bucket does not affect accounts of other buckets.
    let mut third = direct(subject, &fixture, 9)?;
    third.has_bucket(NAMES[2]).await?;
    third.has_no_bucket(NAMES[2]).await?;
    fixture.assets("a third bucket has come and gone", &in_both).await?;
    user.is_revoked(&buckets).await?;
    fixture.assets("`revoke` after `grant` for two buckets", &without).await?;
    other.is_revoked(&buckets).await?;
    for (owner, name) in [(first, NAMES[0]), (second, NAMES[1])] {
        owner.has_no_bucket(name).await?;
    }
    fixture.as_before("the buckets are deleted").await.map(|()| RuleVerdict::Kept)
}

/// Checks the keys of an account, next to another account of the same bucket.
pub(super) async fn keys(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-keys";
    let fixture = Fixture::new(subject).await;
    let mut owner = direct(subject, &fixture, 10)?;
    let own = [owner.has_bucket(NAME).await?];
    if !owner.is_granted(&own).await? {
        return Err(Broken("`grant` refuses the claim's own bucket".to_owned()));
    }
    let first = owner.key().unwrap_or_default().to_owned();
    let can_list = owner.lists_keys(&own, &[&first]).await?;
    if can_list {
        let mut guest = direct(subject, &fixture, 11)?;
        if guest.is_granted(&own).await? {
            guest.lists_keys(&own, &[guest.key().unwrap_or_default()]).await?;
            owner.lists_keys(&own, &[&first]).await?;
            guest.is_revoked(&own).await?;
        }
        if owner.backend.capabilities().rotation {
            owner.rotates(&own).await?;
            let second = owner.key().unwrap_or_default().to_owned();
            owner.lists_keys(&own, &[&first, &second]).await?;
            owner.retires(&own).await?;
            owner.lists_keys(&own, &[&second]).await?;
        }
    }
    owner.has_no_bucket(NAME).await?;
    owner.is_revoked(&own).await?;
    owner.lists_keys(&own, &[]).await?;
    fixture.as_before("`delete_bucket` and `revoke`").await?;
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
    let own = [owner.has_bucket(NAME).await?];
    owner.is_granted(&own).await?;
    owner.lists_bucket(NAME).await?;
    owner.has_no_bucket(NAME).await?;
    owner.is_revoked(&own).await?;
    fixture.as_before("the listed bucket is deleted").await.map(|()| RuleVerdict::Kept)
}
