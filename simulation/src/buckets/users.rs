//! Actions of users and administrators.

use std::sync::Arc;
use std::time::Duration;

use kube_sim::{Cluster, DeleteOptions, PatchKind, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::complications::Complications;
use super::garbled::Garbled;
use super::site::Site;
use super::store::{CONTESTED, SHARED, TAKEN};
use super::world::World;
use super::{NAMESPACE, PROVISIONER, claimed_path, record_of, text};
use crate::process::ProcessEnvironment;

/// The kind of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bucket is created, and deleted with the claim.
    Created,
    /// A bucket is created and retained.
    Retained,
    /// An existing bucket.
    Granted,
    /// A bucket whose name belongs to another owner.
    ForeignBucket,
    /// A Secret with the claim's name exists.
    BlockedBySecret,
    /// Several claims want this bucket.
    Rival,
    /// It points at the ObjectBucket of another claim as its own.
    Pointer,
    /// Another provisioner has created its first bucket.
    Legacy,
    /// It uses the bucket of another claim.
    Sharing,
}

/// The final state of a claim that its user wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The claim whose bucket it uses, and its kind.
    pub(crate) of: Option<(String, Kind)>,
    /// The uid of the existing claim.
    pub(crate) uid: Option<String>,
    /// The names of its Secret and its ConfigMap, if it requests some.
    pub(crate) names: Option<[String; 2]>,
    pub(crate) limit: u64,
    pub(crate) rotations: u32,
    /// An administrator has changed its bucket in the store, or it was restored: its bucket may now belong to another
    /// claim.
    pub(crate) disturbed: bool,
}

impl Wish {
    /// The actual name of its Secret or ConfigMap: the one that its ObjectBucket records, since a bound claim cannot
    /// change it.
    pub(crate) fn delivered_at<'o>(&self, plural: &str, objects: impl IntoIterator<Item = &'o Value>) -> String {
        let path = format!("{NAMESPACE}/{}", self.name);
        let records = objects.into_iter().filter(|object| claimed_path(object) == path).map(record_of);
        let Some(record) = records.into_iter().find(|record| record["made"] == true) else {
            return self.delivered(plural).to_owned();
        };
        let field = if plural == "secrets" { "/delivered/secret" } else { "/delivered/configMap" };
        Some(text(&record, field)).filter(|name| !name.is_empty()).unwrap_or(&self.name).to_owned()
    }

    /// The name that it requests.
    pub(crate) fn delivered(&self, plural: &str) -> &str {
        let [secret, config_map] = self.names.as_ref().map_or([&self.name; 2], |names| names.each_ref());
        if plural == "secrets" { secret } else { config_map }
    }

    /// Its `additionalConfig`. Unreadable content is replaced as a whole.
    fn config(&self) -> Value {
        let mut config = json!({});
        if let Some((other, _)) = &self.of {
            config["bucketClaimName"] = other.as_str().into();
        }
        if let Some([secret, config_map]) = &self.names {
            config["secretName"] = secret.as_str().into();
            config["configMapName"] = config_map.as_str().into();
        }
        config
    }
}

pub(crate) struct Users {
    pub(crate) cluster: Cluster,
    /// The number of the cluster.
    pub(crate) number: usize,
    /// The id of the cluster.
    pub(crate) id: String,
    pub(super) world: Arc<World>,
    random: fastrand::Rng,
    /// Random numbers for actions that occur only with complications.
    pub(super) surprises: fastrand::Rng,
    pub(crate) wishes: Vec<Wish>,
    pub(super) garbled: Vec<Garbled>,
    /// The claim that another provisioner has provisioned.
    pub(super) inherited: Option<String>,
}

const CLASSES: [(&str, Kind); 3] = [("made", Kind::Created), ("kept", Kind::Retained), ("granted", Kind::Granted)];

