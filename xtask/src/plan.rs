//! Which tests run, and which are left out because this machine lacks what they need.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use testbed::dependency::{ALL, Dependency, INSTALL, Obstacle, Test};
use testbed::guard::Guard;

use crate::build::{self, Built, TestProgram};

pub(crate) struct Plan {
    /// By suite, the paths of the tests that are left out.
    left_out: BTreeMap<String, Vec<String>>,
    lacking: Vec<Lacking>,
    /// What the tests that run need, by name.
    needed: Vec<&'static str>,
}

/// Something that is missing, though tests need it.
struct Lacking {
    dependency: &'static Dependency,
    obstacle: Obstacle,
    tests: usize,
}

impl Plan {
    /// Asks the programs for their tests, and takes programs away that have none to run.
    pub(crate) fn of(built: &mut Built, filter: &[String], guard: &Guard) -> anyhow::Result<Self> {
        let suites: Vec<_> = built
            .programs
            .iter()
            .map(|program| Ok((program.suite.clone(), tests(program, filter, guard)?)))
            .collect::<anyhow::Result<_>>()?;
        let obstacles = ALL.iter().map(|dependency| (*dependency, dependency.obstacle())).collect();
        let plan = Self::decide(&suites, obstacles);
        let is_idle = |(suite, paths): &&(String, Vec<String>)| {
            !paths.is_empty() && plan.left_out.get(suite).is_some_and(|left_out| left_out.len() == paths.len())
        };
        let idle: Vec<_> = suites.iter().filter(is_idle).map(|(suite, _)| suite).collect();
        built.programs.retain(|program| !idle.contains(&&program.suite));
        Ok(plan)
    }

    fn decide(suites: &[(String, Vec<String>)], obstacles: Vec<(&'static Dependency, Option<Obstacle>)>) -> Self {
        let mut plan = Self { left_out: BTreeMap::new(), lacking: Vec::new(), needed: Vec::new() };
        let mut counts = vec![0; obstacles.len()];
        for (suite, path) in suites.iter().flat_map(|(suite, paths)| paths.iter().map(move |path| (suite, path))) {
            let test = Test { suite, path };
            let needs = |at: &usize| obstacles[*at].0.is_needed_by(test);
            let needed: Vec<usize> = (0..obstacles.len()).filter(needs).collect();
            let missing: Vec<usize> = needed.iter().copied().filter(|at| obstacles[*at].1.is_some()).collect();
            if missing.is_empty() {
                plan.needed.extend(needed.iter().map(|at| obstacles[*at].0.name));
            } else {
                missing.iter().for_each(|at| counts[*at] += 1);
                plan.left_out.entry(suite.clone()).or_default().push(path.clone());
            }
        }
        let missing = obstacles.into_iter().zip(counts).filter(|(_, tests)| *tests > 0);
        plan.lacking = missing
            .filter_map(|((dependency, obstacle), tests)| Some(Lacking { dependency, obstacle: obstacle?, tests }))
            .collect();
        plan
    }

    /// Whether a test that runs needs this.
    pub(crate) fn needs(&self, dependency: &Dependency) -> bool {
        self.needed.contains(&dependency.name)
    }

    /// The arguments by which a suite leaves tests out.
    pub(crate) fn skips(&self, suite: &str) -> impl Iterator<Item = &str> {
        self.left_out.get(suite).into_iter().flatten().flat_map(|path| ["--skip", path])
    }

    /// What was left out, and the command that runs it.
    pub(crate) fn summary(&self) -> Vec<String> {
        if self.lacking.is_empty() {
            return Vec::new();
        }
        let count: usize = self.left_out.values().map(Vec::len).sum();
        let mut lines = vec![format!("\n{count} tests left out, which need something that is missing here:")];
        let width = self.lacking.iter().map(|lacking| lacking.dependency.name.len()).max().unwrap_or_default();
        for Lacking { dependency, obstacle, tests } in &self.lacking {
            lines.push(format!("  {tests:>3} need {:<width$}  {obstacle}", dependency.name));
        }
        if self.lacking.iter().any(|lacking| matches!(lacking.obstacle, Obstacle::Missing(_))) {
            lines.push(format!("This installs what is missing and runs them, as root: {INSTALL}"));
        }
        lines
    }
}

/// The paths of a program's tests that the filter chooses. Only tests on a control plane need more than this machine.
fn tests(program: &TestProgram, filter: &[String], guard: &Guard) -> anyhow::Result<Vec<String>> {
    if !program.suite.starts_with("e2e ") {
        return Ok(Vec::new());
    }
    let mut command = build::command(guard, &program.executable);
    command.args(filter).args(["--list", "--format", "terse"]).current_dir(&program.directory);
    let output = command.output().with_context(|| format!("cannot run {}", program.suite))?;
    ensure!(output.status.success(), "{} lists no tests: {}", program.suite, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use testbed::ceph::CEPH;
    use testbed::s3::S3_SERVER;
    use testbed::s3::clients::CLIENTS;

    use super::*;

    fn suites() -> Vec<(String, Vec<String>)> {
        let suite =
            |name: &str, paths: &[&str]| (name.to_owned(), paths.iter().map(|path| (*path).to_owned()).collect());
        vec![
            suite("e2e bucket_clients", &["aws_clients_use_a_bucket", "ceph_clients_use_a_bucket", "urls"]),
            suite("e2e buckets", &["claims::ceph_quotas_hold", "cases::other"]),
        ]
    }

    fn plan(missing: &[&'static Dependency]) -> Plan {
        let obstacle = |dependency: &'static Dependency| {
            let is_missing = missing.iter().any(|missing| missing.name == dependency.name);
            (dependency, is_missing.then(|| Obstacle::Missing("a package".to_owned())))
        };
        Plan::decide(&suites(), ALL.map(obstacle).into())
    }

    #[test]
    fn with_everything_there_nothing_is_left_out() {
        let plan = plan(&[]);
        assert!(plan.left_out.is_empty() && plan.summary().is_empty());
        assert!(plan.needs(&CEPH) && plan.needs(&S3_SERVER) && plan.needs(&CLIENTS));
    }

    #[test]
    fn tests_that_need_what_is_missing_are_left_out_and_counted() {
        let plan = plan(&[&CEPH]);
        assert_eq!(plan.left_out["e2e bucket_clients"], ["ceph_clients_use_a_bucket"]);
        assert_eq!(plan.skips("e2e buckets").collect::<Vec<_>>(), ["--skip", "claims::ceph_quotas_hold"]);
        assert!(!plan.needs(&CEPH) && plan.needs(&CLIENTS));
        let lines = plan.summary().join("\n");
        assert!(lines.contains("2 tests left out") && lines.contains("2 need a Ceph cluster  a package"), "{lines}");
        assert!(lines.ends_with(INSTALL), "{lines}");
    }

    #[test]
    fn a_test_that_lacks_two_things_is_left_out_once() {
        let plan = plan(&[&CEPH, &CLIENTS]);
        let lines = plan.summary().join("\n");
        assert!(lines.contains("3 tests left out"), "{lines}");
        assert!(lines.contains("2 need a Ceph cluster") && lines.contains("2 need clients of S3"), "{lines}");
    }
}
