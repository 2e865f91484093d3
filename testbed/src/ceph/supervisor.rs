//! Starts radosgw again after its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::state::{RADOSGW, State};
use crate::control_plane::{Children, spawn};
use crate::guard::Lifetime;
use crate::progress::SharedProgress;

/// A thread that watches radosgw while the cluster is up. The others have nothing to come back to: what they knew was in
/// memory.
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

fn watch(state: &Mutex<State>, mut children: Children, stop: &AtomicBool, progress: &SharedProgress) -> Children {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        let mut state = locked(state);
        let Some(number) = state.components.iter().position(|component| component.name == RADOSGW) else { continue };
        if !matches!(children.0[number].try_wait(), Ok(Some(_))) || state.is_stopped() {
            continue;
        }
        let guard = state.guard();
        let started = spawn(&state.components[number], Lifetime::WithOwner, &guard).and_then(|(child, id)| {
            children.0[number] = child;
            state.components[number].id = Some(id);
            state.write()
        });
        if let Err(error) = started {
            progress.line(&format!("{error:#}"));
        }
    }
    children
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
