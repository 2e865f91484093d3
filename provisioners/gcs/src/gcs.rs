//! The provisioner.

mod keys;
mod removing;

use std::collections::BTreeMap;
use std::time::Duration;

use kube_provisioner::bucket::{
    Bucket, BucketCapabilities, BucketProvisioner, ClaimName, Credentials, ProvisionedBucket, RequestOf, Source,
};
use kube_provisioner::{DeleteError, ProvisionError, StartError};
use serde_json::{Value, json};

use crate::account::{CLAIM_UID, Owner, account_id, email, labels, owner};
use crate::api::Failure;
use crate::http::Proxies;
use crate::iam::{Ensured, Known, Whom};
use crate::parameters::{Config, Parameters, is_set};
use crate::policy::{admitted, granted, revoked, shut};
use crate::principal::{Way, title};
use crate::storage::Found;
use crate::store::{ADMIN, Defaults, Misconfigured, Store, Stores};

/// What is kept in an ObjectBucket: where the bucket is, and who has its key.
const PROJECT: &str = "project";
const SERVICE_ACCOUNT: &str = "serviceAccount";
/// Who uses it without a key.
const PRINCIPAL: &str = "principal";

/// Google knows a new service account everywhere after some seconds.
const ACCOUNT_SPREADS: Duration = Duration::from_secs(2);

/// Makes buckets and service accounts in projects.
pub(crate) struct Gcs {
    stores: Stores,
}

impl Gcs {
    pub(crate) fn new(defaults: Defaults, proxies: Proxies) -> Self {
        Self { stores: Stores::new(defaults, proxies) }
    }
}

impl BucketProvisioner for Gcs {
    type Parameters = Parameters;
    type Config = Config;

    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let (store, account) = self.asked(&request).await?;
        let (way, name) = (Way::of(&request, &store)?, &request.name);
        let live = store.storage.find_bucket(name).await?;
        if let Some(text) = objection(&live, &request) {
            return refuse(&store, &account, &request, text).await;
        }
        if way.principal.is_none() {
            account.ensure(&store, &request).await?;
        }
        match live {
            Found::Bucket(live) => bring_in_line(&store, &request, &live).await?,
            Found::Absent | Found::Foreign => {
                if let Err(text) = make_bucket(&store, &request).await? {
                    return refuse(&store, &account, &request, text).await;
                }
            }
        }
        account.give_access(&store, &request, (&way, Source::Provisioned)).await
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let (store, account) = self.asked(&request).await?;
        let (way, name) = (Way::of(&request, &store)?, &request.name);
        let live = store.storage.bucket(name).await?;
        if let Some(made_for) = &request.made_for {
            let is_its = |live: &Value| owner(live, &made_for.claim, &request.cluster_id) == Owner::Claim;
            if !live.as_ref().is_some_and(is_its) {
                return refuse(&store, &account, &request, made_for.is_not_its(name)).await;
            }
        }
        if live.is_none() {
            let text = format!("the bucket {name} does not exist: make it, or change bucketName in the StorageClass");
            return Err(ProvisionError::retry(text));
        }
        if way.principal.is_none() {
            account.ensure(&store, &request).await?;
        }
        account.give_access(&store, &request, (&way, Source::Granted)).await
    }

    async fn delete(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_bucket(bucket).await
    }

    async fn revoke(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        self.remove_account(bucket).await
    }

    async fn rotate(&self, bucket: ProvisionedBucket<Parameters>) -> Result<Credentials, ProvisionError> {
        let (store, account) = self.recorded(&bucket).await?;
        if !account.generated {
            let text = format!("the keys of {} are not rotated: it was not made for the claim", account.email);
            return Err(ProvisionError::invalid(text));
        }
        if account.known(&store).await? == Known::Foreign {
            return Err(ProvisionError::retry(account.foreign()));
        }
        account.remove_keys_but(&store, bucket.access_key_id.as_deref()).await?;
        Ok(store.storage.create_key(&account.email).await?)
    }

    async fn retire(&self, bucket: ProvisionedBucket<Parameters>) -> Result<(), DeleteError> {
        let (store, account) = self.recorded(&bucket).await?;
        let keeps_one = account.generated && bucket.access_key_id.is_some();
        if keeps_one && account.known(&store).await? != Known::Foreign {
            account.remove_keys_but(&store, bucket.access_key_id.as_deref()).await?;
        }
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        Ok(self.stores.probe().await?)
    }

    fn capabilities() -> BucketCapabilities {
        BucketCapabilities::default().rotation().optional_secret(ADMIN)
    }
}

