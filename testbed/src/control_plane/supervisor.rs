//! Restarts components that have ended, for example because a test killed them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::start::Children;
use super::state::State;
use crate::guard::Lifetime;
use crate::progress::SharedProgress;
use crate::supervisor::{Supervisor, locked};

const POLL: Duration = Duration::from_millis(50);
/// The delay before a restart, so that a broken component does not keep the machine busy.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn supervise(state: State, children: Children, progress: SharedProgress) -> Supervisor<State> {
    Supervisor::new(state, children, move |state, children, stop| watch(state, children, stop, &progress))
}

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
            match component.start(Lifetime::WithOwner, &guard) {
                Ok((started, _)) => *child = started,
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
