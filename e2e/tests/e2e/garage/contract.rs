//! The contract of bucket provisioners, and the ownership of buckets.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser as _;
use garage_provisioner::{Args, Config, Garage as Provisioner, Parameters};
use kube_provisioner::bucket::{AssetKind, Assets, BucketHooks as _, Granted, ListAssets, MarkedCluster};
use kube_provisioner::conformance::{BucketClaim, BucketConformance};
use kube_provisioner::{ProvisionError, Secrets};
use serde_json::json;
use testbed::bucket_attempts::{attempts_can_end_after_any_request, start_proxy_closing_after};
use testbed::cluster::eventually;
use testbed::control_plane::State;
use testbed::garage::{Garage, Server};
use testbed::s3::proxy::{self, Faults};

use super::fixture::SOON;

#[tokio::test]
async fn garage_the_contract_is_kept() -> anyhow::Result<()> {
    contract(1, None).await
}

/// The provisioner, the pods with their keys, and other administrators each use a different node.
#[tokio::test]
async fn garage_the_contract_is_kept_on_several_nodes() -> anyhow::Result<()> {
    contract(3, None).await
}

#[tokio::test]
async fn garage_the_contract_is_kept_when_calls_fail() -> anyhow::Result<()> {
    contract(1, Some(Faults::USUAL)).await
}

async fn contract(nodes: usize, faults: Option<Faults>) -> anyhow::Result<()> {
    let garage = Garage::of_nodes(nodes, &State::for_tests()?.guard()).await?;
    let server = garage.node(nodes - 1).clone();
    ensure!(server.make_bucket("existing").await?, "the bucket already exists");
    let mut endpoint = garage.node(nodes / 2).endpoint.clone();
    let mut admin_endpoint = garage.server().admin_endpoint.clone();
    if let Some(faults) = faults {
        endpoint = proxy::start(endpoint.as_str(), faults).await?;
        admin_endpoint = proxy::start(admin_endpoint.as_str(), faults).await?;
    }
    let defaults = args(&endpoint, &admin_endpoint).defaults;
    let admin = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
        "stringData": {"token": server.token},
    });
    let [listed, makes, removes] = [server.clone(), server.clone(), server.clone()];
    let kit = BucketConformance::new(
        move || Provisioner::new(defaults.clone()),
        move || {
            let server = listed.clone();
            async move { server.assets().await.expect("Garage answers") }
        },
    );
    let kit = kit.manually_created(
        move |name| {
            let server = makes.clone();
            async move { server.make_bucket(&name).await.expect("Garage answers") }
        },
        move |name| {
            let server = removes.clone();
            async move { server.remove_bucket(&name).await.expect("Garage answers") }
        },
    );
    let kit = kit
        .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
        .existing_bucket("existing")
        .objects([admin])
        .seeds(0..4)
        .real_time();
    let report = kit.run().await;
    ensure!(report.is_kept(), "{report}");
    #[expect(clippy::print_stdout, reason = "the time of each rule")]
    {
        println!("{report}");
    }
    Ok(())
}

fn args(endpoint: &str, admin_endpoint: &str) -> Args {
    let given = ["garage-provisioner", "--provisioner-name", "garage"];
    Args::parse_from(given.into_iter().chain(["--endpoint", endpoint, "--admin-endpoint", admin_endpoint]))
}

/// The provisioner of one claim, on a separate cluster.
struct One {
    garage: Garage,
    cluster_id: &'static str,
    /// The state that its ObjectBucket records.
    state: Vec<(String, String)>,
}

impl One {
    async fn new() -> anyhow::Result<Self> {
        let garage = Garage::start(&State::for_tests()?.guard()).await?;
        Ok(Self { garage, cluster_id: "cluster-a", state: Vec::new() })
    }

    fn server(&self) -> &Server {
        self.garage.server()
    }

    fn provisioner(&self, admin_endpoint: &str) -> Provisioner {
        Provisioner::new(args(&self.server().endpoint, admin_endpoint).defaults)
    }

    fn secrets(&self) -> Secrets {
        Secrets::new([("admin", [("token", self.server().token.clone())])])
    }

    fn claim(&self) -> BucketClaim<Parameters, Config> {
        let mut claim = BucketClaim::new("photos", Parameters::default(), Config::default());
        (claim.cluster_id, claim.secrets) = (self.cluster_id.to_owned(), self.secrets());
        claim.state = self.state.iter().cloned().collect();
        claim
    }

    async fn provision_through(&self, admin_endpoint: &str) -> Result<Granted, ProvisionError> {
        self.claim().provision(&self.provisioner(admin_endpoint)).await
    }

    async fn provision(&self) -> anyhow::Result<Granted> {
        self.provision_through(&self.server().admin_endpoint).await.map_err(|error| anyhow!("{error}"))
    }

