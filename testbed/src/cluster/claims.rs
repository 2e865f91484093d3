//! Helpers for tests of volume provisioners: classes with parameters, and many claims.

use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

use super::{TestSpace, eventually, is_bound};

/// The number of claims that are created at once.
const BATCH: usize = 20;

impl TestSpace {
    /// Creates a class of this test's provisioner with parameters.
    pub async fn class_with<'a>(
        &self,
        suffix: &str,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> anyhow::Result<StorageClass> {
        self.create_class(with_parameters(self.class(suffix), parameters)).await
    }

    /// Creates a class whose claims wait for a pod, with parameters.
    pub async fn waiting_class_with<'a>(
        &self,
        suffix: &str,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> anyhow::Result<StorageClass> {
        let mut class = with_parameters(self.class(suffix), parameters);
        class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
        self.create_class(class).await
    }

    /// Creates `count` claims of a class: `claim-0`, `claim-1` and so on.
    pub async fn create_claims(&self, class: &StorageClass, count: usize) -> anyhow::Result<()> {
        for batch in (0..count).collect::<Vec<_>>().chunks(BATCH) {
            let claims = batch.iter().map(|at| self.create_claim(self.claim(&format!("claim-{at}"), class)));
            try_join_all(claims).await?;
        }
        Ok(())
    }

    /// Waits until `count` claims are bound.
    pub async fn wait_all_bound(&self, count: usize, limit: Duration) -> anyhow::Result<()> {
        let claims = self.api::<PersistentVolumeClaim>();
        let mut bound = 0;
        let all = eventually(limit, async || {
            bound = claims.list(&ListParams::default()).await?.iter().filter(|claim| is_bound(claim)).count();
            Ok((bound == count).then_some(()))
        });
        ensure!(all.await?.is_some(), "only {bound} of {count} claims are bound after {} s", limit.as_secs());
        Ok(())
    }

    /// Deletes all claims of the test with one request each: a busy API server cannot delete a thousand claims within a
    /// single request's timeout of a minute.
    pub async fn delete_claims(&self) -> anyhow::Result<()> {
        let claims = self.api::<PersistentVolumeClaim>();
        let existing = claims.list_metadata(&ListParams::default()).await?.items;
        for batch in existing.chunks(BATCH) {
            let deletions = batch.iter().map(async |claim| {
                match claims.delete(&claim.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    deleted => deleted.map(drop),
                }
            });
            try_join_all(deletions).await?;
        }
        Ok(())
    }

    /// Deletes a claim and waits until its volume no longer exists.
    pub async fn delete_claim(&self, name: &str) -> anyhow::Result<()> {
        let (claim, _) = self.wait_bound(name).await?;
        self.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        self.wait_gone(&self.cluster_api::<PersistentVolume>(), &volume).await
    }
}

fn with_parameters<'a>(
    mut class: StorageClass,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> StorageClass {
    let parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    class.parameters = Some(parameters.collect());
    class
}
