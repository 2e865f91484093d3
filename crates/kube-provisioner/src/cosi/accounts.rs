//! Records of COSI accounts, each in a Secret in the driver's own namespace.
//!
//! A sidecar calls `DriverGrantBucketAccess` again whenever it starts, some backends show a key only once, and
//! `v1alpha1` passes only IDs when access is revoked. The Secret is written before the provisioner is called for the
//! first time, and contains the key before the sidecar receives it. So the key stays the same as long as it works, and
//! an account without a Secret has no assets.

use std::collections::BTreeMap;
use std::time::Duration;

use driver_rpc::{Code, Status};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use provisioner_runtime::call::{CallError, call};
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::errors::{not_answered, precondition};
use crate::bucket::{Access, Credentials};
use crate::controller::shared::checksum::hex;
use crate::protocol::{CLUSTER_ID, COSI_ACCOUNT, COSI_DRIVER};

const LIMIT: Duration = Duration::from_secs(10);

const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "cosi-access");
const INSTANCE: &str = "app.kubernetes.io/instance";

const BUCKETS: &str = "buckets";
const PARAMETERS: &str = "parameters";
const STATE: &str = "state";
const KEY_ID: &str = "accessKeyID";
const KEY: &str = "accessSecretKey";

/// The Secrets of one driver.
pub(super) struct Accounts {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) driver: String,
    pub(super) cluster_id: String,
}

/// The request, and the provisioner's last answer.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The buckets by name.
    pub(super) buckets: BTreeMap<String, Access>,
    /// The parameters of the BucketAccessClass.
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) key: Option<Credentials>,
    pub(super) state: BTreeMap<String, String>,
}

/// A record and the Secret that stores it.
pub(super) struct StoredAccount {
    pub(super) record: Record,
    secret: Secret,
}

impl Record {
    pub(super) fn is_for(&self, buckets: &BTreeMap<String, Access>, parameters: &BTreeMap<String, String>) -> bool {
        (&self.buckets, &self.parameters) == (buckets, parameters)
    }

    fn to_data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([
            (BUCKETS, json!(self.buckets).to_string()),
            (PARAMETERS, json!(self.parameters).to_string()),
            (STATE, json!(self.state).to_string()),
        ]);
        if let Some(key) = &self.key {
            data.insert(KEY_ID, key.access_key_id.clone());
            data.insert(KEY, key.secret_access_key.clone());
        }
        data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()
    }

    /// Returns `None` if the data is not a record.
    fn of_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(|value| String::from_utf8(value.0.clone()).ok());
        let key = match (text(KEY_ID), text(KEY)) {
            (Some(id), Some(key)) => Some(Credentials::new(id, key)),
            (None, None) => None,
            _ => return None,
        };
        Some(Self {
            buckets: read(&text(BUCKETS)?)?,
            parameters: read(&text(PARAMETERS)?)?,
            key,
            state: read(&text(STATE)?)?,
        })
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

impl Accounts {
    /// Reads the record of an account. A foreign Secret of the same name is an error.
    pub(super) async fn read(&self, account: &str) -> Result<Option<StoredAccount>, Status> {
        let name = self.secret_name(account);
        let secret = match call(LIMIT, self.api().get(&name)).await {
            Ok(secret) => secret,
            Err(CallError::NotFound) => return Ok(None),
            Err(error) => return Err(not_answered(&self.doing("read", &name), &error)),
        };
        let has = secret.metadata.annotations.clone().unwrap_or_default();
        let is_ours = self.annotations(account).iter().all(|(key, value)| has.get(key) == Some(value));
        let record = secret.data.as_ref().filter(|_| is_ours).and_then(Record::of_data);
        let record = record.ok_or_else(|| {
            precondition(format!(
                "the Secret {}/{name} has the name of the record of the account {account}, but is not that record: \
                 restore it if it was changed, or delete it if it is not needed",
                self.namespace
            ))
        })?;
        Ok(Some(StoredAccount { record, secret }))
    }

    pub(super) async fn create(&self, account: &str, record: Record) -> Result<StoredAccount, Status> {
        let metadata = ObjectMeta {
            name: Some(self.secret_name(account)),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            annotations: Some(self.annotations(account)),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, data: Some(record.to_data()), ..Secret::default() };
        let name = self.secret_name(account);
        let created = call(LIMIT, self.api().create(&PostParams::default(), &secret)).await;
        let secret = created.map_err(|error| not_answered(&self.doing("create", &name), &error))?;
        Ok(StoredAccount { record, secret })
    }

    /// Writes a changed record, unless another writer has changed the Secret.
    pub(super) async fn replace(&self, kept: StoredAccount, record: Record) -> Result<(), Status> {
        let name = kept.secret.metadata.name.clone().unwrap_or_default();
        let secret = Secret { data: Some(record.to_data()), ..kept.secret };
        let replaced = call(LIMIT, self.api().replace(&name, &PostParams::default(), &secret)).await;
        match replaced {
            Ok(_) => Ok(()),
            // The Secret has been deleted since it was read.
            Err(CallError::NotFound) => Err(Status::new(Code::Unavailable, self.doing("replace", &name))),
            Err(error) => Err(not_answered(&self.doing("replace", &name), &error)),
        }
    }

    /// Deletes the record of an account that no longer exists.
    pub(super) async fn remove(&self, kept: StoredAccount) -> Result<(), Status> {
        let ObjectMeta { name, uid, resource_version, .. } = kept.secret.metadata;
        let name = name.unwrap_or_default();
        let parameters =
            DeleteParams { preconditions: Some(Preconditions { uid, resource_version }), ..DeleteParams::default() };
        match call(LIMIT, self.api().delete(&name, &parameters)).await {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(not_answered(&self.doing("delete", &name), &error)),
        }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn doing(&self, what: &str, name: &str) -> String {
        format!("cannot {what} the Secret {}/{name}, the record of an account", self.namespace)
    }

    fn secret_name(&self, account: &str) -> String {
        format!("cosi-access-{}", hex(&Sha256::digest(format!("{} {account}", self.driver))[..16]))
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = [COMPONENT, (INSTANCE, self.driver.as_str())];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// Tenants cannot write Secrets in this namespace. The cluster's ID distinguishes a copy from another cluster's
    /// backup.
    fn annotations(&self, account: &str) -> BTreeMap<String, String> {
        let all = [(COSI_DRIVER, self.driver.as_str()), (COSI_ACCOUNT, account), (CLUSTER_ID, &self.cluster_id)];
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }
}
