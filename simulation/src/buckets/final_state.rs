//! The state that every run must reach in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::store::{BucketOwner, SHARED, TAKEN, number_of, secret_of, uid_of};
use super::users::{Kind, Users, Wish};
use super::world::World;
use super::{ADOPT_FOR, CLUSTER_ID, NAMESPACE, claimed_path, claimed_uid, encoded, record_of, text};
use crate::judge::Invariant;
use crate::process::ProcessEnvironment;

/// The time for which this state must last.
const SILENCE: Duration = Duration::from_secs(40);

/// An invariant that does not hold.
type Unmet = (Invariant, String);

/// Waits until the final state is reached and lasts.
pub(crate) async fn until_settled(world: &World, users: &[Users], patience: Duration) {
    let limit = world.now() + patience;
    let mut settled = false;
    let mut pause = Duration::from_millis(500);
    loop {
        match unmet(world, users) {
            Ok(()) if settled => return,
            Ok(()) => {
                settled = true;
                sleep(SILENCE).await;
                continue;
            }
            Err((invariant, seen)) if world.now() > limit => return world.report_violation(invariant, seen),
            Err(_) => settled = false,
        }
        sleep(pause).await;
        pause = (pause * 5 / 4).min(Duration::from_secs(60));
    }
}

fn unmet(world: &World, users: &[Users]) -> Result<(), Unmet> {
    let mut wanted = BTreeSet::new();
    for users in users {
        let view = ClusterView::of(users, world);
        for wish in &users.wishes {
            view.check(wish, &mut wanted)?;
        }
    }
    for users in users {
        ClusterView::of(users, world).check_objects(&wanted)?;
    }
    check_store(world, users, &wanted)
}

/// Checks that every claim that waits, or ObjectBucket without a claim, has an event with the reason.
pub(crate) fn check_reasons_reported(world: &World, users: &Users) {
    // The API server may have refused the event.
    if world.complications.refusals {
        return;
    }
    let view = ClusterView::of(users, world);
    let without_reason = |object: &&Value| !view.has_reason(object);
    let waiting = view.claims.values().filter(|claim| text(claim, "/status/phase") != "Bound").find(without_reason);
    let left = view.objects.iter().filter(|object| view.is_orphaned(object)).find(without_reason);
    if let Some(object) = waiting.or(left) {
        let seen = format!("{} waits, and no event has said why so far", text(object, "/metadata/name"));
        world.report_violation(Invariant::Bound, seen);
    }
}

/// One cluster at this moment.
struct ClusterView<'a> {
    world: &'a World,
    users: &'a Users,
    claims: BTreeMap<String, Value>,
    secrets: BTreeMap<String, Value>,
    maps: BTreeMap<String, Value>,
    objects: Vec<Value>,
    events: Vec<Value>,
}