impl Gcs {
    async fn asked(&self, request: &RequestOf<Self>) -> Result<(Store, Account), Misconfigured> {
        let made_in = request.state.get(PROJECT).map(String::as_str);
        let store = self.stores.of(&request.parameters, &request.secrets, made_in).await?;
        let whose = (&request.claim, request.cluster_id.as_str());
        let account = Account::of(&store, whose, &request.state, &request.parameters);
        Ok((store, account))
    }

    /// The project and the service account of a bucket that was made.
    async fn recorded(&self, bucket: &ProvisionedBucket<Parameters>) -> Result<(Store, Account), BadRecord> {
        let Some(parameters) = &bucket.parameters else {
            return Err(BadRecord(
                "the StorageClass is gone, and only it says where the bucket is: make it again".into(),
            ));
        };
        if bucket.claim.uid.is_empty() {
            return Err(BadRecord("the ObjectBucket does not name its claim's uid".into()));
        }
        let made_in = bucket.state.get(PROJECT).map(String::as_str);
        let store = self.stores.of(parameters, &bucket.secrets, made_in).await;
        let store = store.map_err(|error| BadRecord(error.to_string()))?;
        let whose = (&bucket.claim, bucket.cluster_id.as_str());
        let account = Account::of(&store, whose, &bucket.state, parameters);
        Ok((store, account))
    }
}

/// What an ObjectBucket does not record.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRecord(String);

/// The service account whose key a claim gets.
#[derive(Clone, Debug)]
struct Account {
    email: String,
    claim: ClaimName,
    /// The cluster in which this provisioner runs.
    cluster: String,
    /// Whether it is made for the claim. Others are never changed and never deleted.
    generated: bool,
}

impl Account {
    /// What was recorded counts more than what the class says now.
    fn of(
        store: &Store,
        (claim, cluster): (&ClaimName, &str),
        state: &BTreeMap<String, String>,
        parameters: &Parameters,
    ) -> Self {
        let own = email(&account_id(claim), &store.iam.project);
        let named = state.get(SERVICE_ACCOUNT).or(parameters.service_account.as_ref().filter(|_| state.is_empty()));
        let email = named.filter(|email| !email.is_empty()).cloned().unwrap_or_else(|| own.clone());
        Self { generated: email == own, email, claim: claim.clone(), cluster: cluster.to_owned() }
    }

    fn whom(&self) -> Whom<'_> {
        Whom { claim: &self.claim, cluster: &self.cluster }
    }

    async fn known(&self, store: &Store) -> Result<Known, Failure> {
        store.iam.known(&self.email, self.whom()).await
    }

    fn foreign(&self) -> String {
        let email = &self.email;
        format!(
            "the service account {email} exists and was not made for this claim of this cluster: delete it if nobody needs it"
        )
    }

    async fn ensure(&self, store: &Store, request: &RequestOf<Gcs>) -> Result<(), ProvisionError> {
        let email = &self.email;
        if !self.generated {
            // It may belong to another project, invisible to this administrator. Creating a key shows that.
            return Ok(());
        }
        match store.iam.ensure(&account_id(&request.claim), email, self.whom()).await? {
            Ensured::Found | Ensured::Made => Ok(()),
            Ensured::Foreign => Err(ProvisionError::retry(self.foreign())),
        }
    }

    /// Lets the service account in with a key, or the principal without one.
    async fn give_access(
        &self,
        store: &Store,
        request: &RequestOf<Gcs>,
        (way, source): (&Way, Source),
    ) -> Result<Bucket, ProvisionError> {
        let (name, title) = (&request.name, title(&self.claim));
        let Some(principal) = &way.principal else {
            // In a bucket that exists, only an administrator lets in an account that was not made for the claim.
            let lets_in = self.generated || source == Source::Provisioned;
            if lets_in || request.state.contains_key(PRINCIPAL) {
                let changed = store.storage.change_policy(name, |policy| {
                    let policy = shut(policy, &title);
                    if lets_in { granted(&policy, &self.email, way.access) } else { policy }
                });
                changed.await.map_err(|failure| self.spreading(failure))?;
            }
            let key = self.key(store, request.access_key_id.as_deref(), request.credentials.clone()).await?;
            let bucket = self.answer(store, Bucket::new(store.endpoint.clone(), key));
            return Ok(bucket.state(SERVICE_ACCOUNT, &self.email));
        };
        let had_key = request.access_key_id.is_some();
        let changed = store.storage.change_policy(name, |policy| {
            let policy = admitted(policy, &title, (name, principal), way.access);
            if had_key { revoked(&policy, &self.email) } else { policy }
        });
        changed.await?;
        // An earlier attempt may have made it as well.
        self.remove(store).await?;
        Ok(self.answer(store, Bucket::without_key(store.endpoint.clone())).state(PRINCIPAL, principal))
    }

    /// A failure, as long as Google does not know a new service account everywhere.
    fn spreading(&self, failure: Failure) -> ProvisionError {
        let unknown = matches!(failure.status(), Some(400 | 404)) && failure.message().contains("does not exist");
        match unknown {
            true if self.generated => {
                let text = format!("{failure}; Google needs some time to know a new service account everywhere");
                ProvisionError::retry(text).after(ACCOUNT_SPREADS)
            }
            true => {
                let text = format!("{failure}; make the service account {}, or change serviceAccount", self.email);
                ProvisionError::retry(text)
            }
            false => failure.into(),
        }
    }

    fn answer(&self, store: &Store, bucket: Bucket) -> Bucket {
        let bucket = bucket.state(PROJECT, &store.storage.project);
        // Google refuses the checksums that clients add since 2025.
        let bucket = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"]
            .into_iter()
            .fold(bucket, |bucket, name| bucket.config(name, "when_required"));
        // The controller writes AWS_REGION, which boto3 does not read.
        bucket.config("AWS_DEFAULT_REGION", &store.endpoint.region)
    }
}

