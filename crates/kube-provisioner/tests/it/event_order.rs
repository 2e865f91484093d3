//! The order of events and other work.

use std::time::Duration;

use kube_sim::Cluster;
use tokio::time::sleep;

use super::fixture::{Fixture, Script, volume};

const CLAIMS: usize = 40;
const API_CONCURRENCY: usize = 4;

/// Each event that is sent earlier would delay the save of a volume.
#[tokio::test(start_paused = true)]
async fn volumes_are_saved_before_events_are_sent() {
    let script = Script {
        provision: Box::new(|request| {
            Box::pin(async move {
                sleep(Duration::from_millis(100)).await;
                Ok(volume(&request.name))
            })
        }),
        ..Script::default()
    };
    let mut fixture = Fixture::on(Cluster::builder().trace().build(), script);
    fixture.options.api_concurrency = API_CONCURRENCY;
    for index in 0..CLAIMS {
        fixture.claim(&format!("claim-{index}"), "class");
    }
    sleep(Duration::from_secs(1)).await;
    let _running = fixture.start_with(0, fixture.cluster.client("ours"));
    sleep(Duration::from_secs(60)).await;

    let trace = fixture.cluster.trace();
    let asked: Vec<&str> =
        trace.lines().filter_map(|line| line.split_once(" ours create ")).map(|(_, what)| what).collect();
    let is_event = |what: &&str| what.starts_with("events");
    let volumes = |asked: &[&str]| asked.iter().filter(|what| what.starts_with("persistentvolumes ")).count();
    assert_eq!(volumes(&asked), CLAIMS, "{trace}");
    assert_eq!(asked.iter().filter(|what| is_event(what)).count(), CLAIMS, "{trace}");
    let first = asked.iter().position(is_event);
    let saved = volumes(&asked[..first.unwrap_or_default()]);
    assert!(saved >= CLAIMS - API_CONCURRENCY, "events begin after {saved} volumes of {CLAIMS}:\n{trace}");
}
