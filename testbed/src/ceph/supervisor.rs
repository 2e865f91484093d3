//! Restarts radosgw when it exits. The other daemons keep their state in memory, so they cannot be restarted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::state::{RADOSGW, State};
use crate::control_plane::Children;
use crate::guard::Lifetime;
use crate::progress::SharedProgress;
use crate::supervisor::{Supervisor, locked};

const POLL: Duration = Duration::from_millis(50);

pub(super) fn supervise(state: State, children: Children, progress: SharedProgress) -> Supervisor<State> {
    Supervisor::new(state, children, move |state, children, stop| watch(state, children, stop, &progress))
}

fn watch(state: &Mutex<State>, mut children: Children, stop: &AtomicBool, progress: &SharedProgress) -> Children {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        let mut state = locked(state);
        let Some(number) = state.components.iter().position(|component| component.name == RADOSGW) else { continue };
        if !matches!(children.0[number].try_wait(), Ok(Some(_))) || state.is_stopped() {
            continue;
        }
        let guard = state.guard();
        let started = state.components[number].start(Lifetime::WithOwner, &guard).and_then(|(child, _)| {
            children.0[number] = child;
            state.write()
        });
        if let Err(error) = started {
            progress.line(&format!("{error:#}"));
        }
    }
    children
}
