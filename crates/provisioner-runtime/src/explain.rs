//! Errors as one line of text, and the length of texts.

use std::error::Error;

/// The length in bytes that no text about a failure exceeds. A person reads no more, and each attempt logs it again.
pub const LONGEST_TEXT: usize = 4096;

/// The error and its causes in one line, without repeating a cause that is already quoted. An answer of the API server is the
/// server's message. At most [`LONGEST_TEXT`] bytes.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = text_of(error);
    let mut cause = cause_of(error);
    // The HTTP client's own words name only the step that failed.
    if let (true, Some(error)) = (text.starts_with("client error ("), cause) {
        text = text_of(error);
        cause = cause_of(error);
    }
    while let Some(error) = cause {
        let part = text_of(error);
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = cause_of(error);
    }
    // So a connection says that is not made in time.
    shortened(text.replace("deadline has elapsed", "it did not answer in time"), LONGEST_TEXT)
}

/// Cuts `text` to at most `longest` bytes, between characters, with an ellipsis.
#[must_use]
pub fn shortened(mut text: String, longest: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest.saturating_sub(ELLIPSIS.len())));
        text.push_str(ELLIPSIS);
    }
    text
}

fn text_of(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        // Its own text ends with all fields of the answer.
        Some(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
        Some(kube::Error::Api(status)) => format!("the API server answers {} {}", status.code, status.reason),
        Some(kube::Error::Service(error)) => error_chain(&**error),
        _ => error.to_string(),
    }
}

/// The answer and the cause of these are in their text already.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref() {
        Some(kube::Error::Api(_) | kube::Error::Service(_)) => None,
        _ => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the node a cannot be read")]
    struct Outer(#[source] kube::Error);

    #[test]
    fn answers_are_the_servers_message() {
        let status = Status::failure("nodes \"a\" not found", "NotFound").with_code(404);
        let error = Outer(kube::Error::Api(status.boxed()));
        assert_eq!(error_chain(&error), "the node a cannot be read: nodes \"a\" not found");
        let refused = kube::Error::Service("connection refused".into());
        assert_eq!(error_chain(&refused), "connection refused");
    }

    #[test]
    fn a_text_has_a_limit() {
        assert_eq!(error_chain(&std::io::Error::other("x".repeat(1 << 20))).len(), LONGEST_TEXT);
        assert_eq!(shortened("a".repeat(1024), 1024).len(), 1024);
        let text = shortened("ü".repeat(600), 1024);
        assert!(text.ends_with("ü…") && (1020..=1024).contains(&text.len()), "{}", text.len());
    }
}
