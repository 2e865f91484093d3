//! Compares the answers of the real servers with the recorded scenarios. The tests of kube-sim do so with the simulator.
//!
//! `SCENARIOS=claims/` selects the scenarios whose name contains a text; `RECORD_SCENARIOS=1` records the real servers'
//! answers instead of comparing them.

use std::env;
use std::future::ready;

use futures::{StreamExt, stream};
use http::{Request, header};
use kube::Client;
use testbed::cluster::{Cluster, random_suffix};
use testbed::control_plane::{Settings, config_from};
use testbed::scenario::{Disagreement, Library, Scenario, Verdict, judge, run};

/// The number of concurrent scenarios on one control plane.
const CONCURRENCY: usize = 12;

#[tokio::test]
async fn the_real_server_agrees() -> anyhow::Result<()> {
    let library = Library::load()?;
    let verdict = if env::var_os("RECORD_SCENARIOS").is_some() { Verdict::Record } else { Verdict::Compare };
    let mut disagreements = Vec::new();

    let client = client_of(&Cluster::connect().await?).await?;
    let together = library.scenarios.iter().filter(|scenario| !scenario.alone);
    let runs = together.map(|scenario| on_the_real_server(&library, scenario, &client, verdict));
    let runs = stream::iter(runs).buffer_unordered(CONCURRENCY);
    disagreements.extend(runs.filter_map(|outcome| ready(outcome.err())).collect::<Vec<_>>().await);

    // A scenario that changes the whole cluster would disturb other tests.
    let own = Cluster::start(&Settings::for_tests()).await?;
    let client = client_of(&own).await?;
    for scenario in library.scenarios.iter().filter(|scenario| scenario.alone) {
        disagreements.extend(on_the_real_server(&library, scenario, &client, verdict).await.err());
    }
    library.report(disagreements)
}

/// A client that shows each refusal.
pub(crate) async fn client_of(cluster: &Cluster) -> anyhow::Result<Client> {
    let mut config = config_from(&cluster.state().kubeconfig).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn on_the_real_server(
    library: &Library,
    scenario: &Scenario,
    client: &Client,
    verdict: Verdict,
) -> Result<(), Disagreement> {
    let name = format!("run-{}", random_suffix());
    let outcome = run(library, scenario, client, &name).await;
    clean(client, &name, &outcome.made).await;
    judge(scenario, &outcome, &name, verdict)
}

/// Deletes the objects of a scenario. Errors are ignored because they must not fail the test.
async fn clean(client: &Client, namespace: &str, made: &[String]) {
    let namespace = format!("/api/v1/namespaces/{namespace}");
    // No kubelet confirms the end of a pod.
    let _ = send(client, "DELETE", &format!("{namespace}/pods?gracePeriodSeconds=0"), "").await;
    let _ = send(client, "DELETE", &namespace, "").await;
    for path in made.iter().rev() {
        let _ = send(client, "DELETE", &format!("{path}?gracePeriodSeconds=0"), "").await;
        let _ = send(client, "PATCH", path, r#"{"metadata":{"finalizers":null}}"#).await;
    }
}

pub(crate) async fn send(client: &Client, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::CONTENT_TYPE, "application/merge-patch+json").body(body.into())?;
    Ok(client.request_text(request).await?)
}
