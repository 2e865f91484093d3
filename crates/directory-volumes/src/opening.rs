//! A root that may become usable after its provisioner has started, such as a disk or a share that is away.

use std::time::Duration;

use kube_provisioner::StartError;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::worker::Worker;

/// How often an unusable root is opened again.
const PAUSE: Duration = Duration::from_secs(10);

/// The opening of one root. A root that hangs or is away keeps nobody from working on another one.
#[derive(Clone)]
pub struct Opening(watch::Sender<State>);

#[derive(Clone)]
enum State {
    /// Nobody has used the root yet: another replica may work on it.
    New,
    /// A thread opens it.
    Opening,
    Unusable(String),
    Usable(Worker),
}

/// Why a root cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotUsable {
    /// It is not open yet: it may hang.
    Opening,
    /// It cannot be opened.
    Unusable(String),
}

impl Default for Opening {
    /// Of a root that nobody has used.
    fn default() -> Self {
        Self(watch::Sender::new(State::New))
    }
}

impl From<Worker> for Opening {
    /// Of a root that is open.
    fn from(worker: Worker) -> Self {
        Self(watch::Sender::new(State::Usable(worker)))
    }
}

impl Opening {
    /// Whether nobody has used the root yet.
    pub fn is_new(&self) -> bool {
        matches!(*self.0.borrow(), State::New)
    }

    /// Marks the root as used; `false` if it was before. The first one has to [open](Self::open) it.
    pub fn begin(&self) -> bool {
        self.0.send_if_modified(|state| {
            let is_new = matches!(state, State::New);
            if is_new {
                *state = State::Opening;
            }
            is_new
        })
    }

    /// Tries until the root is open, with one thread at a time: a call that hangs costs that one.
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

    /// Waits until somebody has tried to open the root.
    pub async fn tried(&self) {
        // The sender is here, so the channel is open.
        let _ = self.0.subscribe().wait_for(|state| !matches!(state, State::New | State::Opening)).await;
    }

    /// The root, if it can be used.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn worker(&self) -> Result<Worker, NotUsable> {
        match &*self.0.borrow() {
            State::Usable(worker) => Ok(worker.clone()),
            State::Unusable(why) => Err(NotUsable::Unusable(why.clone())),
            State::New | State::Opening => Err(NotUsable::Opening),
        }
    }
}
