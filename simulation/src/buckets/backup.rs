//! A backup of claims, ObjectBuckets, Secrets and ConfigMaps. Restored objects have new uids and no status, and Secrets
//! have no owners, as after a restore by Velero.

use serde_json::Value;

use super::users::{Kind, Users};
use super::{NAMESPACE, text};
use crate::process::ProcessEnvironment;

/// The objects at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backup {
    claims: Vec<Value>,
    objects: Vec<Value>,
    /// Secrets and ConfigMaps.
    delivered: Vec<Value>,
}

impl Users {
    pub(super) fn back_up(&self) {
        // One backup is enough: it is restored into every cluster.
        if self.number > 0 {
            return;
        }
        let list = |group: &str, plural: &str| self.cluster.list(group, plural, None).unwrap_or_default();
        // Garbled objects are left out, because no user would repair them in a backup.
        let living = |object: &Value| {
            object["metadata"]["deletionTimestamp"].is_null() && !self.is_garbled(text(object, "/metadata/uid"))
        };
        let ours = |object: &Value| object["metadata"]["labels"]["bucket-provisioner"].is_string();
        let mut delivered = list("", "secrets");
        delivered.extend(list("", "configmaps"));
        let backup = Backup {
            claims: list("objectbucket.io", "objectbucketclaims").into_iter().filter(living).collect(),
            objects: list("objectbucket.io", "objectbuckets").into_iter().filter(living).collect(),
            delivered: delivered.into_iter().filter(ours).collect(),
        };
        self.world.note(|| format!("a backup of {} claims", backup.claims.len()));
        self.world.store_backup(backup);
    }

    /// Restores the backup, without changing existing objects.
    pub(super) fn restore(&mut self) {
        let Some(Backup { claims, objects, delivered }) = self.world.backup() else { return };
        self.world.note(|| format!("the backup is restored into cluster {}", self.number));
        let keeps_finalizers = self.surprises.bool();
        for object in objects.iter().chain(&delivered) {
            let _ = self.cluster.create(&restored(object, keeps_finalizers));
        }
        for claim in &claims {
            let name = text(claim, "/metadata/name");
            let restorable = |wish: &super::users::Wish| {
                wish.name == name && wish.uid.is_none() && !matches!(wish.kind, Kind::BlockedBySecret)
            };
            let Some(at) = self.wishes.iter().position(restorable) else { continue };
            if let Ok(made) = self.cluster.create(&restored(claim, keeps_finalizers)) {
                self.made(at, &made);
                let limit = text(claim, "/spec/additionalConfig/limit").parse().unwrap_or_default();
                (self.wishes[at].limit, self.wishes[at].disturbed) = (limit, true);
                let named = |key: &str| claim["spec"]["additionalConfig"][key].as_str().map(str::to_owned);
                let names = named("secretName").zip(named("configMapName"));
                self.wishes[at].names = names.map(|(secret, config_map)| [secret, config_map]);
                self.world.note(|| format!("{name} is restored"));
            }
        }
    }
}

fn restored(object: &Value, keeps_finalizers: bool) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let kept = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|field, _| kept.contains(&field.as_str()) || keeps_finalizers && field == "finalizers");
    }
    assert!(object["metadata"]["namespace"].is_null() || object["metadata"]["namespace"] == NAMESPACE);
    object
}
