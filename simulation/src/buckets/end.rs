//! What must be so in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use kube_sim::Cluster;
use serde_json::Value;
use tokio::time::sleep;

use super::store::{SHARED, SOMEBODY, TAKEN, secret_of};
use super::users::{Kind, Users};
use super::world::World;
use super::{NAMESPACE, text};
use crate::judge::Invariant;

/// How long it must stay so.
const SILENCE: Duration = Duration::from_secs(40);

/// Waits until everything is as it must be, and stays so.
pub(crate) async fn come(cluster: &Cluster, world: &World, users: &Users, patience: Duration) {
    let limit = world.now() + patience;
    let mut settled = false;
    let mut pause = Duration::from_millis(500);
    loop {
        match unmet(cluster, world, users) {
            None if settled => return,
            None => {
                settled = true;
                sleep(SILENCE).await;
                continue;
            }
            Some((invariant, seen)) if world.now() > limit => return world.accuse(invariant, seen),
            Some(_) => settled = false,
        }
        sleep(pause).await;
        pause = (pause * 5 / 4).min(Duration::from_secs(60));
    }
}

fn unmet(cluster: &Cluster, world: &World, users: &Users) -> Option<(Invariant, String)> {
    let list = |group: &str, plural: &str| cluster.list(group, plural, None).unwrap_or_default();
    let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        objects.into_iter().map(|object| (text(&object, "/metadata/name").to_owned(), object)).collect()
    };
    let claims = by_name(list("objectbucket.io", "objectbucketclaims"));
    let objects = list("objectbucket.io", "objectbuckets");
    let secrets = by_name(list("", "secrets"));
    let maps = by_name(list("", "configmaps"));
    let store = world.store();
    let mut wanted = Vec::new();
    for wish in &users.wishes {
        let claim = claims.get(&wish.name);
        let Some(uid) = &wish.uid else {
            if claim.is_some() {
                return Some((Invariant::Gone, format!("{} is still there", wish.name)));
            }
            if wish.kind != Kind::Hindered && (secrets.contains_key(&wish.name) || maps.contains_key(&wish.name)) {
                return Some((Invariant::Gone, format!("the Secret or ConfigMap of {} is still there", wish.name)));
            }
            continue;
        };
        let Some(claim) = claim else { return Some((Invariant::Untouched, format!("{} is gone", wish.name))) };
        let phase = text(claim, "/status/phase");
        match wish.kind {
            Kind::Greedy => {
                if phase != "Failed" {
                    return Some((Invariant::Bound, format!("{} is {phase:?} instead of refused", wish.name)));
                }
                continue;
            }
            Kind::Hindered => {
                if phase != "Pending" {
                    return Some((
                        Invariant::Bound,
                        format!("{} is {phase:?} although its Secret is another's", wish.name),
                    ));
                }
                // Its bucket is made all the same.
                wanted.push(uid.clone());
                continue;
            }
            _ => {}
        }
        if phase != "Bound" {
            return Some((Invariant::Bound, format!("{} is {phase:?}", wish.name)));
        }
        wanted.push(uid.clone());
        let user = format!("obc-{NAMESPACE}-{}-{uid}", wish.name);
        let Some([key]) = store.users.get(&user).map(Vec::as_slice) else {
            return Some((Invariant::Once, format!("{user} has the keys {:?}", store.users.get(&user))));
        };
        if store.newest.get(&user) != Some(key) {
            return Some((Invariant::Bound, format!("{user} has an older key again")));
        }
        let Some(secret) = secrets.get(&wish.name) else {
            return Some((Invariant::Bound, format!("{} has no Secret", wish.name)));
        };
        let right = encoded(key) == text(secret, "/data/AWS_ACCESS_KEY_ID")
            && encoded(&secret_of(key)) == text(secret, "/data/AWS_SECRET_ACCESS_KEY");
        if !right {
            return Some((Invariant::Bound, format!("the Secret of {} has not the key {key}", wish.name)));
        }
        let bucket = text(claim, "/spec/bucketName");
        let map = maps.get(&wish.name);
        if !map.is_some_and(|map| {
            text(map, "/data/BUCKET_NAME") == bucket && text(map, "/data/BUCKET_HOST") == "store.example.com"
        }) {
            return Some((Invariant::Bound, format!("the ConfigMap of {} is not right", wish.name)));
        }
        let limit = match wish.kind {
            Kind::Granted => store.configs.get(&user),
            _ => store.configs.get(bucket),
        };
        if limit != Some(&wish.limit) {
            return Some((
                Invariant::Bound,
                format!("{} has the limit {limit:?} instead of {}", wish.name, wish.limit),
            ));
        }
        let has = match wish.kind {
            Kind::Granted => store.grants.contains(&(SHARED.to_owned(), user.clone())),
            _ => store.buckets.get(bucket) == Some(&user),
        };
        if !has {
            return Some((Invariant::Bound, format!("{} has no bucket", wish.name)));
        }
    }
    // Nothing is left of others.
    let owned = |owner: &str| wanted.iter().any(|uid| owner.ends_with(uid.as_str()));
    if let Some(user) = store.users.keys().find(|user| !owned(user)) {
        return Some((Invariant::Gone, format!("the user {user} is left")));
    }
    if let Some((_, user)) = store.grants.iter().find(|(_, user)| !owned(user)) {
        return Some((Invariant::Gone, format!("the grant of {user} is left")));
    }
    let kept = |owner: &str| {
        users.wishes.iter().any(|wish| wish.kind == Kind::Kept && owner.contains(&format!("-{}-", wish.name)))
    };
    if let Some((name, owner)) =
        store.buckets.iter().find(|(_, owner)| *owner != SOMEBODY && !owned(owner) && !kept(owner))
    {
        return Some((Invariant::Gone, format!("the bucket {name} of {owner} is left")));
    }
    if [SHARED, TAKEN].iter().any(|name| store.buckets.get(*name).map(String::as_str) != Some(SOMEBODY)) {
        return Some((Invariant::Untouched, "a bucket of somebody else was changed".to_owned()));
    }
    for wish in users.wishes.iter().filter(|wish| wish.kind == Kind::Hindered) {
        let data = secrets.get(&wish.name).and_then(|secret| secret["data"].as_object());
        if data.map(serde_json::Map::len) != Some(1) {
            return Some((Invariant::Untouched, format!("the Secret {} of somebody else was changed", wish.name)));
        }
    }
    let of_claims = |object: &&Value| !wanted.iter().any(|uid| uid == text(object, "/spec/claimRef/uid"));
    objects
        .iter()
        .find(of_claims)
        .map(|object| (Invariant::Gone, format!("the ObjectBucket {} is left", text(object, "/metadata/name"))))
}

/// As data of a Secret.
fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bytes = [chunk[0], chunk.get(1).copied().unwrap_or_default(), chunk.get(2).copied().unwrap_or_default()];
        let number = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) & 63;
            encoded.push(if place <= chunk.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    encoded
}
