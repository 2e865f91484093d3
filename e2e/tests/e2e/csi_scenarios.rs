//! Compares the calls, objects and events of external-provisioner, or of another program, with the recordings.
//!
//! `CSI_PROVISIONER` is the path of a program to compare with the recordings, instead of external-provisioner.
//! `CSI_SCENARIOS=secrets/` selects the scenarios whose name contains a text; `RECORD_CSI_SCENARIOS=1` records.

use std::env;
use std::future::ready;
use std::path::PathBuf;

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use testbed::cluster::{Cluster, apply, random_suffix};
use testbed::external_provisioner::EXTERNAL_PROVISIONER;
use testbed::progress;
use testbed::scenario::{Disagreement, Host, Library, Run, Scenario, Verdict, judge, run_csi};

use crate::scenarios::{client_of, send};

/// The number of concurrent scenarios on one control plane, each with a sidecar.
const CONCURRENCY: usize = 5;

/// The objects that finalizers may keep in a namespace.
const KEPT: [(&str, &str); 2] =
    [("api/v1", "persistentvolumeclaims"), ("apis/snapshot.storage.k8s.io/v1", "volumesnapshots")];

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_agrees() -> anyhow::Result<()> {
    let library = Library::load_csi()?;
    let named = env::var_os("CSI_PROVISIONER").map(PathBuf::from);
    let is_recording = env::var_os("RECORD_CSI_SCENARIOS").is_some();
    anyhow::ensure!(named.is_none() || !is_recording, "only external-provisioner is recorded");
    let verdict = match named {
        Some(_) => Verdict::CompareOther,
        None if is_recording => Verdict::Record,
        None => Verdict::Compare,
    };

    let cluster = Cluster::connect().await?;
    let state = cluster.state().clone();
    let program = match named {
        Some(program) => program,
        None => EXTERNAL_PROVISIONER.path(&state.guard(), &progress::silent()).await?,
    };
    let client = client_of(&cluster).await?;
    apply(&client, &library.definitions).await?;
    let host = Host { state, program };

    let runs = library.scenarios.iter().map(|scenario| with_a_sidecar(&library, scenario, &client, &host, verdict));
    let runs = stream::iter(runs).buffer_unordered(CONCURRENCY);
    library.report(runs.filter_map(|outcome| ready(outcome.err())).collect().await)
}

async fn with_a_sidecar(
    library: &Library,
    scenario: &Scenario,
    client: &Client,
    host: &Host,
    verdict: Verdict,
) -> Result<(), Disagreement> {
    let name = format!("run-{}", random_suffix());
    let outcome = run_csi(library, scenario, client, &name, host).await;
    clean(client, &name, &outcome).await;
    judge(scenario, &outcome, &name, verdict)
}

/// Deletes the objects of a scenario and its sidecar, including protected ones. Errors are ignored because they must
/// not fail the test.
async fn clean(client: &Client, namespace: &str, outcome: &Run) {
    let others = outcome.made.iter().filter_map(|path| path.strip_prefix("/api/v1/namespaces/"));
    let namespaces: Vec<_> = others.chain([namespace]).collect();
    let mut paths = Vec::new();
    for namespace in &namespaces {
        let _ = send(client, "DELETE", &format!("/api/v1/namespaces/{namespace}"), "").await;
        for (group, kind) in KEPT {
            let all = format!("/{group}/namespaces/{namespace}/{kind}");
            paths.extend(objects(client, &all, |_| true).await.unwrap_or_default());
        }
    }
    let of_claim = |volume: &Value| volume["spec"]["claimRef"]["namespace"].as_str().map(str::to_owned);
    let is_own = |volume: &Value| of_claim(volume).is_some_and(|namespace| namespaces.contains(&&*namespace));
    paths.extend(objects(client, "/api/v1/persistentvolumes", is_own).await.unwrap_or_default());
    for path in paths.iter().chain(outcome.made.iter().rev()) {
        let _ = send(client, "DELETE", &format!("{path}?gracePeriodSeconds=0"), "").await;
        let _ = send(client, "PATCH", path, r#"{"metadata":{"finalizers":null}}"#).await;
    }
}

/// The paths of the wanted objects among all objects at a path.
async fn objects(client: &Client, all: &str, is_wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Vec<String>> {
    let list: Value = serde_json::from_str(&send(client, "GET", all, "").await?)?;
    let wanted = list["items"].as_array().into_iter().flatten().filter(|object| is_wanted(object));
    let names = wanted.filter_map(|object| object["metadata"]["name"].as_str());
    Ok(names.map(|name| format!("{all}/{name}")).collect())
}
