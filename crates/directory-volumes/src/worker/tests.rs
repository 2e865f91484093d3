//! Many large deletions at a time.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, mpsc};

use kube_provisioner::{DeleteError, DeleteVerdict};
use tempfile::TempDir;
use tokio::task::yield_now;

use super::*;
use crate::deletion::Deletion;
use crate::tests::{OPEN, at, owner, root};

fn worker() -> (TempDir, Worker) {
    let (dir, root) = root();
    (dir, Worker::new(root))
}

async fn make(worker: &Worker, volume: &str) -> Result<PathBuf, ProvisionError> {
    let (size, token) = ((1, Some(false), None), FencingToken::unlimited());
    let made = worker.create(at(volume), owner(volume), false, OPEN, size, token).await;
    made.map(|(path, _)| path).map_err(|not_created| not_created.error)
}

async fn end(worker: &Worker, volume: &str, token: FencingToken) -> Result<(), DeleteError> {
    worker.end(Deletion::of_attempt(at(volume), owner(volume)), token).await
}

fn deleting(root: &Path, volume: &str) -> usize {
    fs::read_dir(root.join(".kube-provisioner/deleting").join(volume).join("data")).map_or(0, Iterator::count)
}

/// Waits for a call, but not longer than 30 s of real time. The paused clock does not advance while threads work, so a
/// call that never receives a thread would not time out.
async fn soon<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> T {
    let (call, began) = (tokio::spawn(call), std::time::Instant::now());
    while !call.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(30), "the call does not end");
        yield_now().await;
    }
    call.await.unwrap()
}

/// Waits until this number of calls has begun.
async fn wait_for_begun(calls: usize, begun: &mpsc::Receiver<()>) {
    let mut count = 0;
    while count < calls {
        yield_now().await;
        count += begun.try_iter().count();
    }
}

/// Long deletions block neither claims nor the probe, and the next one waits without a warning.
#[tokio::test(start_paused = true)]
async fn deletions_leave_threads_for_other_calls() {
    let (_dir, worker) = worker();
    for number in 0..=THREADS {
        make(&worker, &format!("pvc-{number}")).await.unwrap();
    }
    let (release, gate) = mpsc::channel::<()>();
    let (gate, (begins, begun)) = (Arc::new(Mutex::new(gate)), mpsc::channel());
    let long: Vec<_> = (0..THREADS)
        .map(|number| {
            let (worker, gate, begins) = (worker.clone(), gate.clone(), begins.clone());
            let token = FencingToken::valid_while(move || {
                let _ = (begins.send(()), gate.lock().unwrap().recv());
                true
            });
            tokio::spawn(async move { end(&worker, &format!("pvc-{number}"), token).await })
        })
        .collect();
    wait_for_begun(REMOVALS, &begun).await;
    let new = worker.clone();
    soon(async move { make(&new, "pvc-new").await }).await.unwrap();
    let new = worker.clone();
    soon(async move { new.probe().await }).await.unwrap();
    tokio::time::advance(LIMIT + Duration::from_secs(1)).await;
    let late = long.into_iter().skip(REMOVALS).map(async |call| call.await.unwrap().unwrap_err());
    for error in late {
        let error = error.await;
        assert_eq!(error.verdict(), DeleteVerdict::InProgress);
        assert!(error.to_string().contains("is busy (deletions: 8, other calls: 0)"), "{error}");
    }
    drop(release);
    end(&worker, "pvc-16", FencingToken::unlimited()).await.unwrap();
}

/// If all threads of a root are busy, its next call fails with the reason. The probe has a thread of its own.
#[tokio::test(start_paused = true)]
async fn calls_that_do_not_end_are_counted() {
    let (_dir, worker) = worker();
    let (release, gate) = mpsc::channel::<()>();
    let (gate, (begins, begun)) = (Arc::new(Mutex::new(gate)), mpsc::channel());
    let calls: Vec<_> = (0..THREADS)
        .map(|_| {
            let (worker, gate, begins) = (worker.clone(), gate.clone(), begins.clone());
            let work = move |_: &Root| {
                let _ = (begins.send(()), gate.lock().unwrap().recv());
                Ok::<_, StartError>(())
            };
            tokio::spawn(async move { worker.run(work).await })
        })
        .collect();
    wait_for_begun(THREADS, &begun).await;
    let another = worker.clone();
    let late = tokio::spawn(async move { another.run(|_| Ok::<_, StartError>(())).await });
    yield_now().await;
    tokio::time::advance(LIMIT + Duration::from_secs(1)).await;
    let told = late.await.unwrap().unwrap_err().to_string();
    assert!(told.contains("busy (deletions: 0, other calls: 16)"), "{told}");
    worker.probe().await.unwrap();
    drop(release);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    worker.probe().await.unwrap();
}

/// A large volume is removed by many calls, none of which counts as failed.
#[tokio::test]
async fn a_deletion_that_takes_long_is_in_progress() {
    let (dir, mut worker) = worker();
    worker.turn = Duration::ZERO;
    let path = make(&worker, "pvc-1").await.unwrap();
    for number in 0..500 {
        fs::write(path.join(number.to_string()), "").unwrap();
    }
    let (mut calls, mut left) = (0, 501);
    while let Err(error) = end(&worker, "pvc-1", FencingToken::unlimited()).await {
        assert_eq!(error.verdict(), DeleteVerdict::InProgress, "{error}");
        assert!(deleting(dir.path(), "pvc-1") < left, "nothing was removed");
        (calls, left) = (calls + 1, deleting(dir.path(), "pvc-1"));
    }
    assert!((2..20).contains(&calls), "{calls}");
    // A process that has lost its Lease does not report progress, because another process may continue.
    fs::write(make(&worker, "pvc-1").await.unwrap().join("file"), "").unwrap();
    let asked = AtomicBool::new(false);
    let once = FencingToken::valid_while(move || !asked.swap(true, Ordering::Relaxed));
    assert_eq!(end(&worker, "pvc-1", once).await.unwrap_err().verdict(), DeleteVerdict::Retry);
}

/// The provisioner marks the root when it begins, which may take long if its namespace does not exist.
#[tokio::test]
async fn a_root_without_a_marker_is_usable_before_the_provisioner_begins() {
    let dir = tempfile::tempdir().unwrap();
    let worker = Worker::new(Root::open(dir.path()).unwrap());
    worker.probe().await.unwrap();
    worker.put_marker().await.unwrap();
    worker.probe().await.unwrap();
    fs::remove_dir_all(dir.path().join(".kube-provisioner")).unwrap();
    let problem = worker.probe().await.unwrap_err().to_string();
    assert!(problem.contains("has no marker"), "{problem}");
}

#[test]
fn work_either_begins_or_is_abandoned() {
    let decision = Decision::default();
    drop(AbandonOnDrop(decision.clone()));
    assert!(!decision.try_decide());
    let decision = Decision::default();
    assert!(decision.try_decide() && !AbandonOnDrop(decision.clone()).0.try_decide());
}
