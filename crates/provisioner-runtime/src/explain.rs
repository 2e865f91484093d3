//! Errors as one line of text.

use std::error::Error;
use std::fmt::Write as _;

/// The error and its causes in one line, without repeating a cause that is already quoted.
pub(crate) fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    // The HTTP client's own words name only the step that failed.
    if let (true, Some(error)) = (text.starts_with("client error ("), cause) {
        text = error.to_string();
        cause = error.source();
    }
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {part}");
        }
        cause = error.source();
    }
    // So a connection says that is not made in time.
    text.replace("deadline has elapsed", "it did not answer in time")
}
