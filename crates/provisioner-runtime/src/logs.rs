//! Log lines on stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise.
///
/// The client's own lines are left out. It logs each failed request as an error, although the caller decides
/// what the failure means, and it logs unreadable answers with all their content.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off,hyper=warn,hyper_util=warn,rustls=warn";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line for people, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object for each message.
    Json,
}

/// Sends log lines to stderr. `RUST_LOG` chooses what is logged; by default it is everything from `info`
/// up, without the API client's own lines.
///
/// A line that cannot be written, to a full disk or a closed pipe, is lost, and the program goes on.
///
/// Does nothing when a subscriber is set already. An invalid filter is reported, and the default is used.
pub fn init(format: LogFormat) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let (filter, mistake) = parse(&wanted);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would report that to the same stderr, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    // An error means that a subscriber is set already, and it stays.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Some(mistake) = mistake {
        tracing::warn!("{} is ignored: {mistake}", EnvFilter::DEFAULT_ENV);
    }
}

/// The filter for the text of `RUST_LOG`, and what is wrong with the text.
fn parse(wanted: &str) -> (EnvFilter, Option<String>) {
    let default = || EnvFilter::new(DEFAULT_FILTER);
    if wanted.trim().is_empty() {
        return (default(), None);
    }
    match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (default(), Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_valid_filter() {
        assert!(EnvFilter::try_new(DEFAULT_FILTER).is_ok());
        assert!(parse(" ").1.is_none());
    }

    #[test]
    fn a_filter_that_cannot_be_understood_is_reported() {
        assert!(parse("info=info=info").1.is_some());
        let (filter, mistake) = parse("debug");
        assert_eq!((filter.to_string().as_str(), mistake), ("debug", None));
    }
}
