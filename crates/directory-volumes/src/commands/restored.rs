//! Adoption of a single volume, and of all volumes that a backup restored with new uids.

use kube_provisioner::console::{is_confirmed, print, table};
use kube_provisioner::error_chain;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube_provisioner::kube::Api;
use kube_provisioner::protocol::{CLUSTER_ID, PROVISIONED_BY};

use super::adopt::Adoption;
use super::volumes::LocatedVolume;
use super::{BoxError, Site, check_none_failed};
use crate::deletion::owner_of;
use crate::error::{DirectoryError, Holder};
use crate::mark::{Mark, Owner};
use crate::path::VolumePath;

/// A directory that becomes a volume's directory.
pub(super) struct AdoptionPlan<'a> {
    pub(super) volume: &'a LocatedVolume,
    pub(super) path: VolumePath,
    /// The new owner.
    pub(super) owner: Owner,
    /// The directory's mark, if it has one.
    pub(super) former: Option<Mark>,
}

impl AdoptionPlan<'_> {
    /// Returns true if an earlier call marked the directory for this volume, and ended before it updated the volume.
    /// A mark that is older than its volume was transferred from an earlier volume.
    pub(super) fn is_unfinished(&self) -> bool {
        let (volume, created) = (&self.volume.object, &self.volume.object.metadata.creation_timestamp);
        self.former.as_ref().is_some_and(|mark| {
            mark.owner.uid.is_some()
                && mark.owner.uid == self.owner.uid
                && owner_of(volume).cluster.is_none()
                && created.as_ref().is_some_and(|created| created.0 <= mark.created)
        })
    }
}

impl<S: Site> Adoption<'_, S> {
    /// Prepares the directory of an existing volume.
    pub(super) async fn plan<'a>(&self, volume: &'a LocatedVolume) -> Result<AdoptionPlan<'a>, BoxError> {
        let (name, mut owner) = (&volume.name, owner_of(&volume.object));
        if owner.provisioner.is_empty() {
            return Err(
                format!("the volume {name} has no annotation {PROVISIONED_BY}, so it would never be deleted").into()
            );
        }
        self.template.check(&volume.object)?;
        self.check_cluster(&format!("the volume {name}, according to its annotation {CLUSTER_ID},"), &owner)?;
        let path = self.adopt.site.path_of(&volume.object, &self.root)?;
        let is_other = |other: &_| owner_of(other).volume != *name && self.template.check(other).is_ok();
        self.volumes.check_alone(&self.root, &self.places, &path, is_other)?;
        owner.cluster = Some(self.cluster.clone());
        // Without the uid, which a backup omits, any claim is accepted.
        owner.claim = owner.claim.filter(|claim| !claim.uid.is_empty());
        let former = self.root.mark_of(&path)?;
        if let Some(former) = &former {
            self.check_former(&path, &former.owner, &owner).await?;
        }
        Ok(AdoptionPlan { volume, path, owner, former })
    }

    /// Fails unless the former owner is an earlier volume with the same name whose claim is the same or no longer
    /// exists.
    async fn check_former(&self, path: &VolumePath, former: &Owner, owner: &Owner) -> Result<(), BoxError> {
        if former.volume != owner.volume || former.provisioner != owner.provisioner {
            let holder = Holder::Volume(Box::new(former.clone()));
            return Err(DirectoryError::Taken { path: path.to_string(), holder }.into());
        }
        self.check_cluster(&format!("the directory {path}"), former)?;
        let of_new = owner.claim.as_ref().map(|claim| &claim.uid);
        let Some(claim) = former.claim.as_ref().filter(|claim| Some(&claim.uid) != of_new) else { return Ok(()) };
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &claim.namespace);
        let found = claims.get_metadata_opt(&claim.name).await?;
        match found.and_then(|found| found.metadata.uid) {
            Some(uid) if uid == claim.uid => Err(format!(
                "the directory {path} belongs to the claim {}/{} ({uid}), which exists",
                claim.namespace, claim.name
            )
            .into()),
            _ => Ok(()),
        }
    }

    fn check_cluster(&self, what: &str, owner: &Owner) -> Result<(), BoxError> {
        match &owner.cluster {
            Some(id) if *id != self.cluster && Some(id) != self.adopt.from_cluster.as_ref() => Err(format!(
                "{what} belongs to the cluster {id}; if that cluster no longer exists, or no longer uses this root, set --from-cluster {id}"
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Adopts all volumes whose directories are marked for earlier volumes with the same names.
    pub(super) async fn adopt_restored(&self) -> Result<(), BoxError> {
        let (mut plans, mut refused) = (Vec::new(), 0);
        let mut rows = vec![["PATH", "VOLUME", "WAS", "IS", "ACTION"].map(str::to_owned)];
        for volume in &self.volumes.all {
            let (path, former) = match self.find_former_owner(volume) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // A damaged mark must not prevent the adoption of the others.
                Err(error) => {
                    refused += 1;
                    print(&format!("the directory of {} is skipped: {error}\n", volume.name));
                    continue;
                }
            };
            let (was, is) = (describe_claim(&former), describe_claim(&owner_of(&volume.object)));
            let what = match self.plan(volume).await {
                Ok(plan) => {
                    plans.push(plan);
                    "mark for this volume".to_owned()
                }
                Err(error) => {
                    refused += 1;
                    format!("none: {}", error_chain(&*error))
                }
            };
            rows.push([path.to_string(), volume.name.clone(), was, is, what]);
        }
        for (name, why) in &self.volumes.unreadable {
            print(&format!("the volume {name} cannot be read and is skipped: {why}\n"));
        }
        if rows.len() == 1 {
            print("no directory is marked for an earlier volume of the same name\n");
            return check_none_failed(refused, "directories were not changed");
        }
        print(&table(&rows));
        if plans.is_empty()
            || !self.adopt.yes && !is_confirmed(&format!("mark directories ({} in total)?", plans.len()))?
        {
            return Err("nothing was changed".into());
        }
        for plan in &plans {
            match self.execute(plan).await {
                Ok(()) => print(&format!("{} is marked for {}\n", plan.path, plan.volume.name)),
                Err(error) => {
                    refused += 1;
                    print(&format!("{} is not marked: {}\n", plan.path, error_chain(&*error)));
                }
            }
        }
        check_none_failed(refused, "directories were not changed")
    }

    /// Returns the directory of a volume and its former owner, if its mark names an earlier volume of this name.
    fn find_former_owner(&self, volume: &LocatedVolume) -> Result<Option<(VolumePath, Owner)>, BoxError> {
        let Ok(path) = self.adopt.site.path_of(&volume.object, &self.root) else { return Ok(None) };
        let owner = Owner { cluster: Some(self.cluster.clone()), ..owner_of(&volume.object) };
        let is_in_cluster = owner_of(&volume.object).cluster.is_none_or(|id| id == self.cluster);
        let is_former = |mark: &Mark| mark.owner.volume == volume.name && !(mark.belongs_to(&owner) && is_in_cluster);
        Ok(self.root.mark_of(&path)?.filter(is_former).map(|mark| (path, mark.owner)))
    }
}

/// Describes the claim of a volume, which distinguishes it from an earlier volume.
fn describe_claim(owner: &Owner) -> String {
    let claim = owner.claim.as_ref().map(|claim| format!("{}/{} {}", claim.namespace, claim.name, claim.uid));
    let cluster = owner.cluster.as_ref().map(|cluster| format!(" in {cluster}"));
    claim.unwrap_or_else(|| "any claim".to_owned()) + &cluster.unwrap_or_default()
}
