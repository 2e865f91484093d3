//! A thread that watches running child processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::control_plane::Children;

/// Watches the children until it is dropped. `S` is their state.
pub(crate) struct Supervisor<S> {
    state: Arc<Mutex<S>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Children>>,
}

impl<S: Clone + Send + 'static> Supervisor<S> {
    /// Runs `watch` in a thread. It must return the children once the flag is set.
    pub(crate) fn new(
        state: S,
        children: Children,
        watch: impl FnOnce(&Mutex<S>, Children, &AtomicBool) -> Children + Send + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(state));
        let stopping = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&state);
        let stop = Arc::clone(&stopping);
        let thread = std::thread::spawn(move || watch(&watched, children, &stop));
        Self { state, stopping, thread: Some(thread) }
    }

    pub(crate) fn state(&self) -> S {
        locked(&self.state).clone()
    }
}

impl<S> Supervisor<S> {
    /// Stops watching and returns the children, which still run.
    pub(crate) fn end(&mut self) -> Children {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl<S> Drop for Supervisor<S> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

pub(crate) fn locked<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