/// Why a bucket of this name is not for this claim.
fn objection(live: &Found, request: &RequestOf<Gcs>) -> Option<String> {
    let name = &request.name;
    match live {
        Found::Absent => None,
        Found::Foreign => {
            Some(format!("the bucket {name} exists and belongs to somebody else: choose another bucketName"))
        }
        Found::Bucket(bucket) => match owner(bucket, &request.claim, &request.cluster_id) {
            Owner::Claim => None,
            Owner::Unknown if !request.state.is_empty() => {
                Some(format!("the bucket {name} has lost its label {CLAIM_UID}: set it to {}", request.claim.uid))
            }
            Owner::Other | Owner::Unknown => {
                Some(format!("the bucket {name} exists and was not made for this claim: choose another bucketName"))
            }
        },
    }
}

/// Makes the bucket; the inner error says why it cannot be this claim's.
async fn make_bucket(store: &Store, request: &RequestOf<Gcs>) -> Result<Result<(), String>, Failure> {
    let (name, parameters) = (&request.name, &request.parameters);
    let mut body = parameters.settings();
    body["name"] = json!(name);
    body["location"] = json!(parameters.location);
    body["labels"] = json!(labels(&request.claim, &request.cluster_id, &parameters.labels.0));
    if let Some(class) = parameters.storage_class {
        body["storageClass"] = json!(class.name());
    }
    if store.storage.create_bucket(name, body).await? {
        return Ok(Ok(()));
    }
    // Somebody else was faster, or an answer to an earlier call was lost.
    let live = store.storage.find_bucket(name).await?;
    Ok(objection(&live, request).map_or(Ok(()), Err))
}

/// Brings a bucket in line. Only what differs is written; where a bucket is, and its storage class, cannot change or cost.
async fn bring_in_line(store: &Store, request: &RequestOf<Gcs>, live: &Value) -> Result<(), Failure> {
    let mut wanted = request.parameters.settings();
    wanted["labels"] = json!(labels(&request.claim, &request.cluster_id, &request.parameters.labels.0));
    match is_set(live, &wanted) {
        true => Ok(()),
        false => store.storage.patch_bucket(&request.name, live, wanted).await,
    }
}

/// What the claim wants cannot be done. It is for good only where nothing is left of earlier attempts.
async fn refuse(
    store: &Store,
    account: &Account,
    request: &RequestOf<Gcs>,
    text: String,
) -> Result<Bucket, ProvisionError> {
    if !request.state.is_empty() || !account.generated {
        return Err(ProvisionError::retry(text));
    }
    account.remove(store).await?;
    Err(ProvisionError::invalid(text))
}
