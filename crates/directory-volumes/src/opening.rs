//! Opening of a root that may become usable after its provisioner has started, such as a disk or a share that is
//! unavailable.

use std::time::Duration;

use kube_provisioner::StartError;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::worker::Worker;

/// The time between attempts to open an unusable root.
const PAUSE: Duration = Duration::from_secs(10);

/// The opening of one root. A root that hangs or is unavailable does not block work on other roots.
#[derive(Clone)]
pub struct Opening(watch::Sender<State>);

#[derive(Clone)]
enum State {
    /// The root has not been used yet: another replica may work on it.
    New,
    /// A thread opens it.
    Opening,
    Unusable(String),
    Usable(Worker),
}

/// The reason why a root cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotUsable {
    /// It is not open yet: it may hang.
    Opening,
    /// It cannot be opened.
    Unusable(String),
}

impl Default for Opening {
    /// Creates the state of an unused root.
    fn default() -> Self {
        Self(watch::Sender::new(State::New))
    }
}

impl From<Worker> for Opening {
    /// Creates the state of an open root.
    fn from(worker: Worker) -> Self {
        Self(watch::Sender::new(State::Usable(worker)))
    }
}

impl Opening {
    /// Returns true if the root has not been used yet.
    pub fn is_new(&self) -> bool {
        matches!(*self.0.borrow(), State::New)
    }

    /// Marks the root as used; returns `false` if it already was. The first caller has to [open](Self::open) it.
    pub fn begin(&self) -> bool {
        self.0.send_if_modified(|state| {
            let is_new = matches!(state, State::New);
            if is_new {
                *state = State::Opening;
            }
            is_new
        })
    }

    /// Tries again until the root is open, with one thread at a time, so that a hanging call blocks only that thread.
    pub async fn open<F>(&self, open: impl Fn() -> F) -> Worker
    where
        F: Future<Output = Result<Worker, StartError>>,
    {
        loop {
            match open().await {
                Ok(worker) => {
                    self.0.send_replace(State::Usable(worker.clone()));
                    return worker;
                }
                Err(error) => self.0.send_replace(State::Unusable(error.to_string())),
            };
            sleep(PAUSE).await;
        }
    }

    /// Waits until an attempt to open the root has finished.
    pub async fn wait_for_attempt(&self) {
        // This object holds the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|state| !matches!(state, State::New | State::Opening)).await;
    }

    /// Returns the root, if it can be used.
    ///
    /// # Errors
    /// Returns the reason if the root cannot be used.
    pub fn worker(&self) -> Result<Worker, NotUsable> {
        match &*self.0.borrow() {
            State::Usable(worker) => Ok(worker.clone()),
            State::Unusable(why) => Err(NotUsable::Unusable(why.clone())),
            State::New | State::Opening => Err(NotUsable::Opening),
        }
    }
}
