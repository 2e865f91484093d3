//! Starts components again that a test has killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::start::{self, Children};
use super::state::State;
use crate::guard::Lifetime;
use crate::progress::SharedProgress;

/// A thread that watches the components while the control plane is up.
pub(super) struct Supervisor {
    state: Arc<Mutex<State>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Children>>,
}

impl Supervisor {
    pub(super) fn new(state: State, children: Children, progress: SharedProgress) -> Self {
        let state = Arc::new(Mutex::new(state));
        let stopping = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&state);
        let stop = Arc::clone(&stopping);
        let thread = std::thread::spawn(move || watch(&watched, children, &stop, &progress));
        Self { state, stopping, thread: Some(thread) }
    }

    pub(super) fn state(&self) -> State {
        locked(&self.state).clone()
    }

    /// Stops watching and hands over the children, which still run.
    pub(super) fn end(&mut self) -> Children {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.end());
    }
}

const POLL: Duration = Duration::from_millis(50);
/// Between the end of a component and its new start, so that a broken one does not keep the machine busy.
const PAUSE: Duration = Duration::from_millis(200);

fn watch(state: &Mutex<State>, mut children: Children, stop: &AtomicBool, progress: &SharedProgress) -> Children {
    while !stop.load(Ordering::Relaxed) {
        for (number, child) in children.0.iter_mut().enumerate() {
            let Ok(Some(status)) = child.try_wait() else {
                continue;
            };
            let mut state = locked(state);
            let guard = state.guard();
            let component = &mut state.components[number];
            progress.line(&format!("{} ended ({status}); starting it again", component.name));
            std::thread::sleep(PAUSE);
            match start::spawn(component, Lifetime::WithOwner, &guard) {
                Ok((started, id)) => {
                    *child = started;
                    component.id = Some(id);
                }
                Err(error) => progress.line(&format!("{error:#}")),
            }
            if let Err(error) = state.write() {
                progress.line(&format!("{error:#}"));
            }
        }
        std::thread::sleep(POLL);
    }
    children
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
