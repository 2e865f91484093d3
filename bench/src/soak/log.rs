//! The events of a run with their times, in a file.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Clone)]
pub(super) struct Log {
    file: Arc<Mutex<File>>,
    start: Instant,
}

impl Log {
    pub(super) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: Arc::new(Mutex::new(File::create(path)?)), start: Instant::now() })
    }

    /// Writes a line with the time since the start, and the time of day as in the replicas' logs.
    pub(super) fn write_line(&self, text: impl Display) {
        let since_midnight = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() % 86_400_000;
        let (hours, rest) = (since_midnight / 3_600_000, since_midnight % 3_600_000);
        let (minutes, millis) = (rest / 60_000, rest % 60_000);
        let (seconds, fraction) = (millis / 1000, millis % 1000);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = self.start.elapsed().as_secs_f64();
        // A full disk also causes other failures.
        let _ = writeln!(file, "{elapsed:9.3} {hours:02}:{minutes:02}:{seconds:02}.{fraction:03}Z {text}");
    }
}
