//! Parts of messages for users.

use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, MAX_TEXT, shortened};

/// Limits the length of a text for users: users' objects can add a megabyte to it, which the API server rejects in a
/// status.
pub(crate) fn limited(text: String) -> String {
    shortened(text, MAX_TEXT)
}

/// Returns the first of `names`, and the number of others.
pub(crate) fn listed(names: &[String], written: impl Fn(&str) -> String) -> String {
    let mut listed: Vec<_> = names.iter().take(MAX_LISTED).map(|name| written(name)).collect();
    if names.len() > MAX_LISTED {
        let others = names.len() - MAX_LISTED;
        listed.push(format!("and {others} {}", if others == 1 { "other" } else { "others" }));
    }
    listed.join(", ")
}

const MAX_LISTED: usize = 10;

/// Capitalizes the first letter of the text.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the text about a failed request to the API server.
pub(crate) fn call_failed_text(doing: &str, error: &CallError) -> String {
    format!("{}: {error}; ask the administrator", sentence(doing))
}

/// Returns the text about a call to the provisioner without an answer.
pub(crate) fn no_answer_text(aborted: &CallAborted, method: &str) -> String {
    match aborted {
        CallAborted::Panicked(_) => {
            format!(
                "The provisioner's code crashed in `{method}` and will be called again; please report this to its authors, with the provisioner's log"
            )
        }
        CallAborted::Fenced => format!("`{method}` was cancelled, because another replica continues it"),
        CallAborted::TimedOut(limit) => {
            format!("The provisioner's `{method}` did not answer within {} s and will be called again", limit.as_secs())
        }
    }
}

/// Returns the text about the last failure of a claim that is not retried until something changes.
pub(crate) fn gave_up_text(text: &str, attempts: u32) -> String {
    format!("{text} (gave up after {attempts} attempts; change the claim or its class to try again)")
}

/// Returns the text about the last failure of a deletion that is not retried until something changes.
pub(crate) fn gave_up_deletion_text(text: &str, attempts: u32) -> String {
    format!("{text} (gave up after {attempts} attempts)")
}
