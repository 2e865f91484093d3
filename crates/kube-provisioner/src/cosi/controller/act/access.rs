//! Grants and revokes access. The writes are ordered so that a crash between any two of them leaves nothing behind.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use provisioner_runtime::call::{found, invalid_request};
use provisioner_runtime::limiter::Flow;
use serde_json::{Value, json};

use super::{Actions, Step};
use crate::controller::shared::requests::without_finalizer;
use crate::cosi::controller::decide::Refusal;
use crate::cosi::controller::objects::{AccessFacts, CLEANUP_FINISHED, FINALIZER};
use crate::cosi::controller::outcome::{Done, Outcome, Stopped};
use crate::cosi::controller::secrets::{self, SecretFacts, SecretState};
use crate::cosi::driver::{IssuedAccess, RequestedGrant};

const WRITING: &str = "writing a Secret of the BucketAccess";
const DELETING: &str = "deleting a Secret of the BucketAccess";

impl Actions {
    pub(super) async fn grant(&self, access: &AccessFacts, step: &Step<'_>) -> Outcome {
        let Ok(content) = &access.content else { return Err(Stopped::Changed) };
        let mut version = access.object.version.clone();
        // The Secret must exist before there is a key to store in it.
        let mut reserved = Vec::new();
        for target in &content.targets {
            reserved.push(self.reserve(access, &target.secret).await?);
        }
        // The ID that a later revocation needs is recorded first.
        let account = access.wanted_account();
        if content.account.is_none() {
            // Once the ID is recorded, the access needs its class to be revoked. An unusable class therefore grants
            // nothing.
            self.driver.class(content.parameters.clone()).await.map_err(Stopped::Failed)?;
            let status = json!({"readyToUse": false, "accountID": account});
            self.write_status(access, &mut version, status).await?;
        }
        let buckets = content.targets.iter().map(|target| (target.id.clone(), target.access)).collect();
        let wanted = RequestedGrant { account: account.clone(), buckets, parameters: content.parameters.clone() };
        let flow = Flow::creating(content.class.as_str()).of_tenant(access.object.namespace.clone());
        let granted =
            self.call(step, flow, |token| Box::pin(async move { self.driver.grant(wanted, &token).await })).await;
        let IssuedAccess { endpoint, key } = granted?;
        for (target, secret) in content.targets.iter().zip(&reserved) {
            let entries = secrets::entries(&target.id, &endpoint, &key);
            let patch = Patch::Merge(secrets::patch(secret, &entries, self.driver.name()));
            let secrets = self.secrets(access);
            let answer = self.context.request(secrets.patch(&target.secret, &PatchParams::default(), &patch)).await;
            answer.map_err(Stopped::write_failed(WRITING))?;
        }
        let status = json!({"readyToUse": true, "accountID": account, "error": Value::Null});
        self.write_status(access, &mut version, status).await?;
        Ok(if access.object.is_ready() { Done::Restored } else { Done::Granted })
    }

    /// Creates the Secret without entries, unless the access has it already.
    async fn reserve(&self, access: &AccessFacts, name: &str) -> Result<SecretFacts, Stopped> {
        if let Some(secret) = self.read_secret(access, name).await? {
            return match secret.state(access) {
                SecretState::Intact | SecretState::Changed => Ok(secret),
                SecretState::Deleting => {
                    self.remove_finalizer(access, name, &secret).await?;
                    Err(Stopped::Refused(Refusal::SecretDeleting(name.to_owned())))
                }
                SecretState::Absent | SecretState::Foreign => Err(Stopped::Changed),
            };
        }
        let secret = secrets::reserved(access, name, self.driver.name());
        let secret: Result<Secret, _> = serde_json::from_value(secret).map_err(invalid_request);
        let secret = secret.map_err(Stopped::call_failed(WRITING))?;
        let secrets = self.secrets(access);
        let created = self.context.request(secrets.create(&PostParams::default(), &secret)).await;
        let created = created.map_err(Stopped::write_failed(WRITING))?;
        Ok(SecretFacts::of(&created, self.driver.name()))
    }

    pub(super) async fn revoke(&self, access: &AccessFacts, step: &Step<'_>) -> Outcome {
        let Ok(content) = &access.content else { return Err(Stopped::Changed) };
        let mut version = access.object.version.clone();
        if access.object.is_ready() {
            self.write_status(access, &mut version, json!({"readyToUse": false, "error": Value::Null})).await?;
        }
        // Delete the Secrets first, so that pods do not find a key that no longer works.
        for target in &content.targets {
            self.delete_secret(access, &target.secret).await?;
        }
        // The ID is written before a grant. If it was lost, or names the account of another access, the driver's record
        // says whether there is an account.
        let account = access.wanted_account();
        let is_recorded = content.account.as_ref() == Some(&account);
        let parameters = is_recorded.then(|| content.parameters.clone());
        let buckets: Vec<_> = content.targets.iter().map(|target| target.id.clone()).collect();
        let flow = Flow::removing(content.class.as_str()).of_tenant(access.object.namespace.clone());
        let revoked = self.call(step, flow, |token| {
            Box::pin(async move { self.driver.revoke(&account, &buckets, parameters, &token).await })
        });
        revoked.await?;
        let metadata = json!({
            "uid": &*access.object.uid, "resourceVersion": version, "annotations": {CLEANUP_FINISHED: ""},
        });
        let patch = json!({"metadata": metadata});
        self.patch_access(access, None, patch).await?;
        Ok(Done::Revoked)
    }

    /// Deletes a Secret if it belongs to the access.
    async fn delete_secret(&self, access: &AccessFacts, name: &str) -> Result<(), Stopped> {
        let Some(secret) = self.read_secret(access, name).await? else { return Ok(()) };
        if secret.state(access) == SecretState::Foreign {
            return Ok(());
        }
        let version = self.remove_finalizer(access, name, &secret).await?;
        let preconditions = Preconditions { uid: Some(secret.uid), resource_version: Some(version) };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = found(self.context.request(self.secrets(access).delete(name, &parameters)).await);
        deleted.map(drop).map_err(Stopped::write_failed(DELETING))
    }

    /// Removes COSI's finalizer, which an upstream sidecar may have added earlier. Returns the Secret's version.
    async fn remove_finalizer(
        &self,
        access: &AccessFacts,
        name: &str,
        secret: &SecretFacts,
    ) -> Result<String, Stopped> {
        if !secret.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(secret.version.clone());
        }
        let patch = without_finalizer(&secret.uid, &secret.version, &secret.finalizers, FINALIZER);
        let patch = Patch::Merge(patch);
        let answer = self.context.request(self.secrets(access).patch(name, &PatchParams::default(), &patch)).await;
        let patched = answer.map_err(Stopped::write_failed(DELETING))?;
        Ok(patched.metadata.resource_version.unwrap_or_default())
    }

    /// Writes the status at this version, and updates `version` to the new one.
    async fn write_status(&self, access: &AccessFacts, version: &mut String, status: Value) -> Result<(), Stopped> {
        let metadata = json!({"uid": &*access.object.uid, "resourceVersion": version});
        let patch = json!({"metadata": metadata, "status": status});
        let written = self.patch_access(access, Some("status"), patch).await?.ok_or(Stopped::Changed)?;
        version.clone_from(&written.object.version);
        Ok(())
    }
}
