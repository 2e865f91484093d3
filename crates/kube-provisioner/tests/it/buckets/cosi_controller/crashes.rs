//! Crashes at any write, and runs with random faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube_sim::{Cluster, Faults};
use serde_json::json;
use tokio::time::sleep;

use super::{Bed, Crash, GROUP, NAMESPACE};
use crate::buckets::store::Failure;

// Rules: J18.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_leaves_nothing_behind() {
    let mut writes = 0;
    for (at, after) in (1..30).flat_map(|at| [(at, false), (at, true)]) {
        let bed = Bed::crashing(at, after);
        let mut running = bed.start();
        let mut crashed = false;
        // When the process has stopped, another one continues.
        let mut step = async |what: &str, done: &dyn Fn() -> bool| {
            bed.until(what, || done() || !crashed && bed.crash.is_over()).await;
            if bed.crash.is_over() {
                crashed = true;
                running = bed.start();
                bed.crash.left.store(u64::MAX / 2, Ordering::Relaxed);
                bed.until(what, done).await;
            }
        };
        bed.bucket("bc-1", json!({}));
        bed.bucket("bc-2", json!({}));
        step("the Buckets are ready", &|| ["bc-1", "bc-2"].iter().all(|name| bed.is_ready("buckets", name))).await;
        bed.granted("web", &["bc-1", "bc-2"]);
        step("the access is ready", &|| bed.is_ready("bucketaccesses", "web")).await;
        let key = |name: &str| bed.secret(name)["AWS_SECRET_ACCESS_KEY"].clone();
        assert_eq!(key("web-bc-1"), key("web-bc-2"));
        let keys: Vec<_> = bed.store.state().users.values().flatten().cloned().collect();
        assert_eq!(keys.iter().map(|key| key.secret_access_key.clone()).collect::<Vec<_>>(), [key("web-bc-1")]);
        bed.delete("bucketaccesses", "web");
        step("the access is handed back", &|| bed.is_finished("web")).await;
        bed.finish_access("web");
        bed.end_bucket("bc-1");
        bed.end_bucket("bc-2");
        step("the Buckets are gone", &|| bed.cluster.list(GROUP, "buckets", None).unwrap().is_empty()).await;
        bed.assert_empty();
        drop(running);
        if !crashed {
            writes = at;
            break;
        }
    }
    assert!(writes > 15, "{writes} writes");
}

// Rules: J18.
#[tokio::test(start_paused = true)]
async fn an_access_deleted_after_a_crash_leaves_nothing_behind() {
    for at in 1..9 {
        let bed = Bed::crashing(3 + at, true);
        let running = bed.start();
        bed.bucket("bc-1", json!({}));
        bed.bucket_ready("bc-1").await;
        bed.granted("web", &["bc-1"]);
        bed.until("the crash", || bed.crash.is_over() || bed.is_ready("bucketaccesses", "web")).await;
        drop(running);
        bed.crash.left.store(u64::MAX / 2, Ordering::Relaxed);
        bed.delete("bucketaccesses", "web");
        let _running = bed.start();
        bed.until("the access is handed back", || bed.is_finished("web")).await;
        bed.finish_access("web");
        bed.end_bucket("bc-1");
        bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
        bed.assert_empty();
    }
}

// Rules: J18.
/// Two replicas, one of which is killed and restarted.
#[tokio::test(start_paused = true)]
async fn random_faults_leave_nothing_behind() {
    for seed in 0..8 {
        let user = format!("system:serviceaccount:{NAMESPACE}:driver");
        let faults = Faults::storm(seed).only(&user).until(Duration::from_secs(200));
        let crash = Arc::new(Crash { left: AtomicU64::new(u64::MAX / 2), after: false });
        let bed = Bed::on(Cluster::builder().seed(seed).faults(&faults), crash);
        let (_one, two) = (bed.start(), bed.start());
        let buckets = ["bc-1", "bc-2", "bc-3"];
        for method in ["create_bucket", "grant", "delete_bucket"] {
            bed.store.fail(method, Failure::Late);
        }
        buckets.iter().for_each(|name| bed.bucket(name, json!({})));
        bed.granted("web", &["bc-1", "bc-2"]);
        bed.granted("app", &["bc-1"]);
        sleep(Duration::from_secs(30 + seed)).await;
        drop(two);
        let _three = bed.start();
        bed.access_ready("web").await;
        bed.access_ready("app").await;
        bed.until("the Secrets are written", || {
            ["web-bc-1", "web-bc-2", "app-bc-1"].iter().all(|name| bed.secret(name).len() == 13)
        })
        .await;
        let keys = bed.store.state().users.values().flatten().count();
        assert_eq!(keys, 2, "seed {seed}: {:?}", bed.store.assets());
        for access in ["web", "app"] {
            bed.delete("bucketaccesses", access);
            bed.until("the access is handed back", || bed.is_finished(access)).await;
            bed.finish_access(access);
        }
        buckets.iter().for_each(|name| bed.end_bucket(name));
        bed.until("the Buckets are gone", || bed.cluster.list(GROUP, "buckets", None).unwrap().is_empty()).await;
        bed.assert_empty();
    }
}
