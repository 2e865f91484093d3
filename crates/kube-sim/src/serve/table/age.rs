//! Human-readable ages.

use jiff::Timestamp;
use serde_json::Value;

/// `translateTimestampSince`: how long ago a `metav1.Time` is.
pub(super) fn since(time: Option<&Value>, now: Timestamp) -> String {
    match time.and_then(Value::as_str).map(str::parse::<Timestamp>) {
        None => "<unknown>".to_owned(),
        Some(Err(_)) => "<invalid>".to_owned(),
        Some(Ok(time)) => human(now.duration_since(time).as_secs_f64()),
    }
}

/// `HumanDuration` of apimachinery's `util/duration`: two or three significant figures.
fn human(seconds: f64) -> String {
    // Clocks may differ slightly.
    #[expect(clippy::cast_possible_truncation, reason = "Go cuts the fraction off too")]
    let seconds = seconds as i64;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_ages() {
        const DAY: f64 = 86_400.0;
        let cases = [
            (-5.0, "<invalid>"),
            (-1.5, "0s"),
            (0.9, "0s"),
            (119.0, "119s"),
            (120.0, "2m"),
            (150.0, "2m30s"),
            (3600.0, "60m"),
            (3.0 * 3600.0, "3h"),
            (3.0 * 3600.0 + 60.0, "3h1m"),
            (9.5 * 3600.0, "9h"),
            (2.0 * DAY, "2d"),
            (2.0 * DAY + 3600.0, "2d1h"),
            (100.0 * DAY, "100d"),
            (731.0 * DAY, "2y1d"),
            (3000.0 * DAY, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds} s");
        }
    }
}
