//! Panics of simulated code: recorded, not printed.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a closure. Returns its result, and the first panic on this thread during the call, whether or not it was
/// caught.
pub(crate) fn catch_panics<T>(doing: impl FnOnce() -> T) -> (Option<T>, Option<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !WATCHED.get() {
                return usual(panic);
            }
            FIRST.with_borrow_mut(|first| {
                if first.is_none() {
                    *first = Some(panic.to_string());
                }
            });
        }));
    });
    WATCHED.set(true);
    let done = catch_unwind(AssertUnwindSafe(doing));
    WATCHED.set(false);
    (done.ok(), FIRST.take())
}
