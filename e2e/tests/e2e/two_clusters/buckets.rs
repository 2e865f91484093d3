//! The scenario with bucket claims.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use kube::core::ApiResource;
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use s3_client::Client;
use serde_json::{Value, json};
use testbed::cluster::{BucketSpace, Program, TestSpace, eventually};

use super::administrator;
use super::backend::{Backend, EAST};
use super::inventory::Inventory;
use super::second::Second;

const LIMIT: Duration = Duration::from_secs(60);

/// A store that both clusters share, and its provisioner.
pub(crate) trait Store {
    /// The name in figures.
    const NAME: &str;
    /// The field of an ObjectBucket that names its user.
    const USER: &str;

    fn spawn(&self, buckets: &BucketSpace) -> anyhow::Result<Program>;

    /// The class of the claim with this number.
    fn class(&self, number: usize) -> &'static str;

    /// All buckets and users of claims in this namespace.
    async fn inventory(&self, namespace: &str) -> anyhow::Result<Inventory>;
}

/// A bucket provisioner in each cluster.
pub(crate) struct Pair<S> {
    sides: [BucketSpace; 2],
    second: Second,
    store: S,
}

impl<S: Store> Pair<S> {
    /// Creates the classes, each with its parameters, in both clusters.
    pub(crate) async fn new(test: &str, store: S, classes: &[(&str, &[(&str, &str)])]) -> anyhow::Result<Self> {
        let second = Second::start().await?;
        let east = BucketSpace::new(test).await?;
        let west = east.counterpart_in(second.cluster().await?).await?;
        for side in [&east, &west] {
            for (suffix, parameters) in classes {
                side.class(suffix, parameters).await?;
            }
        }
        Ok(Self { sides: [east, west], second, store })
    }

    /// The namespace, whose name is equal in both clusters.
    fn namespace(&self) -> &str {
        self.sides[EAST].space.namespace()
    }
}

impl<S: Store> Backend for Pair<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn claims() -> ApiResource {
        ApiResource::erase::<ObjectBucketClaim>(&())
    }

    fn records() -> ApiResource {
        records()
    }

    fn space(&self, side: usize) -> &TestSpace {
        &self.sides[side].space
    }

    fn spawn(&self, side: usize) -> anyhow::Result<Program> {
        self.store.spawn(&self.sides[side])
    }

    fn claim(&self, name: &str, number: usize, wanted: bool) -> Value {
        let class = self.sides[EAST].space.cluster_wide_name(self.store.class(number));
        let mut spec = json!({"storageClassName": class});
        if wanted {
            spec["bucketName"] = format!("{}-{name}", self.namespace()).into();
        } else {
            spec["generateBucketName"] = self.namespace().into();
        }
        let (api_version, kind) = (objectbucket_api::API_VERSION, "ObjectBucketClaim");
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    }

    /// The paths of an ObjectBucket's bucket and its user.
    fn assets(&self, record: &Value) -> BTreeSet<String> {
        let bucket = record["spec"]["endpoint"]["bucketName"].as_str().map(|bucket| format!("bucket/{bucket}"));
        let user = record["spec"]["additionalState"][S::USER].as_str().map(|user| format!("user/{user}"));
        bucket.into_iter().chain(user).collect()
    }

    async fn inventory(&self) -> anyhow::Result<Inventory> {
        self.store.inventory(self.namespace()).await
    }

    /// Writes with the claim's Secret and ConfigMap, and retries until the store knows the key.
    async fn write(&self, side: usize, claim: &str, object: &str, text: String) -> anyhow::Result<()> {
        let mut last = None;
        let written = eventually(LIMIT, async || {
            let user = match self.sides[side].user(claim).await {
                Ok(user) => user,
                Err(error) => {
                    last = Some(error);
                    return Ok(None);
                }
            };
            let written = user.client.put_object(&user.bucket, object, text.clone()).await;
            last = written.err().map(anyhow::Error::from);
            Ok(last.is_none().then_some(()))
        });
        match (written.await?, last) {
            (Some(()), _) => Ok(()),
            (None, error) => Err(error.context("no time")?).with_context(|| format!("{claim} cannot write {object}")),
        }
    }

    async fn take_over(&self, side: usize) -> anyhow::Result<String> {
        administrator::restore_assets(&self.sides[side].space).await
    }

    async fn misuse_objects(&self, side: usize) -> anyhow::Result<()> {
        administrator::misuse_foreign_objects(&self.sides[side].space).await
    }

    async fn done(self) -> anyhow::Result<()> {
        for side in self.sides {
            side.space.done().await?;
        }
        self.second.end().await
    }
}

pub(crate) fn records() -> ApiResource {
    ApiResource::erase::<ObjectBucket>(&())
}

/// Adds all objects of a bucket to the inventory.
pub(crate) async fn count_objects(client: &Client, bucket: &str, inventory: &mut Inventory) -> anyhow::Result<()> {
    let mut pages = client.sdk().list_objects_v2().bucket(bucket).into_paginator().send();
    while let Some(page) = pages.try_next().await? {
        for key in page.contents().iter().filter_map(|object| object.key()) {
            let bytes = client.get_object(bucket, key).await?.context("a listed object no longer exists")?;
            inventory.0.insert(format!("bucket/{bucket}/{key}"), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(())
}
