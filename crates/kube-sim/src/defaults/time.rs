//! Timestamps: `metav1.Time` to the second, `metav1.MicroTime` to the microsecond, both in UTC, and Go's parse errors.

use jiff::Timestamp;

/// The precision of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Microseconds,
}

/// Returns the text in the server's notation if that differs, or Go's error.
pub(crate) fn rewrite(text: &str, precision: Precision) -> Result<Option<String>, String> {
    let layout = match precision {
        Precision::Seconds => "2006-01-02T15:04:05Z07:00",
        Precision::Microseconds => "2006-01-02T15:04:05.000000Z07:00",
    };
    let mismatch =
        |rest: &str, part: &str| format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}");
    let beyond = |what: &str| format!("parsing time {text:?}: {what} out of range");

    let mut rest = text;
    let mut numbers = [0_u32; 6];
    for (index, (part, separator)) in PARTS.iter().enumerate() {
        numbers[index] = take_digits(&mut rest, part.len()).ok_or_else(|| mismatch(rest, part))?;
        if let Some(name) = beyond_range(index, numbers[index]) {
            return Err(beyond(name));
        }
        if !separator.is_empty() {
            rest = rest.strip_prefix(separator).ok_or_else(|| mismatch(rest, separator))?;
        }
    }
    let after_seconds = rest;
    rest = match precision {
        Precision::Microseconds => {
            let digits = rest.strip_prefix('.').filter(|rest| digits_at(rest) >= 6);
            &digits.ok_or_else(|| mismatch(rest, ".000000"))?[6..]
        }
        // Go accepts a fraction of a second although the layout has none.
        Precision::Seconds => match rest.strip_prefix(['.', ',']) {
            Some(fraction) if digits_at(fraction) > 0 => &fraction[digits_at(fraction)..],
            _ => rest,
        },
    };
    let fraction = &after_seconds[..after_seconds.len() - rest.len()];
    if rest.starts_with('Z') {
        rest = &rest[1..];
    } else if !is_offset(rest) {
        return Err(mismatch(rest, "Z07:00"));
    } else {
        rest = &rest[6..];
    }
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }
    let written_as_is = text.ends_with('Z') && (precision == Precision::Microseconds || fraction.is_empty());
    // A fast path for days that every month has.
    if written_as_is && (1..=28).contains(&numbers[2]) {
        return Ok(None);
    }
    let timestamp: Timestamp = text.replace(',', ".").parse().map_err(|_| beyond("day"))?;
    Ok((!written_as_is).then(|| write(timestamp, precision)))
}

/// Returns a timestamp as text.
pub(crate) fn write(timestamp: Timestamp, precision: Precision) -> String {
    match precision {
        Precision::Seconds => timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Precision::Microseconds => timestamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    }
}

/// The parts of Go's layout, and the separator after each.
const PARTS: [(&str, &str); 6] = [("2006", "-"), ("01", "-"), ("02", "T"), ("15", ":"), ("04", ":"), ("05", "")];

fn beyond_range(part: usize, number: u32) -> Option<&'static str> {
    match part {
        1 if !(1..=12).contains(&number) => Some("month"),
        2 if !(1..=31).contains(&number) => Some("day"),
        3 if number >= 24 => Some("hour"),
        4 if number >= 60 => Some("minute"),
        5 if number >= 60 => Some("second"),
        _ => None,
    }
}

fn take_digits(rest: &mut &str, count: usize) -> Option<u32> {
    let digits = rest.get(..count).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    *rest = &rest[count..];
    digits.parse().ok()
}

fn digits_at(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// `+01:00`
fn is_offset(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 6
        && matches!(bytes[0], b'+' | b'-')
        && bytes[3] == b':'
        && [1, 2, 4, 5].iter().all(|index| bytes[*index].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        use Precision::{Microseconds, Seconds};
        for (text, precision, written) in [
            ("2020-01-01T00:00:00Z", Seconds, None),
            ("2020-01-01T00:00:00+01:00", Seconds, Some("2019-12-31T23:00:00Z")),
            ("2020-01-01T00:00:00.5Z", Seconds, Some("2020-01-01T00:00:00Z")),
            ("2020-01-01T00:00:00.000001Z", Microseconds, None),
            ("2020-01-01T00:00:00.123456-00:30", Microseconds, Some("2020-01-01T00:30:00.123456Z")),
        ] {
            assert_eq!(rewrite(text, precision).unwrap().as_deref(), written, "{text}");
        }
    }

    #[test]
    fn rejects_invalid_times_with_go_errors() {
        use Precision::{Microseconds, Seconds};
        // Recorded from kube-apiserver 1.37.1.
        for (text, precision, complaint) in [
            ("x", Seconds, r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
            ("", Microseconds, r#"parsing time "" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "" as "2006""#),
            (
                "2020-01-01T00:00:00Z",
                Microseconds,
                r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                "2020-01-01T00:00:00.1234Z",
                Microseconds,
                r#"parsing time "2020-01-01T00:00:00.1234Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".1234Z" as ".000000""#,
            ),
            ("2020-13-01T00:00:00Z", Microseconds, r#"parsing time "2020-13-01T00:00:00Z": month out of range"#),
        ] {
            assert_eq!(rewrite(text, precision).unwrap_err(), complaint, "{text}");
        }
        assert!(rewrite("2021-02-30T00:00:00Z", Seconds).unwrap_err().ends_with("day out of range"));
    }
}