    /// Records the bucket in the ObjectBucket.
    fn record(&mut self, granted: &Granted) {
        self.state = granted.state.clone().into_iter().collect();
    }

    async fn listed(&self) -> anyhow::Result<Assets> {
        let list = ListAssets::new(Parameters::default(), self.secrets(), self.cluster_id);
        let assets = self.provisioner(&self.server().admin_endpoint).list_assets(list).await;
        assets.map_err(|error| anyhow!("{error}"))
    }

    async fn refused(&self, part: &str) -> anyhow::Result<()> {
        let refused = self.provision().await.err().context("the claim received the bucket")?.to_string();
        ensure!(refused.contains(part), "{refused}");
        Ok(())
    }

    async fn delete(&self) -> anyhow::Result<()> {
        self.delete_through(&self.server().admin_endpoint).await
    }

    async fn delete_through(&self, admin_endpoint: &str) -> anyhow::Result<()> {
        self.claim().delete(&self.provisioner(admin_endpoint)).await.map_err(|error| anyhow!("{error}"))
    }
}

/// The bucket, its two names, the key and the permissions are written by separate requests.
#[tokio::test]
async fn garage_attempt_interrupted_after_any_request_leaves_nothing() -> anyhow::Result<()> {
    let one = One::new().await?;
    let last = attempts_can_end_after_any_request(
        &one.server().admin_endpoint,
        async |endpoint| one.provision_through(endpoint).await.map(drop).map_err(|error| anyhow!("{error}")),
        async || one.delete().await,
        async || one.server().assets().await,
    )
    .await?;
    ensure!(last > 6, "an attempt has only {last} requests");
    Ok(())
}

/// Whichever request was the last to arrive, the next call completes the deletion.
#[tokio::test]
async fn garage_deletion_interrupted_after_any_request_is_completed() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    for recorded in [false, true] {
        let mut last = 0;
        for ends_after in 1.. {
            one.state.clear();
            let made = one.provision().await?;
            if recorded {
                one.record(&made);
            }
            let key = made.credentials.context("no key")?;
            let s3 = one.server().s3(s3_client::Credentials::new(key.access_key_id, key.secret_access_key))?;
            s3.put_object("photos", "cat", "miaow").await?;
            let broken = start_proxy_closing_after(&one.server().admin_endpoint, ends_after).await?;
            let ended = one.delete_through(&broken).await.is_ok();
            one.delete().await.with_context(|| format!("after request {ends_after}"))?;
            assert_eq!(one.server().assets().await?, [""; 0], "after request {ends_after}");
            if ended {
                last = ends_after;
                break;
            }
        }
        ensure!(last > 8, "a deletion has only {last} requests");
    }
    Ok(())
}

/// Claims of several clusters ask several nodes for one name at the same time. Whatever Garage answers, the name
/// finally belongs to at most one of them, and a key can access only its own bucket.
#[tokio::test]
async fn garage_claims_racing_for_a_name_never_share_a_bucket() -> anyhow::Result<()> {
    let mut one = One { garage: Garage::of_nodes(3, &State::for_tests()?.guard()).await?, ..One::new().await? };
    const CLUSTERS: [&str; 3] = ["cluster-a", "cluster-b", "cluster-c"];
    let (mut alone, mut shared) = (0, 0);
    for _ in 0..20 {
        let attempt = async |node: usize| {
            let mut claim = one.claim();
            claim.cluster_id = CLUSTERS[node].to_owned();
            claim.provision(&one.provisioner(&one.garage.node(node).admin_endpoint)).await
        };
        let all = tokio::join!(attempt(0), attempt(1), attempt(2));
        let made: Vec<Granted> = [all.0, all.1, all.2].into_iter().flatten().collect();
        for (at, bucket) in made.iter().enumerate() {
            let key = bucket.credentials.as_ref().context("no key")?;
            let s3 = one.server().s3(s3_client::Credentials::new(&key.access_key_id, &key.secret_access_key))?;
            let written = eventually(SOON, async || Ok(s3.put_object("photos", &format!("{at}"), "x").await.ok()));
            ensure!(written.await?.is_some(), "the key does not give access to its bucket");
            let listed = s3.list_object_versions("photos").await?;
            ensure!(listed.len() == 1, "several claims share the bucket: {listed:?}");
        }
        if made.len() == 1 {
            alone += 1;
        } else {
            shared += 1;
        }
        for cluster in CLUSTERS {
            one.cluster_id = cluster;
            one.delete().await?;
        }
        assert_eq!(one.server().assets().await?, [""; 0]);
    }
    #[expect(clippy::print_stdout, reason = "how often Garage gives a name to several")]
    {
        println!("one claim had the name {alone} times, none or several {shared} times");
    }
    Ok(())
}

