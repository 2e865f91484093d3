//! The last lines of log files, for error messages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The last `count` lines of a file, or an explanation in parentheses if there are none.
pub fn last_lines(path: &Path, count: usize) -> String {
    match tail(path) {
        Ok(text) if text.trim().is_empty() => format!("({} is empty)", path.display()),
        Ok(text) => {
            let lines: Vec<_> = text.trim_end().lines().collect();
            lines[lines.len().saturating_sub(count)..].join("\n")
        }
        Err(error) => format!("(cannot read {}: {error})", path.display()),
    }
}

/// Reads only the end of a log, which can be large and contains an error near its end.
fn tail(path: &Path) -> std::io::Result<String> {
    const ENOUGH: u64 = 64 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_a_missing_log_file() {
        assert!(last_lines(Path::new("/nonexistent/log"), 3).starts_with("(cannot read /nonexistent/log"));
    }
}
