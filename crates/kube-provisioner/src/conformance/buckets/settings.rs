//! A rule about settings: access modes and limits that the provisioner's types accept must have an effect.

use tokio::time::{Instant, sleep};

use super::Subject;
use super::direct::{Direct, Place};
use super::fixture::Fixture;
use crate::bucket::BucketAccess;
use crate::conformance::verdict::{CheckResult, RuleVerdict, Violation};

const BUCKET: &str = "conformance-settings";
/// The time in which the list must show a setting, in steps.
const PATIENCE: u32 = 25;

#[derive(Clone, Copy)]
struct Setting<'k> {
    place: Place,
    key: &'k str,
    value: &'static str,
}

/// The account that the setting applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SettingOwner {
    /// The account of the claim that the bucket was created for.
    Owner,
    /// The account of another claim.
    Guest,
}

pub(super) async fn settings(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let backend = (subject.start)(fixture.cluster.client("kit"));
    let [class, claim] = backend.keys().map(Option::unwrap_or_default);
    let keys = [(Place::Class, class), (Place::Claim, claim)];
    let keys = keys.into_iter().flat_map(|(place, keys)| keys.iter().map(move |key| (place, *key)));
    let of_buckets = backend.capabilities().bucket_settings;
    let check = Check { subject, fixture };
    let mut seen = 0;
    for owner_kind in [SettingOwner::Owner, SettingOwner::Guest] {
        let mut plain = None;
        for (place, key) in keys.clone() {
            // Only the claim that the bucket was created for can change its settings.
            if owner_kind == SettingOwner::Guest && of_buckets.iter().any(|setting| setting == key) {
                continue;
            }
            let mut ignored = None;
            for value in check.values(place, key)? {
                if plain.is_none() {
                    plain = Some(check.plain(owner_kind).await?);
                }
                let Some(Some(plain)) = &plain else { break };
                match check.listed(owner_kind, Some(Setting { place, key, value }), plain).await? {
                    // A refused setting is not ignored.
                    None => {}
                    Some(list) if list == *plain => ignored = ignored.or(Some(value)),
                    Some(_) => {
                        seen += 1;
                        ignored = None;
                        break;
                    }
                }
            }
            if let Some(value) = ignored {
                return Err(Violation(ignores(owner_kind, place, key, value)));
            }
        }
    }
    Ok(match seen {
        0 => RuleVerdict::NotApplicable("the author's types have no access mode and no limit".to_owned()),
        _ => RuleVerdict::Kept,
    })
}

fn ignores(owner_kind: SettingOwner, place: Place, key: &str, value: &str) -> String {
    let place = if place == Place::Class { "the class" } else { "additionalConfig" };
    let owner_kind = if owner_kind == SettingOwner::Owner {
        "a claim with a bucket of its own"
    } else {
        "a claim on another claim's bucket"
    };
    format!(
        "`{key}: {value}` in {place} is accepted for {owner_kind} and changes nothing that the list of assets shows: apply it or refuse it, \
         and list permissions and limits, such as `key K may read B` and `B holds at most 1Gi`"
    )
}

struct Check<'a> {
    subject: &'a Subject,
    fixture: Fixture<'a>,
}

impl Check<'_> {
    /// Returns access modes and limits that the key accepts. Returns none for a key that accepts any text, such as a
    /// name.
    fn values(&self, place: Place, key: &str) -> Result<Vec<&'static str>, Violation> {
        let takes = |value| Ok(self.claim(Some(Setting { place, key, value }))?.is_some());
        // A region has the form of `some-name`.
        if takes("anything")? || takes("some-name")? {
            return Ok(Vec::new());
        }
        let lower = key.to_lowercase();
        let is_limit = ["max", "limit", "quota"].iter().any(|part| lower.contains(part));
        let values = ["read-only", "1Gi"].into_iter().chain(is_limit.then_some("1000"));
        let mut taken = Vec::new();
        for value in values {
            if takes(value)? {
                taken.push(value);
            }
        }
        Ok(taken)
    }

    /// Returns the claim with a setting, or `None` if the provisioner's types reject it.
    fn claim(&self, setting: Option<Setting<'_>>) -> Result<Option<Direct<'_>>, Violation> {
        let name = Fixture::claim_name("settings", "00000000-0000-4000-8000-0000000d0012");
        let claim = Direct::new(self.subject, &self.fixture, name)?;
        Ok(match setting {
            Some(Setting { place, key, value }) => claim.with_setting(place, key, value),
            None => Some(claim),
        })
    }

    /// Returns the list without any setting, or `None` if the provisioner refuses foreign accounts.
    async fn plain(&self, owner_kind: SettingOwner) -> Result<Option<Vec<String>>, Violation> {
        let Some(list) = self.listed(owner_kind, None, &[]).await? else { return Ok(None) };
        // Ids that are new each time would look like an effect.
        let (start, mut again) = (Instant::now(), None);
        while again.as_ref() != Some(&list) {
            if start.elapsed() > self.subject.tempo.limit() {
                return Err(Violation(format!(
                    "the list of a bucket differs after the same claim has created it again: leave out ids that the \
                     backend chooses, or return them as `state`; first {list:?}, then {again:?}"
                )));
            }
            again = self.listed(owner_kind, None, &[]).await?;
        }
        Ok(Some(list))
    }

    /// Returns the backend's list with a bucket and the claim's access to it, once it differs from `plain`. Returns
    /// `None` if the provisioner refuses.
    async fn listed(
        &self,
        owner_kind: SettingOwner,
        setting: Option<Setting<'_>>,
        plain: &[String],
    ) -> Result<Option<Vec<String>>, Violation> {
        let Some(mut claim) = self.claim(setting)? else { return Ok(None) };
        let name = Fixture::claim_name("settings-owner", "00000000-0000-4000-8000-0000000d0013");
        let mut owner = Direct::new(self.subject, &self.fixture, name)?;
        let has_bucket = match owner_kind {
            SettingOwner::Owner => claim.try_provision(BUCKET, None).await,
            SettingOwner::Guest => {
                let own = [owner.create_bucket(BUCKET).await?];
                owner.grant(&own).await?
            }
        };
        let access = |claim: &Direct<'_>| -> [BucketAccess; 1] {
            [if owner_kind == SettingOwner::Owner { claim.claim.own(BUCKET) } else { owner.claim.own(BUCKET) }]
        };
        let list = if has_bucket && claim.try_provision(BUCKET, Some(&access(&claim))).await {
            // A warning informs the user as well as a refusal does.
            let mut list = self.other_than(plain, |line| claim.with_names(&owner.with_names(line))).await;
            list.extend(claim.warning.take());
            Some(list)
        } else {
            None
        };
        claim.revoke(&access(&claim)).await?;
        match owner_kind {
            SettingOwner::Owner => claim.delete_bucket(BUCKET).await?,
            SettingOwner::Guest => {
                owner.delete_bucket(BUCKET).await?;
                owner.revoke(&[owner.claim.own(BUCKET)]).await?;
            }
        }
        self.fixture.wait_for_initial_assets("the bucket with a setting is deleted").await?;
        Ok(list)
    }

    /// Returns the list once it differs from `plain`, or after a time limit.
    async fn other_than(&self, plain: &[String], named: impl Fn(&str) -> String) -> Vec<String> {
        let mut left = PATIENCE;
        loop {
            let list: Vec<String> = (self.subject.assets)().await.iter().map(|line| named(line)).collect();
            if list != plain || left == 0 {
                return list;
            }
            left -= 1;
            sleep(self.subject.tempo.step()).await;
        }
    }
}