/// In a cluster that was restored from a backup, the claim is a different one, even if its ObjectBucket was restored.
#[tokio::test]
async fn garage_bucket_of_another_cluster_is_refused_and_kept() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    let bucket = one.provision().await?;
    let before = one.server().assets().await?;
    one.cluster_id = "cluster-b";
    for recorded in [false, true] {
        if recorded {
            one.record(&bucket);
        }
        one.refused(if recorded { "claim of another cluster" } else { "was not created for this claim" }).await?;
        one.delete().await?;
        assert_eq!(one.server().assets().await?, before, "{recorded}");
    }
    // That cluster no longer exists, and an administrator follows the event's advice.
    let key = bucket.credentials.clone().context("no key")?.access_key_id;
    one.server().ask(&format!("DeleteKey?id={key}"), Some(json!({}))).await?;
    assert_eq!(one.provision().await?.state, bucket.state);
    one.delete().await?;
    assert_eq!(one.server().assets().await?, [""; 0]);
    Ok(())
}

/// A key whose id matches the claim's, with a name that the provisioner never assigns.
#[tokio::test]
async fn garage_foreign_key_is_neither_used_nor_deleted() -> anyhow::Result<()> {
    let one = One::new().await?;
    let own = one.provision().await?.credentials.context("no key")?.access_key_id;
    one.delete().await?;
    for suffix in ["00000000", "ffffffff"] {
        let id = format!("{}{suffix}", &own[..own.len() - suffix.len()]);
        let key = json!({"accessKeyId": id, "secretAccessKey": "0".repeat(64), "name": "somebody"});
        one.server().ask("ImportKey", Some(key)).await?;
    }
    let before = one.server().assets().await?;
    assert_eq!(before.len(), 2, "{before:?}");
    let used = one.provision().await?.credentials.context("no key")?.access_key_id;
    ensure!(!before.iter().any(|key| key.contains(&used)), "{used} is a foreign key");
    one.delete().await?;
    assert_eq!(one.server().assets().await?, before);
    Ok(())
}

/// An administrator changes a claim's key and bucket manually.
#[tokio::test]
async fn garage_manual_changes_are_repaired_or_reported() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    let first = one.provision().await?;
    one.record(&first);
    let (id, key) = (first.state["bucketId"].clone(), first.credentials.clone().context("no key")?);
    let ask = async |operation: &str, body| one.server().ask(operation, Some(body)).await;

    // The key no longer exists, but the ObjectBucket still records the bucket.
    ask(&format!("DeleteKey?id={}", key.access_key_id), json!({})).await?;
    let again = one.provision().await?;
    ensure!(again.state["bucketId"] == id && again.credentials != first.credentials, "{again:?}");

    // Another bucket has the name: both that bucket and the claim's bucket stay.
    ask("AddBucketAlias", json!({"bucketId": id, "globalAlias": "put-aside"})).await?;
    ask("RemoveBucketAlias", json!({"bucketId": id, "globalAlias": "photos"})).await?;
    ensure!(one.server().make_bucket("photos").await?, "the name is taken");
    one.refused(&format!("garage bucket alias {id} photos")).await?;
    one.server().remove_bucket("photos").await?;
    let back = one.provision().await?;
    ensure!(back.state["bucketId"] == id && back.credentials == again.credentials, "{back:?}");

    // The bucket no longer exists.
    one.server().remove_bucket("photos").await?;
    let new = one.provision().await?;
    ensure!(new.state["bucketId"] != id, "{new:?}");
    // The bucket, the key, and the key's access.
    assert_eq!(one.server().assets().await?.len(), 3);
    one.delete().await?;
    assert_eq!(one.server().assets().await?, [""; 0]);
    Ok(())
}

/// Garage lists a bucket for a key even after the key's access was revoked. A bucket that was created through S3 has
/// only its creator's local alias.
#[tokio::test]
async fn garage_bucket_to_which_access_was_revoked_outlives_the_claim() -> anyhow::Result<()> {
    let one = One::new().await?;
    let key = one.provision().await?.credentials.context("no key")?.access_key_id;
    let ask = async |operation: &str, body| one.server().ask(operation, Some(body)).await;
    let creator = ask("CreateKey", json!({"name": "owner of films", "allow": {"createBucket": true}})).await?;
    let text = |name: &str| creator[name].as_str().context("no key");
    let (id, secret) = (text("accessKeyId")?, text("secretAccessKey")?);
    let s3 = one.server().s3(s3_client::Credentials::new(id, secret))?;
    s3.create_bucket("films", None).await?;
    s3.put_object("films", "cat", "miaow").await?;
    let known = one.server().ask(&format!("GetKeyInfo?id={id}"), None).await?;
    let bucket = &known["buckets"][0]["id"];
    let permissions = json!({"read": true, "write": true, "owner": false});
    for operation in ["AllowBucketKey", "DenyBucketKey"] {
        ask(operation, json!({"bucketId": bucket, "accessKeyId": key, "permissions": permissions})).await?;
    }
    one.server().remove_bucket("photos").await?;

    let Assets { found, unread, .. } = one.listed().await?;
    ensure!(found.len() == 1 && unread.is_empty(), "{found:?} {unread:?}");
    one.delete().await?;
    assert_eq!(one.server().assets().await?, [format!("bucket {bucket}")]);
    ensure!(s3.object_exists("films", "cat").await?, "the object was deleted");
    Ok(())
}