impl Users {
    pub(crate) fn new(site: &Site, world: &Arc<World>, wishes: Vec<Wish>, random: fastrand::Rng) -> Self {
        let mut users = Self {
            cluster: site.cluster.clone(),
            number: site.number,
            id: site.id.clone(),
            world: world.clone(),
            random,
            surprises: fastrand::Rng::with_seed(world.seed.wrapping_add(site.number as u64)),
            wishes,
            garbled: Vec::new(),
            inherited: None,
        };
        users.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        CLASSES.into_iter().for_each(|(name, kind)| users.class(name, kind));
        for wish in users.wishes.iter().filter(|wish| wish.kind == Kind::BlockedBySecret) {
            users.create(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": wish.name, "namespace": NAMESPACE},
                "stringData": {"mine": "x"},
            }));
        }
        users.inherit();
        users
    }

    /// Acts until the storm ends.
    pub(crate) async fn act(&mut self) {
        let actions = self.random.u32(5..40);
        for _ in 0..actions {
            sleep(Duration::from_millis(self.random.u64(0..6000))).await;
            if self.world.complications.any() && self.surprises.u8(0..3) == 0 {
                self.surprise();
            }
            if self.world.complications.replaced && self.surprises.u8(0..6) == 0 {
                let at = self.surprises.usize(0..self.wishes.len());
                self.replace_claim(at);
            }
            let at = self.random.usize(0..self.wishes.len());
            match self.random.u8(0..20) {
                _ if self.wishes[at].uid.is_none() => self.make(at),
                0..5 => self.remove(at),
                5..8 => self.configure(at),
                8..11 => self.rotate(at),
                11 | 12 => self.delete_delivered("secrets", at),
                13 => self.delete_delivered("configmaps", at),
                14 => self.edit("secrets", at, json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}})),
                15 => self.edit("configmaps", at, json!({"data": {"BUCKET_HOST": "elsewhere"}})),
                16 => self.delete_object(at),
                17 => self.replace_class().await,
                _ => {
                    let label = self.random.u32(..).to_string();
                    self.edit_claim(at, json!({"metadata": {"labels": {"mine": label}}}));
                }
            }
        }
    }

    /// Recreates the classes. If the seed has complications, users also respond to the events.
    pub(crate) async fn settle(&mut self) {
        for (name, kind) in CLASSES {
            self.class(name, kind);
        }
        if self.world.complications.any() {
            self.respond_to_events().await;
        }
    }

    fn make(&mut self, at: usize) {
        self.rename(at);
        let wish = self.wishes[at].clone();
        let kind = wish.of.as_ref().map_or(wish.kind, |(_, kind)| *kind);
        let class = match kind {
            Kind::Retained => "kept",
            Kind::Granted => "granted",
            _ => "made",
        };
        let mut spec = json!({"storageClassName": class, "generateBucketName": "b"});
        if wish.config() != json!({}) {
            spec["additionalConfig"] = wish.config();
        }
        match wish.kind {
            Kind::ForeignBucket => spec["bucketName"] = TAKEN.into(),
            Kind::Rival => spec["bucketName"] = CONTESTED.into(),
            Kind::Pointer => {
                let other = self.surprises.choice(&self.wishes).map(|other| other.name.as_str()).unwrap_or_default();
                spec["objectBucketName"] = format!("obc-{NAMESPACE}-{other}").into();
            }
            _ => {}
        }
        let claim = self.cluster.create(&json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": wish.name, "namespace": NAMESPACE}, "spec": spec,
        }));
        if let Ok(claim) = claim {
            self.made(at, &claim);
            // The bucket of the other claim may have been removed in the store.
            let of = |other: &Wish| wish.of.as_ref().is_some_and(|(name, _)| *name == other.name);
            let disturbed = self.wishes.iter().any(|other| of(other) && other.disturbed);
            (self.wishes[at].limit, self.wishes[at].rotations, self.wishes[at].disturbed) = (0, 0, disturbed);
            self.world.note(|| format!("{} is made", wish.name));
        }
    }

    /// Records that a claim with a new uid exists.
    pub(super) fn made(&mut self, at: usize, claim: &Value) {
        let uid = text(claim, "/metadata/uid").to_owned();
        self.world.ledger().record_created(self.number, &uid);
        self.wishes[at].uid = Some(uid);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let name = self.wishes[at].name.clone();
        self.world.note(|| format!("{name} is deleted"));
        if let Some(uid) = &self.wishes[at].uid {
            self.world.ledger().record_deleted(uid);
            // The claim was just replaced, so it has no finalizer.
            if self.world.complications.replaced && !self.is_held(&name) {
                self.world.ledger().record_lost(uid);
            }
        }
        let target = target("objectbucket.io", "objectbucketclaims", &name);
        let _ = self.cluster.delete(&target, DeleteOptions::default());
        self.wishes[at].uid = None;
    }

    /// Replaces the claim with its manifest, as `kubectl replace` does.
    fn replace_claim(&self, at: usize) {
        let Wish { kind, uid, .. } = &self.wishes[at];
        if uid.is_some() && matches!(kind, Kind::Created | Kind::Retained | Kind::Granted | Kind::Sharing) {
            let metadata = json!({"finalizers": null, "labels": null});
            self.edit_claim(at, json!({"metadata": metadata, "spec": {"objectBucketName": null}}));
        }
    }

    fn is_held(&self, claim: &str) -> bool {
        let claim = self.cluster.get("objectbucket.io", "objectbucketclaims", NAMESPACE, claim);
        claim.is_ok_and(|claim| claim["metadata"]["finalizers"].is_array())
    }

    /// Returns true for leftovers of another provisioner. Users change them only after the controller has adopted them.
    fn is_inherited(&self, at: usize) -> bool {
        let Wish { kind, name, uid, .. } = &self.wishes[at];
        let written = |plural: &str| {
            let object = self.cluster.get("", plural, NAMESPACE, name);
            object.is_ok_and(|object| object["metadata"]["annotations"]["kube-provisioner/checksum"].is_string())
        };
        let recorded = || {
            let object = self.cluster.get("objectbucket.io", "objectbuckets", "", &format!("obc-{NAMESPACE}-{name}"));
            object.is_ok_and(|object| record_of(&object)["made"] == true)
        };
        *kind == Kind::Legacy && uid.is_some() && !(written("secrets") && written("configmaps") && recorded())
    }

    fn configure(&mut self, at: usize) {
        if self.is_inherited(at) {
            return;
        }
        self.wishes[at].limit = self.random.u64(1..100);
        self.rename(at);
        let mut config = self.wishes[at].config();
        config["limit"] = self.wishes[at].limit.to_string().into();
        self.edit_claim(at, json!({"spec": {"additionalConfig": config}}));
    }

    /// Chooses names for Secret and ConfigMap, sometimes their current or former ones.
    fn rename(&mut self, at: usize) {
        let wish = &mut self.wishes[at];
        if self.world.complications.names && !matches!(wish.kind, Kind::BlockedBySecret | Kind::Legacy) {
            wish.names = Some(["s", "m"].map(|kind| match self.surprises.u8(0..3) {
                0 => wish.name.clone(),
                number => format!("{}-{kind}{number}", wish.name),
            }));
        }
    }

    fn rotate(&mut self, at: usize) {
        self.wishes[at].rotations += 1;
        let value = self.wishes[at].rotations.to_string();
        let annotations = json!({"kube-provisioner/rotate-credentials": value});
        self.edit_claim(at, json!({"metadata": {"annotations": annotations}}));
    }

    fn edit_claim(&self, at: usize, patch: Value) {
        let name = &self.wishes[at].name;
        self.world.note(|| format!("{name} is changed: {patch}"));
        let target = target("objectbucket.io", "objectbucketclaims", name);
        let _ = self.cluster.patch(&target, None, PatchKind::Merge, &patch);
    }

    /// Edits only objects that belong to the user.
    fn edit(&self, plural: &str, at: usize, patch: Value) {
        if self.wishes[at].kind != Kind::BlockedBySecret && !self.is_inherited(at) {
            let name = self.delivered(plural, at);
            let _ = self.cluster.patch(&target("", plural, &name), None, PatchKind::Merge, &patch);
        }
    }

    fn delete_delivered(&self, plural: &str, at: usize) {
        if self.wishes[at].kind != Kind::BlockedBySecret {
            let name = self.delivered(plural, at);
            self.world.note(|| format!("{plural}/{name} is deleted"));
            let _ = self.cluster.delete(&target("", plural, &name), DeleteOptions::default());
        }
    }

    pub(super) fn delivered(&self, plural: &str, at: usize) -> String {
        let objects = self.cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default();
        self.wishes[at].delivered_at(plural, &objects)
    }

    /// Deletes the ObjectBucket of a living claim, as an administrator may do.
    pub(super) fn delete_object(&self, at: usize) {
        let name = format!("obc-{NAMESPACE}-{}", self.wishes[at].name);
        self.record_abandonment(&name);
        let target = Target { group: "objectbucket.io", plural: "objectbuckets", namespace: "", name: &name };
        let _ = self.cluster.delete(&target, DeleteOptions::default());
    }

    async fn replace_class(&mut self) {
        let (name, kind) = self.random.choice(CLASSES).unwrap_or(CLASSES[0]);
        self.world.note(|| format!("the class {name} is deleted"));
        let target = Target { group: "storage.k8s.io", plural: "storageclasses", namespace: "", name };
        let _ = self.cluster.delete(&target, DeleteOptions::default());
        sleep(Duration::from_millis(self.random.u64(0..5000))).await;
        self.class(name, kind);
    }

    fn class(&self, name: &str, kind: Kind) {
        let parameters = if kind == Kind::Granted { json!({"bucketName": SHARED}) } else { json!({}) };
        let mut parameters = parameters;
        parameters["credentialsOverlap"] = "20s".into();
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER, "parameters": parameters,
            "reclaimPolicy": if kind == Kind::Retained { "Retain" } else { "Delete" },
        });
        self.create(class);
    }

    fn create(&self, object: Value) {
        let _ = self.cluster.create(&object);
    }
}

