//! A notifier that several tasks can wait on.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A repeated event with a counter.
///
/// Waiters are woken in the order in which they began to wait. Tokio's `watch` wakes them in random order, so simulated
/// runs would not be reproducible.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    count: AtomicU64,
    waiting: Notify,
}

impl Notifier {
    /// Increments the count, wakes the waiters, and returns the count.
    pub(crate) fn notify(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Release) + 1;
        self.waiting.notify_waiters();
        count
    }

    /// Returns a follower of all later notifications.
    pub(crate) fn follow(&self) -> Follower<'_> {
        Follower { notifier: self, seen: self.count.load(Ordering::Acquire) }
    }
}

/// Waits for notifications.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    notifier: &'a Notifier,
    seen: u64,
}

impl Follower<'_> {
    /// Waits for a notification since the follower was created, since the last call, or since [`Follower::catch_up`].
    pub(crate) async fn changed(&mut self) {
        let before = self.seen;
        loop {
            // Created before the check, so that no notification is missed.
            let notified = self.notifier.waiting.notified();
            if self.catch_up() != before {
                return;
            }
            notified.await;
        }
    }

    /// Marks all notifications as seen; returns their count.
    pub(crate) fn catch_up(&mut self) -> u64 {
        self.seen = self.notifier.count.load(Ordering::Acquire);
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wakes_waiters_in_order() {
        let (notifier, woken) = (Arc::new(Notifier::default()), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..20)
            .map(|name| {
                let (notifier, woken) = (Arc::clone(&notifier), Arc::clone(&woken));
                tokio::spawn(async move {
                    let mut follower = notifier.follow();
                    for _ in 0..3 {
                        follower.changed().await;
                        woken.lock().expect("no panic").push(name);
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            sleep(Duration::from_secs(1)).await;
            notifier.notify();
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        let expected: Vec<usize> = (0..3).flat_map(|_| 0..20).collect();
        assert_eq!(*woken.lock().expect("no panic"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn observes_several_notifications_once() {
        let notifier = Notifier::default();
        let mut follower = notifier.follow();
        notifier.notify();
        assert_eq!(notifier.notify(), 2);
        follower.changed().await;
        let quiet = async |follower: &mut Follower<'_>| timeout(Duration::from_secs(9), follower.changed()).await;
        assert!(quiet(&mut follower).await.is_err());
        notifier.notify();
        assert_eq!(follower.catch_up(), 3);
        assert!(quiet(&mut follower).await.is_err());
    }
}