/// Another bucket has the name of a retained bucket. Without its keys, a bucket can only be found by a global alias.
#[tokio::test]
async fn garage_retained_bucket_keeps_its_keys_until_it_has_a_name() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    let made = one.provision().await?;
    one.record(&made);
    let id = made.state["bucketId"].clone();
    let ask = async |operation: &str, body| one.server().ask(operation, Some(body)).await;
    ask("RemoveBucketAlias", json!({"bucketId": id, "globalAlias": "photos"})).await?;
    ensure!(one.server().make_bucket("photos").await?, "the name is taken");
    let provisioner = one.provisioner(&one.server().admin_endpoint);
    let kept = one.claim().revoke(&provisioner).await.err().context("the keys were removed")?.to_string();
    ensure!(kept.contains(&format!("garage bucket alias {id} <another name>")), "{kept}");
    ask("AddBucketAlias", json!({"bucketId": id, "globalAlias": "photos-of-2025"})).await?;
    one.claim().revoke(&provisioner).await.map_err(|error| anyhow!("{error}"))?;
    let mut left = one.server().assets().await?;
    left.sort_unstable();
    assert_eq!(left, ["photos", "photos-of-2025"]);
    Ok(())
}

// Rules: Z34.
/// The input of the command `orphans`.
#[tokio::test]
async fn garage_buckets_and_keys_are_listed_with_their_marks() -> anyhow::Result<()> {
    let mut one = One::new().await?;
    ensure!(one.server().make_bucket("of-somebody").await?, "the bucket already exists");
    // More keys than fit on a page.
    for at in 0..1001 {
        one.server().ask("CreateKey", Some(json!({"name": format!("owner of {at}")}))).await?;
    }
    let made = one.provision().await?;
    let key = made.credentials.context("no key")?.access_key_id;
    for (cluster, expected) in
        [("cluster-b", MarkedCluster::Other("cluster-a".to_owned())), ("cluster-a", MarkedCluster::This)]
    {
        one.cluster_id = cluster;
        let Assets { found, unread, .. } = one.listed().await?;
        let all: Vec<_> = found.iter().map(|asset| (asset.kind, asset.name.as_str())).collect();
        assert_eq!(all, [(AssetKind::Bucket, "photos"), (AssetKind::Account, key.as_str())]);
        assert_eq!(unread, [""; 0]);
        for asset in &found {
            ensure!(asset.owner == one.claim().account() && asset.cluster == expected && !asset.retained, "{asset:?}");
        }
    }

    // An administrator gives the key an alias for a bucket that was not created for the claim.
    let bucket = one.server().bucket("of-somebody").await?.context("the bucket no longer exists")?["id"].clone();
    let alias = json!({"bucketId": bucket, "accessKeyId": key, "localAlias": "mine"});
    one.server().ask("AddBucketAlias", Some(alias.clone())).await?;
    let Assets { found, unread, .. } = one.listed().await?;
    ensure!(found.is_empty() && unread.iter().any(|text| text.contains("has the name mine")), "{found:?} {unread:?}");
    one.server().ask("RemoveBucketAlias", Some(alias)).await?;

    one.delete().await?;
    assert_eq!(one.listed().await?, Assets::default());
    Ok(())
}

// Rules: Z34.
/// A bucket that is kept because it contains objects keeps its name, even if no ObjectBucket records it.
#[tokio::test]
async fn garage_bucket_kept_for_its_objects_keeps_its_name() -> anyhow::Result<()> {
    let one = One::new().await?;
    let key = one.provision().await?.credentials.context("no key")?;
    let s3 = one.server().s3(s3_client::Credentials::new(key.access_key_id, key.secret_access_key))?;
    s3.put_object("photos", "cat", "miaow").await?;
    let mut claim = one.claim();
    claim.parameters = Arc::new(serde_json::from_value(json!({"deletionPolicy": "DeleteIfEmpty"}))?);
    let kept =
        claim.delete(&one.provisioner(&one.server().admin_endpoint)).await.err().context("the bucket was deleted")?;
    ensure!(one.server().bucket("photos").await?.is_some(), "the bucket has lost its name: {kept}");
    one.delete().await
}