/// The claims that users want in all clusters.
pub(crate) fn wishes(complications: Complications, random: &mut fastrand::Rng) -> Vec<Wish> {
    let kinds =
        [Kind::Created, Kind::Created, Kind::Retained, Kind::Granted, Kind::ForeignBucket, Kind::BlockedBySecret];
    let count = random.usize(2..7);
    let wish =
        |name, kind| Wish { name, kind, of: None, uid: None, names: None, limit: 0, rotations: 0, disturbed: false };
    let mut wishes: Vec<Wish> = (0..count)
        .map(|number| wish(format!("claim-{number}"), random.choice(kinds).unwrap_or(Kind::Created)))
        .collect();
    if complications.rivals {
        wishes.extend((0..2).map(|number| wish(format!("rival-{number}"), Kind::Rival)));
    }
    if complications.pointers {
        wishes.push(wish("pointer".to_owned(), Kind::Pointer));
        wishes.push(wish("legacy".to_owned(), Kind::Legacy));
    }
    if complications.shares {
        for number in 0..3 {
            let (other, kind) = (format!("claim-{}", number % 2), wishes[number % 2].kind);
            let name = format!("sharing-{number}");
            wishes.push(Wish { of: Some((other, kind)), ..wish(name, Kind::Sharing) });
        }
    }
    wishes
}

pub(super) fn target<'a>(group: &'a str, plural: &'a str, name: &'a str) -> Target<'a> {
    Target { group, plural, namespace: NAMESPACE, name }
}
