//! One run of a test program, and what it says about it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Add;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testbed::guard::Running;
use testbed::progress::{self, SharedProgress, seconds};

/// What one test program did.
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// What went wrong beyond failed tests, such as a crash.
    pub(crate) problem: Option<String>,
    duration: Duration,
}

/// Tests by result. An ignored test counts as failed: nothing is left out without being seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) ignored: u32,
}

impl Suite {
    /// A suite that could not run counts as one failure.
    pub(crate) fn broken(name: &str, problem: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            counts: Counts { failed: 1, ..Counts::default() },
            problem: Some(problem.into()),
            duration: Duration::ZERO,
        }
    }

    pub(crate) fn line(&self, width: usize) -> String {
        let Counts { passed, failed, ignored } = self.counts;
        let mut line = format!("  {:<width$}  {passed:>4} passed, {failed} failed", self.name);
        if ignored > 0 {
            line.push_str(&format!(" ({ignored} of them ignored, which counts as failed)"));
        }
        line.push_str(&format!("  {}", seconds(self.duration)));
        if let Some(problem) = &self.problem {
            line.push_str(&format!("  {problem}"));
        }
        line
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }
}

/// Runs a test program, shows its output as it comes, and counts.
pub(crate) async fn run(
    name: &str,
    mut command: Command,
    environment: &BTreeMap<&str, PathBuf>,
    progress: &SharedProgress,
) -> Suite {
    let start = Instant::now();
    command.envs(environment).stdout(Stdio::piped());
    let mut program = match Running::start(command) {
        Ok(program) => program,
        Err(error) => return Suite::broken(name, format!("did not start: {error}")),
    };
    let reader = program.take_stdout().map(|output| {
        let progress = progress.clone();
        std::thread::spawn(move || show_and_count(output, &progress))
    });
    let status = match progress::during(progress, &format!("{name} runs"), program.ended()).await {
        Ok(status) => status,
        Err(error) => return Suite::broken(name, format!("was lost: {error}")),
    };
    let mut counts = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let mut problem = None;
    if !status.success() && counts.failed == counts.ignored {
        // It ended without naming a failed test: it crashed, or did not compile.
        counts.failed += 1;
        problem = Some(status.to_string());
    }
    Suite { name: name.to_owned(), counts, problem, duration: start.elapsed() }
}

fn show_and_count(output: impl std::io::Read, progress: &SharedProgress) -> Counts {
    let mut counts = Counts::default();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        progress.output(&line);
        if let Some(result) = parse_result(&line) {
            counts = counts + result;
        }
    }
    counts
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`. Doc tests may print several of them.
fn parse_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in numbers.split(';') {
        let mut words = part.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<u32>().ok()) else {
            continue;
        };
        match words.next() {
            Some("passed") => counts.passed = number,
            Some("failed") => counts.failed += number,
            Some("ignored") => {
                counts.ignored = number;
                counts.failed += number;
            }
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_and_ignored_tests_count_as_failed() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.10s";
        let expected = Counts { passed: 3, failed: 3, ignored: 1 };
        assert_eq!(parse_result(line), Some(expected));
        assert_eq!(parse_result("test a ... ok"), None);
    }

    #[tokio::test]
    async fn a_crash_is_a_failure() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; kill -SEGV $$"]);
        let suite = run("crashing", command, &BTreeMap::new(), &progress::silent()).await;
        assert_eq!((suite.counts.passed, suite.counts.failed), (2, 1));
        assert!(suite.problem.unwrap().contains("signal"));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_a_failure() {
        let suite = run("missing", Command::new("/nonexistent"), &BTreeMap::new(), &progress::silent()).await;
        assert_eq!(suite.counts.failed, 1);
    }
}
