//! Durations in human notation, for flags and class parameters.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{Error, SpanRelativeTo};

/// Parses a duration such as `500ms`, `30s`, `1h30m` or `7d`.
///
/// Accepts the grammar of [`jiff::fmt::friendly`], with days of 24 hours. Months and years have no fixed length, so
/// they are rejected.
///
/// # Errors
/// If the string has another form, or the duration is negative.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parsed(text).map_err(|_| expected(text))
}

fn parsed(text: &str) -> Result<Duration, Error> {
    let span = SpanParser::new().parse_span(text)?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())?.try_into()
}

pub(crate) fn expected(text: &str) -> String {
    format!("expected a time with its unit, such as 500ms, 30s, 1h30m or 7d, not {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        const HOUR: u64 = 3600;
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("1m30s", 90),
            ("1h30m", HOUR * 3 / 2),
            ("1.5h", HOUR * 3 / 2),
            ("36h", 36 * HOUR),
            ("1d12h", 36 * HOUR),
            ("7d", 7 * 24 * HOUR),
            ("1w", 7 * 24 * HOUR),
            ("4294967295s", u32::MAX.into()),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in
            ["", "5", "0", "-1s", "1h ago", "1x", "s", "1M", "1mo", "1y", "99999999999999999999s", "99999999999d"]
        {
            assert_eq!(parse_duration(bad), Err(expected(bad)));
        }
    }
}
