//! Panics of what is simulated: noticed, not printed.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of all threads are kept for [`take`].
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let text = info.to_string();
            LAST.with(|last| *last.borrow_mut() = Some(text));
        }));
    });
}

/// The last panic of this thread since the last time.
pub(crate) fn take() -> Option<String> {
    LAST.with(|last| last.borrow_mut().take())
}
