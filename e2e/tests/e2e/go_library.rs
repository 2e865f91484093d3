//! A provisioner written with the Go library on the simulated API server, to test that each accepts the other's writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use testbed::cluster::{Program, eventually};
use testbed::control_plane::{Simulated, State, client_from, kubeconfig_for_service_account};
use testbed::go_provisioner::go_provisioner;
use testbed::progress;

const CLAIMS: usize = 100;
const LIMIT: Duration = Duration::from_secs(60);
const PROVISIONER: &str = "example.com/go";
/// The Go library's message for a queued claim that no longer exists. It is not an error.
const DELETED_WHILE_QUEUED: &str = "in work queue no longer exists";

#[tokio::test(flavor = "multi_thread")]
async fn hundred_claims_are_bound_and_deleted_without_errors() -> anyhow::Result<()> {
    let guard = State::for_tests()?.guard();
    let go = go_provisioner(&guard, &progress::silent()).await?;
    let simulated = Simulated::start(&guard).await?;
    let state = simulated.state();
    let client = client_from(&state.kubeconfig).await?;

    // Uses exactly the permissions that every cluster predefines for provisioners.
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = serde_json::from_value(json!({"metadata": {"name": "go"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "go"},
        "subjects": [{"kind": "ServiceAccount", "name": "go", "namespace": "default"}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:persistent-volume-provisioner",
        },
    }))?;
    bindings.create(&PostParams::default(), &binding).await?;
    let kubeconfig = kubeconfig_for_service_account(&client, state, "default", "go").await?;
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = ["-kubeconfig", &kubeconfig, "-provisioner", PROVISIONER, "-threads", "8", "-qps", "-1"];
    let mut program = Program::spawn(state, "go-provisioner", go, arguments)?;

    let classes = Api::all(client.clone());
    classes.create(&PostParams::default(), &testbed::cluster::class("go", PROVISIONER)).await?;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    for number in 0..CLAIMS {
        claims.create(&PostParams::default(), &testbed::cluster::claim(&format!("claim-{number}"), "go")).await?;
    }
    let all_bound = eventually(LIMIT, async || {
        let claims = claims.list(&ListParams::default()).await?.items;
        Ok((claims.len() == CLAIMS && claims.into_iter().all(|claim| testbed::cluster::is_bound(&claim))).then_some(()))
    });
    assert!(all_bound.await?.is_some(), "not all claims were bound:\n{}", program.output());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    assert_eq!(volumes.list(&ListParams::default()).await?.items.len(), CLAIMS);

    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let all_gone =
        eventually(LIMIT, async || Ok(volumes.list(&ListParams::default()).await?.items.is_empty().then_some(())));
    assert!(all_gone.await?.is_some(), "not all volumes were deleted:\n{}", program.output());

    let events = Api::<Event>::default_namespaced(client).list(&ListParams::default()).await?.items;
    let succeeded = events.iter().filter(|event| event.reason.as_deref() == Some("ProvisioningSucceeded")).count();
    assert!(succeeded > 0, "the provisioner emitted no success event");
    let status = program.terminate(LIMIT).await?;
    let output = program.output();
    assert!(status.success(), "{status}:\n{output}");
    // klog's lines begin with their severity.
    let is_bad = |line: &&str| {
        let bad = line.starts_with(['W', 'E', 'F']) || line.contains("err=") || line.contains("panic");
        bad && !line.contains(DELETED_WHILE_QUEUED)
    };
    let bad: Vec<&str> = output.lines().filter(is_bad).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    simulated.stop()
}
