//! Tests that the checks of `cosi-sanity` do not cover: the state file, work after a cancelled call, and revoking
//! access bucket by bucket.

use std::time::Duration;

use cosi_sim::{Driver, Fault, Method, Settings};
use driver_rpc::Code;
use driver_rpc::cosi::v1alpha1;
use driver_rpc::cosi::v1alpha2::*;
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(30);

fn driver(settings: Settings) -> Driver {
    Driver::new(settings).unwrap()
}

async fn create(driver: &Driver, name: &str) -> Result<String, Code> {
    let request = DriverCreateBucketRequest { name: name.into(), ..Default::default() };
    driver.driver_create_bucket(request).await.map(|answer| answer.bucket_id).map_err(|error| error.code())
}

fn grant(buckets: &[&String]) -> DriverGrantBucketAccessRequest {
    let bucket = |id: &&String| driver_grant_bucket_access_request::AccessedBucket {
        bucket_id: (*id).clone(),
        access_mode: Some(AccessMode { mode: access_mode::Mode::ReadOnly.into() }),
    };
    DriverGrantBucketAccessRequest {
        account_name: "ba-1".into(),
        protocol: Some(ObjectProtocol { r#type: object_protocol::Type::S3.into() }),
        authentication_type: Some(AuthenticationType { r#type: authentication_type::Type::Key.into() }),
        buckets: buckets.iter().map(bucket).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn state_survives_restarts_unless_the_driver_forgets() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |faults: &[Fault]| Settings {
        state: Some(folder.path().join("state")),
        faults: faults.iter().copied().collect(),
        ..Settings::default()
    };
    let first = driver(settings(&[]));
    let id = create(&first, "bc-1").await.unwrap();
    let access = first.driver_grant_bucket_access(grant(&[&id])).await.unwrap();

    let second = driver(settings(&[]));
    assert_eq!(create(&second, "bc-1").await, Ok(id.clone()));
    assert_eq!(second.driver_grant_bucket_access(grant(&[&id])).await.unwrap(), access);

    assert!(driver(settings(&[Fault::Forgets])).buckets().is_empty());
    std::fs::write(folder.path().join("state"), "no state").unwrap();
    Driver::new(settings(&[])).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn completes_work_after_the_caller_cancels() {
    let sane = driver(Settings { latency: LONG, ..Settings::default() });
    assert!(timeout(LONG / 2, create(&sane, "bc-1")).await.is_err());
    assert_eq!(create(&sane, "bc-1").await, Err(Code::Aborted));
    sleep(LONG).await;
    assert_eq!(sane.buckets().len(), 1);
    assert_eq!(create(&sane, "bc-1").await.unwrap(), sane.buckets()[0]);

    let stuck = driver(Settings { latency: LONG, faults: [Fault::Stuck].into(), ..Settings::default() });
    assert!(timeout(LONG / 2, create(&stuck, "bc-1")).await.is_err());
    sleep(LONG * 9).await;
    assert_eq!(create(&stuck, "bc-1").await, Err(Code::Aborted));
    assert!(stuck.buckets().is_empty());
}

#[tokio::test]
async fn deletes_accounts_with_their_last_bucket() {
    let driver = driver(Settings::default());
    let (one, two) = (create(&driver, "bc-1").await.unwrap(), create(&driver, "bc-2").await.unwrap());
    let access = driver.driver_grant_bucket_access(grant(&[&one, &two])).await.unwrap();
    assert_eq!(access.buckets.len(), 2);
    for (id, accounts) in [(&one, 1), (&two, 0)] {
        let bucket = driver_revoke_bucket_access_request::AccessedBucket { bucket_id: id.clone() };
        let DriverGrantBucketAccessRequest { protocol, authentication_type, .. } = grant(&[]);
        let request = DriverRevokeBucketAccessRequest {
            account_id: access.account_id.clone(),
            protocol,
            authentication_type,
            buckets: vec![bucket],
            ..Default::default()
        };
        driver.driver_revoke_bucket_access(request).await.unwrap();
        assert_eq!(driver.accounts().len(), accounts);
    }
}

#[tokio::test]
async fn both_versions_share_buckets() {
    let driver = driver(Settings::default());
    let id = create(&driver, "bc-1").await.unwrap();
    let request = v1alpha1::DriverDeleteBucketRequest { bucket_id: id, ..Default::default() };
    v1alpha1::Provisioner::driver_delete_bucket(&driver, request).await.unwrap();
    assert!(driver.buckets().is_empty());
    assert_eq!(driver.calls(), [Method::CreateBucket, Method::DeleteBucket]);
}
