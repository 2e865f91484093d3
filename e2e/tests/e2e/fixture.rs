//! Tests of the fixture that all other tests rely on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kube_provisioner::rbac::AccessRule;
use testbed::cluster::TestSpace;
use testbed::control_plane::Signal;

#[tokio::test]
async fn failed_wait_reports_object_events_and_logs() -> anyhow::Result<()> {
    let space = TestSpace::new("failed-wait").await?;
    let class = space.create_class(space.class("a")).await?;
    space.create_claim(space.claim("data", &class)).await?;
    let program = space.spawn("speaker", "/bin/sh", ["-c", "echo I am here; sleep 60"])?;
    program.wait_for_output("I am here", Duration::from_secs(5)).await?;
    space.wait_for_event("PersistentVolumeClaim", "data", "ExternalProvisioning").await?;
    let claims = space.api::<PersistentVolumeClaim>();
    let waited = space.wait_for_within(Duration::from_millis(100), &claims, "data", "bound", |_| false).await;
    let message = format!("{:#}", waited.unwrap_err());
    for part in ["PersistentVolumeClaim data: not bound", "\"phase\": \"Pending\"", "ExternalProvisioning", "I am here"]
    {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    space.done().await
}

#[tokio::test]
async fn service_accounts_are_limited_to_their_permissions_and_audited() -> anyhow::Result<()> {
    let space = TestSpace::new("rights").await?;
    let (resource, verbs) = ("persistentvolumeclaims", &["list"]);
    let rule = AccessRule { group: "", resource, verbs, names: Vec::new(), namespaced: true };
    let access = space.account("reader", &[rule]).await?;
    let client = access.client().await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), space.namespace());
    claims.list(&ListParams::default()).await?;
    let pods: Api<Pod> = Api::namespaced(client, space.namespace());
    let refused = pods.list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("forbidden"), "{refused}");

    let entries = space.cluster().audit_log()?.entries_of(&access.user)?;
    let seen: Vec<_> = entries.iter().map(|e| (e.verb.as_str(), e.resource.as_str(), e.code)).collect();
    assert_eq!(seen, [("list", "persistentvolumeclaims", 200), ("list", "pods", 403)]);
    space.done().await
}

#[tokio::test]
async fn dropping_a_handle_ends_its_program() -> anyhow::Result<()> {
    let space = TestSpace::new("programs").await?;
    let program = space.spawn("sleeper", "/bin/sleep", ["600"])?;
    let id = program.id();
    assert!(id.is_running());
    drop(program);
    assert!(!id.is_running());

    let mut program = space.spawn("sleeper", "/bin/sleep", ["600"])?;
    let status = program.terminate(Duration::from_secs(5)).await?;
    assert!(!status.success());
    space.done().await
}

#[tokio::test]
async fn failed_test_leaves_nothing_behind() -> anyhow::Result<()> {
    let observer = TestSpace::new("observer").await?;
    let space = TestSpace::new("observed").await?;
    let class = space.create_class(space.class("a")).await?;
    space.create_node("one", &[]).await?;
    space.create_claim(space.claim("data", &class)).await?;
    space.create(&space.pod("user", "data")).await?;
    let (namespace, node) = (space.namespace().to_owned(), space.cluster_wide_name("one"));
    // Drop it without `done`, like a failed test.
    drop(space);
    observer.wait_gone(&observer.cluster_api::<k8s_openapi::api::core::v1::Namespace>(), &namespace).await?;
    observer
        .wait_gone(&observer.cluster_api::<k8s_openapi::api::storage::v1::StorageClass>(), &class.name_any())
        .await?;
    observer.wait_gone(&observer.cluster_api::<Node>(), &node).await?;
    observer.done().await
}

#[tokio::test]
async fn api_server_can_be_restarted_and_killed() -> anyhow::Result<()> {
    let mut space = TestSpace::with_own_cluster("restart").await?;
    let class = space.create_class(space.class("a")).await?;
    let server = space.cluster().state().server.clone();
    for signal in [Signal::TERM, Signal::KILL] {
        let before = space.cluster().state().running("kube-apiserver");
        space.cluster_mut().restart("kube-apiserver", signal).await?;
        assert_ne!(space.cluster().state().running("kube-apiserver"), before);
        assert_eq!(space.cluster().state().server, server);
        space.create_claim(space.claim(&format!("after-{}", signal.as_raw()), &class)).await?;
    }
    // The controller manager, which has survived both, hands over the claim.
    space.wait_for_event("PersistentVolumeClaim", "after-9", "ExternalProvisioning").await?;
    space.done().await
}
