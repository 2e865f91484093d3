//! Shared parts of the plays with bucket claims, for all stores.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use s3_client::Client;
use serde_json::{Value, json};
use testbed::cluster::{BucketSpace, eventually};

use super::backend::{BOTH, EAST};
use super::inventory::Inventory;
use super::second::Second;

const LIMIT: Duration = Duration::from_secs(60);

/// A bucket provisioner in each cluster.
pub(crate) struct Pair {
    pub(crate) sides: [BucketSpace; 2],
    second: Second,
}

impl Pair {
    pub(crate) async fn new(test: &str) -> anyhow::Result<Self> {
        let second = Second::start().await?;
        let east = BucketSpace::new(test).await?;
        let west = east.twin_in(second.cluster().await?).await?;
        Ok(Self { sides: [east, west], second })
    }

    pub(crate) async fn class(&self, suffix: &str, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        for side in BOTH {
            self.sides[side].class(suffix, parameters).await?;
        }
        Ok(())
    }

    /// The namespace, whose name is equal in both clusters.
    pub(crate) fn namespace(&self) -> &str {
        self.sides[EAST].space.namespace()
    }

    pub(crate) fn claim(&self, name: &str, class: &str, wanted: bool) -> Value {
        let mut spec = json!({"storageClassName": self.sides[EAST].space.cluster_wide_name(class)});
        if wanted {
            spec["bucketName"] = format!("{}-{name}", self.namespace()).into();
        } else {
            spec["generateBucketName"] = self.namespace().into();
        }
        let (api_version, kind) = (objectbucket_api::API_VERSION, "ObjectBucketClaim");
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    }

    /// Writes with the claim's Secret and ConfigMap, and retries until the store knows the key.
    pub(crate) async fn write(&self, side: usize, claim: &str, object: &str, text: String) -> anyhow::Result<()> {
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

    pub(crate) async fn done(self) -> anyhow::Result<()> {
        for side in self.sides {
            side.space.done().await?;
        }
        self.second.end().await
    }
}

pub(crate) fn claims() -> kube::core::ApiResource {
    kube::core::ApiResource::erase::<ObjectBucketClaim>(&())
}

pub(crate) fn records() -> kube::core::ApiResource {
    kube::core::ApiResource::erase::<ObjectBucket>(&())
}

pub(crate) fn is_bound(claim: &Value) -> bool {
    claim["status"]["phase"] == "Bound"
}

/// The paths of an ObjectBucket's bucket and its user.
pub(crate) fn assets(record: &Value, user: &str) -> BTreeSet<String> {
    let bucket = record["spec"]["endpoint"]["bucketName"].as_str().map(|bucket| format!("bucket/{bucket}"));
    let user = record["spec"]["additionalState"][user].as_str().map(|user| format!("user/{user}"));
    bucket.into_iter().chain(user).collect()
}

/// Adds all objects of a bucket to the inventory.
pub(crate) async fn count_objects(client: &Client, bucket: &str, inventory: &mut Inventory) -> anyhow::Result<()> {
    let mut pages = client.sdk().list_objects_v2().bucket(bucket).into_paginator().send();
    while let Some(page) = pages.try_next().await? {
        for key in page.contents().iter().filter_map(|object| object.key()) {
            let bytes = client.get_object(bucket, key).await?.context("an object that is listed is gone")?;
            inventory.0.insert(format!("bucket/{bucket}/{key}"), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(())
}
