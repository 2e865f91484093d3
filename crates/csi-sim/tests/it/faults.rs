//! Tests of scripts, faults and restarts.

use std::time::Duration;

use csi_sim::{Capability, Driver, Faults, Method, Settings, Step};
use driver_rpc::csi::*;
use driver_rpc::{Client, Code, Error, Server};
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(30);

fn request(name: &str) -> CreateVolumeRequest {
    let capability = VolumeCapability {
        access_type: Some(volume_capability::AccessType::Block(volume_capability::BlockVolume {})),
        access_mode: Some(volume_capability::AccessMode { mode: 1 }),
    };
    CreateVolumeRequest { name: name.into(), volume_capabilities: vec![capability], ..Default::default() }
}

async fn code(driver: &Driver, name: &str) -> Code {
    driver.create_volume(request(name)).await.err().map_or(Code::Ok, |error| error.code())
}

#[tokio::test(start_paused = true)]
async fn scripted_steps_are_used_first_and_in_order() {
    let driver = Driver::new(Settings::default());
    let small = Volume { capacity_bytes: 1, volume_id: "mine".into(), ..Default::default() };
    driver.script(Method::CreateVolume, vec![Step::refuse(Code::Internal, "no"); 2]);
    driver.script(Method::CreateVolume, [Step::answer(CreateVolumeResponse { volume: Some(small.clone()) })]);
    driver.script(Method::CreateVolume, [Step::refuse(Code::Aborted, "later").working(), Step::work().after(LONG)]);
    for expected in [Code::Internal, Code::Internal] {
        assert_eq!(code(&driver, "one").await, expected);
    }
    assert_eq!(driver.create_volume(request("one")).await.unwrap().volume, Some(small));
    assert!(driver.volumes().is_empty());
    assert_eq!(code(&driver, "one").await, Code::Aborted);
    assert_eq!(driver.volumes().len(), 1);
    let before = Instant::now();
    assert_eq!(code(&driver, "one").await, Code::Ok);
    assert_eq!(before.elapsed(), LONG);

    let calls = driver.calls();
    let outcomes: Vec<_> = calls.iter().map(|call| (call.method, call.outcome.unwrap())).collect();
    let expected = [Code::Internal, Code::Internal, Code::Ok, Code::Aborted, Code::Ok];
    assert_eq!(outcomes, expected.map(|code| (Method::CreateVolume, code)));
    assert_eq!(calls[0].request::<CreateVolumeRequest>().unwrap().name, "one");
    assert_eq!(driver.requests::<CreateVolumeRequest>().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn work_completes_although_the_caller_has_cancelled() {
    let driver = Driver::new(Settings { latency: LONG, ..Settings::default() });
    assert!(timeout(LONG / 2, driver.create_volume(request("one"))).await.is_err());
    assert_eq!(driver.calls()[0].outcome, None);
    for latency in [LONG, Duration::ZERO] {
        driver.configure(|settings| settings.latency = latency);
        assert_eq!(code(&driver, "one").await, Code::Aborted);
    }
    sleep(LONG).await;
    assert_eq!(driver.volumes().len(), 1);
    assert_eq!(code(&driver, "one").await, Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn scripted_calls_lose_their_connection_or_hang() {
    let driver = Driver::new(Settings::default());
    driver.script(
        Method::CreateVolume,
        [Step::break_connection(), Step::hang(), Step::hang().working(), Step::break_connection().working()],
    );
    for (name, hangs, volumes) in [("one", false, 0), ("one", true, 0), ("two", true, 1), ("three", false, 2)] {
        match timeout(LONG, driver.create_volume(request(name))).await {
            Err(_) => assert!(hangs),
            Ok(result) => assert!(!hangs && matches!(result, Err(Error::Interrupted(_)))),
        }
        assert_eq!(driver.volumes().len(), volumes);
    }
}

#[tokio::test(start_paused = true)]
async fn restart_loses_calls_and_work_but_keeps_volumes() {
    let driver = Driver::new(Settings::default());
    driver.create_volume(request("kept")).await.unwrap();
    driver.script(Method::CreateVolume, [Step::work().after(LONG)]);
    let waiting = tokio::spawn({
        let driver = driver.clone();
        async move { driver.create_volume(request("lost")).await }
    });
    sleep(LONG / 2).await;
    driver.stop();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Interrupted(_))));
    assert!(matches!(driver.create_volume(request("lost")).await, Err(Error::Unreachable { .. })));
    driver.start();
    sleep(LONG).await;
    assert_eq!(driver.volumes().len(), 1);
    driver.restart(|settings| settings.capabilities.clear());
    assert_eq!(code(&driver, "more").await, Code::Unimplemented);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_produce_equal_faults() {
    let clone = "Controller.CloneVolume".parse::<Capability>().unwrap();
    let run = async |seed| {
        let driver = Driver::new(Settings::default());
        let changed_by_restart = [clone].into();
        let faults =
            Faults { hang: 50, lost: 100, refused: 200, slow: 50, restart: 20, slow_by: LONG, changed_by_restart };
        driver.set_faults(faults, seed);
        let mut had_clones = Vec::new();
        for number in 0..500 {
            let _ = timeout(LONG, driver.create_volume(request(&format!("volume-{number}")))).await;
            driver.configure(|settings| had_clones.push(settings.capabilities.contains(&clone)));
        }
        let outcomes: Vec<_> = driver.calls().iter().map(|call| call.outcome).collect();
        (outcomes, driver.volumes(), had_clones)
    };
    let (outcomes, volumes, had_clones) = run(7).await;
    assert_eq!(run(7).await, (outcomes.clone(), volumes.clone(), had_clones.clone()));
    assert_ne!(run(8).await.0, outcomes);

    let count = |wanted: Option<Code>| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert!(count(None) > 10, "hangs");
    for number in 0..=16 {
        assert!(count(Some(Code::from_i32(number))) > 0, "{number}");
    }
    assert!(volumes.len() > count(Some(Code::Ok)), "work without an answer");
    assert!(had_clones.contains(&true) && had_clones.contains(&false), "restarts");
}

#[tokio::test]
async fn socket_and_in_process_calls_reach_the_same_driver() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("csi.sock");
    let driver = Driver::new(Settings::default());
    tokio::spawn(Server::bind(&path).unwrap().csi(driver.clone()).serve());
    let client = Client::new(path.to_str().unwrap().parse().unwrap()).with_timeout(Duration::from_millis(100));
    assert_eq!(client.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().name, "csi-sim.example.com");
    let made = client.create_volume(request("one")).await.unwrap();
    assert_eq!(driver.volumes(), [made.volume.unwrap()]);
    driver.script(Method::CreateVolume, [Step::hang(), Step::refuse(Code::Internal, "no")]);
    for expected in [Code::DeadlineExceeded, Code::Internal] {
        assert_eq!(client.create_volume(request("two")).await.unwrap_err().code(), expected);
    }
}
