//! News that several tasks may wait for.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Something that happens again and again, and is counted.
///
/// Who waits is woken in the order in which they began to wait. Tokio's own `watch` wakes them in a random order,
/// with which no simulated run would be the same twice.
#[derive(Debug, Default)]
pub(crate) struct News {
    told: AtomicU64,
    waiting: Notify,
}

impl News {
    /// It happened; returns how often it has, now.
    pub(crate) fn tell(&self) -> u64 {
        let told = self.told.fetch_add(1, Ordering::Release) + 1;
        self.waiting.notify_waiters();
        told
    }

    /// To hear of everything that happens from now on.
    pub(crate) fn follow(&self) -> Follower<'_> {
        Follower { news: self, heard: self.told.load(Ordering::Acquire) }
    }
}

/// One who wants to know.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    news: &'a News,
    heard: u64,
}

impl Follower<'_> {
    /// Returns when something happened since this was made, since the last call, or since [`Follower::catch_up`].
    pub(crate) async fn changed(&mut self) {
        let before = self.heard;
        loop {
            // Before the look, so that nothing is missed in between.
            let told = self.news.waiting.notified();
            if self.catch_up() != before {
                return;
            }
            told.await;
        }
    }

    /// Takes everything as heard, and says how often it has happened.
    pub(crate) fn catch_up(&mut self) -> u64 {
        self.heard = self.news.told.load(Ordering::Acquire);
        self.heard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_woken_in_their_order() {
        let (news, woken) = (Arc::new(News::default()), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..20)
            .map(|name| {
                let (news, woken) = (Arc::clone(&news), Arc::clone(&woken));
                tokio::spawn(async move {
                    let mut follower = news.follow();
                    for _ in 0..3 {
                        follower.changed().await;
                        woken.lock().expect("no panic").push(name);
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            sleep(Duration::from_secs(1)).await;
            news.tell();
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        let expected: Vec<usize> = (0..3).flat_map(|_| 0..20).collect();
        assert_eq!(*woken.lock().expect("no panic"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_meanwhile_is_heard_once() {
        let news = News::default();
        let mut follower = news.follow();
        news.tell();
        assert_eq!(news.tell(), 2);
        follower.changed().await;
        let quiet = async |follower: &mut Follower<'_>| timeout(Duration::from_secs(9), follower.changed()).await;
        assert!(quiet(&mut follower).await.is_err());
        news.tell();
        assert_eq!(follower.catch_up(), 3);
        assert!(quiet(&mut follower).await.is_err());
    }
}
