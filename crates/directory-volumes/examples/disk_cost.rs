//! Cost of volumes on a file system: `disk_cost DIRECTORY COUNT AT_ONCE`. Creates and removes volumes like a
//! provisioner, and prints volumes per second and the CPU time per volume.
#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use directory_volumes::{Claim, Deletion, Owner, Permissions, Root, VolumePath, Worker};
use kube_provisioner::FencingToken;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, count, at_once] = arguments.as_slice() else { panic!("cost DIRECTORY COUNT AT_ONCE") };
    let (count, at_once): (usize, usize) = (count.parse().unwrap(), at_once.parse().unwrap());
    let place = Path::new(directory).join("volumes");
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
    let root = Root::open(&place).unwrap();
    root.put_marker().unwrap();
    let worker = Worker::new(root);
    measure("made", count, at_once, |number| make(worker.clone(), number)).await;
    measure("removed", count, at_once, |number| remove(worker.clone(), number)).await;
    std::fs::remove_dir_all(&place).unwrap();
}

async fn measure<F: Future<Output = ()> + 'static + Send>(
    what: &str,
    count: usize,
    at_once: usize,
    work: impl Fn(usize) -> F,
) {
    let (permits, mut tasks) = (std::sync::Arc::new(Semaphore::new(at_once)), JoinSet::new());
    let (start, used) = (Instant::now(), processor_time());
    for number in 0..count {
        let (permits, work) = (permits.clone(), work(number));
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await.unwrap();
            work.await;
        });
    }
    tasks.join_all().await;
    let (took, used) = (start.elapsed(), processor_time() - used);
    let rate = count as f64 / took.as_secs_f64();
    println!("{what}: {rate:.0}/s, {} µs of processor time each", used.as_micros() / count as u128);
}

async fn make(worker: Worker, number: usize) {
    let (path, owner) = volume(number);
    let (permissions, token) = (Permissions { mode: 0o777, uid: None, gid: None }, FencingToken::unlimited());
    worker.create_if_room(path, owner, false, permissions, (1 << 20, None, None), token).await.unwrap();
}

async fn remove(worker: Worker, number: usize) {
    let (path, owner) = volume(number);
    worker.end(Deletion::of_attempt(path, owner), FencingToken::unlimited()).await.unwrap();
}

fn volume(number: usize) -> (VolumePath, Owner) {
    let name = format!("pvc-{number:032}");
    let claim = Claim { namespace: "shop".to_owned(), name: name.clone(), uid: format!("uid-of-{name}") };
    let (provisioner, cluster) = ("example.com/p".to_owned(), Some("cluster".to_owned()));
    let owner = Owner { volume: name.clone(), uid: None, claim: Some(claim), provisioner, cluster };
    (name.try_into().unwrap(), owner)
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