impl<'a> ClusterView<'a> {
    fn of(users: &'a Users, world: &'a World) -> Self {
        let list = |group: &str, plural: &str| users.cluster.list(group, plural, None).unwrap_or_default();
        let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
            objects.into_iter().map(|object| (text(&object, "/metadata/name").to_owned(), object)).collect()
        };
        Self {
            world,
            users,
            claims: by_name(list("objectbucket.io", "objectbucketclaims")),
            secrets: by_name(list("", "secrets")),
            maps: by_name(list("", "configmaps")),
            objects: list("objectbucket.io", "objectbuckets"),
            events: list("", "events"),
        }
    }

    /// Checks the objects of one claim. Collects the claims that their buckets were created for.
    fn check(&self, wish: &Wish, wanted: &mut BTreeSet<String>) -> Result<(), Unmet> {
        let Wish { name, kind, .. } = wish;
        let claim = self.claims.get(name);
        if wish.uid.is_none() {
            // The claim points at an ObjectBucket that does not name it, and no annotation assigns the ObjectBucket to
            // the claim. Check the event, because older definitions have no conditions.
            let waits = |event: &Value| text(event, "/message").contains("that ObjectBucket does not name the claim");
            match claim {
                Some(claim) if self.events_of(claim).any(waits) => return Ok(()),
                Some(claim) if self.is_in_use(claim) => {
                    wanted.insert(self.origin(claim));
                    return Ok(());
                }
                Some(_) => return Err((Invariant::Gone, format!("{name} is still there"))),
                None => {}
            }
            // An object restored for a claim that was deleted before it was reconciled has no owner.
            let is_owned = |object: &Value| object["metadata"]["ownerReferences"].is_array();
            let is_left = self.secrets.get(wish.delivered("secrets")).is_some_and(is_owned)
                || self.maps.get(wish.delivered("configmaps")).is_some_and(is_owned);
            if *kind != Kind::BlockedBySecret && is_left {
                return Err((Invariant::Gone, format!("the Secret or ConfigMap of {name} is still there")));
            }
            return Ok(());
        }
        let Some(claim) = claim else { return Err((Invariant::Untouched, format!("{name} is gone"))) };
        let phase = text(claim, "/status/phase");
        let origin = self.origin(claim);
        let excused = || wish.disturbed || self.may_wait(wish, claim, &origin) && self.has_reason(claim);
        match kind {
            Kind::ForeignBucket if phase == "Failed" => return Ok(()),
            Kind::ForeignBucket if !excused() => {
                return Err((Invariant::Bound, format!("{name} is {phase:?} instead of refused")));
            }
            Kind::BlockedBySecret => {
                // Its bucket is created nevertheless.
                wanted.insert(origin);
                if phase != "Pending" && !wish.disturbed {
                    let seen = format!("{name} is {phase:?} although its Secret is another's");
                    return Err((Invariant::Bound, seen));
                }
                return Ok(());
            }
            _ => {}
        }
        if self.may_wait(wish, claim, &origin) || phase != "Bound" && self.is_blocked(wish, claim) {
            let of_claim = self.objects.iter().filter(|object| claimed_uid(object) == origin);
            let records: Vec<Value> = of_claim.map(record_of).collect();
            let is_served = phase == "Bound" || records.iter().any(|record| record["made"] == true);
            if !is_served && !self.has_reason(claim) {
                return Err((Invariant::Bound, format!("{name} waits, and no event says why")));
            }
            // An attempt for a missing bucket continues with the objects that it has.
            if is_served || records.iter().any(|record| record["owner"].is_object()) {
                wanted.insert(origin);
            }
            return Ok(());
        }
        if phase != "Bound" {
            return Err((Invariant::Bound, format!("{name} is {phase:?}")));
        }
        self.check_bound(wish, claim, &origin)?;
        wanted.insert(origin);
        Ok(())
    }

    /// Checks that a bound claim has a key, and that its Secret and ConfigMap contain it.
    fn check_bound(&self, wish: &Wish, claim: &Value, origin: &str) -> Result<(), Unmet> {
        let Wish { name, kind, limit, .. } = wish;
        if claim["metadata"]["finalizers"].is_null() || text(claim, "/spec/objectBucketName").is_empty() {
            return Err((Invariant::Bound, format!("{name} has lost its finalizer or its ObjectBucket's name")));
        }
        let store = self.world.store();
        let user = format!("obc-{NAMESPACE}-{name}-{origin}");
        let keys = store.users.get(&user).map(Vec::as_slice).unwrap_or_default();
        // After the ObjectBucket was lost, earlier keys and names are unknown. An object with such a name is deleted
        // with the claim.
        let forgotten = self.world.ledger().entry(origin).is_some_and(|entry| entry.has_unknown_keys);
        // A change that the store refuses is applied before former keys are removed.
        let bucket = text(claim, "/spec/bucketName");
        let is_granted = matches!(kind, Kind::Granted | Kind::Sharing);
        let applied = if is_granted { store.configs.get(&user) } else { store.configs.get(bucket) };
        let is_refused = *kind == Kind::Sharing && wish.disturbed && applied != Some(limit);
        let may_have_several = forgotten || is_refused;
        let (Some(key), true) = (keys.last(), keys.len() <= 1 || may_have_several) else {
            return Err((Invariant::Once, format!("{user} has the keys {keys:?}")));
        };
        // A claim that has received another claim's bucket may lack a key whose creation had no answer.
        let is_own = wish.uid.as_deref() == Some(origin);
        if is_own && !forgotten && store.rotated.get(&user).is_some_and(|rotated| number_of(key) < *rotated) {
            return Err((Invariant::Bound, format!("{user} has an older key again")));
        }
        let Some(secret) = self.secrets.get(&wish.delivered_at("secrets", &self.objects)) else {
            return Err((Invariant::Bound, format!("{name} has no Secret")));
        };
        let is_in = |key: &String| {
            encoded(key) == text(secret, "/data/AWS_ACCESS_KEY_ID")
                && encoded(&secret_of(key)) == text(secret, "/data/AWS_SECRET_ACCESS_KEY")
        };
        if !keys.iter().any(is_in) {
            return Err((Invariant::Bound, format!("the Secret of {name} has not the key {key}")));
        }
        let map = self
            .maps
            .get(&wish.delivered_at("configmaps", &self.objects))
            .map(|map| &map["data"])
            .unwrap_or(&Value::Null);
        if map["BUCKET_NAME"] != bucket || map["BUCKET_HOST"] != "store.example.com" {
            return Err((Invariant::Bound, format!("the ConfigMap of {name} has {map} about the bucket {bucket}")));
        }
        // A change of the limit is refused while the bucket does not exist.
        if applied != Some(limit) && !is_refused {
            return Err((Invariant::Bound, format!("{name} has the limit {applied:?} instead of {limit}")));
        }
        let has = match kind {
            Kind::Granted => store.grants.contains(&(SHARED.to_owned(), user.clone())),
            Kind::Sharing => store.grants.contains(&(bucket.to_owned(), user.clone())),
            _ => self.owns(store.buckets.get(bucket), &user),
        };
        if has { Ok(()) } else { Err((Invariant::Bound, format!("{name} has no bucket"))) }
    }

    /// Returns true if something that the controller cannot change keeps the claim from its desired state.
    fn may_wait(&self, wish: &Wish, claim: &Value, origin: &str) -> bool {
        let path = format!("{NAMESPACE}/{}", wish.name);
        // The ObjectBucket of another claim with this name, or one that the claim points at and that names no claim.
        let pointed = text(claim, "/spec/objectBucketName");
        let former = |object: &Value| match &*claimed_uid(object) {
            "" => text(object, "/metadata/name") == pointed,
            uid => claimed_path(object) == path && uid != origin,
        };
        if self.objects.iter().any(former) {
            return true;
        }
        let name = text(claim, "/spec/bucketName");
        if let Some((other, kind)) = &wish.of {
            // The claim has lost its ObjectBucket and still names the bucket of the former claim.
            let names_another = self.claims.get(other).is_some_and(|other| text(other, "/spec/bucketName") != name);
            return wish.disturbed || names_another || !self.has_bucket_to_share(other, *kind);
        }
        let store = self.world.store();
        let mark = store.buckets.get(name);
        let user = format!("obc-{NAMESPACE}-{}-{origin}", wish.name);
        let by_hand = self.world.ledger().by_hand.contains(name);
        // A claim that is restored in the other cluster also names the bucket.
        let restored = self.world.complications.restore && self.world.complications.second_cluster;
        let contested = wish.kind == Kind::Rival || wish.disturbed || by_hand || restored;
        wish.kind != Kind::Granted && contested && !self.owns(mark, &user)
    }

    /// Returns true if a Secret or ConfigMap that was restored for another claim has the same name as this claim's. A
    /// user must delete it.
    fn is_blocked(&self, wish: &Wish, claim: &Value) -> bool {
        let is_foreign = |object: &&Value| object["metadata"]["ownerReferences"][0]["uid"] != claim["metadata"]["uid"];
        let delivered = [self.secrets.get(wish.delivered("secrets")), self.maps.get(wish.delivered("configmaps"))];
        self.world.complications.restore && delivered.into_iter().flatten().any(|object| is_foreign(&object))
    }

    /// The claim that a claim's bucket was created for. If a claim took over an unfinished attempt, it has ended that
    /// attempt, and its bucket was created for itself.
    fn origin(&self, claim: &Value) -> String {
        let own = text(claim, "/metadata/uid");
        let has_own = self.objects.iter().any(|object| claimed_uid(object) == own);
        if has_own { own.to_owned() } else { self.world.ledger().origin(own).to_owned() }
    }

    /// Returns true if a claim has a bucket, created for it, that other claims may use.
    fn has_bucket_to_share(&self, name: &str, kind: Kind) -> bool {
        let Some(claim) = self.claims.get(name).filter(|_| matches!(kind, Kind::Created | Kind::Retained)) else {
            return false;
        };
        let origin = self.origin(claim);
        let lives = |object: &&Value| object["metadata"]["deletionTimestamp"].is_null();
        let has_object = self.objects.iter().filter(lives).any(|object| claimed_uid(object) == origin);
        let user = format!("obc-{NAMESPACE}-{name}-{origin}");
        let is_its = self.owns(self.world.store().buckets.get(text(claim, "/spec/bucketName")), &user);
        has_object && is_its && lives(&claim) && text(claim, "/status/phase") == "Bound"
    }

    /// Returns true if a claim that is being deleted waits for other users of its bucket, and an event reports it.
    fn is_in_use(&self, claim: &Value) -> bool {
        let origin = self.origin(claim);
        let uses = |object: &Value| text(&record_of(object), "/owner/uid") == origin;
        self.objects.iter().any(uses) && self.events_of(claim).any(reports_use)
    }

    fn owns(&self, mark: Option<&BucketOwner>, by: &str) -> bool {
        matches!(mark, Some(BucketOwner::Ours { cluster, user }) if ["", &self.users.id].contains(&&**cluster) && user == by)
    }

    /// Returns true if an ObjectBucket names a claim that does not exist.
    fn is_orphaned(&self, object: &Value) -> bool {
        let uid = claimed_uid(object);
        let ledger = self.world.ledger();
        let lives = self.claims.values().any(|claim| ledger.origin(text(claim, "/metadata/uid")) == uid);
        !uid.is_empty() && !lives && object["metadata"]["deletionTimestamp"].is_null()
    }

    /// Returns true if the events of the object contain a reason.
    fn has_reason(&self, object: &Value) -> bool {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let says = |condition: &Value| condition["type"] == "Ready" && !text(condition, "/message").is_empty();
        conditions.iter().any(says) || self.has_event(object)
    }

    fn has_event(&self, object: &Value) -> bool {
        self.events_of(object).next().is_some()
    }

    fn events_of<'b>(&'b self, object: &'b Value) -> impl Iterator<Item = &'b Value> {
        let uid = text(object, "/metadata/uid");
        self.events.iter().filter(move |event| text(event, "/involvedObject/uid") == uid)
    }

    /// Checks that every ObjectBucket represents an existing claim, or that an event reports why it remains.
    fn check_objects(&self, wanted: &BTreeSet<String>) -> Result<(), Unmet> {
        for object in &self.objects {
            let (name, uid) = (text(object, "/metadata/name"), claimed_uid(object));
            let cluster = object["metadata"]["annotations"][CLUSTER_ID].as_str();
            let of_another = cluster.is_some_and(|cluster| cluster != self.users.id);
            if wanted.contains(&uid) && !of_another {
                continue;
            }
            // The ObjectBucket names no claim, and no claim points at it any longer; or its claim waits, and an event
            // reports the reason.
            let lives = self.users.wishes.iter().any(|wish| wish.uid.as_deref() == Some(uid.as_str()));
            if uid.is_empty() || lives {
                continue;
            }
            let entry = self.world.ledger().entry(&uid);
            let may_stay = of_another || entry.is_none_or(|entry| entry.lost || entry.forgotten);
            // After its claim was deleted, it may have been restored from a backup, or created by a late request.
            let came_late = self.world.complications.restore || self.world.complications.late > 0.0;
            if !may_stay && !came_late {
                return Err((Invariant::Gone, format!("the ObjectBucket {name} is left")));
            }
            if !self.has_event(object) {
                return Err((Invariant::Gone, format!("the ObjectBucket {name} is left, and no event says why")));
            }
            let path = claimed_path(object);
            let waits = self.users.wishes.iter().any(|wish| {
                wish.uid.is_some() && path == format!("{NAMESPACE}/{}", wish.name) && wish.kind != Kind::BlockedBySecret
            });
            let names_it = |event: &Value| text(event, "/message").contains(ADOPT_FOR);
            if waits && !of_another && !self.events_of(object).any(reports_use) && !self.events.iter().any(names_it) {
                return Err((Invariant::Gone, format!("no event says how the claim of {path} gets {name}")));
            }
        }
        for wish in self.users.wishes.iter().filter(|wish| wish.kind == Kind::BlockedBySecret) {
            let data = self.secrets.get(&wish.name).and_then(|secret| secret["data"].as_object());
            if data.map(serde_json::Map::len) != Some(1) {
                let seen = format!("the foreign Secret {} was changed", wish.name);
                return Err((Invariant::Untouched, seen));
            }
        }
        Ok(())
    }

    /// Returns true if an ObjectBucket of this cluster represents the backend state of the claim. An ObjectBucket of
    /// another provisioner may name no claim if the definitions drop the reference.
    fn represents(&self, user: &str, uid: &str) -> bool {
        self.objects.iter().any(|object| match &*claimed_uid(object) {
            "" => user.starts_with(text(object, "/metadata/name")),
            claimed => claimed == uid,
        })
    }
}

