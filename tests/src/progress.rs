//! Telling a person what is going on, without deciding where the text goes.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Receives progress. Implement it to send the text somewhere else.
pub trait Progress: Send + Sync {
    /// Something happened that is worth a line of its own.
    fn line(&self, text: &str);

    /// Something is still going on; the newest text replaces the one before. Called several times a second.
    fn status(&self, text: &str);
}

/// A shared [`Progress`].
pub type SharedProgress = Arc<dyn Progress>;

/// Progress that nobody wants to see.
pub fn silent() -> SharedProgress {
    Arc::new(Silent)
}

/// Progress on standard error: a line that is rewritten on a terminal, a line every 30 seconds elsewhere.
pub fn terminal() -> SharedProgress {
    Arc::new(Terminal {
        rewrites: std::io::stderr().is_terminal(),
        shown: Mutex::new(Shown { open: false, last: Instant::now() }),
    })
}

/// A duration as people read it: `0.8 s`, `42 s`, `3 min 05 s`.
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
}

struct Terminal {
    rewrites: bool,
    shown: Mutex<Shown>,
}

struct Shown {
    /// A status is on the terminal's current line.
    open: bool,
    last: Instant,
}

impl Progress for Terminal {
    fn line(&self, text: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(|e| e.into_inner());
        let start = if shown.open { "\r\x1b[K" } else { "" };
        shown.open = false;
        shown.last = Instant::now();
        // A closed standard error is no reason to stop the work.
        let _ = writeln!(std::io::stderr(), "{start}{text}");
    }

    fn status(&self, text: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(|e| e.into_inner());
        if self.rewrites {
            shown.open = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            return;
        }
        if shown.last.elapsed() < STATUS_INTERVAL {
            return;
        }
        shown.last = Instant::now();
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

const STATUS_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(840)), "0.8 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
