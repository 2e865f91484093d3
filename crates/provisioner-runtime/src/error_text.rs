//! Errors as one line of text, and limits on the length of texts.

use std::error::Error;

/// Maximum length in bytes of a text about a failure. Longer texts are not useful to readers, and each attempt logs the
/// text again.
pub const MAX_TEXT: usize = 4096;

/// Formats the error and its causes in one line, without repeating a cause that is already quoted. For a response of
/// the API server, it returns the server's message. At most [`MAX_TEXT`] bytes.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = text_of(error);
    let mut cause = cause_of(error);
    // The HTTP client's own message only names the step that failed.
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
    // This is the message of a connection that is not established in time.
    shortened(text.replace("deadline has elapsed", "it did not answer in time"), MAX_TEXT)
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
        // The error's own text ends with all fields of the response.
        Some(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
        Some(kube::Error::Api(status)) => format!("the API server answers {} {}", status.code, status.reason),
        Some(kube::Error::Service(error)) => error_chain(&**error),
        _ => error.to_string(),
    }
}

/// Returns the cause, unless the text of the error already includes it.
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
    fn quotes_the_message_of_the_server() {
        let status = Status::failure("nodes \"a\" not found", "NotFound").with_code(404);
        let error = Outer(kube::Error::Api(status.boxed()));
        assert_eq!(error_chain(&error), "the node a cannot be read: nodes \"a\" not found");
        let refused = kube::Error::Service("connection refused".into());
        assert_eq!(error_chain(&refused), "connection refused");
    }

    #[test]
    fn limits_the_length_of_texts() {
        assert_eq!(error_chain(&std::io::Error::other("x".repeat(1 << 20))).len(), MAX_TEXT);
        assert_eq!(shortened("a".repeat(1024), 1024).len(), 1024);
        let text = shortened("ü".repeat(600), 1024);
        assert!(text.ends_with("ü…") && (1020..=1024).contains(&text.len()), "{}", text.len());
    }
}