/// Returns true if the event reports that others use the bucket of a deleted claim.
fn reports_use(event: &Value) -> bool {
    text(event, "/message").contains("which use it, are deleted")
}

/// Checks that the store contains no leftovers of deleted claims, unless no user has requested their removal.
fn check_store(world: &World, users: &[Users], wanted: &BTreeSet<String>) -> Result<(), Unmet> {
    let views: Vec<ClusterView<'_>> = users.iter().map(|users| ClusterView::of(users, world)).collect();
    let store = world.store();
    // A user's name ends with the uid of its claim.
    let may_stay = |user: &str| {
        let uid = uid_of(user);
        let Some(entry) = world.ledger().entry(uid) else { return false };
        let recorded = views[entry.cluster].represents(user, uid);
        wanted.contains(uid) || entry.forgotten || recorded && (entry.lost || world.complications.restore)
    };
    if let Some(user) = store.users.keys().find(|user| !may_stay(user)) {
        return Err((Invariant::Gone, format!("the user {user} is left")));
    }
    // The former ObjectBucket of the user's claim may have named another bucket.
    let is_unknown = |user: &str| world.ledger().entry(uid_of(user)).is_some_and(|entry| entry.has_unknown_keys);
    if let Some((_, user)) = store.grants.iter().find(|(_, user)| !may_stay(user) && !is_unknown(user)) {
        return Err((Invariant::Gone, format!("the grant of {user} is left")));
    }
    let kept = |user: &str| {
        let wishes = || users.iter().flat_map(|users| &users.wishes);
        // Without its class it is unknown whether the leftovers of another provisioner may be removed.
        let stays = |wish: &Wish| matches!(wish.kind, Kind::Retained | Kind::Legacy);
        wishes().any(|wish| stays(wish) && user.contains(&format!("-{}-", wish.name)))
    };
    for (name, mark) in &store.buckets {
        if let BucketOwner::Ours { user, .. } = mark
            && !may_stay(user)
            && !kept(user)
        {
            return Err((Invariant::Gone, format!("the bucket {name} of {user} is left")));
        }
    }
    let ledger = world.ledger();
    let theirs = [SHARED, TAKEN].into_iter().chain(ledger.by_hand.iter().map(String::as_str));
    for name in theirs {
        if store.buckets.get(name) != Some(&BucketOwner::Foreign) {
            return Err((Invariant::Untouched, format!("the foreign bucket {name} was changed")));
        }
    }
    Ok(())
}
