//! Output and questions of commands.
//!
//! For [additional commands](crate::Program::commands). A reader that closes the pipe does not cause an error.

use std::io::{self, Write as _};

use super::BoxError;
use crate::options::LogStyle;

/// Prints the output of a command. Exits with code 1 if stdout cannot be written, for example because a disk is full.
pub fn print(text: &str) {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that closes the pipe has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            LogStyle::Text.fatal("error", &format!("cannot write to stdout: {error}"));
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Asks a question. Any answer other than `y` or `yes` means no.
///
/// # Errors
/// If stdin cannot be read.
pub fn is_confirmed(question: &str) -> Result<bool, BoxError> {
    print(&format!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    print("\n");
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Formats rows as columns of equal width. The first row contains the titles.
///
/// ```
/// use kube_provisioner::console::table;
///
/// let rows = [["NAME", "SIZE"], ["photos", "1Gi"]].map(|row| row.map(str::to_owned));
/// assert_eq!(table(&rows), "NAME     SIZE\nphotos   1Gi\n");
/// ```
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}
