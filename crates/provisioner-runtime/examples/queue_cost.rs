//! What a key costs in the queue: `cargo run --release -p provisioner-runtime --example queue_cost`.

use std::time::{Duration, Instant};

use futures::FutureExt;
use provisioner_runtime::{Next, Priority, Queue, QueueOptions};

#[expect(clippy::print_stdout, reason = "the measurement's result")]
fn main() {
    for keys in [1_000_u32, 100_000, 1_000_000] {
        let queue = Queue::new(QueueOptions::default());
        let start = Instant::now();
        let run_all = |next: Next| {
            for _ in 0..keys {
                if let Some(Some(work)) = queue.next().now_or_never() {
                    work.finish(next.clone());
                }
            }
        };
        (0..keys).for_each(|key| queue.wake(key, 0, Priority::Resync));
        run_all(Next::RetryAfter(Duration::ZERO));
        run_all(Next::AwaitChange);
        (0..keys).for_each(|key| queue.wake(key, 1, Priority::Change));
        run_all(Next::Done);
        let cost = start.elapsed() / keys;
        println!("{keys} keys: {cost:?} for two wakes and three runs of each");
    }
}
