//! Administrator steps for buckets after a restore, as requested by events and conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use objectbucket_api::{ObjectBucket, ObjectBucketClaim};
use serde_json::json;
use testbed::cluster::{TestSpace, eventually, is_bucket_bound};
use tokio::process::Command;

use super::backup::list;

const LIMIT: Duration = Duration::from_secs(180);

/// Returns to each claim the assets that it had before the loss: runs the guide's commands, and then the steps that
/// conditions request, until all claims are bound.
pub(crate) async fn restore_assets(space: &TestSpace) -> anyhow::Result<String> {
    run_guide(space).await?;
    let claims = space.api::<ObjectBucketClaim>();
    let mut done: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut waiting = Vec::new();
    let all = eventually(LIMIT, async || {
        waiting.clear();
        for claim in claims.list(&ListParams::default()).await? {
            if is_bucket_bound(&claim) {
                continue;
            }
            let name = claim.name_any();
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            let ready = conditions.find(|condition| condition.type_ == "Ready");
            let reason = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
            let text = ready.map(|ready| ready.message.clone()).unwrap_or_default();
            waiting.push(format!("{name}: {reason}: {text}"));
            // A condition remains until the controller sees the step.
            if !done.get(&reason).is_some_and(|done| done.contains(&name))
                && follow(space, &name, &reason, &text).await?
            {
                done.entry(reason).or_default().insert(name);
            }
        }
        Ok(waiting.is_empty().then_some(()))
    });
    ensure!(all.await?.is_some(), "these claims have not received their buckets again: {waiting:#?}");
    let followed = done.iter().map(|(reason, claims)| format!("what {reason} says for {} claims", claims.len()));
    Ok(["the guide's commands".to_owned()].into_iter().chain(followed).collect::<Vec<_>>().join(", "))
}

/// Runs the commands in the page about restores verbatim.
async fn run_guide(space: &TestSpace) -> anyhow::Result<()> {
    let page = include_str!("../../../../docs/book/pages/operate/backup.md");
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands =
        blocks.find(|block| block.contains("adopt-for")).context("the page does not contain the commands")?;
    let state = space.cluster().state();
    let kubectl = state.kubectl.as_ref().and_then(|program| program.parent()).context("there is no kubectl")?;
    let path = format!("{}:{}", kubectl.display(), std::env::var("PATH")?);
    let mut shell = Command::new("sh");
    // They also process objects of other tests, which may no longer exist. The claims show the success.
    shell.args(["-uc", commands]).env("PATH", path).env("KUBECONFIG", &state.kubeconfig).output().await?;
    Ok(())
}

/// Follows a condition; returns true if it requested a step.
async fn follow(space: &TestSpace, claim: &str, reason: &str, text: &str) -> anyhow::Result<bool> {
    match reason {
        "ObjectBucketNotProven" => {
            let object = text.split("annotate objectbucket ").nth(1).and_then(|rest| rest.split(' ').next());
            let Some(object) = object else { return Ok(false) };
            adopt_for(space, object, claim).await?;
        }
        "SecretNotOwned" => drop(space.api::<Secret>().delete(claim, &DeleteParams::default()).await),
        "ConfigMapNotOwned" => drop(space.api::<ConfigMap>().delete(claim, &DeleteParams::default()).await),
        _ => return Ok(false),
    }
    Ok(true)
}

async fn adopt_for(space: &TestSpace, object: &str, claim: &str) -> anyhow::Result<()> {
    let value = format!("{}/{claim}", space.namespace());
    annotate(space, object, kube_provisioner::protocol::ADOPT_FOR, &value).await
}

async fn annotate(space: &TestSpace, object: &str, annotation: &str, value: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    space.cluster_api::<ObjectBucket>().patch(object, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Requests every possible operation on objects that were restored into the wrong cluster: adoption by claims, key
/// rotation, and deletion of claims and objects.
pub(crate) async fn misuse_foreign_objects(space: &TestSpace) -> anyhow::Result<()> {
    let claims = space.api::<ObjectBucketClaim>();
    let kind = super::buckets::records();
    let records = || list(space, &kind);
    for record in records().await? {
        if let Some(claim) = record.data["spec"]["claimRef"]["name"].as_str() {
            adopt_for(space, &record.name_any(), claim).await?;
        }
    }
    let rotate = json!({"metadata": {"annotations": {(kube_provisioner::protocol::ROTATE_CREDENTIALS): "now"}}});
    for claim in claims.list(&ListParams::default()).await? {
        claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&rotate)).await?;
    }
    // Wait for automatic changes before the deletion.
    tokio::time::sleep(Duration::from_secs(5)).await;
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    for record in records().await? {
        let object = space.cluster_api::<ObjectBucket>().delete(&record.name_any(), &DeleteParams::default()).await;
        ensure!(object.is_ok() || is_gone(&object), "{object:?}");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for record in records().await? {
        match annotate(space, &record.name_any(), kube_provisioner::protocol::ABANDON, "true").await {
            Err(error) if !error.to_string().contains("not found") => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn is_gone<T>(result: &Result<T, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 404)
}
