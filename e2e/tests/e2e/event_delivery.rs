//! Events and metrics on a real control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::ListParams;
use kube_provisioner::ProvisionError;
use testbed::cluster::{TestSpace, eventually, until};
use testbed::faults::{Fault, faulty};
use testbed::http::ask;
use testbed::ports::free_port;
use testbed::toy::{Answer, Toy, options};

const SOON: Duration = Duration::from_secs(20);

// Rules: G5.
/// Uses the default settings; `docs/book/pages/operate/performance.md` contains larger numbers.
#[tokio::test]
async fn every_claim_in_a_burst_receives_one_success_event() -> anyhow::Result<()> {
    const COUNT: usize = 300;
    let space = TestSpace::new("g5").await?;
    let toy = Toy::new();
    let _controller = toy.run_with(kube_provisioner::Options::new(space.provisioner()), space.client());
    let class = space.create_class(space.class("class")).await?;
    for batch in (0..COUNT).collect::<Vec<_>>().chunks(30) {
        let claims = batch.iter().map(|at| space.create_claim(space.claim(&format!("claim-{at}"), &class)));
        futures::future::try_join_all(claims).await?;
    }
    let events = space.api::<k8s_openapi::api::events::v1::Event>();
    let mut told = BTreeMap::new();
    let all = eventually(3 * SOON, async || {
        told.clear();
        for event in events.list(&ListParams::default()).await?.items {
            if event.reason.as_deref() == Some("ProvisioningSucceeded") {
                let claim = event.regarding.and_then(|claim| claim.name).unwrap_or_default();
                *told.entry(claim).or_insert(0) += event.series.map_or(1, |series| series.count);
            }
        }
        Ok((told.len() == COUNT).then_some(()))
    });
    assert!(all.await?.is_some(), "only {} of {COUNT} claims have their event", told.len());
    assert!(told.values().all(|count| *count == 1));
    assert_eq!(toy.calls().len(), COUNT);
    space.done().await
}

// Rules: G23.
#[tokio::test]
async fn metrics_count_outcomes_and_readyz_reports_the_reason() -> anyhow::Result<()> {
    let space = TestSpace::new("g23").await?;
    let toy = Toy::new().on_provision(|_, call| match call {
        1 => Answer::Failed(ProvisionError::retry("no")),
        _ => Answer::Done,
    });
    let mut options = options(&space);
    let port = free_port()?;
    options.http_endpoint = Some(([127, 0, 0, 1], port).into());
    let blind = faulty(&space.client(), |_, path| path.ends_with("/storageclasses").then_some(Fault::Refuse(403)));
    let controller = toy.run_with(options.clone(), blind);
    let asked = async |path: &str, holds: &dyn Fn(&str) -> bool| {
        let answer =
            eventually(SOON, async || Ok(ask(port, &format!("GET {path}"), "").await.ok().filter(|text| holds(text))))
                .await?;
        answer.ok_or_else(|| anyhow::anyhow!("{path} never returned the expected response"))
    };
    asked("/readyz", &|text| text.starts_with("HTTP/1.1 500") && text.contains("storageclasses")).await?;
    asked("/livez", &|text| text.starts_with("HTTP/1.1 200")).await?;
    drop(controller);
    until("the port is free", || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()).await?;
    let _controller = toy.run_with(options, space.client());
    asked("/readyz", &|text| text.starts_with("HTTP/1.1 200")).await?;
    let class = space.create_class(space.class("class")).await?;
    let labels = format!("{{class=\"{}\"}} 0", class.name_any());
    asked("/metrics", &|text| text.contains(&format!("controller_persistentvolume_delete_failed_total{labels}")))
        .await?;
    space.bind(space.claim("claim", &class)).await?;
    let labels = format!("{{class=\"{}\",source=\"\"}} 1", class.name_any());
    let metrics =
        asked("/metrics", &|text| text.contains(&format!("controller_persistentvolumeclaim_provision_total{labels}")))
            .await?;
    let helps = || metrics.lines().filter(|line| line.starts_with("# HELP"));
    assert!(helps().count() > 10 && helps().all(|help| help.ends_with('.') && !help.ends_with("..")), "{metrics}");
    for line in [
        format!("controller_persistentvolumeclaim_provision_failed_total{labels}"),
        format!("controller_persistentvolumeclaim_provision_duration_seconds_count{labels}"),
        "provisioner_claims_waiting".to_owned(),
        "provisioner_oldest_waiting_claim_seconds".to_owned(),
        "provisioner_queue_keys{queue=\"volumes\",state=\"ready\"}".to_owned(),
        "outcome=\"success\"".to_owned(),
        "outcome=\"failed\"".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    space.done().await
}
