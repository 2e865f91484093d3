//! The accounts of a driver, according to the objects of the Container Object Storage Interface (COSI).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Preconditions};
use kube::{Client, ResourceExt as _};

use crate::protocol::{CLUSTER_ID, COSI_ACCOUNT};

const GROUP: &str = "objectstorage.k8s.io";
/// In `v1alpha1`, classes have no `spec`.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1alpha2"];

/// Returns the parameters of the driver's BucketAccessClasses, by names for messages. To remove an account, its
/// creation parameters are needed.
pub(super) async fn classes(client: &Client, driver: &str) -> kube::Result<Vec<(String, BTreeMap<String, String>)>> {
    let mut classes = Vec::new();
    for class in list(client, "BucketAccessClass").await?.into_iter().flatten() {
        let spec = class.data.get("spec").unwrap_or(&class.data);
        if spec["driverName"] == driver {
            let parameters = serde_json::from_value(spec["parameters"].clone()).unwrap_or_default();
            classes.push((format!("BucketAccessClass {}", class.name_any()), parameters));
        }
    }
    Ok(classes)
}

/// Returns the names of all accounts that have a BucketAccess, or `None` if the cluster does not serve COSI's kinds. A
/// driver's record of an account does not count: it remains if a BucketAccess was deleted before its first grant ended.
pub(super) async fn accounts(client: &Client) -> kube::Result<Option<BTreeSet<String>>> {
    let Some(accesses) = list(client, "BucketAccess").await? else { return Ok(None) };
    let mut names = BTreeSet::new();
    for access in accesses {
        names.extend(access.uid().map(|uid| format!("ba-{uid}")));
        names.extend(access.data["status"]["accountID"].as_str().map(str::to_owned));
    }
    Ok(Some(names))
}

/// Deletes the driver's record of a removed account.
pub(super) async fn forget(client: &Client, account: &str, cluster_id: &str) -> kube::Result<()> {
    let records = ListParams::default().labels("app.kubernetes.io/component=cosi-access");
    for record in Api::<Secret>::all(client.clone()).list(&records).await? {
        let has = |key: &str, value: &str| record.annotations().get(key).is_some_and(|text| text == value);
        if has(COSI_ACCOUNT, account) && has(CLUSTER_ID, cluster_id) {
            let api = Api::<Secret>::namespaced(client.clone(), &record.namespace().unwrap_or_default());
            let preconditions = Preconditions { uid: record.uid(), resource_version: record.resource_version() };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            api.delete(&record.name_any(), &parameters).await?;
        }
    }
    Ok(())
}

/// Lists the objects of a kind in each served version. Returns `None` if no version is served, or if the account may
/// not list the objects, as the account of a provisioner of ObjectBucketClaims may not.
async fn list(client: &Client, kind: &str) -> kube::Result<Option<Vec<DynamicObject>>> {
    let mut found: Option<Vec<DynamicObject>> = None;
    for version in VERSIONS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
        match Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await {
            Ok(objects) => found.get_or_insert_default().extend(objects.items),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the parameters of a class without the controller's own parameters.
pub(super) fn of_author(mut parameters: BTreeMap<String, String>) -> BTreeMap<String, String> {
    parameters.remove(crate::protocol::EXISTING_BUCKETS);
    parameters
}
