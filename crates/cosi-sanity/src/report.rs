//! The report of a run, as text and as JUnit's XML.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::Version;

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The checks that have run, in order.
    pub checks: Vec<CheckRun>,
    /// Buckets and accounts that may remain in the backend, with the reason.
    pub left: Vec<String>,
    /// True if the run was interrupted.
    pub is_interrupted: bool,
}

/// A check that has run.
#[derive(Clone, Debug)]
pub struct CheckRun {
    /// The version.
    pub version: Version,
    /// Name of the check, such as `create/repeated`.
    pub name: &'static str,
    /// The sentence of the specification.
    pub rule: &'static str,
    /// Outcome of the check.
    pub outcome: Outcome,
    /// Duration of the check, including cleanup.
    pub took: Duration,
}

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver complies with the specification.
    Passed,
    /// The driver does not comply, for this reason.
    Failed(String),
    /// The check did not run, for this reason.
    Skipped(String),
}

impl Report {
    /// Returns whether the run is complete, without failures and without leftovers.
    pub fn is_success(&self) -> bool {
        let fails = self.checks.iter().any(|ran| matches!(ran.outcome, Outcome::Failed(_)));
        !fails && self.left.is_empty() && !self.is_interrupted
    }

    /// Returns JUnit XML with a suite for each version, and one for each problem of the run itself.
    pub fn junit(&self) -> String {
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cosi-sanity\">\n".to_owned();
        for version in Version::ALL {
            let checks: Vec<_> = self.checks.iter().filter(|ran| ran.version == version).collect();
            if checks.is_empty() {
                continue;
            }
            let counts = Counts::of(checks.iter().copied());
            let _ = writeln!(
                xml,
                r#"  <testsuite name="{version}" tests="{}" failures="{}" skipped="{}">"#,
                checks.len(),
                counts.failed,
                counts.skipped
            );
            checks.iter().for_each(|ran| ran.junit(&mut xml));
            xml.push_str("  </testsuite>\n");
        }
        for problem in self.problems() {
            let problem = escape(&problem);
            let _ = writeln!(
                xml,
                r#"  <testsuite name="run" tests="1" failures="1"><testcase name="run"><failure message="{problem}"/></testcase></testsuite>"#
            );
        }
        xml.push_str("</testsuites>\n");
        xml
    }

    /// Returns the problems of the run itself.
    fn problems(&self) -> impl Iterator<Item = String> {
        let left = self.left.iter().map(|left| format!("may remain: {left}"));
        left.chain(self.is_interrupted.then(|| "interrupted".to_owned()))
    }
}

impl Display for Report {
    /// Prints the summary; the checks were reported while they ran.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { passed, failed, skipped } = Counts::of(&self.checks);
        for problem in self.problems() {
            writeln!(f, "{problem}")?;
        }
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl CheckRun {
    fn junit(&self, xml: &mut String) {
        let (version, name, seconds) = (self.version, self.name, self.took.as_secs_f64());
        let _ = write!(xml, r#"    <testcase classname="{version}" name="{name}" time="{seconds:.3}">"#);
        let rule = escape(self.rule);
        let _ = match &self.outcome {
            Outcome::Passed => Ok(()),
            Outcome::Failed(reason) => write!(xml, r#"<failure message="{}">{rule}</failure>"#, escape(reason)),
            Outcome::Skipped(reason) => write!(xml, r#"<skipped message="{}"/>"#, escape(reason)),
        };
        xml.push_str("</testcase>\n");
    }
}

impl Display for CheckRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, name) = (self.version, self.name);
        match &self.outcome {
            Outcome::Passed => write!(f, "ok    {version}/{name}"),
            Outcome::Skipped(reason) => write!(f, "skip  {version}/{name}: {reason}"),
            Outcome::Failed(reason) => {
                write!(f, "FAIL  {version}/{name}: {reason}\n      The specification: {}", self.rule)
            }
        }
    }
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn of<'a>(checks: impl IntoIterator<Item = &'a CheckRun>) -> Self {
        let mut counts = Self::default();
        for ran in checks {
            *match ran.outcome {
                Outcome::Passed => &mut counts.passed,
                Outcome::Failed(_) => &mut counts.failed,
                Outcome::Skipped(_) => &mut counts.skipped,
            } += 1;
        }
        counts
    }
}

/// Escapes a driver's text for XML, which does not allow control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_fails_if_the_run_leaves_a_bucket_or_is_interrupted() {
        let report = Report { left: vec!["bucket <a>".to_owned()], is_interrupted: true, ..Report::default() };
        let xml = report.junit();
        assert!(xml.contains("<failure message=\"may remain: bucket &lt;a&gt;\"/>"), "{xml}");
        assert!(xml.contains("<failure message=\"interrupted\"/>"), "{xml}");
    }

    #[test]
    fn junit_escapes_the_messages_of_the_driver() {
        let outcome = Outcome::Failed("Internal (<a \"b\">\u{1b}& c)".to_owned());
        let (version, rule, took) = (Version::V1alpha2, "it's & so", Duration::from_millis(1500));
        let failed = CheckRun { version, name: "create/id", rule, outcome, took };
        let passed = CheckRun { name: "info/name", outcome: Outcome::Passed, ..failed.clone() };
        let report = Report { checks: vec![passed, failed], ..Report::default() };
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="cosi-sanity">
  <testsuite name="v1alpha2" tests="2" failures="1" skipped="0">
    <testcase classname="v1alpha2" name="info/name" time="1.500"></testcase>
    <testcase classname="v1alpha2" name="create/id" time="1.500"><failure message="Internal (&lt;a &quot;b&quot;&gt; &amp; c)">it's &amp; so</failure></testcase>
  </testsuite>
</testsuites>
"#;
        assert_eq!(report.junit(), expected);
    }
}
