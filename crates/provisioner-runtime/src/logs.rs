//! Log lines on stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// The default filter, used unless `RUST_LOG` is set.
///
/// It excludes the client's own lines. The client logs each failed request as an error, although the caller decides
/// what the failure means, and it logs unreadable responses with their entire content.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off,hyper=warn,hyper_util=warn,rustls=warn";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One human-readable line, coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per message.
    Json,
}

/// Sends log lines to stderr. `RUST_LOG` sets the filter; by default, everything from `info` up is logged, without the
/// API client's own lines.
///
/// A line that cannot be written, such as to a full disk or a closed pipe, is lost, and the process continues.
///
/// Does nothing if a subscriber is already set. An invalid filter is reported, and the default is used.
pub fn init(format: LogFormat) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let (filter, mistake) = parse(&wanted);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Otherwise the subscriber would report a failed write on the same stderr, and panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    // An error means that a subscriber is already set; keep it.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Some(mistake) = mistake {
        tracing::warn!("{} is ignored: {mistake}", EnvFilter::DEFAULT_ENV);
    }
}

/// Returns the filter for the value of `RUST_LOG`, and what is wrong with the value, if anything.
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
    fn default_filter_is_valid() {
        assert!(EnvFilter::try_new(DEFAULT_FILTER).is_ok());
        assert!(parse(" ").1.is_none());
    }

    #[test]
    fn reports_an_invalid_filter() {
        assert!(parse("info=info=info").1.is_some());
        let (filter, mistake) = parse("debug");
        assert_eq!((filter.to_string().as_str(), mistake), ("debug", None));
    }
}
