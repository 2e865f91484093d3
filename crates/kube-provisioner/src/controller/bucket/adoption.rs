//! Adopts a bucket that another provisioner created, or assigns a restored bucket to a claim. Nothing changes in the
//! backend, and the Secret and ConfigMap stay unchanged.

use super::BucketReconciler;
use super::delivered_names::without_names;
use super::facts::{ClaimFacts, Delivered, Facts};
use super::outcome::{Done, Outcome, Stopped};
use super::record::{Record, Source};

pub(super) async fn adopt(BucketReconciler { objects, rules, .. }: &BucketReconciler, facts: &Facts) -> Outcome {
    let (Some(claim), Some(bucket)) = (&facts.claim, facts.bucket()) else { return Err(Stopped::Changed) };
    // The ownership mark in the backend names the claim that the bucket was created for, even if an administrator
    // created it.
    let former = bucket.claim().map(|former| former.uid).filter(|uid| !uid.is_empty() && **uid != *claim.uid);
    let record = match bucket.record() {
        Some(record) => {
            // A rotation may have been interrupted, and the new claim does not request it.
            let knows_key = rules.capabilities.rotation && record.access_key_id.is_some();
            let now = knows_key.then(|| objects.now().to_string());
            Record {
                claim: Some(claim.name()),
                made_for_uid: record.made_for_uid.clone().or(former),
                retire_at: record.retire_at.clone().or(now),
                assigned: true,
                ..record.clone()
            }
        }
        None => {
            let access_key_id = match facts.secret {
                Delivered::Intact => {
                    let cache = objects.cache();
                    let [secret, _] = cache.delivered(&claim.namespace, &facts.names);
                    secret.and_then(|secret| secret.access_key_id.as_deref().map(str::to_owned))
                }
                _ => None,
            };
            Record { made_for_uid: former, access_key_id, ..unrecorded(claim, facts) }
        }
    };
    if bucket.is_given_to(claim) {
        objects.prepare_claim(claim, &bucket.name, Some(&bucket.endpoint.bucket)).await?;
        objects.assign_bucket(bucket, &record, claim).await?;
    } else {
        objects.write_bucket(bucket, &record, None).await?;
    }
    Ok(Done::Adopted)
}

/// Returns the record of a bucket that another provisioner has created for this claim.
pub(super) fn unrecorded(claim: &ClaimFacts, facts: &Facts) -> Record {
    let class = facts.class.ours();
    Record {
        source: class.map_or(Source::Unknown, |class| class.source()),
        claim: Some(claim.name()),
        parameters: class.map(|class| without_names(&class.texts)),
        config: claim.config.clone(),
        made: true,
        rotation: claim.rotation.as_deref().map(str::to_owned),
        ..Record::default()
    }
}
