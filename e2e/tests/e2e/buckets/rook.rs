//! Adoption of the buckets and objects that Rook created on a gateway and in the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use objectbucket_api::names::provisioner_label;
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::{Client, Credentials};
use serde_json::{Value, json};
use testbed::bucket_cases::BucketFixture as _;
use testbed::cluster::eventually;

use super::fixture::{Fixture, SOON};

/// Recorded objects of a real cluster, with the names of this test and its gateway.
struct RookObjects {
    claim: Value,
    bucket: Value,
    secret: Value,
    map: Value,
}

impl RookObjects {
    fn recorded(fixture: &Fixture) -> anyhow::Result<Self> {
        let gateway: http::Uri = fixture.ceph.endpoint.parse()?;
        let port = gateway.port_u16().context("no port")?;
        let claim = include_str!("../../../../crates/objectbucket-api/fixtures/rook/claim.json");
        let bucket =
            serde_json::from_str::<Value>(claim)?["spec"]["bucketName"].as_str().context("no bucket")?.to_owned();
        let read = |text: &str| -> anyhow::Result<Value> {
            // Rename the objects, because tests run concurrently.
            let text = text.replace(&bucket, &format!("photos-{}", fixture.space.namespace()));
            let text = text.replace("rook-ceph.ceph.rook.io-bucket", &provisioner_label(fixture.space.provisioner()));
            let text = text.replace("rook-ceph-bucket", &fixture.space.cluster_wide_name("class"));
            let text = text.replace("gallery", fixture.space.namespace());
            let text = text.replace("rook-ceph-rgw-my-store.rook-ceph.svc", gateway.host().unwrap_or_default());
            let text = text.replace(r#""bucketPort": 80"#, &format!(r#""bucketPort": {port}"#));
            let text = text.replace(r#""BUCKET_PORT": "80""#, &format!(r#""BUCKET_PORT": "{port}""#));
            let mut object: Value = serde_json::from_str(&text)?;
            for given in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                object["metadata"].as_object_mut().context("no metadata")?.remove(given);
            }
            Ok(object)
        };
        Ok(Self {
            claim: read(claim)?,
            bucket: read(include_str!("../../../../crates/objectbucket-api/fixtures/rook/bucket.json"))?,
            secret: read(include_str!("../../../../crates/objectbucket-api/fixtures/rook/secret.json"))?,
            map: read(include_str!("../../../../crates/objectbucket-api/fixtures/rook/configmap.json"))?,
        })
    }

    /// Creates the user and the bucket like Rook, and the objects. Returns a client for the user.
    async fn make(mut self, fixture: &Fixture) -> anyhow::Result<Client> {
        let user = self.bucket["spec"]["additionalState"]["cephUser"].as_str().context("no user")?.to_owned();
        let made = fixture.ceph.radosgw_admin(&["user", "create", "--uid", &user, "--display-name", &user]).await?;
        let key = |name: &str| made["keys"][0][name].as_str().map(str::to_owned).context("no key");
        let (access, secret) = (key("access_key")?, key("secret_key")?);
        let client = testbed::s3::client(&fixture.ceph.endpoint, None, Credentials::new(&access, &secret))?;
        let bucket = self.claim["spec"]["bucketName"].as_str().context("no bucket")?.to_owned();
        client.create_bucket(&bucket, None).await?;
        client.put_object(&bucket, "cat", "miaow").await?;

        let (of_claim, of_bucket) = (self.claim["status"].take(), self.bucket["status"].take());
        let claim: ObjectBucketClaim = fixture.space.create(&serde_json::from_value(self.claim)?).await?;
        let uid = json!(claim.uid());
        self.bucket["spec"]["claimRef"]["uid"] = uid.clone();
        self.secret.as_object_mut().context("not an object")?.remove("data");
        self.secret["stringData"] = json!({"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret});
        for object in [&mut self.secret, &mut self.map] {
            object["metadata"]["ownerReferences"][0]["uid"] = uid.clone();
        }
        fixture.space.create::<Secret>(&serde_json::from_value(self.secret)?).await?;
        fixture.space.create::<ConfigMap>(&serde_json::from_value(self.map)?).await?;
        let object: ObjectBucket = fixture.space.create_cluster_wide(&serde_json::from_value(self.bucket)?).await?;
        let status = |status: Value| Patch::Merge(json!({"status": status}));
        let parameters = PatchParams::default();
        fixture
            .space
            .cluster_api::<ObjectBucket>()
            .patch_status(&object.name_any(), &parameters, &status(of_bucket))
            .await?;
        fixture.space.api::<ObjectBucketClaim>().patch_status("photos", &parameters, &status(of_claim)).await?;
        Ok(client)
    }
}

/// The resource versions of the objects that pods use, and the state of the gateway.
async fn seen(fixture: &Fixture) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let version = |object: Option<String>| object.unwrap_or_default();
    let user = fixture.users().await?.pop().unwrap_or_default();
    Ok(BTreeMap::from([
        ("Secret", version(fixture.space.api::<Secret>().get("photos").await?.resource_version())),
        ("ConfigMap", version(fixture.space.api::<ConfigMap>().get("photos").await?.resource_version())),
        ("user", fixture.ceph.radosgw_admin(&["user", "info", "--uid", &user]).await?.to_string()),
        ("buckets", format!("{:?}", fixture.buckets().await?)),
    ]))
}

// Rules: Z15.
#[tokio::test]
async fn ceph_settings_from_rook_are_removed_with_the_claims_keys() -> anyhow::Result<()> {
    let fixture = Fixture::new("bucket-rook-policy").await?;
    let mut left = RookObjects::recorded(&fixture)?;
    let bucket = left.claim["spec"]["bucketName"].as_str().context("no bucket")?.to_owned();
    let lifecycle = r#"{"Rules":[{"ID":"old","Status":"Enabled","Prefix":"logs/","Expiration":{"Days":3}}]}"#;
    let policy = json!({"Version": "2012-10-17", "Statement": [{
        "Sid": "all", "Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["s3:GetObject"],
        "Resource": [format!("arn:aws:s3:::{bucket}/*")],
    }]});
    let config = json!({"bucketPolicy": policy.to_string(), "bucketLifecycle": lifecycle, "maxObjects": "5"});
    left.claim["spec"]["additionalConfig"] = config.clone();
    left.bucket["spec"]["endpoint"]["additionalConfig"] = config;
    let client = left.make(&fixture).await?;
    client.put_bucket_policy(&bucket, &Policy::parse(&policy.to_string())?).await?;
    client.put_bucket_lifecycle(&bucket, &Lifecycle::parse(lifecycle)?).await?;
    let user = fixture.users().await?.pop().context("no user")?;
    let quota = ["quota", "set", "--quota-scope=user", "--uid", &user, "--max-objects=5"];
    fixture.ceph.radosgw_admin(&quota).await?;
    fixture.ceph.radosgw_admin(&["quota", "enable", "--quota-scope=user", "--uid", &user]).await?;
    let _program = fixture.start().await?;
    let objects = fixture.space.cluster_api::<ObjectBucket>();
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let object = claims.get("photos").await?.spec.object_bucket_name.context("no ObjectBucket")?;
    let taken = |object: &ObjectBucket| object.annotations().contains_key("kube-provisioner/bucket");
    fixture.space.wait_for_within(SOON, &objects, &object, "taken over", taken).await?;
    let is_there = async || -> anyhow::Result<[bool; 3]> {
        let quota =
            fixture.ceph.radosgw_admin(&["user", "info", "--uid", &user]).await?["user_quota"]["enabled"] == true;
        let policy = !client.bucket_policy(&bucket).await?.is_empty();
        Ok([policy, !client.bucket_lifecycle(&bucket).await?.is_empty(), quota])
    };
    assert_eq!(is_there().await?, [true; 3]);
    fixture.patch("photos", json!({"spec": {"additionalConfig": null}})).await?;
    let gone = eventually(SOON, async || Ok((is_there().await? == [false; 3]).then_some(())));
    anyhow::ensure!(gone.await?.is_some(), "policy, lifecycle, quota: {:?}", is_there().await?);
    fixture.done_without(&["photos"]).await
}

// Rules: Z15, Y8.
#[tokio::test]
async fn ceph_objects_from_rook_are_adopted_and_later_deleted() -> anyhow::Result<()> {
    let fixture = Fixture::new("bucket-rook").await?;
    let client = RookObjects::recorded(&fixture)?.make(&fixture).await?;
    let before = seen(&fixture).await?;
    let _program = fixture.start().await?;
    let objects = fixture.space.cluster_api::<ObjectBucket>();
    let claims = fixture.space.api::<ObjectBucketClaim>();
    let object = claims.get("photos").await?.spec.object_bucket_name.context("no ObjectBucket")?;
    let taken = |object: &ObjectBucket| object.annotations().contains_key("kube-provisioner/bucket");
    fixture.space.wait_for_within(SOON, &objects, &object, "taken over", taken).await?;
    // Long enough for unwanted changes to happen.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(seen(&fixture).await?, before);
    let bucket = objects.get(&object).await?.spec.endpoint.context("no endpoint")?.bucket_name;
    assert!(client.get_object(&bucket, "cat").await?.is_some());

    // The class may be deleted: the ObjectBucket records all data that deletion needs.
    let classes = fixture.space.cluster_api::<k8s_openapi::api::storage::v1::StorageClass>();
    classes.delete(&fixture.space.cluster_wide_name("class"), &DeleteParams::default()).await?;
    fixture.done_without(&["photos"]).await
}
