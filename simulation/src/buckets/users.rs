//! What users and administrators do.

use std::sync::Arc;
use std::time::Duration;

use kube_sim::{Cluster, DeleteOptions, PatchKind, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::store::{SHARED, TAKEN};
use super::world::World;
use super::{NAMESPACE, PROVISIONER};

/// What kind of claim it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bucket is made, and goes with the claim.
    Made,
    /// A bucket is made, and stays.
    Kept,
    /// A bucket that exists.
    Granted,
    /// A bucket of a name that is somebody else's.
    Greedy,
    /// A Secret of the claim's name exists.
    Hindered,
}

/// A claim, as its user wants it to be in the end.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The uid of the claim that there is.
    pub(crate) uid: Option<String>,
    pub(crate) limit: u64,
    pub(crate) rotations: u32,
}

pub(crate) struct Users {
    cluster: Cluster,
    world: Arc<World>,
    random: fastrand::Rng,
    pub(crate) wishes: Vec<Wish>,
}

const CLASSES: [(&str, Kind); 3] = [("made", Kind::Made), ("kept", Kind::Kept), ("granted", Kind::Granted)];

impl Users {
    pub(crate) fn new(cluster: &Cluster, world: &Arc<World>, mut random: fastrand::Rng) -> Self {
        let kinds = [Kind::Made, Kind::Made, Kind::Kept, Kind::Granted, Kind::Greedy, Kind::Hindered];
        let count = random.usize(2..7);
        let wishes = (0..count)
            .map(|number| Wish {
                name: format!("claim-{number}"),
                kind: random.choice(kinds).unwrap_or(Kind::Made),
                uid: None,
                limit: 0,
                rotations: 0,
            })
            .collect();
        let users = Self { cluster: cluster.clone(), world: world.clone(), random, wishes };
        users.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        CLASSES.into_iter().for_each(|(name, kind)| users.class(name, kind));
        for wish in users.wishes.iter().filter(|wish| wish.kind == Kind::Hindered) {
            users.create(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": wish.name, "namespace": NAMESPACE},
                "stringData": {"mine": "x"},
            }));
        }
        users
    }

    /// The storm.
    pub(crate) async fn act(&mut self) {
        let deeds = self.random.u32(5..40);
        for _ in 0..deeds {
            sleep(Duration::from_millis(self.random.u64(0..6000))).await;
            let at = self.random.usize(0..self.wishes.len());
            match self.random.u8(0..20) {
                _ if self.wishes[at].uid.is_none() => self.make(at),
                0..5 => self.remove(at),
                5..8 => self.configure(at),
                8..11 => self.rotate(at),
                11 | 12 => self.delete("", "secrets", &self.wishes[at].name.clone(), at),
                13 => self.delete("", "configmaps", &self.wishes[at].name.clone(), at),
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

    /// In the end every claim is there or going, and classes exist.
    pub(crate) fn settle(&mut self) {
        for (name, kind) in CLASSES {
            self.class(name, kind);
        }
    }

    fn make(&mut self, at: usize) {
        let wish = self.wishes[at].clone();
        let class = match wish.kind {
            Kind::Kept => "kept",
            Kind::Granted => "granted",
            _ => "made",
        };
        let mut spec = json!({"storageClassName": class, "generateBucketName": "b"});
        if wish.kind == Kind::Greedy {
            spec["bucketName"] = TAKEN.into();
        }
        let claim = self.cluster.create(&json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": wish.name, "namespace": NAMESPACE}, "spec": spec,
        }));
        if let Ok(claim) = claim {
            self.wishes[at].uid = claim["metadata"]["uid"].as_str().map(str::to_owned);
            (self.wishes[at].limit, self.wishes[at].rotations) = (0, 0);
            self.world.note(|| format!("{} is made", wish.name));
        }
    }

    fn remove(&mut self, at: usize) {
        let name = self.wishes[at].name.clone();
        self.world.note(|| format!("{name} is deleted"));
        let target = target("objectbucket.io", "objectbucketclaims", &name);
        let _ = self.cluster.delete(&target, DeleteOptions::default());
        self.wishes[at].uid = None;
    }

    fn configure(&mut self, at: usize) {
        self.wishes[at].limit = self.random.u64(1..100);
        let limit = self.wishes[at].limit.to_string();
        self.edit_claim(at, json!({"spec": {"additionalConfig": {"limit": limit}}}));
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

    /// What is not the user's own is left alone.
    fn edit(&self, plural: &str, at: usize, patch: Value) {
        let wish = &self.wishes[at];
        if wish.kind != Kind::Hindered {
            let _ = self.cluster.patch(&target("", plural, &wish.name), None, PatchKind::Merge, &patch);
        }
    }

    fn delete(&self, group: &str, plural: &str, name: &str, at: usize) {
        if self.wishes[at].kind != Kind::Hindered {
            self.world.note(|| format!("{plural}/{name} is deleted"));
            let _ = self.cluster.delete(&target(group, plural, name), DeleteOptions::default());
        }
    }

    /// An administrator deletes the ObjectBucket of a claim that lives.
    fn delete_object(&self, at: usize) {
        let name = format!("obc-{NAMESPACE}-{}", self.wishes[at].name);
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
            "reclaimPolicy": if kind == Kind::Kept { "Retain" } else { "Delete" },
        });
        self.create(class);
    }

    fn create(&self, object: Value) {
        let _ = self.cluster.create(&object);
    }
}

fn target<'a>(group: &'a str, plural: &'a str, name: &'a str) -> Target<'a> {
    Target { group, plural, namespace: NAMESPACE, name }
}
