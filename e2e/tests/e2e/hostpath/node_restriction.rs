//! The ValidatingAdmissionPolicy of the manifests restricts the writes of a node's pod to objects of that node.

use anyhow::Context;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Error, ResourceExt};
use serde_json::{Value, json};
use testbed::cluster::{Access, TestSpace, eventually};
use testbed::manifests::{parse, project};

use super::fixture::*;
use crate::expansion::{ask_for, has};

/// Applies the policy of the manifests for this test's account.
async fn apply_policy(space: &TestSpace) -> anyhow::Result<()> {
    let path = project().join("deploy/hostpath/per-node/admissionpolicy.yaml");
    let mut text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (namespace, journal) = (space.namespace(), space.provisioner().replace('/', "-"));
    for (from, to) in [
        ("hostpath-provisioner-hostpath-provisioner", space.cluster_wide_name("policy")),
        ("metadata.name: hostpath-provisioner", format!("metadata.name: {namespace}")),
        (":serviceaccount:hostpath-provisioner:hostpath-provisioner", format!(":serviceaccount:{namespace}:{ACCOUNT}")),
        ("kube-provisioner-hostpath", journal),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    space.apply(&parse(&text)?).await
}

/// The access of the provisioner's pod on this node.
async fn access_on(space: &TestSpace, node: &Node) -> anyhow::Result<Access> {
    let name = node.name_any();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": format!("on-{name}")},
        "spec": {"serviceAccountName": ACCOUNT, "nodeName": name, "containers": [{"name": "main", "image": "none"}]},
    }))?;
    space.access_of_pod(&space.create(&pod).await?).await
}

fn volume(space: &TestSpace, affinity: &Value, annotations: &Value) -> anyhow::Result<PersistentVolume> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": space.cluster_wide_name("made"), "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}, "hostPath": {"path": "/made"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": affinity}},
        },
    }))?)
}

fn term(key: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]})
}

fn journal(space: &TestSpace, node: &str) -> String {
    format!("{}-journal-node-{node}", space.provisioner().replace('/', "-"))
}

/// Fails unless the API server refuses the request because of this rule of the policy.
fn refused<T: std::fmt::Debug>(done: kube::Result<T>, rule: &str) -> anyhow::Result<()> {
    match done {
        Err(Error::Api(status)) if status.code == 403 && status.message.contains(rule) => Ok(()),
        other => anyhow::bail!("expected the refusal {rule:?}: {other:?}"),
    }
}

#[tokio::test]
async fn pods_write_only_objects_of_their_own_node() -> anyhow::Result<()> {
    const VOLUMES: &str = "may write only volumes whose node affinity";
    let (space, root) = (TestSpace::new("node-restriction").await?, tempfile::tempdir()?);
    let without_node = account_per_node(&space).await?;
    apply_policy(&space).await?;
    let (node, other) = (space.create_node("here", &[]).await?, space.create_node("there", &[]).await?);
    let (here, there) = (access_on(&space, &node).await?, access_on(&space, &other).await?);
    let (name, other_name) = (node.name_any(), other.name_any());

    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let volumes_as = async |access: &Access| anyhow::Ok(Api::<PersistentVolume>::all(access.client().await?));
    let (from_here, from_there) = (volumes_as(&here).await?, volumes_as(&there).await?);
    let from_nowhere = volumes_as(&without_node).await?;
    let hostname = |node: &str| json!([term("kubernetes.io/hostname", &[node])]);
    let own = volume(&space, &hostname(&name), &json!({"hostpath-provisioner/node": name}))?;
    // The API server enforces a new policy within seconds.
    let enforced = async || Ok(refused(from_there.create(&dry_run, &own).await, VOLUMES).ok());
    eventually(SOON, enforced).await?.context("the policy is not enforced")?;

    from_here.create(&dry_run, &own).await?;
    refused(from_nowhere.create(&dry_run, &own).await, "The token does not name a node")?;
    for affinity in [
        hostname(&other_name),
        json!([term("kubernetes.io/hostname", &[&name]), term("kubernetes.io/hostname", &[&other_name])]),
        json!([term("kubernetes.io/hostname", &[&name, &other_name])]),
        json!([term("kubernetes.io/os", &[&name])]),
    ] {
        let volume = volume(&space, &affinity, &json!({}))?;
        refused(from_here.create(&dry_run, &volume).await, VOLUMES).with_context(|| affinity.to_string())?;
    }
    let mut anywhere = own.clone();
    anywhere.spec.as_mut().context("the volume has no spec")?.node_affinity = None;
    refused(from_here.create(&dry_run, &anywhere).await, VOLUMES)?;
    for key in ["hostpath-provisioner/node", "kube-provisioner/identity"] {
        let volume = volume(&space, &hostname(&name), &json!({key: other_name}))?;
        refused(from_here.create(&dry_run, &volume).await, "may not write volumes of other nodes")?;
    }

    // A volume is created, expanded and deleted, and only its own node may write it in between.
    let program = started(&space, &here, root.path(), &["--node-name", &name]).await?;
    let mut class = space.class("class");
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    class.allow_volume_expansion = Some(true);
    let class = space.create_class(class).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    let mut pod = space.pod("pod", "claim");
    let labels = pod.spec.as_mut().and_then(|spec| spec.node_selector.as_mut()).context("no node selector")?;
    labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
    space.create(&pod).await?;
    let (_, made) = space.wait_bound("claim").await?;
    let made = made.name_any();
    ask_for(&space, "claim", "2Mi").await?;
    space.wait_for(&space.api(), "claim", "larger", |claim| has(claim, "2Mi")).await?;
    let mark = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    refused(from_there.patch(&made, &PatchParams::default(), &mark).await, VOLUMES)?;
    refused(from_there.delete(&made, &DeleteParams::default()).await, VOLUMES)?;
    refused(from_nowhere.delete(&made, &DeleteParams::default()).await, "The token does not name a node")?;
    from_here.patch(&made, &PatchParams::default(), &mark).await?;

    // The same applies to journals.
    let journals = Api::<ConfigMap>::namespaced(there.client().await?, space.namespace());
    let map = |name: String| -> anyhow::Result<ConfigMap> {
        Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?)
    };
    const JOURNALS: &str = "may not write journals of other nodes";
    refused(journals.delete(&journal(&space, &name), &DeleteParams::default()).await, JOURNALS)?;
    refused(journals.create(&dry_run, &map(journal(&space, "third"))?).await, JOURNALS)?;
    refused(journals.create(&dry_run, &map("anything".to_owned())?).await, JOURNALS)?;
    journals.create(&dry_run, &map(journal(&space, &other_name))?).await?;
    let shared = space.provisioner().replace('/', "-") + "-journal";
    journals.create(&dry_run, &map(shared.clone())?).await?;
    journals.create(&dry_run, &map(shared + "-1-of-2")?).await?;

    space.api::<Pod>().delete("pod", &DeleteParams::default().grace_period(0)).await?;
    space.delete_claim("claim").await?;
    assert!(directories(&root).is_empty());
    drop(program);
    space.done().await
}
