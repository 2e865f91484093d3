//! Principals for access without keys: Kubernetes service accounts in a workload identity pool.

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Authentication, ClaimName, ServiceAccount};

use crate::parameters::{Config, Parameters};
use crate::store::Store;

/// A pool's name, `projects/NUMBER/locations/global/workloadIdentityPools/POOL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool(String);

impl Pool {
    /// Returns the service account's identifier in IAM policies. The format of subjects differs between GKE's pools and
    /// others. <https://cloud.google.com/iam/docs/principal-identifiers>
    fn principal(&self, account: &ServiceAccount) -> String {
        let subject = if self.0.ends_with(".svc.id.goog") {
            format!("ns/{}/sa/{}", account.namespace, account.name)
        } else {
            account.to_string()
        };
        format!("principal://iam.googleapis.com/{}/subject/{subject}", self.0)
    }
}

impl std::str::FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match *text.split('/').collect::<Vec<_>>() {
            ["projects", number, "locations", "global", "workloadIdentityPools", pool]
                if !number.is_empty() && !pool.is_empty() =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is not a workload identity pool: expected projects/NUMBER/locations/global/workloadIdentityPools/POOL"
            )),
        }
    }
}

kube_provisioner::deserialize_from_str!(Pool);

/// Returns the principal of a claim's pods, or `None` if they use a key.
pub(crate) fn principal(
    (parameters, config): (&Parameters, &Config),
    claim: &ClaimName,
    store: &Store,
) -> Result<Option<String>, ProvisionError> {
    let asked = (config.authentication, config.service_account.as_deref());
    let account = Authentication::service_account((parameters.authentication, None), asked, claim)?;
    let Some(account) = account else { return Ok(None) };
    if parameters.service_account.as_ref().is_some_and(|email| !email.is_empty()) {
        return Err(ProvisionError::retry(
            "the StorageClass names a service account of Google, whose key claims receive: remove serviceAccount from \
             it, or do not request access without a key",
        ));
    }
    if !parameters.uniform_bucket_level_access {
        return Err(ProvisionError::retry(
            "access without a key needs uniformBucketLevelAccess: set it to true in the StorageClass",
        ));
    }
    let pool = parameters.workload_identity_pool.as_ref().or(store.pool.as_ref()).ok_or_else(|| {
        ProvisionError::retry(
            "access without a key needs the cluster's workload identity pool: set workloadIdentityPool in the \
             StorageClass, or --workload-identity-pool",
        )
    })?;
    Ok(Some(pool.principal(&account)))
}

const TITLE: &str = "objectbucketclaim-";

/// Returns the title that marks the claim's bindings in a policy. It is unique to the claim.
pub(crate) fn title(claim: &ClaimName) -> String {
    format!("{TITLE}{}", claim.uid)
}

/// Returns true if a binding with this title belongs to a claim.
pub(crate) fn is_title(text: &str) -> bool {
    text.starts_with(TITLE)
}

#[cfg(test)]
mod tests {
    use kube_provisioner::bucket::BucketRequest;

    use super::*;

    #[test]
    fn formats_principals_of_gke_and_other_clusters() {
        let claim = BucketRequest::new("photos", (), ()).owner.claim;
        let (class, asked) = ((Authentication::ServiceAccount, None), (None, Some("web")));
        let account = Authentication::service_account(class, asked, &claim).unwrap().unwrap();
        let pool = |pool: &str| format!("projects/1/locations/global/workloadIdentityPools/{pool}");
        for (name, subject) in [("p.svc.id.goog", "ns/test/sa/web"), ("mine", "system:serviceaccount:test:web")] {
            let principal = pool(name).parse::<Pool>().unwrap().principal(&account);
            assert_eq!(principal, format!("principal://iam.googleapis.com/{}/subject/{subject}", pool(name)));
        }
        for text in ["", "p.svc.id.goog", "projects//locations/global/workloadIdentityPools/p", &pool("")] {
            assert!(text.parse::<Pool>().is_err(), "{text}");
        }
    }
}
