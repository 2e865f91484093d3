//! Progress messages, independent of their display.

use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Receives progress. Implement it to send the text elsewhere.
pub trait Progress: Send + Sync {
    /// Reports an event on a separate line.
    fn line(&self, text: &str);

    /// Reports ongoing work; each text replaces the previous one, and an empty text ends it. Called several times a
    /// second.
    fn status(&self, text: &str);

    /// Prints a line of the command's result, as opposed to a report about its progress.
    fn output(&self, line: &str);
}

/// A shared [`Progress`].
pub type SharedProgress = Arc<dyn Progress>;

/// Discards all progress.
pub fn silent() -> SharedProgress {
    Arc::new(Silent)
}

/// Writes progress to standard error: on a terminal as a line that is rewritten, elsewhere as a line after a silent
/// interval. Results are printed to standard output.
pub fn terminal() -> SharedProgress {
    Arc::new(Terminal {
        rewrites: std::io::stderr().is_terminal(),
        shown: Mutex::new(Shown { open: false, last: Instant::now() }),
    })
}

/// Runs the work, and shows its name and duration while it runs.
pub async fn during<T>(progress: &SharedProgress, what: &str, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            result = &mut work => {
                progress.status("");
                return result;
            }
            () = tokio::time::sleep(TICK) => progress.status(&format!("{what}, {}", seconds(start.elapsed()))),
        }
    }
}

/// A duration in readable form: `0.8 s`, `42 s`, `3 min 05 s`.
pub fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    match whole {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{whole} s"),
        _ => format!("{} min {:02} s", whole / 60, whole % 60),
    }
}

struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
    fn status(&self, _: &str) {}
    fn output(&self, _: &str) {}
}

struct Terminal {
    rewrites: bool,
    shown: Mutex<Shown>,
}

struct Shown {
    /// True if the terminal's current line contains a status.
    open: bool,
    last: Instant,
}

impl Terminal {
    /// Clears the status to write a line.
    fn end_status(&self) -> MutexGuard<'_, Shown> {
        let mut shown = self.shown.lock().unwrap_or_else(|e| e.into_inner());
        if shown.open {
            // A closed standard error must not stop the work.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        shown.open = false;
        shown
    }
}

impl Progress for Terminal {
    fn line(&self, text: &str) {
        let mut shown = self.end_status();
        shown.last = Instant::now();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn status(&self, text: &str) {
        if self.rewrites || text.is_empty() {
            let mut shown = self.end_status();
            shown.open = !text.is_empty();
            let _ = write!(std::io::stderr(), "{text}");
            return;
        }
        let silent = self.end_status().last.elapsed();
        if silent >= STATUS_INTERVAL {
            self.line(text);
        }
    }

    fn output(&self, line: &str) {
        let mut shown = self.end_status();
        shown.last = Instant::now();
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

const TICK: Duration = Duration::from_millis(250);
/// At most ten seconds pass without a report.
const STATUS_INTERVAL: Duration = Duration::from_secs(9);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorded(Mutex<Vec<String>>);

    impl Progress for Recorded {
        fn line(&self, _: &str) {}
        fn status(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn output(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn during_reports_status_until_the_work_ends() {
        let recorded = Arc::new(Recorded::default());
        let shared: SharedProgress = recorded.clone();
        during(&shared, "waiting", tokio::time::sleep(TICK * 2 + TICK / 2)).await;
        let statuses = recorded.0.lock().unwrap().clone();
        assert_eq!(statuses.len(), 3, "{statuses:?}");
        assert!(statuses[..2].iter().all(|status| status.starts_with("waiting, ")), "{statuses:?}");
        assert_eq!(statuses[2], "");
    }

    #[test]
    fn formats_durations() {
        assert_eq!(seconds(Duration::from_millis(840)), "0.8 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
